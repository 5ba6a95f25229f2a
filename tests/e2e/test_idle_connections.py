"""A connection that waits for its next request holds nothing of the last one: aiohttp's loop keeps both its request and
its answer until then."""

from __future__ import annotations

import gc
from contextlib import AsyncExitStack
from functools import cache
from typing import Any

import orjson
import pytest

from tests.e2e import edge
from toolwire.pipeline.exchange.request_state import Exchange

LONG = 300_000
CONNECTIONS = 5


def held() -> list[str]:
    """The kinds of objects that hold a text as long as a body, and of exchanges; of those that are not frozen."""
    found = []
    for item in gc.get_objects():
        if isinstance(item, Exchange):
            found.append("Exchange")
        elif not isinstance(item, type):
            values = (_value(item, name) for name in _names(type(item)))
            if any(isinstance(value, bytes | str) and len(value) >= LONG for value in values):
                found.append(type(item).__name__)
    return found


@cache
def _names(kind: type) -> tuple[str, ...]:
    """The slots of a class."""
    of_each = [base.__dict__.get("__slots__", ()) for base in kind.__mro__]
    return tuple(name for slots in of_each for name in ((slots,) if isinstance(slots, str) else slots))


def _value(item: Any, name: str) -> object:
    try:
        return object.__getattribute__(item, name)
    except AttributeError:
        return None


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/responses"])
async def test_an_idle_connection_holds_nothing_of_its_last_request(path: str) -> None:
    messages = {"messages": [{"role": "user", "content": "x" * LONG}]}
    body = orjson.dumps({"model": "m", **(messages if path.endswith("completions") else {"input": "x" * LONG})})
    gc.collect()
    gc.freeze()  # what other tests of the process have left
    async with edge.starting() as start, AsyncExitStack() as stack:
        gateway = await start(script=("Hello.",) * CONNECTIONS, store={"kind": "none"})
        for _ in range(CONNECTIONS):
            reader, writer = await stack.enter_async_context(gateway.connection())
            writer.write(edge.head(len(body), path=path) + body)
            assert await edge.answered(reader) == 200
        gc.collect()
        left = held()
        assert len(left) < CONNECTIONS, left
