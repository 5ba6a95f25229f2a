"""Tools that stand in stored turns, and `compaction_trigger` (R28.1)."""

from __future__ import annotations

import json
from typing import Any

from tests.cases import every
from tests.e2e.conftest import gateway_before, post
from tests.e2e.responses_answers import RESPONSES, tool
from toolwire.protocols.responses.summaries import REQUEST
from toolwire.testing import Say

LOOK = tool("look", at="string")
SEARCH = {"type": "tool_search", "execution": "client", "parameters": {"type": "object", "properties": {}}}
MAIL = {"type": "namespace", "name": "mail", "tools": [{**tool("send", to="string"), "defer_loading": True}]}
HI = {"role": "user", "content": "hi"}
CALL = '<tool_call>{"name": "look", "arguments": {"at": "x"}}</tool_call>'

SEND = '<tool_call>{"name": "mail__send", "arguments": {"to": "a"}}</tool_call>'


def additional(*tools: Any) -> dict[str, Any]:
    return {"type": "additional_tools", "role": "developer", "tools": list(tools)}


def items_of(answer: Any, *, stream: bool) -> list[Any]:
    if not stream:
        return list(answer.json()["output"])
    frames = [json.loads(line[6:]) for line in answer.body.decode().splitlines() if line.startswith("data: {")]
    assert frames[-1]["type"] == "response.completed"
    done = [frame["item"] for frame in frames if frame["type"] == "response.output_item.done"]
    assert frames[-1]["response"]["output"] == done
    return done


@every("stream", [False, True])
async def test_tools_of_a_stored_turn_are_on_offer(stream: bool) -> None:
    """What is called is a call, and what a search has found stays found; a tool of the request counts before it."""
    turns = [Say("Hello."), Say(CALL), Say("Yes."), Say(SEND)]
    async with gateway_before(turns, defaults={"mode": "prompt"}) as (server, upstream):
        first = (await post(server, {"input": [additional(LOOK, SEARCH, MAIL), HI]}, path=RESPONSES)).json()
        later = {"input": [HI], "previous_response_id": first["id"], "stream": stream}
        (call,) = items_of(await post(server, later, path=RESPONSES), stream=stream)
        assert (call["type"], call["name"], call["arguments"]) == ("function_call", "look", '{"at": "x"}')
        assert "mail" not in json.dumps(upstream.requests[1].json)  # deferred
        found = [
            {"type": "tool_search_call", "call_id": "c1", "execution": "client", "arguments": {}},
            {"type": "tool_search_output", "call_id": "c1", "execution": "client", "tools": [MAIL]},
        ]
        second = (await post(server, {**later, "stream": False, "input": found}, path=RESPONSES)).json()
        own = {"input": [HI], "previous_response_id": second["id"], "tools": [tool("look", near="string")]}
        (call,) = (await post(server, own, path=RESPONSES)).json()["output"]
        assert (call["namespace"], call["name"]) == ("mail", "send")
        told = str(upstream.requests[3].json["messages"])
        assert "near" in told
        assert '"at"' not in told.split("</tools>")[0]


async def test_settings_of_a_stored_turn_are_in_force() -> None:
    update = {"type": "configuration_update", "text": {"format": {"type": "json_object"}}}
    async with gateway_before([Say("{}")], backend={"response_format": ["json_object"]}) as (server, upstream):
        first = (await post(server, {"input": [update, HI]}, path=RESPONSES)).json()
        await post(server, {"input": "On.", "previous_response_id": first["id"]}, path=RESPONSES)
    assert [request.json["response_format"] for request in upstream.requests] == [{"type": "json_object"}] * 2


@every("mode, stream", [("prompt", False), ("native", True), ("prompt", True)])
async def test_a_compaction_trigger_gives_one_item(mode: str, stream: bool) -> None:
    """It is stored as it was given, and what it holds is read by the model later."""
    async with gateway_before([Say("The user said hi."), Say("Yes.")], defaults={"mode": mode}) as (server, upstream):
        body = {"input": [HI, {"type": "compaction_trigger"}], "tools": [LOOK], "stream": stream}
        answer = await post(server, {**body, "tool_choice": "required"}, path=RESPONSES)
        (item,) = items_of(answer, stream=stream)
        assert (item["type"], item["id"][:4]) == ("compaction", "cmp_")
        asked = upstream.requests[0].json
        assert asked["messages"][-1] == {"role": "user", "content": REQUEST}
        assert "tools" not in asked
        await post(server, {"input": [item, HI], "tools": [LOOK]}, path=RESPONSES)
        assert "The user said hi." in json.dumps(upstream.requests[1].json)
