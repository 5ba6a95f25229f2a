"""The HTTP client towards model servers against aiohttp's `ClientSession` (docs/adr/0007), on the interface that both
have.

The model server is another process, so what is counted is the client's part, its system calls and the event loop
included.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any, Final

import pytest
import uvloop
from yarl import URL

from bench import corpus
from bench.measuring import Measure
from bench.test_gateway import contestant
from proxy.backends.connections import Client
from proxy.backends.session_client import SessionClient
from proxy.backends.wire_client import WireClient
from proxy.config import BackendConfig

CLIENTS: Final[dict[str, Any]] = {"ClientSession": SessionClient, "fast client": WireClient}
REQUESTS: Final = 200
CONNECTIONS: Final = 8
FRAMES: Final = 50
LIMIT: Final = 1 << 26


@pytest.fixture(scope="module")
def upstream() -> Iterator[URL]:
    """The URL of the model server."""
    with contestant("upstream") as server:
        yield URL(f"http://127.0.0.1:{server.port}/v1/chat/completions")


async def whole(client: Client) -> None:
    """Whole answers, a few at a time."""
    body = corpus.request_body(0, stream=False, work="frames=0 pace_us=0 call=0")

    async def one_after_the_other() -> None:
        for _ in range(REQUESTS // CONNECTIONS):
            answer = await client.post(body, stream=False, request_id="r")
            assert len(await answer.read(LIMIT)) > 500
            await answer.close()

    await asyncio.gather(*(one_after_the_other() for _ in range(CONNECTIONS)))


async def paced(client: Client) -> None:
    """Streams in which every frame comes alone, unless the machine is busy."""
    body = corpus.request_body(0, stream=True, work=f"frames={FRAMES} pace_us=5000 call=0")

    async def one() -> None:
        answer = await client.post(body, stream=True, request_id="r")
        got: list[bytes] = []
        await answer.pump(got.append)
        assert b"".join(got).count(b"\n\n") >= FRAMES
        await answer.close()

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
            made: Client = CLIENTS[name](upstream, {"Accept-Encoding": "identity"}, BackendConfig())
            return made

        client = runner.run(start())
        row = f"{kind}, on {loop}"
        measure(
            lambda: runner.run(work(client)), table="Client", row=row, column=name, units=units, unit="request or frame"
        )
        runner.run(client.close())
