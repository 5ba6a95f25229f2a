"""The second request after a near miss (R30.4): it demands the tool that was tried, and a server that can enforces it,
in every mode and protocol."""

from __future__ import annotations

from typing import Any

from tests.cases import every, first_and_in_turn
from tests.e2e.conftest import CHAT, USER, Gateway, function, post
from tests.e2e.engines import page
from tests.e2e.meaning import CLIENTS, MESSAGES, RESPONSES, says
from tests.e2e.test_repeated_calls import config
from toolwire.model import Reasoning, ToolUse
from toolwire.testing import Answer, Asked, Say, Upstream

READ = function("read_file", path="string")
WRITE = function("write_file", path="string", content="string")
TOOLS = [READ, WRITE]
GOOD = '<tool_call>{"name":"read_file","arguments":"{\\"path\\":\\"a\\"}"}</tool_call>'
NEAR = '<tool_call>{"name":"read_file","arguments":{"path": }}</tool_call>'
RECITED = (
    '{"name":"read_file","description":"Reads a file.",'
    '"parameters":{"type":"object","properties":{"path":{"type":"string"}}}}'
)


def body(path: str, *, stream: bool, choice: Any = "auto") -> dict[str, Any]:
    asked: dict[str, Any] = {"model": "m", "stream": stream}
    if path == CHAT:
        return {**asked, "messages": USER, "tools": TOOLS, "tool_choice": choice}
    if path == RESPONSES:
        return {**asked, "input": "hi", "tools": [{"type": "function", **tool["function"]} for tool in TOOLS]}
    described = [{"name": t["function"]["name"], "input_schema": t["function"]["parameters"]} for t in TOOLS]
    return {**asked, "max_tokens": 99, "messages": USER, "tools": described}


def grammars(upstream: Upstream) -> list[str]:
    return [asked.json.get("grammar", "") for asked in upstream.posts]


@every(
    "path, near, stream",
    [
        (CHAT, NEAR, False),
        (CHAT, RECITED, True),
        (RESPONSES, RECITED, True),
        (MESSAGES, f"```json\n{RECITED}\n```", False),
    ],
)
async def test_the_tool_that_was_tried_is_enforced(gateway: Gateway, path: str, near: str, stream: bool) -> None:
    async with Upstream([Say(near), Say(GOOD)]) as upstream:
        server = await gateway(config(upstream.url))
        answer = await post(server, body(path, stream=stream), path=path)
        assert answer.status == 200
        assert b"Reads a file." not in answer.body
        assert answer.body.count(b"read_file") >= 1
    first, second = grammars(upstream)
    assert "write_file" in first, "under `auto` any tool may be called"
    assert "read_file" in second
    assert "write_file" not in second
    assert "[^" not in second.partition("\n")[0], "no text may stand before the call"
    messages = upstream.posts[1].json["messages"]
    assert messages[: len(upstream.posts[0].json["messages"])] == upstream.posts[0].json["messages"]
    assert messages[-1]["content"].endswith('Answer again: call the tool "read_file", and write nothing else.')


RED, RIGHT = (says("openai_chat", ToolUse("call_1", name, '{"path":"a"}')) for name in ("red_file", "read_file"))


@every("refuses", [False, True])
async def test_a_server_that_makes_calls_itself(gateway: Gateway, refuses: bool) -> None:
    """It is told in its own words; one that refuses such a choice is asked without."""

    def second(asked: Asked) -> Answer:
        assert asked.json["tool_choice"] == {"type": "function", "function": {"name": "read_file"}}
        if refuses:
            return page({"error": {"message": "no named choice here", "code": 400}}, 400)
        return RIGHT(asked)

    async with Upstream([RED, second, RIGHT]) as upstream:
        server = await gateway(config(upstream.url, mode="native", backend={}))
        answer = (await post(server, body(CHAT, stream=False))).json()
        (call,) = answer["choices"][0]["message"]["tool_calls"]
        assert call["function"]["name"] == "read_file"
    assert len(upstream.posts) == 2 + refuses
    assert "tool_choice" not in upstream.posts[-1].json or not refuses


@every("native, path", first_and_in_turn([False, True], CLIENTS))
async def test_a_call_in_a_thought_that_never_closes(gateway: Gateway, path: str, native: bool) -> None:
    thought = f"I have to read it.\n{GOOD}\n"
    as_text = Say(f"<think>{thought}")
    first = says("openai_chat", Reasoning(thought)) if native else as_text
    async with Upstream([first, Say(GOOD)]) as upstream:
        server = await gateway(config(upstream.url, **({"mode": "native"} if native else {})))
        answer = await post(server, body(path, stream=False), path=path)
        assert b"I have to read it" not in answer.body
        assert b"read_file" in answer.body
    assert len(upstream.posts) == 2
    assert "in reasoning that has no end" in upstream.posts[1].json["messages"][-1]["content"]
