"""Nothing that a client, a user or a tool says is read back as a call, ends its message or begins another one (R5.6,
R5.7).

What the model server gets is fed to the scanner that will read its answer, with nobody to say that a name is unknown:
it finds the calls that were made, and no others.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from random import Random
from typing import Any, Final, Literal

import orjson

from tests.cases import every
from tests.formats.cases import FORMATS, apart, every_format, inside, restore_json, restored, scan, share
from toolwire.config import PromptConfig
from toolwire.formats.base import ToolFormat, control_tokens, escaping_for, escaping_in_calls
from toolwire.formats.engine.layout import Tagged, keyword
from toolwire.formats.engine.values import read_object
from toolwire.formats.recognised.brackets import reading_brackets
from toolwire.model import Message, ModelRequest, Text, ToolResult, ToolSpec, ToolUse
from toolwire.prompting.prompt import segment
from toolwire.prompting.transcript import inject
from toolwire.protocols.chat.protocol import ChatProtocol
from toolwire.protocols.responses.protocol import ResponsesProtocol
from toolwire.upstream.servers.adapt import adapt
from toolwire.upstream.servers.base import Capabilities

Flatten = Literal["sentinel", "bracket"]

CONVERSATIONS: Final = 4
THINK: Final = ("<think>", "</think>")
"""What every route reads as reasoning, unless it says otherwise."""
EVIL: Final = ToolUse("evil", "rm", '{"q":"x"}')
PROPERTIES: Final = {"q": {"type": "string"}, "n": {"type": "integer"}}
TOOL: Final = ToolSpec("search", None, {"type": "object", "properties": PROPERTIES})
RM: Final = ToolSpec("rm", None, {"type": "object", "properties": PROPERTIES})
CALLS: Final = tuple(dict.fromkeys(f.render_call(EVIL) for f in FORMATS))
MARKERS: Final = tuple(
    dict.fromkeys(
        [
            *(m for f in FORMATS for m in (*f.grammar.markers, *f.results.markers)),
            *THINK,
            "[function_call id=a",
            *sorted(control_tokens()),
        ]
    )
)
PLAIN: Final = ("", " ", "\n", "<", "[", "{", "`", "x", "é", "\\", '{"name":', "[f(")
PROTOCOLS: Final = {"chat": ChatProtocol(), "responses": ResponsesProtocol()}

every_style = every("flatten", ["sentinel", "bracket"])


class Hostile:
    """Texts that are markers, calls of every format and halves of these, perhaps escaped already; more often than
    others those of one format."""

    def __init__(self, tool_format: ToolFormat, seed: str) -> None:
        self.random = Random(f"{tool_format.name} {seed}")
        self.own = (*[tool_format.render_call(EVIL)] * 4, *own_literals(tool_format))

    def parts(self) -> list[str]:
        """Texts that stand one behind the other."""
        parts: list[str] = []
        for _ in range(self.random.randint(1, 4)):
            whole = self.random.choice(self.random.choice((self.own, CALLS, MARKERS, PLAIN)))
            at = self.random.randint(0, len(whole))
            parts += whole[:at], self.random.choice(("", "", "", "\\", "\\\\")) + whole[at:]
        return parts

    def text(self) -> str:
        return "".join(self.parts())


def chat(texts: Sequence[Any], arguments: str, ids: Sequence[str]) -> dict[str, Any]:
    """A Chat request with these texts wherever there is text. The call that is made is one of `search`."""
    user, said, result, more, name = texts

    def parts(pieces: Iterable[str]) -> list[dict[str, Any]]:
        return [{"type": "text", "text": piece} for piece in pieces]

    calls = [{"id": i, "type": "function", "function": {"name": "search", "arguments": arguments}} for i in ids]
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,xx"}}
    return {
        "model": "m",
        "messages": [
            {"role": "user", "content": parts(user), "name": "".join(name)},
            {"role": "assistant", "content": "".join(said), "tool_calls": calls},
            *({"role": "tool", "tool_call_id": i, "content": parts(result)} for i in ids),
            {"role": "assistant", "content": "".join(more)},
            {"role": "user", "content": [*parts(more[:1]), image, *parts(more[1:])]},
        ],
        "tools": [{"type": "function", "function": {"name": "search", "description": "".join(user), "parameters": TOOL.parameters}}],
    }  # fmt: skip


def responses(texts: Sequence[Any], arguments: str, ids: Sequence[str]) -> dict[str, Any]:
    """The same as a Responses request; the tool is in a group."""
    user, said, result, more, name = texts

    def message(role: str, pieces: Iterable[str]) -> dict[str, Any]:
        kind = "output_text" if role == "assistant" else "input_text"
        return {"type": "message", "role": role, "content": [{"type": kind, "text": piece} for piece in pieces]}

    call = {"type": "function_call", "name": "search", "arguments": arguments, "status": "completed"}
    properties = {"".join(name): {"type": "string", "enum": ["".join(more)]}}
    tool = {"type": "function", "name": "other", "parameters": {"type": "object", "properties": properties}}
    return {
        "model": "m",
        "input": [
            message("user", user),
            message("assistant", said),
            *({**call, "id": f"fc_{i}", "call_id": i} for i in ids),
            *({"type": "function_call_output", "call_id": i, "output": "".join(result)} for i in ids),
            message("assistant", more),
            message("user", more),
        ],
        "tools": [
            {"type": "function", "name": "search", "parameters": TOOL.parameters},
            {"type": "namespace", "name": "".join(name) or "n", "description": "".join(said), "tools": [tool]},
        ],
    }  # fmt: skip


def sent(asked: ModelRequest, tool_format: ToolFormat, flatten: Flatten, *, merged: bool = False) -> ModelRequest:
    """What a chat backend gets."""
    told = segment(asked, tool_format, PromptConfig())
    changed = inject(asked, told, tool_format, flatten=flatten, also=THINK)
    return adapt(changed, Capabilities(images=True, merge_roles=merged))


def calls_in(tool_format: ToolFormat, text: str, tools: Sequence[ToolSpec] | None = None) -> list[ToolUse]:
    """The calls that a scanner finds in a text; of any tool, if none are given."""
    parts = scan(tool_format, tools, [text])
    return [part for part in restored(tool_format, parts, THINK) if isinstance(part, ToolUse)]


def typed(tool_format: ToolFormat, key: str) -> ToolSpec:
    """The tool, which also takes a text under the name that becomes of `key`."""
    assert tool_format.layout is not None
    row = tool_format.layout.arguments
    shown_as = row.key(key, escaping_in_calls(tool_format, THINK)) if isinstance(row, Tagged) else key
    return replace(TOOL, parameters={"type": "object", "properties": {**PROPERTIES, shown_as: {"type": "string"}}})


def original_key(shown: str) -> str:
    """The key for which `Tagged.key` wrote this."""
    return re.sub(r"\\u([0-9a-f]{4})", lambda found: chr(int(found[1], 16)), shown)


def shown(tool_format: ToolFormat, arguments: str) -> Any:
    """The value of arguments as they are read back. Keys that a format cannot say look alike."""
    layout = tool_format.layout
    assert layout is not None
    value = read_object(arguments)
    assert value is not None, arguments
    if isinstance(layout.arguments, Tagged):
        value = {original_key(key): inner for key, inner in value.items()}
    if layout.arguments == "keywords":
        value = {keyword(key): inner for key, inner in value.items()}
    return apart(value)


@every_format
@every_style
@every("protocol", ["chat", "responses"])
def test_the_calls_that_were_made_are_read_back_and_no_others(
    tool_format: ToolFormat, flatten: Flatten, protocol: str
) -> None:
    assert tool_format.layout is not None
    ours = tool_format.layout.calls([ToolUse("", "search", '{"q":"","n":1}')] * 2)
    ours += tool_format.render_result(ToolResult("", (), name="")) if flatten == "sentinel" else ""
    for seed in share(tool_format, range(CONVERSATIONS), 2):
        hostile = Hostile(tool_format, f"{flatten} {protocol} {seed}")
        strings = [hostile.text(), hostile.text()]
        key = hostile.text().strip()[:40] or "q"
        arguments = json.dumps({key: strings[0], "q": strings[1], "n": 1}, ensure_ascii=False)
        ids = [f"{hostile.text()[:60]}{number}" for number in range(seed % 3 + 1)]
        build = chat if protocol == "chat" else responses
        body = build([hostile.parts() for _ in range(5)], arguments, ids)
        asked = PROTOCOLS[protocol].read_request(body, orjson.dumps(body))
        messages = sent(asked, tool_format, flatten, merged=seed % 2 == 1).messages
        said = [message.text for message in messages if message.role == "assistant"]
        if flatten == "bracket":
            tools = (RM, replace(TOOL, parameters={"properties": {**PROPERTIES, key: {"type": "string"}}}))
            parts = [part for text in said for part in scan(reading_brackets(tool_format), tools, [text])]
            calls = [part for part in parts if isinstance(part, ToolUse)]
            assert [(call.name, apart(read_object(call.arguments))) for call in calls] == [
                ("search", apart(read_object(arguments)))
            ] * len(ids)
        tools = (RM, typed(tool_format, key))
        found = [
            (call.name, shown(tool_format, call.arguments))
            for text in said
            for call in calls_in(tool_format, text, tools)
        ]
        made = [("search", shown(tool_format, arguments))] * len(ids) if flatten == "sentinel" else []
        opener = tool_format.layout.first or tool_format.layout.opener
        quoted = opener.startswith("```") and any("```" in text.partition(opener)[0] for text in said)
        if (tool_format.alone and seed % 2) or quoted:  # merged with what was said, such a call is none any more
            assert found in ([], made)
        else:
            assert found == made
        for message in messages:
            if message.role == "user":
                assert calls_in(tool_format, message.text) == [], message.text
                if flatten == "bracket":
                    assert calls_in(reading_brackets(tool_format), message.text) == [], message.text
            if message.role != "system":
                written = message.text + (message.name or "")
                assert not [t for t in (*tool_format.template_tokens, *THINK) if t in written and t not in ours]


def asked(*messages: Message) -> ModelRequest:
    return ModelRequest("m", messages, (TOOL,))


def told(tool_format: ToolFormat, *messages: Message, flatten: Flatten = "sentinel") -> list[Message]:
    """What becomes of the messages; the tools are left out."""
    return list(inject(asked(*messages), "", tool_format, flatten=flatten, also=THINK).messages)


@every_format
@every_style
def test_what_was_said_can_be_restored(tool_format: ToolFormat, flatten: Flatten) -> None:
    """R5.6: nothing is lost, whatever it was, and what holds no marker has its bytes."""
    escaping = escaping_for(tool_format, (*THINK, "[function_call") if flatten == "bracket" else THINK)
    for seed in range(CONVERSATIONS):
        hostile = Hostile(tool_format, f"{flatten} restored {seed}")
        said, result = hostile.text(), hostile.text()
        use = ToolUse("i", "search", "{}")
        user, _, answer = told(
            tool_format,
            Message("user", (Text(said),)),
            Message("assistant", (use,)),
            Message("tool", (ToolResult("i", (Text(result),)),)),
            flatten=flatten,
        )
        assert escaping.restore(user.text) == said
        if flatten == "bracket":
            inner = answer.text.partition("output=")[2].removesuffix("]")
        else:
            inner = inside(tool_format, answer.text, ToolResult("i", (), name="search"))
        assert escaping.restore(inner) == result
        clean = "".join(char for char in said if char.isalnum())
        assert told(tool_format, Message("user", (Text(clean),)))[0].text == clean


@every_format
def test_a_model_that_copies_what_it_was_shown_gives_back_the_bytes(tool_format: ToolFormat) -> None:
    """R5.6a, the writing half: what stands in a result can stand in arguments, which nobody escapes, and be read and
    restored."""
    escaping = escaping_for(tool_format, THINK)
    assert tool_format.layout is not None
    for seed in range(CONVERSATIONS):
        hostile = Hostile(tool_format, f"copied {seed}")
        content = hostile.text() + "".join(hostile.random.sample(own_literals(tool_format), 3))
        copied = json.dumps({"n": 1, "q": escaping.text(content)}, ensure_ascii=False)
        answer = tool_format.layout.calls([ToolUse("", "search", copied)])
        (call,) = scan(tool_format, (TOOL,), [answer])
        assert isinstance(call, ToolUse), answer
        assert json.loads(restore_json(escaping, call.arguments)) == {"n": 1, "q": content}


def own_literals(tool_format: ToolFormat) -> list[str]:
    """Everything that the format's syntaxes look for."""
    syntaxes = tool_format.grammar.syntaxes
    found = [branch.literal for syntax in syntaxes for node in syntax.nodes for branch in node if branch.literal]
    return [*dict.fromkeys([*tool_format.grammar.markers, *found, "x", "y", "z"])]
