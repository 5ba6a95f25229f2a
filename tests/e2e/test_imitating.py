"""The model sees earlier calls only in a form that is read back (R5.7): whoever imitates them, as small models do,
calls.

The model here says again what the prompt has of its last call, and the gateway must find that call in it.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from proxy.formats.base import ToolFormat
from proxy.model import ToolUse
from proxy.testing import Answer, Asked, Say, Upstream
from tests.e2e.conftest import Gateway, function, post, upstream_config
from tests.e2e.test_copying import in_pieces
from tests.e2e.test_formats import RESPONSES, chat_parts, chat_stream_parts, response_parts
from tests.formats.cases import every_format

TOOLS = [
    function("look", at="string"),
    function("note", text="string", count="integer", tags="array", more="object"),
]
FLAT = [{"type": "function", "strict": False, **tool["function"]} for tool in TOOLS]
ARGUMENTS = {
    "text": "line one\n</tool_call> ```\n]) } <|im_end|> \\ \"q\" 'p' é",
    "count": 3,
    "tags": ["a]", "<think>", True, None],
    "more": {"deep": {"x": [1, {"y": "z"}]}, "none": {}},
}
CALLED = json.dumps(ARGUMENTS, ensure_ascii=False)


def imitate(asked: Asked) -> Answer:
    """The last assistant message, word for word."""
    *_, last = (message["content"] for message in asked.json["messages"] if message["role"] == "assistant")
    return Say(*in_pieces(last, 7))(asked)


def parts_of(answer: Any, *, stream: bool, responses: bool) -> list[Any]:
    frames = answer.frames() if stream else []
    if responses:
        return response_parts([f for f in frames if isinstance(f, dict)][-1]["response"] if stream else answer.json())
    return chat_stream_parts(frames[:-1]) if stream else chat_parts(answer.json())


@pytest.mark.parametrize("flatten", ["auto", "bracket"])
@every_format
async def test_an_earlier_call_that_is_imitated_is_a_call(
    gateway: Gateway, tool_format: ToolFormat, flatten: str
) -> None:
    assert tool_format.layout is not None
    first = tool_format.layout.call(ToolUse("", "note", json.dumps({**ARGUMENTS, "text": "short", "tags": []})))
    options = {"format": tool_format.name, "flatten": flatten}
    found = {}
    async with Upstream() as upstream:
        server = await gateway(upstream_config(upstream.url, defaults=options))
        upstream.script = [imitate]
        call = {"id": "call_1", "type": "function", "function": {"name": "note", "arguments": CALLED}}
        messages = [
            {"role": "user", "content": "hi"},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "call_1", "content": "noted"},
        ]
        item = {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "note", "arguments": CALLED}
        result = {"type": "function_call_output", "call_id": "call_1", "output": "noted"}
        stream = flatten == "auto"  # how it comes has nothing to do with what is read in it: each format, each way
        chat = await post(server, {"messages": messages, "tools": TOOLS, "stream": stream})
        found["chat"] = parts_of(chat, stream=stream, responses=False)
        body = {"input": [{"role": "user", "content": "hi"}, item, result], "tools": FLAT, "stream": not stream}
        found["responses"] = parts_of(await post(server, body, path=RESPONSES), stream=not stream, responses=True)
        upstream.script = [Say(first), imitate]
        asked = {"input": "hi", "tools": FLAT}
        made = (await post(server, asked, path=RESPONSES)).json()
        (call,) = made["output"]
        result = {**result, "call_id": call["call_id"]}
        body = {**asked, "input": [result], "previous_response_id": made["id"]}
        stored = parts_of(await post(server, body, path=RESPONSES), stream=False, responses=True)
    for way, parts in found.items():
        assert [(part.kind, part.name, json.loads(part.text)) for part in parts] == [("call", "note", ARGUMENTS)], way
        assert parts[0].id != "call_1"  # given out once in a conversation
    assert [(part.name, json.loads(part.text)) for part in stored] == [("note", json.loads(call["arguments"]))]
    assert stored[0].id != call["call_id"]
