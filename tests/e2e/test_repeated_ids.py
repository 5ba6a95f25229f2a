"""A server that gives every call the same id, in conversations of several turns over each protocol (R28.6)."""

from __future__ import annotations

import json
from itertools import product
from typing import Any

from tests.e2e.conftest import Gateway, post, upstream_config
from tests.e2e.meaning import CLIENTS, history, says
from tests.e2e.test_cut_calls import asking
from toolwire.model import ToolUse
from toolwire.testing import Upstream

IDS = ("call_0", "functions.read:0", "Ab1Cd2Ef3")


def ident_in(body: str) -> str:
    """The id of the call in an answer of any protocol, streamed or not."""
    lines = [body] if body.startswith("{") else [line[6:] for line in body.splitlines() if line.startswith("data: {")]

    def search(value: Any) -> str | None:
        if isinstance(value, dict):
            if value.get("type") in ("function", "tool_use") and isinstance(value.get("id"), str):
                return str(value["id"])
            if value.get("type") == "function_call":
                return str(value["call_id"])
            value = list(value.values())
        found = map(search, value) if isinstance(value, list) else ()
        return next(filter(None, found), None)

    found = search([json.loads(line) for line in lines])
    assert found is not None, body
    return found


async def test_each_call_has_an_id_of_its_own_and_the_server_gets_its_own_form(gateway: Gateway) -> None:
    now = IDS[0]
    async with Upstream([lambda asked: says("openai_chat", ToolUse(now, "read", '{"path":"a"}'))(asked)]) as up:
        server = await gateway(upstream_config(up.url, backend={"preset": "generic"}, defaults={"mode": "native"}))
        for now, path, stream in product(IDS, CLIENTS, (False, True)):
            turns: list[str] = []
            for _ in range(4):
                told = history(path, *([(ident, "read", {}, "x")] for ident in turns))
                answer = await post(server, {**asking(path, stream), **told}, path=path)
                assert answer.status == 200, answer.body
                turns.append(ident_in(answer.body.decode()))
            case = (now, path, stream)
            assert len(set(turns)) == 4, case
            last = up.posts[-1].json["messages"]
            assert [call["id"] for one in last for call in one.get("tool_calls") or ()] == [now] * 3, case
            assert [one["tool_call_id"] for one in last if one["role"] == "tool"] == [now] * 3, case
