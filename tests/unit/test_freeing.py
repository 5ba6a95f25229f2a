"""Objects of an answer are freed with it: nothing is left for the cyclic collector, whose work delays others."""

import asyncio
import gc
import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from bench import corpus
from bench.budget import WORKS
from bench.contestants import chunk
from bench.inprocess import Work, measure
from bench.load import Ask
from tests.e2e.known import PATHS
from toolwire.configuration.settings import load
from toolwire.server.process import gateway
from toolwire.server.simulated import SimulatedGateway

ROOT = Path(__file__).parent.parent.parent
REQUESTS = 3
KINDS = {re.sub(r"message \d+|request \d+", "message", work.title): work for work in WORKS}
"""One of each: of conversations the longest."""


def left_by(work: Work) -> set[str]:
    """The classes of the gateway of which the collector finds something after requests of this kind."""
    left: set[str] = set()

    def run(serve: Callable[[], None], before: Callable[[], None]) -> None:
        serve()
        gc.collect()
        gc.set_debug(gc.DEBUG_SAVEALL)
        serve()
        gc.collect()
        gc.set_debug(0)
        left.update(f"{type(one).__module__}.{type(one).__qualname__}" for one in gc.garbage)
        gc.garbage.clear()

    measure(work, REQUESTS, run, asyncio.new_event_loop)
    return {name for name in left if name.startswith("toolwire.")}


BEGUN = [
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n",
    *(chunk(corpus.frame(text)) for text in ("Well, ", "let me ", "see. ", '<tool_call>{"name": "get_weather", "arg')),
]
"""The beginning of an answer, by read."""
TURNS = 100
"""Enough turns of the loop for everything that is on its way."""
UNFINISHED = {
    f"{api}, {end}": (api, end == "the client leaves") for api in PATHS for end in ("the client leaves", "reset")
}


CONNECTIONS = {
    "toolwire.server.clients.ClientConnection",
    "toolwire.server.simulated._ClientTransport",
    "toolwire.server.simulated._ServerTransport",
    "toolwire.upstream.client.wire_connection.HttpConnection",
}
"""Simulated connections and their transports keep each other when they are not reused."""


async def left_by_unfinished(api: str, leaves: bool) -> set[str]:
    """The same after a stream that the client leaves, or in which the server sends no HTTP any more."""
    overrides = {"backends": {"default": {"url": "http://127.0.0.1:9", "identify_s": 0}}, "store": {"kind": "none"}}
    reads = BEGUN if leaves else [*BEGUN, b"no chunk\r\n"]
    played = SimulatedGateway(gateway, load(None, env={}, overrides=overrides), lambda request: reads)
    body = Ask(PATHS[api], corpus.agent_body(10, 3, api=api, store=False)).raw
    async with played:
        for last in (False, True):
            gc.collect()
            gc.set_debug(gc.DEBUG_SAVEALL if last else 0)
            asking = asyncio.ensure_future(played.client()(body))
            for _ in range(TURNS):
                await asyncio.sleep(0)
            assert asking.done() is not leaves
            played._protocols.pop().connection_lost(None)
            asking.cancel()
            for _ in range(TURNS):
                await asyncio.sleep(0)
        del asking
        gc.collect()
        gc.set_debug(0)
    left = {f"{type(one).__module__}.{type(one).__qualname__}" for one in gc.garbage}
    gc.garbage.clear()
    return {name for name in left if name.startswith("toolwire.") and name not in CONNECTIONS}


def show_left() -> None:
    """Prints what the requests of all kinds have left, as JSON."""
    left = {kind: left_by(work) for kind, work in KINDS.items()}
    left |= {kind: asyncio.run(left_by_unfinished(*case)) for kind, case in UNFINISHED.items()}
    print(json.dumps({kind: sorted(names) for kind, names in left.items()}))


def test_answers_leave_no_circles() -> None:
    """In a process of its own, where nobody else looks on or leaves anything."""
    code = "from tests.unit.test_freeing import show_left; show_left()"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout.splitlines()[-1]) == {kind: [] for kind in (*KINDS, *UNFINISHED)}
