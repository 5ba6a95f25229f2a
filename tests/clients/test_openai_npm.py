"""The `openai` package for JavaScript: the client that checks most of what it gets."""

from __future__ import annotations

from itertools import product

import pytest

from tests.clients.conftest import Node
from tests.clients.recorder import RECORDER
from tests.clients.task import CALLS, FINAL, SAID, in_turn, script
from tests.e2e.conftest import Gateway


@pytest.mark.parametrize(("way", "mode"), in_turn(["create", "stream", "runTools", "runTools streamed"]))
async def test_chat(gateway: Gateway, node: Node, way: str, mode: str) -> None:
    server = await gateway(script=script(mode), mode=mode)
    got = await node("openai_chat.mjs", server, way)
    assert got == {"text": SAID[-1], "calls": CALLS, "files": FINAL}


@pytest.mark.parametrize(
    ("follow_up", "way", "mode"), in_turn(product(["echo", "previous"], ["create", "stream", "websocket"]))
)
async def test_responses(gateway: Gateway, node: Node, way: str, follow_up: str, mode: str) -> None:
    """`.stream()` throws on any event that it does not know and on any item that is not as it was."""
    server = await gateway(script=script(mode), mode=mode)
    got = await node("openai_responses.mjs", server, way, follow_up)
    events = got.pop("events")
    assert got == {"text": SAID[-1], "calls": CALLS, "files": FINAL, "statuses": ["completed"] * 3}
    assert len(server.app[RECORDER].events) == (1 if way == "websocket" else 0)
    if way != "create":
        assert [events.count(f"response.{kind}") for kind in ("created", "output_item.done", "completed")] == [3, 6, 3]
