"""A model that copies what it was shown gives back the bytes, though data in prompts is escaped (R5.6a).

The model here reads a file through a tool result and copies it, as it was shown to it, into calls in the format that it
was taught.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import cycle
from typing import Any

import pytest

from tests.e2e.conftest import Gateway, function, post, upstream_config
from tests.e2e.speaking import in_pieces
from tests.e2e.test_formats import RESPONSES, chat_parts, chat_stream_parts, response_parts
from tests.formats.cases import FORMATS
from toolwire.formats.base import ToolFormat, control_tokens
from toolwire.formats.families import hermes
from toolwire.model import ToolUse
from toolwire.testing import Answer, Asked, Say, Upstream

TOOLS = [
    function("read_file", path="string"),
    function("write_file", path="string", content="string"),
    function("edit_file", path="string", old_string="string", new_string="string"),
]
FLAT = [{"type": "function", "strict": False, **tool["function"]} for tool in TOOLS]
MARKERS = sorted(
    {
        *(m for f in FORMATS for m in (*f.grammar.markers, *f.results.markers)),
        *control_tokens(),
        "<think>",
        "[function_call",
    }
)
LINES = [
    *(f"a{marker}b" for marker in MARKERS),
    *(rf"{marker[0]}\{marker[1:]} {marker[0]}\\{marker[1:]}" for marker in MARKERS[::3]),
    *FORMATS[0].render_call(ToolUse("", "write_file", '{"path":"x"}')).splitlines(),
    "```json",
    '{"name":"write_file","arguments":{}}',
    "```",  # an open fence would hold the end of a thought
    "say 'x' and \"y\", é\U0001f600 \\n \\\\ end",
]
FILE = "\n".join(LINES)
EDITED = "a</tool_call>b"


def shown(tool_format: ToolFormat, asked: Asked) -> str:
    """The file, as the prompt has it."""
    form = tool_format.results
    last = asked.json["messages"][-1]
    assert last["role"] == "user"
    behind = form.behind_opener(last["content"].removeprefix(form.first))
    assert behind is not None
    return str(behind.removesuffix(form.closer + form.last))


def copier(tool_format: ToolFormat) -> Callable[[Asked], Answer]:
    """Writes the file again, and edits one line of it by exact match."""

    def answer(asked: Asked) -> Answer:
        content = shown(tool_format, asked)
        line = content.split("\n")[FILE.split("\n").index(EDITED)]
        wanted = [
            ("write_file", {"path": "b", "content": content}),
            ("edit_file", {"path": "a", "old_string": line, "new_string": f"{line}!"}),
        ]
        uses = [ToolUse("", name, json.dumps(arguments, ensure_ascii=False)) for name, arguments in wanted]
        assert tool_format.layout is not None
        return Say(*in_pieces(tool_format.layout.calls(uses), 61))(asked)

    return answer


def chat(file: str, **more: Any) -> dict[str, Any]:
    call = {"id": "call_1", "type": "function", "function": {"name": "read_file", "arguments": '{"path":"a"}'}}
    messages = [
        {"role": "user", "content": "Copy it."},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_1", "content": file},
    ]
    return {"messages": messages, "tools": TOOLS, **more}


def responses(file: str, **more: Any) -> dict[str, Any]:
    call = {"type": "function_call", "call_id": "call_1", "name": "read_file", "arguments": '{"path":"a"}'}
    result = {"type": "function_call_output", "call_id": "call_1", "output": file}
    return {"input": [{"role": "user", "content": "Copy it."}, call, result], "tools": FLAT, **more}


WAYS = ("chat", "responses streamed", "chat live", "responses", "chat streamed", "responses live")
"""Over what the calls come, and how: independent of the format, so one for each in turn. All formats:
`tests/formats/test_forging.py`."""


@pytest.mark.parametrize(("tool_format", "way"), list(zip(FORMATS[::3], cycle(WAYS))))
async def test_a_file_with_every_marker_is_copied_and_edited(
    gateway: Gateway, tool_format: ToolFormat, way: str
) -> None:
    client, _, how = way.partition(" ")
    async with Upstream([copier(tool_format)]) as upstream:
        options = {"format": tool_format.name, "argument_streaming": 0 if how == "live" else "buffered"}
        server = await gateway(upstream_config(upstream.url, defaults=options))
        if client == "chat":
            answer = await post(server, chat(FILE, stream=bool(how)))
            parts = chat_stream_parts(answer.frames()[:-1]) if how else chat_parts(answer.json())
        else:
            answer = await post(server, responses(FILE, stream=bool(how)), path=RESPONSES)
            whole = [f for f in answer.frames() if isinstance(f, dict)][-1]["response"] if how else answer.json()
            parts = response_parts(whole)
    assert [part.name for part in parts] == ["write_file", "edit_file"]
    written, edit = (json.loads(part.text) for part in parts)
    assert written == {"path": "b", "content": FILE}
    assert edit == {"path": "a", "old_string": EDITED, "new_string": f"{EDITED}!"}


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_text_and_thoughts_are_copied_too(gateway: Gateway, stream: bool) -> None:
    def repeat(asked: Asked) -> Answer:
        copied = shown(hermes.FORMAT, asked)
        return Say(*in_pieces(f"<think>{copied}</think>{copied}", 7))(asked)

    async with Upstream([repeat]) as upstream:
        server = await gateway(upstream_config(upstream.url))
        answer = await post(server, chat(FILE, stream=stream))
    parts = chat_stream_parts(answer.frames()[:-1]) if stream else chat_parts(answer.json())
    assert [(part.kind, part.text) for part in parts] == [("reasoning", FILE), ("text", FILE)]


OWN = r"<\/tool_call> <\\tool_call> <\|im_end|> <\think>"
"""What nobody escaped."""


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("file", ["no markers", "</tool_response> but another", r"<\/tool_call>"])
async def test_what_the_model_wrote_on_its_own_is_not_changed(gateway: Gateway, file: str, stream: bool) -> None:
    """Only what looks exactly like an escape of this very prompt is one; here other markers were escaped, or one with
    more backslashes."""
    arguments = json.dumps({"path": "a", "content": OWN})
    call = FORMATS[0].render_call(ToolUse("", "write_file", arguments))
    for text in (OWN, call):
        async with Upstream([Say(*in_pieces(text, 3))]) as upstream:
            server = await gateway(upstream_config(upstream.url))
            answer = await post(server, chat(file, stream=stream))
        (part,) = chat_stream_parts(answer.frames()[:-1]) if stream else chat_parts(answer.json())
        assert part.text == (OWN if text is OWN else arguments)
