"""A scripted server and a backend towards it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from proxy.backends.http import HttpBackend
from proxy.config import BackendConfig, LimitsConfig
from proxy.model import Message, ModelRequest, Text
from proxy.testing import Upstream

Connect = Callable[..., Awaitable[HttpBackend]]


def ask(text: str = "hi", *, stream: bool = True, **more: Any) -> ModelRequest:
    return ModelRequest("m", (Message("user", (Text(text),)),), stream=stream, include_usage=stream, **more)


@pytest.fixture
async def server() -> AsyncIterator[Upstream]:
    async with Upstream() as running:
        yield running


@pytest.fixture(params=["wire", "session"])
def client(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Which HTTP client a backend uses: everything that is promised holds for both."""
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    return str(request.param)


@pytest.fixture
async def connect(server: Upstream, client: str) -> AsyncIterator[Connect]:
    """Start a backend towards `server`; keywords are those of `BackendConfig`, `limits` aside."""
    started: list[HttpBackend] = []

    async def start(limits: LimitsConfig | None = None, **config: Any) -> HttpBackend:
        config.setdefault("url", server.url)
        config.setdefault("trust_env", client == "session")
        backend = HttpBackend("up", BackendConfig(**config), limits or LimitsConfig())
        started.append(backend)
        await backend.start()
        return backend

    yield start
    for backend in started:
        await backend.close()
