"""Errors: the table, the envelope, and what may be quoted."""

from __future__ import annotations

import re

import pytest

from tests.cases import every
from toolwire.errors import CODES, MAX_VALUE_CHARS, ClientFault, GatewayError, Unavailable, quote

FAILS_AGAIN = {"invalid_api_key", "upstream_auth", "backend_loop"}
"""With codes of the type `model_error`: what no client should retry."""


@every("code", sorted(CODES))
def test_every_code_gives_its_status_type_headers_and_four_keys(code: str) -> None:
    error = GatewayError("what", code=code, param="p")
    assert (error.status, error.type) == CODES[code][:2]
    fails_again = code in FAILS_AGAIN or error.type == "model_error"
    assert error.headers == ({"x-should-retry": "false"} if fails_again else {})
    assert not (fails_again and re.search("retry", CODES[code].remedy, re.IGNORECASE)), "one advice, not two"
    assert error.envelope() == {"error": {"message": "what", "type": error.type, "param": "p", "code": code}}


def test_every_400_is_an_invalid_request() -> None:
    assert {row.type for row in CODES.values() if row.status == 400} == {"invalid_request_error"}


def test_an_own_code_needs_status_and_type() -> None:
    with pytest.raises(ValueError, match="give status and type"):
        GatewayError("x", code="mine")
    assert GatewayError("x", code="mine", status=418, type="tea").status == 418


def test_hints_and_headers() -> None:
    assert ClientFault("No.", hint="Do this.").message == "No. Do this."
    assert Unavailable("x", retry_after_s=3).headers == {"Retry-After": "3"}


@every("value", ["x" * 10_000, ["y" * 500] * 50, {"a": "b" * 1000}, {1, 2}, "\ud800", object()])
def test_quoted_values_are_short_and_never_fail(value: object) -> None:
    assert len(quote(value)) <= MAX_VALUE_CHARS


def test_quote_shows_json() -> None:
    assert quote({"a": [1, "x"]}) == '{"a":[1,"x"]}'
