"""A scripted server, a backend towards it, and what it gives."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from proxy.backends.http import HttpBackend, HttpSource
from proxy.backends.wire_client import WireClient
from proxy.config import BackendConfig, LimitsConfig
from proxy.errors import GatewayError
from proxy.events import Event, Fault
from proxy.model import Message, ModelRequest, Text
from proxy.registry import usual_server
from proxy.stream_grammar import check
from proxy.testing import Upstream

SSE = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"

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


def http_chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


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


class Reading:
    """The bytes of a source as they are pumped, in a task of its own. An asynchronous context manager."""

    def __init__(self, source: HttpSource) -> None:
        self.seen = b""
        self._source = source
        self._news = asyncio.Event()

    async def __aenter__(self) -> Reading:
        self.task = asyncio.create_task(self._source.pump(self._take))
        return self

    async def __aexit__(self, *error: object) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)
        await self._source.close()

    def _take(self, data: bytes) -> None:
        self.seen += data
        self._news.set()

    async def until(self, text: bytes) -> None:
        """Wait until it has come."""
        while text not in self.seen:
            await self._news.wait()
            self._news.clear()


async def fault_of(backend: HttpBackend) -> GatewayError:
    last = (await events_of(backend))[-1]
    assert isinstance(last, Fault)
    return last.error
