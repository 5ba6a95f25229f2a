"""The packages `openai` and `@anthropic-ai/sdk` for JavaScript, which check most of what they get."""

from __future__ import annotations

from itertools import product

from tests.clients.conftest import Node
from tests.clients.recorder import RECORDER
from tests.clients.task import CALLS, FINAL, SAID, in_turn, script
from tests.e2e.conftest import Gateway

DONE = {"text": SAID[-1], "calls": CALLS, "files": FINAL}
WAYS = {
    "openai_chat.mjs": ("create", "stream", "runTools", "runTools streamed"),
    "anthropic.mjs": ("create", "stream", "toolRunner", "toolRunner streamed"),
}


async def test_chat_and_messages(gateway: Gateway, node: Node) -> None:
    for client, ways in WAYS.items():
        tasks = [(await gateway(script=script(mode), mode=mode), way) for way, mode in in_turn(ways)]
        for (_, way), got in zip(tasks, await node(client, tasks), strict=True):
            assert got == DONE, (client, way)


async def test_responses(gateway: Gateway, node: Node) -> None:
    """`.stream()` throws on any event that it does not know and on any item that is not as it was."""
    ways = in_turn(product(["create", "stream", "websocket"], ["echo", "previous"]))
    tasks = [(await gateway(script=script(mode), mode=mode), way, follow_up) for way, follow_up, mode in ways]
    for (server, way, follow_up), got in zip(tasks, await node("openai_responses.mjs", tasks), strict=True):
        events = got.pop("events")
        assert got == {**DONE, "statuses": ["completed"] * 3}, (way, follow_up)
        assert len(server.app[RECORDER].events) == (1 if way == "websocket" else 0)
        if way != "create":
            kinds = [events.count(f"response.{kind}") for kind in ("created", "output_item.done", "completed")]
            assert kinds == [3, 6, 3], (way, follow_up)
