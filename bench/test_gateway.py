"""Compares the whole gateway with a plain aiohttp relay: same machine, run, model server and clients.

Rounds alternate, and a ratio is computed from two consecutive measurements; the published values are medians of rounds.
CPU time is that of the measured process itself (`bench.contestants`), which other processes affect little. Times that
clients measure are affected, and are meaningful only beside those of the relay.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import resource
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Final

import pytest

from bench import corpus
from bench.inprocess import Api
from bench.load import Ask, Seen, held, load, quantile
from bench.measuring import Measure

ROUNDS: Final = 5
SC_003_S: Final = 0.2
"""The limit for the gateway's own part of a request, for 99 of 100 requests (SC-003)."""

RELAYS: Final = ("relay", "relay-uvloop")
PATHS: Final = {"chat": "/v1/chat/completions", "messages": "/v1/messages", "responses": "/v1/responses"}
STREAMS: Final = min(10_000, resource.getrlimit(resource.RLIMIT_NOFILE)[1] * 2 // 5)
"""Each is two open files of the gateway, which keeps some for clients that it has to refuse."""
"""Streams that are open at once while memory is looked at."""

_OVERHEAD: Final = re.compile(r'toolwire_overhead_seconds_bucket\{endpoint="(\w+)",le="([^"]+)"\} (\S+)')


@dataclass(frozen=True, slots=True)
class Cell:
    """One kind of work. `call`: every answer ends with a call. `frames`: the frames of one stream, 0 if not streamed.
    `api`: that of the gateway's requests. The relay, which does not parse them, gets Chat requests. `messages`: those
    of an agent's conversation, if it is one."""

    title: str
    tools: int
    requests: int
    connections: int = 8
    frames: int = 0
    pace_us: int = 0
    call: bool = False
    api: Api = "chat"
    messages: int = 0

    def ask(self, who: str) -> Ask:
        """Returns the request to a contestant."""
        work = f"frames={self.frames} pace_us={self.pace_us} call={int(self.call)}"
        api = "chat" if who in RELAYS else self.api
        if self.messages:
            said = [{"role": "user", "content": work}, *corpus.agent_messages(self.messages)]
            return Ask(PATHS[api], corpus.conversation_body(self.tools, said, api=api))
        if api == "responses":
            return Ask("/v1/responses", corpus.responses_body(self.tools, work=work))
        return Ask("/v1/chat/completions", corpus.request_body(self.tools, stream=self.frames > 0, work=work))

    @property
    def units(self) -> int:
        """The number of requests, or of frames."""
        return self.requests * (self.frames or 1)


CELLS: Final = (
    Cell("whole answers, no tools", 0, 800),
    Cell("whole answers, 10 tools", 10, 800),
    Cell("whole answers, 10 tools, a call in each", 10, 800, call=True),
    Cell("streams, paced, no tools", 0, 32, 32, frames=150, pace_us=10_000),
    Cell("streams, paced, 10 tools, a call in each", 10, 32, 32, frames=150, pace_us=10_000, call=True),
    Cell("streams, paced, Responses, no tools", 0, 32, 32, frames=150, pace_us=10_000, api="responses"),
    Cell(
        "streams, paced, Responses, 10 tools, a call in each",
        *(10, 32, 32),
        frames=150,
        pace_us=10_000,
        call=True,
        api="responses",
    ),
    Cell("streams, in bursts, no tools", 0, 48, 8, frames=500),
    Cell("streams, in bursts, 10 tools, a call in each", 10, 48, 8, frames=500, call=True),
)


@dataclass(frozen=True, slots=True)
class Contestant:
    """A running process of `bench.contestants`."""

    name: str
    running: subprocess.Popen[str]
    port: int

    def account(self) -> tuple[float, int]:
        """Returns the CPU seconds used so far, and the bytes of memory in use."""
        assert self.running.stdin is not None
        assert self.running.stdout is not None
        self.running.stdin.write("\n")
        self.running.stdin.flush()
        cpu_s, resident = self.running.stdout.readline().split()
        return float(cpu_s), int(resident)


@contextlib.contextmanager
def contestant(name: str, upstream: str = "") -> Iterator[Contestant]:
    """Starts a contestant and ends it afterwards."""
    command = [sys.executable, "-m", "bench.contestants", name, upstream]
    with subprocess.Popen(
        command,
        cwd=Path(__file__).parent.parent,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as running:
        try:
            assert running.stdout is not None
            port = running.stdout.readline()
            if not port:
                raise RuntimeError(f"{name} did not start: try `{' '.join(command)}`")
            yield Contestant(name, running, int(port))
        finally:
            running.terminate()
            try:
                running.wait(3)
            except subprocess.TimeoutExpired:  # a relay waits for streams in which nothing comes
                running.kill()


@dataclass(frozen=True, slots=True)
class Round:
    """One measurement of one contestant: microseconds of CPU per unit of the cell, other times in seconds."""

    cpu_us: float
    latency_p50: float
    latency_p99: float
    age_p50: float
    age_p90: float
    age_p99: float


def measured(cell: Cell, who: Contestant) -> Round:
    """Measures one round. Fails if a request fails or a call is missing."""
    before, _ = who.account()
    ask = cell.ask(who.name)
    spread_s = cell.pace_us / 1e6
    seen = asyncio.run(load(who.port, ask, connections=cell.connections, requests=cell.requests, spread_s=spread_s))
    cpu_us = (who.account()[0] - before) / cell.units * 1e6
    check(cell, who, seen)
    # The time to the first byte of a stream; a whole answer comes with it.
    latencies = seen.first_bytes if cell.frames else seen.latencies
    ages = [quantile(seen.ages, share) for share in (0.5, 0.9, 0.99)]
    return Round(cpu_us, quantile(latencies, 0.5), quantile(latencies, 0.99), *ages)


def check(cell: Cell, who: Contestant, seen: Seen) -> None:
    """Checks that the work was done, and that the gateway returned calls, which the relay does not."""
    assert not seen.failed, seen.failed[0]
    assert len(seen.latencies) == cell.requests
    assert seen.calls == (cell.requests if cell.call and who.name not in RELAYS else 0)
    if cell.pace_us:
        assert len(seen.ages) > 0.8 * cell.requests * cell.frames  # The frames of a call carry no time.


def overhead(gateway: Contestant, cell: Cell) -> dict[float, float]:
    """Returns the cumulated numbers of requests by upper bound of `overhead_seconds`, from the gateway's metrics."""
    with urllib.request.urlopen(f"http://127.0.0.1:{gateway.port}/metrics") as answer:
        found = _OVERHEAD.findall(answer.read().decode())
    return {float(bound): float(count) for name, bound, count in found if name == cell.api}


def overhead_p99(before: dict[float, float], after: dict[float, float]) -> float:
    """Returns the bound that 99 of 100 requests between two readings did not exceed."""
    counts = {bound: count - before.get(bound, 0.0) for bound, count in after.items()}
    wanted = 0.99 * max(counts.values())
    return min(bound for bound, count in counts.items() if count >= wanted)


@pytest.fixture(scope="module")
def contestants() -> Iterator[dict[str, Contestant]]:
    """Starts the relays and the gateway in front of one model server."""
    with contextlib.ExitStack() as stack:
        upstream = stack.enter_context(contestant("upstream"))
        url = f"http://127.0.0.1:{upstream.port}"
        yield {name: stack.enter_context(contestant(name, url)) for name in (*RELAYS, "gateway")}


@pytest.mark.parametrize("cell", CELLS, ids=lambda cell: cell.title)
def test_gateway(measure: Measure, contestants: dict[str, Contestant], cell: Cell) -> None:
    rounds: dict[str, list[Round]] = {name: [] for name in contestants}
    for who in contestants.values():
        measured(replace(cell, requests=max(cell.requests // 4, cell.connections)), who)  # warms up
    before = overhead(contestants["gateway"], cell)

    def once() -> None:
        backwards = len(rounds["relay"]) % 2 == 1
        for name in sorted(contestants, reverse=backwards):
            rounds[name].append(measured(cell, contestants[name]))

    measure.benchmark.group = "gateway"
    measure.benchmark.pedantic(once, rounds=ROUNDS, iterations=1)
    p99 = overhead_p99(before, overhead(contestants["gateway"], cell))
    publish(measure, cell, rounds, p99)
    assert p99 < SC_003_S


def publish(measure: Measure, cell: Cell, rounds: dict[str, list[Round]], overhead_s: float) -> None:
    """Fills the rows of this cell in both tables with medians of the rounds. A ratio compares two measurements of one
    round."""
    table = measure.table("Whole gateway: CPU", "us per request or frame")
    for name, mine in rounds.items():
        table.put(cell.title, name, f"{median(r.cpu_us for r in mine):,.1f}")
    for name in RELAYS:
        both = zip(rounds["gateway"], rounds[name], strict=True)
        ratio = median(gateway.cpu_us / relay.cpu_us for gateway, relay in both)
        table.put(cell.title, f"gateway / {name}", f"{ratio:.2f}")
        measure.benchmark.extra_info[f"gateway / {name}"] = ratio
    table.put(cell.title, "overhead p99 at most", f"{overhead_s * 1000:g} ms")
    table = measure.table("Whole gateway: what clients see", "p50 / p99 in ms")
    for name, mine in rounds.items():
        what = "first byte" if cell.frames else "latency"
        table.put(f"{cell.title}: {what}", name, _both([(r.latency_p50, r.latency_p99) for r in mine]))
        if cell.pace_us:
            table.put(f"{cell.title}: frame age", name, _both([(r.age_p50, r.age_p99) for r in mine]))


def _both(values: list[tuple[float, float]]) -> str:
    p50, p99 = (median(one) * 1000 for one in zip(*values, strict=True))
    return f"{p50:,.2f} / {p99:,.2f}"


@pytest.mark.parametrize("responses", [False, True], ids=["chat", "responses"])
@pytest.mark.parametrize("name", [*RELAYS, "gateway"])
def test_memory(measure: Measure, name: str, responses: bool) -> None:
    """Measures memory of a new process: after its start, after some requests, and with idle open streams."""
    if responses and name in RELAYS:
        pytest.skip("a relay copies bytes: Responses would be the same row as Chat")
    cell = Cell("memory", 10, 200, 8, frames=20, call=True, api="responses" if responses else "chat")
    idle = replace(cell, frames=50, pace_us=100_000_000)
    bytes_at: dict[str, int] = {}

    def once() -> None:
        with contextlib.ExitStack() as stack:
            upstream = stack.enter_context(contestant("upstream"))
            who = stack.enter_context(contestant(name, f"http://127.0.0.1:{upstream.port}"))

            def look(when: str) -> None:
                bytes_at[when] = who.account()[1]

            look("at rest")
            check(cell, who, asyncio.run(load(who.port, cell.ask(name), connections=8, requests=cell.requests)))
            look("after 200 streams")
            many = f"with {STREAMS:,} idle streams"
            asyncio.run(held(who.port, [idle.ask(name)] * STREAMS, lambda: look(many)))
            bytes_at["one stream"] = (bytes_at[many] - bytes_at["after 200 streams"]) // STREAMS

    measure.benchmark.pedantic(once, rounds=1, iterations=1)
    row = f"{name}, Responses" if responses else name
    for when, size in bytes_at.items():
        text = f"{size / 1e3:,.1f} kB" if when == "one stream" else f"{size / 1e6:,.0f} MB"
        measure.table("Memory", "resident").put(row, when, text)
    measure.benchmark.extra_info.update(bytes_at)
