"""Earlier calls are shown in a form that the gateway reads back (R5.7), so a model that imitates them, as small ones
do, makes calls.

The model here says again what the prompt has of its last call, and the gateway must find that call in it.
"""

from __future__ import annotations

import json
from itertools import cycle, product
from typing import Any

import pytest

from tests.e2e.conftest import Gateway, function, post, upstream_config
from tests.e2e.test_copying import in_pieces
from tests.e2e.test_formats import RESPONSES, chat_parts, chat_stream_parts, response_parts
from tests.formats.cases import FORMATS
from toolwire.formats.base import ToolFormat
from toolwire.model import ToolUse
from toolwire.testing import Answer, Asked, Say, Upstream

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


OVER_CHAT = {
    "messages": [
        {"role": "user", "content": "hi"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "call_1", "type": "function", "function": {"name": "note", "arguments": CALLED}}],
        },
        {"role": "tool", "tool_call_id": "call_1", "content": "noted"},
    ],
    "tools": TOOLS,
}
RESULT = {"type": "function_call_output", "call_id": "call_1", "output": "noted"}
OVER_RESPONSES = {
    "input": [
        {"role": "user", "content": "hi"},
        {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "note", "arguments": CALLED},
        RESULT,
    ],
    "tools": FLAT,
}
WAYS = product(("auto", "bracket"), ("chat", "responses", "stored"), (False, True))
"""How calls are shown, over what they come, and whether streamed: independent of the format, so in turn. All formats:
`tests/formats/test_transcript.py`."""


@pytest.mark.parametrize(("tool_format", "way"), list(zip(FORMATS[::3], cycle(WAYS))))
async def test_an_earlier_call_that_is_imitated_is_a_call(
    gateway: Gateway, tool_format: ToolFormat, way: tuple[str, str, bool]
) -> None:
    assert tool_format.layout is not None
    flatten, client, stream = way
    async with Upstream([imitate]) as upstream:
        options = {"format": tool_format.name, "flatten": flatten}
        server = await gateway(upstream_config(upstream.url, defaults=options))
        earlier, arguments = "call_1", ARGUMENTS
        if client == "chat":
            answer = await post(server, {**OVER_CHAT, "stream": stream})
        elif client == "responses":
            answer = await post(server, {**OVER_RESPONSES, "stream": stream}, path=RESPONSES)
        else:
            arguments = {**ARGUMENTS, "text": "short", "tags": []}
            upstream.script = [Say(tool_format.layout.call(ToolUse("", "note", json.dumps(arguments)))), imitate]
            made = (await post(server, {"input": "hi", "tools": FLAT}, path=RESPONSES)).json()
            earlier = made["output"][0]["call_id"]
            body = {"input": [{**RESULT, "call_id": earlier}], "tools": FLAT, "previous_response_id": made["id"]}
            answer = await post(server, {**body, "stream": stream}, path=RESPONSES)
    parts = parts_of(answer, stream=stream, responses=client != "chat")
    assert [(part.kind, part.name, json.loads(part.text)) for part in parts] == [("call", "note", arguments)]
    assert parts[0].id != earlier  # given out once in a conversation
