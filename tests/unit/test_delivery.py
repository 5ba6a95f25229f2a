"""The end of an exchange: whatever came up on the way is closed."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from proxy.pipeline.middleware import end_replies
from proxy.record import AccessRecord


class Answer:
    """Stands for a `Reply`."""

    def __init__(self, fault: BaseException | None = None) -> None:
        self.waited_s = 1.0
        self.over = self.closed = False
        self._fault = fault

    def ended(self) -> None:
        self.over = True

    async def close(self) -> None:
        await asyncio.sleep(0)
        self.closed = True
        if self._fault is not None:
            raise self._fault


@pytest.mark.parametrize("fault", [RuntimeError("no"), asyncio.CancelledError()], ids=["failed", "cancelled"])
async def test_one_that_cannot_be_closed_does_not_keep_the_others_open(fault: BaseException) -> None:
    answers = [Answer(), Answer(fault), Answer()]
    exchange = cast("Any", SimpleNamespace(replies=[*answers], record=AccessRecord()))
    with pytest.raises(type(fault)):
        await end_replies(exchange)
    assert all(answer.over and answer.closed for answer in answers)
    assert (exchange.replies, exchange.record.waited) == ([], 3.0)
