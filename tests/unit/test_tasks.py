"""Background tasks: kept until they end, and ended with their owner."""

from __future__ import annotations

import asyncio

from toolwire.support.tasks import BackgroundTasks


async def test_tasks_that_start_meanwhile_are_waited_for_at_the_end_only() -> None:
    tasks, go_on, done = BackgroundTasks(), asyncio.Event(), list[str]()

    async def second() -> None:
        await go_on.wait()
        done.append("second")

    async def first() -> None:
        tasks.start(second())
        done.append("first")

    tasks.start(first())
    await tasks.ended()
    assert done == ["first"]
    go_on.set()
    await tasks.idle()
    assert done == ["first", "second"]


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
