"""What an answer was made with goes with it: nothing is left for the cyclic collector, whose work others wait for."""

import asyncio
import gc
from collections.abc import Callable

import pytest

from bench.budget import WORKS
from bench.inprocess import Work, measure

REQUESTS = 3


@pytest.mark.parametrize("work", WORKS, ids=lambda work: work.title)
def test_an_answer_leaves_no_circle(work: Work) -> None:
    left: list[str] = []

    def run(serve: Callable[[], None]) -> None:
        serve()
        gc.collect()
        gc.set_debug(gc.DEBUG_SAVEALL)
        try:
            serve()
            gc.collect()
            left.extend({f"{type(one).__module__}.{type(one).__qualname__}" for one in gc.garbage})
        finally:
            gc.set_debug(0)
            gc.garbage.clear()

    measure(work, REQUESTS, run, asyncio.new_event_loop)
    assert not [name for name in left if name.startswith(("proxy.", "middlewares."))]
