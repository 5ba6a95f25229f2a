"""Requests through the whole gateway in one process and without sockets: for profilers, and for counting instructions.

    python -m bench.inprocess                          # CPU microseconds per request or frame
    python -m bench.inprocess --instructions           # instructions, counted by valgrind: no timer
    python -m bench.inprocess --profile --only 1       # the functions that cost most, by cProfile

The application is the one that `toolwire serve` runs, on the loop that it would run on; only the transports are played.
So what the kernel and the loop's own reading and writing cost is not in these figures. Counts differ from run to run by
a few thousandths, whatever else the machine does, so they show what a change is worth; what is kept is in
`bench.budget`.
"""

from __future__ import annotations

import argparse
import asyncio
import cProfile
import logging
import os
import pstats
import sys
import tempfile
import time
from asyncio import AbstractEventLoop
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Literal

from bench import callgrind, corpus
from bench.contestants import CALL, chunk, whole_answer
from bench.load import Ask
from toolwire.configuration.settings import load
from toolwire.observability.logs import flush_logs, set_up_logging
from toolwire.server.process import gateway, rare_collections
from toolwire.server.simulated import SimulatedGateway
from toolwire.support import offload

FRAMES: Final = 150
WARM: Final = 30
"""Requests before anything is measured."""
STEP: Final = 3
"""Messages that an agent adds with a request."""
ROUNDS: Final = 9
NAMED: Final = b"resp_" + b"0" * 32
"""Stands for the id of the response before, in requests that are made before that has one."""


Api = Literal["chat", "responses", "messages"]


@dataclass(frozen=True, slots=True)
class Work:
    """One kind of request. Streams bring `frames` frames, each in a read of its own; their units are frames. `store`:
    whether what Responses answers is kept, in SQLite. `turns`: an agent asks whose conversation has so many messages
    with the first request that is measured, and `STEP` more with each. `by_id`: the agent sends these over Responses,
    one with each request, and names the response before. `mode` is the option of the route."""

    title: str
    tools: int
    call: bool = False
    stream: bool = False
    api: Api = "chat"
    frames: int = FRAMES
    store: bool = True
    turns: int = 0
    by_id: bool = False
    mode: str = "prompt"

    def ask(self, number: int = 0) -> Ask:
        """The request of that number."""
        if self.by_id:
            message = corpus.agent_messages(number + 1)[-1:]
            previous = NAMED.decode() if number else None
            return Ask(
                "/v1/responses", corpus.conversation_body(self.tools, message, api="responses", previous=previous)
            )
        if self.turns:
            path = {"chat": "/v1/chat/completions"}.get(self.api, f"/v1/{self.api}")
            turns = max(1, self.turns + STEP * (number - self.warm))
            return Ask(path, corpus.agent_body(self.tools, turns, api=self.api, stream=self.stream, store=self.store))
        match self.api:
            case "responses":
                return Ask(
                    "/v1/responses", corpus.responses_body(self.tools, work="", stream=self.stream, store=self.store)
                )
            case "messages":
                return Ask("/v1/messages", corpus.messages_body(self.tools, stream=self.stream))
        return Ask("/v1/chat/completions", corpus.request_body(self.tools, stream=self.stream))

    @property
    def reads(self) -> list[bytes]:
        """The response of the model server, by read."""
        if not self.stream:
            return [whole_answer(int(self.call))]
        tail = corpus.cut(CALL) if self.call else []
        head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
        texts = [*corpus.prose(self.frames - len(tail)), *tail]
        frames = [corpus.frame(text) for text in texts]
        return [head, *map(chunk, frames), chunk(corpus.closing_frames()) + b"0\r\n\r\n"]

    @property
    def warm(self) -> int:
        """Requests before anything is measured. Those of agents are long."""
        if self.by_id:
            return self.turns
        return 6 if self.turns else WARM

    @property
    def units(self) -> int:
        """The number of units in a request."""
        return self.frames if self.stream else 1


WORKS: Final = (
    Work("whole answers, no tools", 0),
    Work("whole answers, 10 tools", 10),
    Work("whole answers, 10 tools, a call in each", 10, call=True),
    Work("streams, no tools", 0, stream=True),
    Work("streams, 10 tools, a call in each", 10, call=True, stream=True),
    Work("streams, Responses, 10 tools, a call in each", 10, call=True, stream=True, api="responses"),
)


