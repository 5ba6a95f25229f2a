"""A middleware may ask for another answer: each time everything further in starts afresh."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from aiohttp import web

from toolwire import Middleware, Reply
from toolwire.model import Message, Text
from toolwire.pipeline.answers.stages import Batches
from toolwire.pipeline.chain.middleware import Ask, Handler
from toolwire.pipeline.exchange.request_state import Exchange
from toolwire.testing import run_chain

CALL = '<tool_call>{"name":"look","arguments":"{}"}</tool_call>'
BODY: dict[str, Any] = {
    "messages": [{"role": "user", "content": "hi"}],
    "tools": [{"type": "function", "name": "look"}],
    "parallel_tool_calls": False,
}


class Again(Middleware):
    """Gives a second answer in place of the first, by the hook that is made for it."""

    def review(self, exchange: Exchange, reply: Reply, ask: Ask) -> None:
        asked = exchange.request

        async def second(batches: Batches) -> Batches:
            async for _ in batches:
                pass
            answer = await ask(replace(asked, messages=(*asked.messages, Message("user", (Text("again"),)))))
            assert isinstance(answer, Reply)
            async for batch in answer.events():
                yield batch

        reply.rewrite(second)


class AgainByItself(Again):
    async def __call__(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        return await super().__call__(request, handler)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("middleware", [Again, AgainByItself])
@pytest.mark.parametrize("times", [1, 2])
async def test_another_answer_is_that_of_everything_further_in(
    middleware: type[Middleware], times: int, stream: bool
) -> None:
    chain = ["validation", *[middleware] * times, "arguments", "transformation", "injection"]
    answer = await run_chain(chain, {**BODY, "stream": stream}, replies=[CALL])
    said = [[m.text for m in request.messages if m.role == "user"] for request in answer.requests]
    once, twice = ["hi", "again"], ["hi", "again", "again"]
    assert said == ([["hi"], once] if times == 1 else [["hi"], once, once, twice])
    assert b"tool_calls" in answer.body
    assert b"<tool_call>" not in answer.body
