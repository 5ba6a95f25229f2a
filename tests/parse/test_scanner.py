"""`open_scanner`: formats by name, tools in any syntax, and the product's own policy behind it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import toolwire
from tests.cases import every
from tests.options import route_options
from tests.parse.texts import PIECES
from toolwire.config import LimitsConfig, ReasoningConfig
from toolwire.errors import ClientFault
from toolwire.events import BlockKind, Delta, Event, Fault, Finish, Open, Start
from toolwire.folding import fold
from toolwire.formats.base import ToolFormat
from toolwire.formats.families import dsml, gemma, glm, harmony, invoke, json_tags, kimi, mistral, pythonic, qwen
from toolwire.model import Text, ToolChoice, ToolSpec, ToolUse
from toolwire.registry import registries
from toolwire.scanner import read_tool
from toolwire.support.conversion import ConfigError

READ = '<tool_call>{"name":"read_file","arguments":"{\\"path\\":\\"a\\"}"}</tool_call>'


def uses(events: list[Event]) -> list[tuple[str, str]]:
    """Names and arguments of the calls."""
    reply = fold([Start("", "", 0), *events, Finish()])
    return [(call.name, call.arguments) for call in reply.calls]


def test_three_words_are_enough() -> None:
    scanner = toolwire.open_scanner()
    events = scanner.feed(f"Reading. {READ}") + scanner.finish()
    parts = fold([Start("", "", 0), *events, Finish()]).choices[0].parts
    assert parts[0] == Text("Reading.")
    assert isinstance(parts[1], ToolUse)
    assert (parts[1].name, parts[1].arguments) == ("read_file", '{"path":"a"}')
    assert parts[1].call_id.startswith("call_")


@pytest.mark.parametrize(
    "tool",
    [
        ToolSpec("read_file"),
        "read_file",
        {"type": "function", "name": "read_file"},
        {"type": "function", "function": {"name": "read_file"}},
        {"name": "read_file"},
    ],
)
def test_tools_in_any_syntax(tool: Any) -> None:
    scanner = toolwire.open_scanner(tools=[tool])
    assert uses(scanner.feed(READ) + scanner.finish()) == [("read_file", '{"path":"a"}')]
    other = toolwire.open_scanner(tools=[tool])
    text = READ.replace("read_file", "other")
    assert [e.text for e in other.feed(text) + other.finish() if isinstance(e, Delta)] == [text]


def test_the_outer_field_of_a_tool_wins() -> None:
    tool = {"type": "function", "strict": None, "name": "outer", "function": {"name": "inner", "strict": True}}
    assert (read_tool(tool).name, read_tool(tool).strict) == ("outer", True)
    assert read_tool({"type": "web_search"}).kind == "hosted"
    assert read_tool({"type": "custom", "custom": {"name": "c"}}).kind == "custom"
    with pytest.raises(ClientFault, match="no name") as caught:
        read_tool({"type": "function", "function": {}})
    assert caught.value.code == "invalid_tool_schema"


@pytest.mark.parametrize("options", [{"tools": []}, {"tools": ["read_file"], "choice": ToolChoice("none")}])
def test_without_a_callable_tool_blocks_are_text(options: dict[str, Any]) -> None:
    """R1.7, also for a block that the backend cut off."""
    for text in (READ, f" {READ}", READ[:-30]):
        scanner = toolwire.open_scanner(**options)
        events = scanner.feed(text) + scanner.finish(truncated=True)
        assert "".join(e.text for e in events if isinstance(e, Delta)) == text


def test_options_and_limits_reach_the_scanner() -> None:
    counted: list[str] = []
    options = route_options(
        trim="none", reasoning=ReasoningConfig(tags=("[T]", "[/T]"), preopened=True, scan_calls=True)
    )
    scanner = toolwire.open_scanner(tools=["read_file"], options=options, count=counted.append)
    events = scanner.feed(f"hm {READ}[/T] a {READ} ") + scanner.finish()
    assert [e.kind for e in events if isinstance(e, Open)] == [
        *[BlockKind.REASONING, BlockKind.TOOL_CALL, BlockKind.TEXT, BlockKind.TOOL_CALL]
    ]
    assert [e.text for e in events if isinstance(e, Delta)][::2] == ["hm ", " a "]
    assert counted.count("calls") == 2
    small = toolwire.open_scanner(tools=["read_file"], limits=LimitsConfig(block_bytes=40))
    assert uses(small.feed(READ) + small.finish()) == []


def test_a_strict_failure_is_the_last_event() -> None:
    tool = {"type": "function", "name": "read_file", "strict": True}
    scanner = toolwire.open_scanner(tools=[tool])
    events = scanner.feed("a <tool_call>{]</tool_call> b")
    assert isinstance(events[-1], Fault)
    assert events[-1].error.code == "malformed_tool_arguments"
    assert scanner.feed("more") == []


def test_an_unknown_format_is_named_with_a_suggestion() -> None:
    with pytest.raises(ConfigError, match="sentinel"):
        toolwire.open_scanner("sentinal")


TYPED = {
    "type": "function",
    "name": "read_file",
    "parameters": {
        "type": "object",
        "properties": {"path": {"type": "string"}, "n": {"type": ["number", "null"]}, "deep": {"type": "object"}},
    },
}
ENCODINGS: dict[str, tuple[ToolFormat, str, list[str]]] = {
    "tags, newlines around values": (
        qwen.QWEN3_CODER,
        "<tool_call>\n<function=read_file>\n<parameter=path>\n  if a < b: </tool_call>\n\n</parameter>\n<parameter=n>\n1.0\n"
        "</parameter>\n</function>\n</tool_call>\n<tool_call>\n<function=read_file>\n</function>\n</tool_call>",
        ['{"path":"  if a < b: </tool_call>\\n","n":1.0}', "{}"],
    ),
    "tags, keys and values": (
        glm.GLM45,
        "<tool_call>read_file\n<arg_key>path</arg_key>\n<arg_value> 7 </arg_value>\n<arg_key>deep</arg_key>\n<arg_value>"
        "{'a': None}</arg_value>\n</tool_call>\n<tool_call>read_file<arg_key>n</arg_key><arg_value>None</arg_value></tool_call>",
        ['{"path":" 7 ","deep":{"a":null}}', '{"n":null}'],
    ),
    "tags, quotes missing": (
        invoke.MINIMAX_M2,
        '<minimax:tool_call>\n<invoke name="read_file">\n<parameter name=path>a "b"</parameter>\n</invoke>\n'
        "<invoke name='read_file'>\n</invoke>\n</minimax:tool_call>",
        ['{"path":"a \\"b\\""}', "{}"],
    ),
    "tags, values typed": (
        dsml.V32,
        '<｜DSML｜function_calls>\n<｜DSML｜invoke name="read_file">\n<｜DSML｜parameter name="path" string="true"> 1\n'
        '</｜DSML｜parameter>\n<｜DSML｜parameter name="any" string="false">{"max": 3}</｜DSML｜parameter>\n'
        "</｜DSML｜invoke>\n</｜DSML｜function_calls>",
        ['{"path":" 1\\n","any":{"max":3}}'],
    ),
    "JSON behind a name": (
        mistral.FORMAT,
        '[TOOL_CALLS]read_file[ARGS]{"path": "[TOOL_CALLS]", "n": 1e-07}[TOOL_CALLS]read_file[CALL_ID]abc123def[ARGS]{}',
        ['{"path": "[TOOL_CALLS]", "n": 1e-07}', "{}"],
    ),
    "JSON behind an id": (
        kimi.K2,
        "<|tool_calls_section_begin|><|tool_call_begin|>functions.read_file:0 <|tool_call_argument_begin|>"
        '{"path": "<|tool_call_end|>"}<|tool_call_end|><|tool_calls_section_end|>',
        ['{"path": "<|tool_call_end|>"}'],
    ),
    "messages": (
        harmony.FORMAT,
        "<|channel|>commentary to=functions.read_file <|constrain|>json<|message|>"
        '{"path": "a"}<|call|><|start|>assistant to=functions.read_file<|channel|>commentary<|constrain|>json<|message|>{}<|call|>',
        ['{"path": "a"}', "{}"],
    ),
    "an array": (
        json_tags.JAMBA,
        '<tool_calls>[{"arguments": {"n": 1.50}, "name": "read_file"}]</tool_calls>',
        ['{"n": 1.50}'],
    ),
    "objects side by side": (
        json_tags.LLAMA3_JSON,
        '{"name": "read_file", "parameters": {}}; {"name": "read_file", "parameters": {"path": "x"}}',
        ["{}", '{"path": "x"}'],
    ),
    "names as keys": (json_tags.APERTUS, '<|tools_prefix|>[{"read_file": {"n": 1}}]<|tools_suffix|>', ['{"n": 1}']),
    "Python": (
        pythonic.PYTHONIC,
        "[read_file(path='it's )]', n=None), read_file('x', 2)]",
        ['{"path":"it\'s )]","n":null}', '{"path":"x","n":2}'],
    ),
    "Python, line by line": (
        pythonic.OLMO3,
        '<function_calls>\nread_file(path="x", n=null)\nread_file()\n</function_calls>',
        ['{"path":"x","n":null}', "{}"],
    ),
    "braces": (
        gemma.FUNCTIONGEMMA,
        "<start_function_call>call:read_file{path:<escape>a, {b}<escape>,n:15,deep:{k:[true]}}<end_function_call>",
        ['{"path":"a, {b}","n":15,"deep":{"k":[true]}}'],
    ),
}


@every("kind", ENCODINGS)
@every("size", [1, 7, 10_000])
def test_every_encoding_is_read(kind: str, size: int) -> None:
    tool_format, text, arguments = ENCODINGS[kind]
    scanner = toolwire.open_scanner(tool_format, [TYPED])
    events = [event for at in range(0, len(text), size) for event in scanner.feed(text[at : at + size])]
    events += scanner.finish()
    assert uses(events) == [("read_file", one) for one in arguments]
    assert not [event for event in events if isinstance(event, Open) and event.kind is BlockKind.TEXT]


@pytest.mark.parametrize("name", ["sentinel", "hermes", "fenced_json", "bare_json"])
@settings(max_examples=60, deadline=None)
@given(
    arguments=st.dictionaries(
        st.text(max_size=5), st.one_of(st.sampled_from(PIECES), st.text(max_size=20)), max_size=3
    ),
    size=st.integers(1, 9),
)
def test_what_a_format_writes_is_read_back(name: str, arguments: dict[str, str], size: int) -> None:
    """The law of formats: `scan(render_call(call)) == call`, whatever the arguments hold and however it is cut. For all
    the others, some of which cannot express everything, see tests/formats."""
    text = json.dumps(arguments)
    rendered = registries().formats.get(name).render_call(ToolUse("call_1", "read_file", text))
    scanner = toolwire.open_scanner(name, ["read_file"])
    events = [event for at in range(0, len(rendered), size) for event in scanner.feed(rendered[at : at + size])]
    [(found, got)] = uses(events + scanner.finish())
    assert found == "read_file"
    assert json.loads(got) == arguments
