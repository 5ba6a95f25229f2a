"""A middleware is only in the chains of the protocols that it serves."""

from __future__ import annotations

import pytest

from proxy import Exchange, Middleware
from proxy.model import ModelRequest
from proxy.testing import run_chain

CHAT = {"messages": [{"role": "user", "content": "hi"}]}
RESPONSES = {"input": "hi"}


class OnlyResponses(Middleware):
    """Breaks when it is asked."""

    def serves(self, protocol: str) -> bool:
        return protocol == "responses"

    async def on_request(self, exchange: Exchange, request: ModelRequest) -> ModelRequest:
        raise ValueError("it was asked")


@pytest.mark.parametrize(
    ("path", "body", "status"), [("/v1/chat/completions", CHAT, 200), ("/v1/responses", RESPONSES, 500)]
)
async def test_it_is_asked_for_its_protocols_only(path: str, body: dict[str, object], status: int) -> None:
    answer = await run_chain([OnlyResponses], body, path=path, replies=["hello"])
    assert answer.status == status


class OnlyTurns(Middleware):
    """Breaks when it is asked."""

    for_turns = True

    async def on_request(self, exchange: Exchange, request: ModelRequest) -> ModelRequest:
        raise ValueError("it was asked")


@pytest.mark.parametrize(
    ("path", "body", "status"), [("/v1/chat/completions", CHAT, 200), ("/v1/responses", RESPONSES, 500)]
)
async def test_it_is_asked_only_where_the_gateway_keeps_conversations(
    path: str, body: dict[str, object], status: int
) -> None:
    answer = await run_chain([OnlyTurns], body, path=path, replies=["hello"])
    assert answer.status == status
