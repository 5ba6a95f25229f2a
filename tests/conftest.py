"""Settings for all tests, and what tests of several folders need."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import FrozenInstanceError, is_dataclass
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from proxy import model
from tests.store.redis_server import PROGRAM, RedisServer

# How long an example takes says more about the machine than about the code. In CI hypothesis loads a profile of its own, which
# says the same and draws the same examples every time.
settings.register_profile(
    "toolwire",
    settings.get_profile(settings.get_current_profile_name()),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("toolwire")


def _write_once(value: object, name: str, field: object) -> None:
    if hasattr(value, name):
        raise FrozenInstanceError(f"cannot assign to field {name!r} of {type(value).__name__}")
    object.__setattr__(value, name, field)


# The model's classes are frozen for the type checker only (docs/adr/0018). In tests they are really: fields are written once.
for _class in vars(model).values():
    if isinstance(_class, type) and is_dataclass(_class):
        setattr(_class, "__setattr__", _write_once)  # noqa: B010


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """One for all tests; each uses a prefix of its own."""
    if PROGRAM is None:
        pytest.skip("redis-server is not installed (Debian: apt-get install redis-server)")
    server = RedisServer(tmp_path_factory.mktemp("redis"))
    server.start()
    yield server
    server.stop()


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[RedisServer]:
    """A server for one test, not started."""
    if PROGRAM is None:
        pytest.skip("redis-server is not installed (Debian: apt-get install redis-server)")
    server = RedisServer(tmp_path)
    yield server
    server.stop()
