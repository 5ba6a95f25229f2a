"""A scripted server, a backend towards it, and what it gives."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from toolwire.config import BackendConfig, LimitsConfig
from toolwire.errors import GatewayError
from toolwire.events import Event, Fault
from toolwire.model import Message, ModelRequest, Text
from toolwire.registry import usual_server
from toolwire.stream_grammar import check
from toolwire.testing import Upstream
from toolwire.upstream.client.wire_client import WireClient
from toolwire.upstream.servers.http import HttpBackend
from toolwire.upstream.servers.http_source import HttpSource

Connect = Callable[..., Awaitable[HttpBackend]]


def ask(text: str = "hi", *, stream: bool = True, **more: Any) -> ModelRequest:
    return ModelRequest("m", (Message("user", (Text(text),)),), stream=stream, include_usage=stream, **more)


@pytest.fixture
async def server() -> AsyncIterator[Upstream]:
    async with Upstream() as running:
        yield running


@pytest.fixture
async def connect(server: Upstream) -> AsyncIterator[Connect]:
    """Start a backend towards `server`, which uses connections again at once; keywords are those of `BackendConfig`,
    `limits` aside."""
    started: list[HttpBackend] = []

    async def start(limits: LimitsConfig | None = None, **config: Any) -> HttpBackend:
        config.setdefault("url", server.url)
        backend = HttpBackend("up", BackendConfig(**config), limits or LimitsConfig(), usual_server(config.get("kind")))
        started.append(backend)
        await backend.start()
        assert isinstance(backend.client, WireClient)
        backend.client.settle_s = 0.0
        return backend

    yield start
    for backend in started:
        await backend.close()


async def events_of(backend: HttpBackend, **request: Any) -> list[Event]:
    source = await backend.open(ask(**request), request_id="r")
    try:
        events = [event async for batch in source.batches() for event in batch]
    finally:
        await source.close()
    check(events)
    return events


async def bytes_of(source: HttpSource) -> bytes:
    """All that is pumped."""
    got: list[bytes] = []
    await source.pump(got.append)
    return b"".join(got)


async def fault_of(backend: HttpBackend) -> GatewayError:
    last = (await events_of(backend))[-1]
    assert isinstance(last, Fault)
    return last.error
