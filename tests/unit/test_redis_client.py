"""Commands to Redis are not cancelled from outside: what that spares the caller, and that nothing is left of them."""

from __future__ import annotations

import asyncio

import pytest

from tests.waiting import GUARD_S

pytest.importorskip("redis")

from proxy.support.redis_client import FAILURES, Commands, RedisClient
from proxy.support.redis_url import read_url


class Stubborn:
    """A command that swallows the first `swallows` cancellations, as redis-py's does when a limit of its own ends with
    them."""

    def __init__(self, swallows: int = 0) -> None:
        self.swallows = swallows
        self.cancelled = 0
        self.answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def __call__(self) -> str:
        while True:
            try:
                return await asyncio.shield(self.answer)
            except asyncio.CancelledError:
                self.cancelled += 1
                if self.cancelled > self.swallows:
                    raise


async def test_whoever_asked_waits_no_longer_than_the_limit_and_the_command_goes_on() -> None:
    commands, command = Commands(), Stubborn()
    with pytest.raises(FAILURES) as caught:
        await commands.run(command(), 0.01)
    assert isinstance(caught.value, TimeoutError)
    command.answer.set_result("late")
    await commands.end(GUARD_S)
    assert command.cancelled == 0


async def test_a_caller_that_goes_away_takes_nothing_with_it() -> None:
    commands, command = Commands(), Stubborn()
    caller = asyncio.ensure_future(commands.run(command()))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller
    command.answer.set_result("nobody reads it")
    await commands.end(GUARD_S)
    assert command.cancelled == 0


async def test_at_the_end_even_those_go_that_swallow_a_cancellation() -> None:
    commands, command = Commands(), Stubborn(swallows=2)
    caller = asyncio.ensure_future(commands.run(command()))
    await asyncio.sleep(0)
    async with asyncio.timeout(GUARD_S):
        await commands.end(0.01)
    assert command.cancelled == 3
    with pytest.raises(FAILURES):  # and not as if the caller had been cancelled
        await caller


async def test_an_answer_and_a_failure_are_the_callers() -> None:
    commands, command = Commands(), Stubborn()
    command.answer.set_result("PONG")
    assert await commands.run(command()) == "PONG"
    broken = Stubborn()
    broken.answer.set_exception(OSError("gone"))
    with pytest.raises(OSError, match="gone"):
        await commands.run(broken())
    await commands.end(GUARD_S)


def test_an_outage_goes_on_as_long_as_it_is_heard_of() -> None:
    """Of a client that has nothing to do for a while, the next failure begins another one."""
    client = RedisClient(read_url("redis+cluster://nowhere"), 1, key="k", patience_s=10)
    assert [client._outage(True, now) for now in (100, 105, 114, 123, 134)] == [100, 100, 100, 100, 134]
    assert client._outage(False, 135) == 135
