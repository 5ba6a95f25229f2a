"""Agents that send their whole conversation with every request: the gateway beside the relay, as in `test_gateway`.

The requests of a cell have the same body, so all but the first continue a known conversation. The relay gets Chat
requests of the same conversation. `bench.budget` counts requests that grow.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from dataclasses import replace
from statistics import median
from typing import Final

import pytest

from bench.load import held, load
from bench.measuring import Measure
from bench.test_gateway import Cell, Contestant, Round, contestant, measured

ROUNDS: Final = 5
FRAMES: Final = 12
LARGE_TOOLS: Final = 150
"""Number of tools that have 80 kB together, as those of coding agents."""
STREAMS: Final = (200, 400)
"""Streams that are open while memory is measured."""
CELLS: Final = (
    Cell("Chat, 20 messages", 10, 80, 4, frames=FRAMES, messages=20),
    Cell("Chat, 200 messages", 10, 80, 4, frames=FRAMES, messages=200),
    Cell("Messages, 200 messages", 10, 80, 4, frames=FRAMES, messages=200, api="messages"),
    Cell("Messages, 60 messages, large tools", LARGE_TOOLS, 80, 4, frames=FRAMES, messages=60, api="messages"),
    Cell("Responses, 200 messages, stored", 10, 80, 4, frames=FRAMES, messages=200, api="responses"),
    Cell("Chat, 200 messages, 16 at once", 10, 80, 16, frames=FRAMES, messages=200),
)


@pytest.fixture(scope="module")
def contestants() -> Iterator[dict[str, Contestant]]:
    """Starts the relay and the gateway in front of one model server."""
    with contextlib.ExitStack() as stack:
        url = f"http://127.0.0.1:{stack.enter_context(contestant('upstream')).port}"
        yield {name: stack.enter_context(contestant(name, url)) for name in ("relay", "gateway")}


@pytest.mark.parametrize("cell", CELLS, ids=lambda cell: cell.title)
def test_agents(measure: Measure, contestants: dict[str, Contestant], cell: Cell) -> None:
    rounds: dict[str, list[Round]] = {name: [] for name in contestants}
    for who in contestants.values():
        asyncio.run(load(who.port, cell.ask(who.name), connections=1, requests=4))  # warms up

    def once() -> None:
        backwards = len(rounds["relay"]) % 2 == 1
        for name in sorted(contestants, reverse=backwards):
            rounds[name].append(measured(cell, contestants[name]))

    measure.benchmark.group = "agents"
    measure.benchmark.pedantic(once, rounds=ROUNDS, iterations=1)
    table = measure.table("Agents", "us of CPU per request")
    row = f"{cell.title}, {len(cell.ask('gateway').body) // 1000} kB"
    for name, mine in rounds.items():
        table.put(row, name, f"{median(r.cpu_us for r in mine) * FRAMES:,.0f}")
    both = zip(rounds["gateway"], rounds["relay"], strict=True)
    table.put(row, "gateway / relay", f"{median(gateway.cpu_us / relay.cpu_us for gateway, relay in both):.2f}")
    for name, mine in rounds.items():
        table.put(row, f"first byte p50, {name}", f"{median(r.latency_p50 for r in mine) * 1000:,.1f} ms")


def test_others(measure: Measure, contestants: dict[str, Contestant]) -> None:
    """Measures how late frames of 32 paced streams are, alone and while two agents work."""
    paced = Cell("32 streams", 10, 32, 32, frames=150, pace_us=10_000)
    agents = replace(CELLS[1], requests=10_000, connections=2)

    async def beside(who: Contestant) -> Round:
        working = asyncio.ensure_future(load(who.port, agents.ask(who.name), connections=2, requests=agents.requests))
        try:
            return await asyncio.to_thread(measured, paced, who)
        finally:
            working.cancel()
            await asyncio.wait([working])

    ages: dict[str, list[tuple[float, float]]] = {name: [] for name in contestants}

    def once() -> None:
        for name, who in contestants.items():
            alone = measured(paced, who)
            ages[name].append((alone.age_p90, asyncio.run(beside(who)).age_p90))

    measure.benchmark.group = "agents"
    measure.benchmark.pedantic(once, rounds=ROUNDS, iterations=1)
    table = measure.table("Agents: frame age of other streams", "p90 in ms")
    for name, mine in ages.items():
        alone, busy = (median(one) * 1000 for one in zip(*mine, strict=True))
        table.put(name, "alone", f"{alone:.2f}")
        table.put(name, "beside two agents", f"{busy:.2f}")


@pytest.mark.parametrize("name", ["relay", "gateway"])
def test_memory(measure: Measure, name: str) -> None:
    """Measures what an open stream holds beyond the cache, which the first streams fill."""
    idle = replace(CELLS[1], frames=50, pace_us=100_000_000)
    known = idle.ask(name)
    asks = [replace(known, body=known.body.replace(b"You are", b"%04d are" % n, 1)) for n in range(STREAMS[-1])]
    resident: list[int] = []

    def once() -> None:
        with contextlib.ExitStack() as stack:
            upstream = stack.enter_context(contestant("upstream"))
            who = stack.enter_context(contestant(name, f"http://127.0.0.1:{upstream.port}"))
            for streams in STREAMS:
                asyncio.run(held(who.port, asks[:streams], lambda: resident.append(who.account()[1])))

    measure.benchmark.group = "agents"
    measure.benchmark.pedantic(once, rounds=1, iterations=1)
    table = measure.table("Agents: memory of an open stream", "one more conversation")
    table.put(f"{name}, Chat, {len(known.body) // 1000} kB", "resident", f"{_slope(resident) / 1000:,.0f} kB")


def _slope(resident: list[int]) -> float:
    return (resident[1] - resident[0]) / (STREAMS[1] - STREAMS[0])
