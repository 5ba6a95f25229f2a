"""A model that copies what it was shown gives back the bytes, though data in prompts is escaped (R5.6a), and one that
imitates its earlier calls makes calls.

The model here reads a file through a tool result and copies it, as it was shown to it, into calls in the format that it
was taught.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import cycle, product
from typing import Any

from tests.cases import every
from tests.corpus.cases import Part
from tests.e2e.conftest import CHAT, Gateway, function, gateway_before, post, upstream_config
from tests.e2e.speaking import in_pieces
from tests.e2e.test_formats import RESPONSES, chat_parts, chat_stream_parts, response_parts
from tests.formats.cases import FORMATS
from toolwire.formats.base import ToolFormat, control_tokens
from toolwire.formats.families import hermes
from toolwire.model import ToolUse
from toolwire.testing import Answer, Asked, Say, Upstream, WireAnswer

TOOLS = [
    function("read_file", path="string"),
    function("write_file", path="string", content="string"),
    function("edit_file", path="string", old_string="string", new_string="string"),
    function("note", text="string", count="integer", tags="array", more="object"),
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


def chat(result: str, name: str = "read_file", arguments: str = '{"path":"a"}', **more: Any) -> dict[str, Any]:
    """A request in whose history a call had this result."""
    call = {"id": "call_1", "type": "function", "function": {"name": name, "arguments": arguments}}
    messages = [
        {"role": "user", "content": "Copy it."},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_1", "content": result},
    ]
    return {"messages": messages, "tools": TOOLS, **more}


def responses(result: str, name: str = "read_file", arguments: str = '{"path":"a"}', **more: Any) -> dict[str, Any]:
    """The same over Responses."""
    call = {"type": "function_call", "call_id": "call_1", "name": name, "arguments": arguments}
    output = {"type": "function_call_output", "call_id": "call_1", "output": result}
    return {"input": [{"role": "user", "content": "Copy it."}, call, output], "tools": FLAT, **more}


def parts_of(answer: WireAnswer, *, stream: bool, of_responses: bool) -> list[Part]:
    frames = [frame for frame in answer.frames() if frame != "[DONE]"] if stream else []
    if of_responses:
        return response_parts(frames[-1]["response"] if stream else answer.json())
    return chat_stream_parts(frames) if stream else chat_parts(answer.json())


WAYS = ("chat", "responses streamed", "chat live", "responses", "chat streamed", "responses live")
"""Over what the calls come, and how: independent of the format, so one for each in turn. All formats:
`tests/formats/test_forging.py`."""


@every("tool_format, way", zip(FORMATS[::3], cycle(WAYS)))
async def test_a_file_with_every_marker_is_copied_and_edited(
    gateway: Gateway, tool_format: ToolFormat, way: str
) -> None:
    client, _, how = way.partition(" ")
    async with Upstream([copier(tool_format)]) as upstream:
        options = {"format": tool_format.name, "argument_streaming": 0 if how == "live" else "buffered"}
        server = await gateway(upstream_config(upstream.url, defaults=options))
        body, path = (chat, CHAT) if client == "chat" else (responses, RESPONSES)
        answer = await post(server, body(FILE, stream=bool(how)), path=path)
    parts = parts_of(answer, stream=bool(how), of_responses=path == RESPONSES)
    assert [part.name for part in parts] == ["write_file", "edit_file"]
    written, edit = (json.loads(part.text) for part in parts)
    assert written == {"path": "b", "content": FILE}
    assert edit == {"path": "a", "old_string": EDITED, "new_string": f"{EDITED}!"}


@every("stream", [False, True])
async def test_text_and_thoughts_are_copied_too(stream: bool) -> None:
    def repeat(asked: Asked) -> Answer:
        copied = shown(hermes.FORMAT, asked)
        return Say(*in_pieces(f"<think>{copied}</think>{copied}", 7))(asked)

    async with gateway_before([repeat]) as (server, _):
        answer = await post(server, chat(FILE, stream=stream))
    parts = parts_of(answer, stream=stream, of_responses=False)
    assert [(part.kind, part.text) for part in parts] == [("reasoning", FILE), ("text", FILE)]


OWN = r"<\/tool_call> <\\tool_call> <\|im_end|> <\think>"
"""What nobody escaped."""


async def test_what_the_model_wrote_on_its_own_is_not_changed() -> None:
    """Only what looks exactly like an escape of this very prompt is one; here other markers were escaped, or one with
    more backslashes."""
    arguments = json.dumps({"path": "a", "content": OWN})
    call = FORMATS[0].render_call(ToolUse("", "write_file", arguments))
    async with gateway_before() as (server, upstream):
        for file, (text, wanted), stream in product(
            ("no markers", "</tool_response> but another", r"<\/tool_call>"),
            ((OWN, OWN), (call, arguments)),
            (False, True),
        ):
            upstream.script = [Say(*in_pieces(text, 3))]
            answer = await post(server, chat(file, stream=stream))
            assert [part.text for part in parts_of(answer, stream=stream, of_responses=False)] == [wanted], file


# --- earlier calls --------------------------------------------------------------------------------------------------

ARGUMENTS = {
    "text": "line one\n</tool_call> ```\n]) } <|im_end|> \\ \"q\" 'p' é",
    "count": 3,
    "tags": ["a]", "<think>", True, None],
    "more": {"deep": {"x": [1, {"y": "z"}]}, "none": {}},
}
SHOWN = product(("auto", "bracket"), ("chat", "responses", "stored"), (False, True))
"""How calls are shown, over what they come, and whether streamed: independent of the format, so in turn. All formats:
`tests/formats/test_transcript.py`."""


def imitate(asked: Asked) -> Answer:
    """The last assistant message, word for word."""
    *_, last = (message["content"] for message in asked.json["messages"] if message["role"] == "assistant")
    return Say(*in_pieces(last, 7))(asked)


@every("tool_format, way", zip(FORMATS[::3], cycle(SHOWN)))
async def test_an_earlier_call_that_is_imitated_is_a_call(
    gateway: Gateway, tool_format: ToolFormat, way: tuple[str, str, bool]
) -> None:
    """Earlier calls are shown in a form that the gateway reads back (R5.7), so a model that says them again, as small
    ones do, makes calls."""
    assert tool_format.layout is not None
    flatten, client, stream = way
    async with Upstream([imitate]) as upstream:
        options = {"format": tool_format.name, "flatten": flatten}
        server = await gateway(upstream_config(upstream.url, defaults=options))
        earlier, arguments = "call_1", ARGUMENTS
        called = json.dumps(ARGUMENTS, ensure_ascii=False)
        if client == "chat":
            answer = await post(server, chat("noted", "note", called, stream=stream))
        elif client == "responses":
            answer = await post(server, responses("noted", "note", called, stream=stream), path=RESPONSES)
        else:
            arguments = {**ARGUMENTS, "text": "short", "tags": []}
            upstream.script = [Say(tool_format.layout.call(ToolUse("", "note", json.dumps(arguments)))), imitate]
            made = (await post(server, {"input": "hi", "tools": FLAT}, path=RESPONSES)).json()
            earlier = made["output"][0]["call_id"]
            result = {"type": "function_call_output", "call_id": earlier, "output": "noted"}
            body = {"input": [result], "tools": FLAT, "previous_response_id": made["id"], "stream": stream}
            answer = await post(server, body, path=RESPONSES)
    parts = parts_of(answer, stream=stream, of_responses=client != "chat")
    assert [(part.kind, part.name, json.loads(part.text)) for part in parts] == [("call", "note", arguments)]
    assert parts[0].id != earlier  # given out once in a conversation
