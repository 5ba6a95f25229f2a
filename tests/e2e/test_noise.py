"""What is neither answer nor error, between real servers and clients (R29.1): each server protocol, each client
protocol, streamed and whole, and answers that are stored."""

from __future__ import annotations

from typing import Any

import pytest

from tests.cases import first_and_in_turn
from tests.e2e.conftest import CHAT, gateway_before, post
from tests.e2e.meaning import MESSAGES, RESPONSES
from tests.e2e.test_cut_calls import KINDS, SERVERS, WHOLE, asking
from tests.e2e.test_messages_backend import BODIES, SSE
from tests.e2e.test_unconstrained import metric
from toolwire.testing import Answer, Asked

ODD: dict[str, bytes] = {
    "comment": b"data: : keepalive\n\n",
    "keepalive": b'data: {"type":"keepalive"}\n\n',
    "limits": b'event: codex.rate_limits\ndata: {"type":"codex.rate_limits","plan_type":"pro"}\n\n',
    "warning": b'data: {"warning":"an old model"}\n\n',
    "empty": b"data: {}\n\n",
}
NO_DELTA = b'data: {"id":"x","choices":[{"index":0,"content_filter_results":{}}]}\n\n'
ENDS = {CHAT: "stop", MESSAGES: "end_turn", RESPONSES: "max_output_tokens"}


def spoiled(answer: Answer, odd: bytes) -> Answer:
    """With `odd` before each piece."""
    return Answer([odd + piece for piece in answer.steps if isinstance(piece, bytes)], headers=SSE)


DIFFERS = {"id", "item_id", "call_id", "created", "created_at", "completed_at"}


def told(value: Any) -> Any:
    """What a client is told, without what differs each time."""
    if isinstance(value, dict):
        return {key: told(item) for key, item in value.items() if key not in DIFFERS}
    return [told(item) for item in value] if isinstance(value, list) else value


@pytest.mark.parametrize("tools", [False, True], ids=["text", "calls"])
@pytest.mark.parametrize(("kind", "path"), first_and_in_turn(SERVERS, BODIES))
async def test_no_client_sees_it(kind: str, path: str, tools: bool) -> None:
    odds = [*ODD.values(), *([NO_DELTA] if kind == CHAT else [])]

    def plain(asked: Asked) -> Answer:
        return SERVERS[kind]([WHOLE] if tools else [], ENDS[kind], True, True)

    config = {"kind": KINDS[kind], "api_key": "k1"}
    script = [plain, *(lambda asked, odd=odd: spoiled(plain(asked), odd) for odd in odds)]
    body = asking(path, True)
    if not tools:
        body.pop("tools", None)
        body.pop("tool_choice", None)
    async with gateway_before(script, backend=config, defaults={"mode": "native"}) as (server, _):
        first = await post(server, body, path=path)
        assert first.status == 200
        assert b"Now." in first.body
        for odd in odds:
            got = await post(server, body, path=path)
            assert told(got.frames()) == told(first.frames()), odd
        assert await metric(server, "toolwire_left_out_total") > len(odds)