class Gateway:
    """A running gateway that gets one request after the other."""

    def __init__(self, work: Work, folder: str) -> None:
        self._work = work
        self._one = work.ask()
        self._asked = 0
        self._previous = b""
        reads = work.reads
        overrides = {
            "backends": {"default": {"url": "http://127.0.0.1:9", "identify_s": 0}},  # no server runs there
            "store": {"path": f"{folder}/responses.sqlite3"},
            "defaults": {"mode": work.mode},
        }
        self._played = SimulatedGateway(gateway, load(None, env={}, overrides=overrides), lambda request: reads)

    async def __aenter__(self) -> Gateway:
        """Starts the gateway."""
        await self._played.__aenter__()
        self._ask = self.client()
        return self

    async def __aexit__(self, *error: object) -> None:
        """Stops the gateway."""
        await self._played.__aexit__(None, None, None)

    def client(self) -> Callable[[bytes], Awaitable[bytes]]:
        """A client with a connection of its own: what asks once, and gives the answer."""
        return self._played.client()

    def asks(self, requests: int) -> list[bytes]:
        """The next requests, as bytes: made before anything is measured."""
        numbers = range(self._asked, self._asked + requests)
        self._asked += requests
        return [self._work.ask(number).raw if self._work.turns else self._one.raw for number in numbers]

    async def serve(self, asks: Sequence[bytes]) -> None:
        """Ask all of it. Raises `RuntimeError` for a wrong answer."""
        answer = b""
        for one in asks:
            answer = await self._ask(one.replace(NAMED, self._previous) if self._work.by_id else one)
            if self._work.by_id:
                self._previous = answer.partition(b'"id":"')[2].partition(b'"')[0]
        if (
            not answer.startswith(b"HTTP/1.1 200")
            or b'"error":{' in answer
            or self._one.calls(answer) != self._work.call
        ):
            raise RuntimeError(f"not the answer to {self._work.title}: {answer[:2000]!r}")


def measure(
    work: Work,
    requests: int,
    run: Callable[[Callable[[], None], Callable[[], None]], None],
    loop: Callable[[], AbstractEventLoop] | None = None,
) -> None:
    """Let `run` run that many requests, after some that it does not see, with garbage collected as rarely as under
    `toolwire serve`; on a `loop` like that one's, if none is given. It may begin with the last of those before, its
    second argument. Work of large requests is done by the loop's own thread: nothing else is counted."""
    if loop is None:
        from uvloop import new_event_loop as loop
    with without_threads(), tempfile.TemporaryDirectory() as folder, open(os.devnull, "w") as log:
        level = logging.getLogger().level
        set_up_logging("text", "info", log)
        with asyncio.Runner(loop_factory=loop) as runner:
            gateway = Gateway(work, folder)
            runner.run(gateway.__aenter__())
            warm = gateway.asks(work.warm)

            def serve(asks: Sequence[bytes]) -> None:
                runner.run(gateway.serve(asks))
                flush_logs()  # here, so that the lines of these requests count and no others do

            serve(warm)
            asks = gateway.asks(requests)
            with rare_collections():
                run(partial(serve, asks), partial(serve, warm[-1:]))
            runner.run(gateway.__aexit__())
        logging.basicConfig(handlers=[logging.NullHandler()], level=level, force=True)


@contextmanager
def without_threads() -> Iterator[None]:
    """While this lasts, work for threads (`toolwire.support.offload`) is done at once by the event loop."""

    def done(work: Callable[..., Any], *args: object) -> asyncio.Future[Any]:
        future = asyncio.get_running_loop().create_future()
        try:
            future.set_result(work(*args))
        except Exception as error:
            future.set_exception(error)
        return future

    threads, offload._in_threads = offload._in_threads, done
    try:
        yield
    finally:
        offload._in_threads = threads


def microseconds(work: Work, requests: int) -> float:
    """Returns the CPU microseconds per unit: the best of some rounds."""
    best = float("inf")

    def run(serve: Callable[[], None], again: object) -> None:
        nonlocal best
        for _ in range(ROUNDS):
            before = time.process_time()
            serve()
            best = min(best, time.process_time() - before)

    measure(work, requests, run)
    return best / (requests * work.units) * 1e6


def instructions(number: int, requests: int, keep: str | None) -> float:
    """Returns the instructions per unit of `WORKS[number]`. `keep`: the file for callgrind's own output."""
    arguments = ("--counted", "--only", str(number), "--requests", str(requests))
    (total,), _ = callgrind.count("bench.inprocess", *arguments, keep=keep)
    return total / (requests * WORKS[number].units)


def profiled(serve: Callable[[], None], again: object) -> None:
    """Prints the most expensive functions."""
    profile = cProfile.Profile()
    profile.runcall(serve)
    pstats.Stats(profile).sort_stats("tottime").print_stats(60)


def main(arguments: Sequence[str]) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m bench.inprocess", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--instructions", action="store_true", help="count instructions with valgrind")
    parser.add_argument("--profile", action="store_true", help="print the functions that cost most")
    parser.add_argument("--only", type=int, choices=range(len(WORKS)), help="number of the only kind of work, from 0")
    parser.add_argument("--requests", type=int, help="in a round; default: some hundred")
    parser.add_argument("--keep", help="file for callgrind's output")
    parser.add_argument("--counted", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    for number, work in enumerate(WORKS):
        if options.only not in (None, number):
            continue
        if options.instructions:
            requests = options.requests or (20 if work.stream else 200)
            print(f"{work.title}: {instructions(number, requests, options.keep):,.0f} instructions", flush=True)
            continue
        requests = options.requests or (20 if work.stream else 300)
        if options.counted or options.profile:
            measure(work, requests, callgrind.counted if options.counted else profiled)
        else:
            print(f"{work.title}: {microseconds(work, requests):,.1f} us", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
