"""The gateways of `tests/e2e`, for tests here."""

from tests.e2e.conftest import gateway as gateway
