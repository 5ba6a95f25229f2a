"""The HTTP client towards model servers against aiohttp's `ClientSession` (docs/adr/0007).

The model server is another process, so what is counted is the client's part, its system calls and the event loop
included.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Final, Protocol

import aiohttp
import pytest
import uvloop
from yarl import URL

from bench import corpus
from bench.measuring import Measure
from bench.test_gateway import contestant
from proxy.backends.wire_client import WireClient
from proxy.config import BackendConfig

REQUESTS: Final = 200
CONNECTIONS: Final = 8
FRAMES: Final = 50
LIMIT: Final = 1 << 26


@pytest.fixture(scope="module")
def upstream() -> Iterator[URL]:
    """The URL of the model server."""
    with contestant("upstream") as server:
        yield URL(f"http://127.0.0.1:{server.port}/v1/chat/completions")


class Client(Protocol):
    """What is measured."""

    async def ask(self, body: bytes, *, stream: bool) -> bytes:
        """The body of an answer, which is put together of what each read gives."""

    async def close(self) -> None:
        """Close all connections."""


class Session:
    """aiohttp's."""

    def __init__(self, url: URL) -> None:
        self._url = url
        self._session = aiohttp.ClientSession(
            headers={"Accept-Encoding": "identity", "Content-Type": "application/json"}
        )

    async def ask(self, body: bytes, *, stream: bool) -> bytes:
        async with self._session.post(self._url, data=body) as response:
            if not stream:
                return await response.read()
            return b"".join([data async for data in response.content.iter_any()])

    async def close(self) -> None:
        await self._session.close()


class Own:
    """The gateway's."""

    def __init__(self, url: URL) -> None:
        self._client = WireClient(url, {"Accept-Encoding": "identity"}, BackendConfig())

    async def ask(self, body: bytes, *, stream: bool) -> bytes:
        answer = await self._client.post(body, stream=stream, request_id="r")
        try:
            if not stream:
                return await answer.read(LIMIT)
            got: list[bytes] = []
            await answer.pump(got.append)
            return b"".join(got)
        finally:
            await answer.close()

    async def close(self) -> None:
        await self._client.close()


CLIENTS: Final = {"ClientSession": Session, "fast client": Own}


async def whole(client: Client) -> None:
    """Whole answers, a few at a time."""
    body = corpus.request_body(0, stream=False, work="frames=0 pace_us=0 call=0")

    async def one_after_the_other() -> None:
        for _ in range(REQUESTS // CONNECTIONS):
            assert len(await client.ask(body, stream=False)) > 500

    await asyncio.gather(*(one_after_the_other() for _ in range(CONNECTIONS)))


async def paced(client: Client) -> None:
    """Streams in which every frame comes alone, unless the machine is busy."""
    body = corpus.request_body(0, stream=True, work=f"frames={FRAMES} pace_us=5000 call=0")

    async def one() -> None:
        assert (await client.ask(body, stream=True)).count(b"\n\n") >= FRAMES

    await asyncio.gather(*(one() for _ in range(CONNECTIONS)))


WORKS: Final = {
    "whole answers": (whole, REQUESTS),
    "paced stream, per frame": (paced, FRAMES * CONNECTIONS),
}


LOOPS: Final = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


@pytest.mark.parametrize("name", CLIENTS)
@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("kind", WORKS)
def test_client(measure: Measure, upstream: URL, kind: str, loop: str, name: str) -> None:
    work, units = WORKS[kind]
    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:

        async def start() -> Client:
            return CLIENTS[name](upstream)

        client = runner.run(start())
        row = f"{kind}, on {loop}"
        measure(
            lambda: runner.run(work(client)), table="Client", row=row, column=name, units=units, unit="request or frame"
        )
        runner.run(client.close())
