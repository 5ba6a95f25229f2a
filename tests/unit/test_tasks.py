"""Background tasks: kept until they end, and ended with their owner."""

from __future__ import annotations

import asyncio

from toolwire.support.tasks import BackgroundTasks


async def test_tasks_that_start_meanwhile_are_waited_for_at_the_end() -> None:
    tasks, done = BackgroundTasks(), list[int]()

    async def work(rest: int) -> None:
        await asyncio.sleep(0)
        done.append(rest)
        if rest:
            tasks.start(work(rest - 1))

    tasks.start(work(2))
    await tasks.ended()
    assert done == [2]
    await tasks.idle()
    assert done == [2, 1, 0]


async def test_a_failure_does_not_keep_others_from_ending() -> None:
    tasks, go_on = BackgroundTasks(), asyncio.Event()

    async def fail() -> None:
        raise ValueError

    failed, waiting = tasks.start(fail()), tasks.start(go_on.wait())
    asyncio.get_running_loop().call_soon(go_on.set)
    await tasks.ended()
    assert isinstance(failed.exception(), ValueError)
    assert waiting.result() is True


async def test_cancelled_tasks_have_ended() -> None:
    tasks = BackgroundTasks()
    waiting = tasks.start(asyncio.sleep(3600))
    await tasks.cancel()
    assert waiting.cancelled()
