"""A middleware may call the next handler more than once: each time everything further in starts afresh."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from aiohttp import web

from proxy import EXCHANGE, Middleware, Reply
from proxy.middleware import Handler
from proxy.testing import run_chain

CALL = '<tool_call>{"name":"look","arguments":"{}"}</tool_call>'
BODY: dict[str, Any] = {
    "messages": [{"role": "user", "content": "hi"}],
    "tools": [{"type": "function", "name": "look"}],
    "parallel_tool_calls": False,
}


class Twice(Middleware):
    """Throws the first answer away, read or unread."""

    read = True
    tools = True

    async def __call__(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        exchange = request[EXCHANGE]
        asked = exchange.request
        first = await handler(request)
        assert isinstance(first, Reply)
        assert exchange.request is asked
        if self.read:
            async for _ in first.events():
                pass
        if not self.tools:
            exchange.request = replace(asked, tools=())
        return await handler(request)


class TwiceUnread(Twice):
    read = False


class ThenWithoutTools(Twice):
    tools = False


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("middleware", [Twice, TwiceUnread])
async def test_the_second_answer_is_judged_by_itself(middleware: type[Twice], stream: bool) -> None:
    chain = ["validation", middleware, "arguments", "transformation", "injection"]
    answer = await run_chain(chain, {**BODY, "stream": stream}, replies=[CALL])
    assert len(answer.requests) == 2
    assert answer.requests[0].messages == answer.requests[1].messages
    if stream:
        assert answer.frames()[-2]["choices"][0]["finish_reason"] == "tool_calls"
    else:
        assert len(answer.json()["choices"][0]["message"]["tool_calls"]) == 1


async def test_without_tools_the_second_answer_is_text() -> None:
    chain = ["validation", ThenWithoutTools, "arguments", "transformation", "injection"]
    answer = await run_chain(chain, BODY, replies=[CALL])
    assert answer.json()["choices"][0]["message"]["content"] == CALL
