"""A middleware is only in the chains of the protocols that it serves, and hears only of what it is for."""

from __future__ import annotations

from typing import ClassVar

from aiohttp import web

from tests.cases import every
from toolwire import Exchange, Middleware, Reply
from toolwire.model import ModelRequest
from toolwire.pipeline.chain.middleware import Handler
from toolwire.testing import run_chain

CHAT = {"messages": [{"role": "user", "content": "hi"}]}
RESPONSES = {"input": "hi"}


class Breaks(Middleware):
    """Breaks when it is asked."""

    async def on_request(self, exchange: Exchange, request: ModelRequest) -> ModelRequest:
        raise ValueError("it was asked")


class OnlyResponses(Breaks):
    def serves(self, protocol: str) -> bool:
        return protocol == "responses"


class OnlyTurns(Breaks):
    """Only where the gateway keeps conversations."""

    for_turns = True


@every("middleware", [OnlyResponses, OnlyTurns])
@every(("path", "body", "status"), [("/v1/chat/completions", CHAT, 200), ("/v1/responses", RESPONSES, 500)])
async def test_it_is_asked_for_its_protocols_only(
    middleware: type[Middleware], path: str, body: dict[str, object], status: int
) -> None:
    answer = await run_chain([middleware], body, path=path, replies=["hello"])
    assert answer.status == status


class OnlyTools(Middleware):
    """Breaks when it hears of an answer."""

    for_tools = True

    def declare(self, exchange: Exchange, reply: Reply) -> None:
        raise ValueError("it was asked")


class AndCalls(OnlyTools):
    """The same, with a `__call__` of its own."""

    async def __call__(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        return await super().__call__(request, handler)


TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}]


@every("middleware", [OnlyTools, AndCalls])
@every(("body", "status"), [(CHAT, 200), ({**CHAT, "tools": TOOLS}, 500)])
async def test_it_hears_of_answers_to_requests_with_tools_only(
    middleware: type[Middleware], body: dict[str, object], status: int
) -> None:
    answer = await run_chain([middleware], body, replies=["hello"])
    assert answer.status == status


class Echo(Middleware):
    """Notes a header of the client."""

    seen: ClassVar[list[str | None]] = []

    async def on_request(self, exchange: Exchange, request: ModelRequest) -> ModelRequest:
        self.seen.append(exchange.headers.get("content-type"))
        return request


async def test_hooks_find_the_headers_of_the_clients_request() -> None:
    await run_chain([Echo], CHAT, replies=["hello"])
    assert Echo.seen.pop() == "application/json"
