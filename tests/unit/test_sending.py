"""The way of a stream to the client: back-pressure, clients of another age, and what is kept meanwhile."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from tests.e2e.conftest import CHAT, USER, function
from tests.waiting import GUARD_S, until
from toolwire.app import create_app
from toolwire.config import BackendConfig, LimitsConfig
from toolwire.configuration.settings import load
from toolwire.events import Event
from toolwire.ingress.liveness import LIVENESS
from toolwire.model import ModelRequest
from toolwire.pipeline.answers.reply import Reply
from toolwire.pipeline.chain.middleware import Ask, Middleware
from toolwire.pipeline.exchange.request_state import EXCHANGE, Exchange
from toolwire.protocols.base import ServerSide
from toolwire.protocols.chat.protocol import ChatProtocol
from toolwire.record import BackendObserver
from toolwire.registry import registries
from toolwire.testing import chunk, frame
from toolwire.upstream.servers.base import WireSource
from toolwire.upstream.servers.mock import MockBackend

DONE = b"data: [DONE]\n\n"
TEXT = frame(chunk({"content": "word " * 400}))
LAST = frame(chunk({}, "stop"))
TOOLS = {"tools": [function("f")]}
BODY = {"model": "m", "messages": USER, "stream": True}


class Wire(WireSource):
    """A source whose wire bytes are `reads`; `paused` says that its reading was stopped."""

    def __init__(self, reads: list[bytes]) -> None:
        self.protocol: ServerSide = ChatProtocol()
        self.reads = reads
        self.given = 0
        self.paused = asyncio.Event()
        self._flows = asyncio.Event()
        self._flows.set()
        self._sink: Callable[[bytes], None]

    async def pump(self, sink: Callable[[bytes], None]) -> None:
        self._sink = sink
        for data in self.reads:
            await self._flows.wait()
            self.given += 1
            self._sink(data)
            await asyncio.sleep(0)

    def redirect(self, sink: Callable[[bytes], None]) -> None:
        self._sink = sink

    def pause(self) -> None:
        self._flows.clear()
        self.paused.set()

    def resume(self) -> None:
        self._flows.set()

    def batches(self) -> AsyncIterator[list[Any]]:
        raise AssertionError("read as bytes")

    async def body(self) -> bytes:
        raise AssertionError("streamed")

    async def reply(self) -> Any:
        raise AssertionError("streamed")

    async def close(self) -> None:
        pass


class WireBackend(MockBackend):
    """Answers with `source`."""

    source: Wire
    bodies: list[bytes | None]

    async def open(
        self,
        request: ModelRequest,
        *,
        request_id: str,
        body: bytes | None = None,
        observer: BackendObserver | None = None,
    ) -> Any:
        self.bodies.append(body)
        return self.source


@pytest.fixture
def bodies() -> list[bytes | None]:
    """What the backend is given to send."""
    return []


@pytest.fixture
async def serve(bodies: list[bytes | None]) -> AsyncIterator[Callable[..., Any]]:
    """A gateway in front of a source, with one more middleware if one is given."""
    async with AsyncExitStack() as stack:

        async def start(source: Wire, middleware: Any = None, **server: Any) -> TestClient[Any, Any]:
            backend = WireBackend("wire", BackendConfig(kind="wire"), LimitsConfig())
            backend.protocol = source.protocol
            backend.source, backend.bodies = source, bodies
            plugins = registries()
            plugins.backends.register("wire", lambda name, config, limits: backend)
            chain = ["transformation", "injection", "forwarding"]
            if middleware is not None:
                plugins.middlewares.register("extra", middleware)
                chain.insert(0, "extra")
            overrides = {"backends": {"wire": {"kind": "wire"}}, "chain": chain, "server": server}
            app = create_app(load(None, env={}, overrides=overrides), plugins=plugins)
            return await stack.enter_async_context(TestClient(TestServer(app)))

        yield start


async def test_a_slow_client_holds_the_backend_back(serve: Callable[..., Any]) -> None:
    source = Wire([TEXT * 32] * 800 + [LAST + DONE])  # 50 MB: more than all buffers between the two
    client = await serve(source)
    async with asyncio.timeout(GUARD_S), client.post(CHAT, json=BODY) as response:
        await source.paused.wait()
        assert source.given < len(source.reads)
        size, tail = 0, b""
        async for data in response.content.iter_any():
            size += data.count(b"word ")
            tail = (tail + data)[-200:]
            await asyncio.sleep(0)
    assert source.given == len(source.reads)
    assert size >= 800 * 32 * 400 * 0.99  # words cut by reads are not counted
    assert tail.endswith(DONE)


async def test_a_client_of_http_1_0_gets_no_chunks(serve: Callable[..., Any]) -> None:
    client = await serve(Wire([TEXT, LAST, DONE]))
    reader, writer = await asyncio.open_connection(client.host, client.port)
    body = b'{"model":"m","stream":true,"messages":[{"role":"user","content":"hi"}]}'
    head = f"POST {CHAT} HTTP/1.0\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    writer.write(head.encode() + body)
    head_got, _, got = (await reader.read()).partition(b"\r\n\r\n")
    writer.close()
    await writer.wait_closed()
    assert b"Transfer-Encoding" not in head_got
    assert got == TEXT + LAST + DONE


@pytest.mark.parametrize("extra", [{}, TOOLS], ids=["raw", "scanned"])
async def test_the_clients_bytes_are_let_go_when_the_answer_has_begun(
    serve: Callable[..., Any], extra: dict[str, Any]
) -> None:
    """A sign of life is no beginning: until the server has said something another one may be asked with them."""
    begin, end = asyncio.Event(), asyncio.Event()
    seen: list[web.Request] = []

    class Slow(Wire):
        async def pump(self, sink: Callable[[bytes], None]) -> None:
            await begin.wait()
            sink(TEXT)
            await end.wait()
            sink(LAST + DONE)

    @web.middleware
    async def look(request: web.Request, handler: Any) -> Any:
        seen.append(request)
        return await handler(request)

    client = await serve(Slow([]), look, keepalive_s=0.001)
    async with client.post(CHAT, json={**BODY, **extra}) as response:
        assert (await response.content.readline()).startswith(b":")
        (request,) = seen
        origin = request[EXCHANGE].received.origin
        assert origin is not None
        body = await request.read()
        assert origin.body == body != b""
        begin.set()
        while not (await response.content.readline()).startswith(b"data:"):
            pass
        assert (origin.body, origin.size) == (b"", len(body))
        end.set()
        assert (await response.read()).endswith(DONE)


async def test_each_read_of_a_stream_is_a_sign_of_life(serve: Callable[..., Any]) -> None:
    """Also those that are written at once, so that no keep-alive comes between them."""
    more, end = asyncio.Event(), asyncio.Event()

    class Slow(Wire):
        async def pump(self, sink: Callable[[bytes], None]) -> None:
            self._sink = sink
            for event in (more, end):
                self._sink(TEXT)
                await event.wait()
            self._sink(LAST + DONE)

    client = await serve(Slow([]))
    monitors = client.server.app[LIVENESS]
    async with asyncio.timeout(GUARD_S), client.post(CHAT, json=BODY) as response:
        for event in (more, end):
            assert (await response.content.readuntil(b"\n\n")).startswith(b"data:")
            (monitor,) = monitors.running
            assert monitors.streams == {monitor}
            assert monitor.last > 0.0
            monitor.last = 0.0
            event.set()
        assert (await response.read()).endswith(DONE)
    await until(lambda: not monitors.running)
    assert not monitors.streams, "an exchange that is over was kept, and other requests would wait for it"


async def test_who_asks_again_afterwards_has_the_request_written_anew(
    serve: Callable[..., Any], bodies: list[bytes | None]
) -> None:
    class Again(Middleware):
        passing = "stands_aside"

        def review(self, exchange: Exchange, reply: Reply, ask: Ask) -> None:
            async def again(last: Event) -> Event:
                await ask(exchange.request)  # and nobody reads the answer
                return last

            reply.finish(again)

    client = await serve(Wire([TEXT, LAST + DONE]), Again)
    async with client.post(CHAT, json=BODY) as response:
        assert (await response.read()).endswith(DONE)
    first, second = bodies
    assert first is not None
    assert second is None


@pytest.mark.parametrize("extra", [{}, TOOLS], ids=["raw", "scanned"])
async def test_a_stream_that_the_backend_leaves_open_ends_for_the_client(
    serve: Callable[..., Any], extra: dict[str, Any]
) -> None:
    class Open(Wire):
        async def pump(self, sink: Callable[[bytes], None]) -> None:
            sink(TEXT + LAST + DONE)
            await asyncio.Event().wait()

    client = await serve(Open([]))
    async with asyncio.timeout(GUARD_S), client.post(CHAT, json={**BODY, **extra}) as response:
        assert (await response.read()).endswith(DONE)


async def test_who_stands_around_the_gateway_reads_the_body_when_all_is_sent() -> None:
    read: list[bytes] = []

    @web.middleware
    async def around(request: web.Request, handler: Any) -> Any:
        response = await handler(request)
        read.append(await request.read())
        return response

    app = create_app(load(None, env={}, overrides={"backends": {"m": {"kind": "mock"}}}))
    app.middlewares.insert(0, around)
    async with TestClient(TestServer(app)) as client, client.post(CHAT, json=BODY) as response:
        assert (await response.read()).endswith(DONE)
    assert [json.loads(each) for each in read] == [BODY]
