"""Work that comes together is done in turns."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from tests.cases import every
from tests.unit.first_request import answers, asked, configured
from tests.waiting import GUARD_S
from toolwire.ingress.loop_pacing import LoopPacer
from toolwire.server.process import gateway
from toolwire.server.simulated import SimulatedGateway


class Passes:
    """Counts the iterations of the event loop, until nothing else happens in them."""

    def __init__(self) -> None:
        self.now = 0
        self._loop = asyncio.get_running_loop()
        self._count()

    def _count(self) -> None:
        self.now += 1
        self._handle = self._loop.call_soon(self._count)

    def stop(self) -> None:
        self._handle.cancel()


@every("most", [1, 3])
async def test_so_many_in_each_iteration_of_the_loop_in_their_order(most: int) -> None:
    turns, passes = LoopPacer(most), Passes()
    began: list[tuple[int, int]] = []

    async def begin(number: int) -> None:
        await turns.wait()
        began.append((number, passes.now))

    await asyncio.gather(*map(begin, range(20)))
    assert [number for number, _ in began] == list(range(20))
    assert max(Counter(at for _, at in began).values()) == most
    assert [turns.take() for _ in range(most + 1)] == [*[True] * most, False]
    queued = turns.next()
    await asyncio.sleep(0)
    assert not turns.take() or queued.done()  # nothing overtakes what waits
    await queued
    passes.stop()


async def test_one_that_goes_while_it_waits_holds_up_nobody() -> None:
    starts = LoopPacer()
    began: list[int] = []

    async def begin(number: int) -> None:
        await starts.wait()
        began.append(number)

    tasks = [asyncio.create_task(begin(number)) for number in range(6)]
    await asyncio.sleep(0)
    for number in (2, 3, 5):
        tasks[number].cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert began == [0, 1, 4]
    await asyncio.sleep(0)
    await begin(7)
    assert began[-1] == 7


async def test_a_start_that_is_given_and_not_used_is_over() -> None:
    """A client may go in the very moment."""
    starts = LoopPacer()
    await starts.wait()
    task = asyncio.create_task(starts.wait())
    await asyncio.sleep(0)
    await asyncio.sleep(0)  # it may start; it has not run yet
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    async with asyncio.timeout(GUARD_S):
        await starts.wait()
        await starts.wait()


async def reached_in(tmp_path: Path, *, stream: bool) -> list[int]:
    """The iterations in which 32 requests that come together reach the server."""
    reached: list[int] = []
    answer = answers(counted=True)

    def answered(request: bytes) -> Sequence[bytes]:
        reached.append(passes.now)
        return answer(request)

    request = asked(
        "/chat/completions", {"model": "m", "stream": stream, "messages": [{"role": "user", "content": "Hi"}]}
    )
    async with SimulatedGateway(gateway, configured({}, str(tmp_path)), answered) as played:
        passes = Passes()
        asks = [played.client() for _ in range(32)]
        given = await asyncio.gather(*(ask(request) for ask in asks))
        passes.stop()
    assert all(each.startswith(b"HTTP/1.1 200") and b"So " in each for each in given)
    assert len(reached) == 32
    return reached


async def test_streams_that_come_together_reach_the_server_one_in_each_iteration(tmp_path: Path) -> None:
    reached = await reached_in(tmp_path, stream=True)
    assert max(map(reached.count, reached)) <= 2  # the first one need not wait, and another may follow it at once


async def test_whole_answers_beside_no_stream_take_no_turns(tmp_path: Path) -> None:
    """They have no frames that could be late, and turns cost them a third of their CPU."""
    reached = await reached_in(tmp_path, stream=False)
    assert max(map(reached.count, reached)) > 2
