"""The end of an exchange: what was to be done then is done, and whatever came up on the way is closed."""

import asyncio
import logging
from typing import Any, cast

import pytest

from tests.cases import every
from toolwire.pipeline.exchange.request_state import Exchange
from toolwire.record import AccessRecord


class Answer:
    """Stands for a `Reply`."""

    def __init__(self, fault: BaseException | None = None) -> None:
        self.waited_s = 1.0
        self.closed = False
        self._fault = fault

    async def close(self) -> None:
        await asyncio.sleep(0)
        self.closed = True
        if self._fault is not None:
            raise self._fault


def exchange_with(*answers: Answer) -> Exchange:
    nothing: Any = None
    made = Exchange("id", nothing, nothing, nothing, nothing, {}, AccessRecord())
    made.replies += cast("list[Any]", answers)
    return made


@every("fault", [RuntimeError("no"), asyncio.CancelledError()])
async def test_one_that_cannot_be_closed_does_not_keep_the_others_open(fault: BaseException) -> None:
    answers = [Answer(), Answer(fault), Answer()]
    exchange = exchange_with(*answers)
    with pytest.raises(type(fault)):
        await exchange.end()
    assert all(answer.closed for answer in answers)
    assert (exchange.replies, exchange.record.waited) == ([], 3.0)


async def test_what_is_to_be_done_at_the_end_is_done_once_and_by_all(caplog: pytest.LogCaptureFixture) -> None:
    done: list[str] = []
    answer = Answer()
    exchange = exchange_with(answer)

    def breaks() -> None:
        done.append("breaks")
        raise KeyError("boom")

    exchange.at_end(lambda: done.append("first"))
    exchange.at_end(breaks)
    exchange.at_end(lambda: done.append("last"))
    assert done == []
    with caplog.at_level(logging.ERROR):
        await exchange.end()
    assert done == ["last", "breaks", "first"]
    assert answer.closed
    assert "exchange id" in caplog.text
    await exchange.end()
    assert len(done) == 3
    exchange.at_end(lambda: done.append("late"))
    assert done[3:] == ["late"]


async def test_an_answer_that_comes_after_the_end_is_closed() -> None:
    exchange = exchange_with()
    early, late = Answer(), Answer()
    assert not exchange.note(cast("Any", early))
    assert not exchange.note(cast("Any", early))
    assert exchange.replies == [early]
    await exchange.end()
    assert exchange.note(cast("Any", late))
    await exchange.end()
    assert early.closed
    assert late.closed
    assert exchange.record.waited == 2.0
