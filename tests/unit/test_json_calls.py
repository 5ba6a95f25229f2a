"""Which members of a JSON object are a call's name and its arguments: nothing of it is lost (R6.1, R9.5)."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.cases import every
from toolwire.formats.engine.keys import ARGUMENTS, METADATA, NAMES, WRAPPERS
from toolwire.formats.families import bare_json, fenced_json, hermes, sentinel
from toolwire.formats.families.json_tags import COHERE, LLAMA3_JSON
from toolwire.model import ToolSpec
from toolwire.scan._grammar import FoundCall, Grammar

from .policy_bench import PolicyBench

STRING = {"type": "string"}


def tool(called: str, /, *required: str, strict: bool | None = None, **properties: Any) -> ToolSpec:
    schema = {"type": "object", "properties": properties, "required": list(required)}
    return ToolSpec(called, parameters=schema, strict=strict)


WEATHER = tool("get_weather", "city", city=STRING, days={"type": "integer"})
SHELL = tool("run", "input", input=STRING, args={"type": "array"})
PASS = tool("pass_on", "arguments", arguments={"type": "object"}, id=STRING)
LIST = tool("exec", "arguments", arguments={"type": "array"})
PERSON = tool("find_person", "name", name=STRING)
NOTHING = ToolSpec("list_files")
PATCH = ToolSpec("apply_patch", kind="custom")
TOOLS = (WEATHER, SHELL, PASS, LIST, PERSON, NOTHING, PATCH)
GRAMMARS = (hermes.FORMAT.grammar, sentinel.FORMAT.grammar)


def judged(text: str, grammar: Grammar, *tools: ToolSpec, **options: Any) -> Any:
    """The calls in a block of one object, as names and arguments; None if it is text."""
    bench = PolicyBench(*(tools or TOOLS), syntax=grammar.syntaxes[0], **options)
    decision = bench.block(text)
    assert decision.error is None
    assert bench.counts["parse_failures"] + bench.counts["unknown_names"] == (not decision.calls)
    return [(call.name, _parsed(call)) for call in decision.calls] or None


def _parsed(call: FoundCall) -> Any:
    return call.arguments if call.kind == "custom" else json.loads(call.arguments)


CITY = {"city": "Paris"}
HELD = json.dumps(CITY)
EVENTS: list[tuple[dict[str, Any], str, Any]] = [
    # Synonyms, of the name, of the arguments; a string or an object; what stands beside them.
    *(({name: "get_weather", "arguments": CITY}, "get_weather", CITY) for name in NAMES),
    *(({"name": "get_weather", key: CITY}, "get_weather", CITY) for key in ARGUMENTS),
    *(({"name": "get_weather", key: HELD}, "get_weather", CITY) for key in ARGUMENTS),
    ({"thought": "Hm.", "action": "get_weather", "action_input": CITY}, "get_weather", CITY),
    ({"id": "call_7", "type": "function", "tool": "get_weather", "args": CITY}, "get_weather", CITY),
    ({"name": "get_weather", "arguments": CITY, "days": 3, "why": 1}, "get_weather", CITY),
    ({"name": "get_weather", "arguments": None, "parameters": CITY}, "get_weather", CITY),
    ({"name": "get_weather", "arguments": "", "input": HELD}, "get_weather", CITY),
    ({"name": "get_weather", "arguments": {}, "input": HELD}, "get_weather", CITY),
    ({"name": "get_weather", "arguments": {"town": "Paris"}}, "get_weather", {"town": "Paris"}),
    # Nested.
    *(({key: {"name": "get_weather", "arguments": CITY}}, "get_weather", CITY) for key in WRAPPERS),
    ({"type": "function", "function": {"name": "get_weather", "parameters": HELD}}, "get_weather", CITY),
    ({"function": {"name": "get_weather"}, "arguments": CITY}, "get_weather", CITY),
    ({"function": {"name": "get_weather", **CITY}}, "get_weather", CITY),
    ({"name": "tool_call", "function": {"name": "get_weather", "arguments": CITY}}, "get_weather", CITY),
    # Flat.
    ({"name": "get_weather", **CITY}, "get_weather", CITY),
    ({"id": 1, "tool": "get_weather", **CITY, "days": 3}, "get_weather", {**CITY, "days": 3}),
    ({"name": "get_weather", "arguments": {}, **CITY}, "get_weather", CITY),
    ({"name": "get_weather", "arguments": None, **CITY}, "get_weather", CITY),
    # No arguments at all.
    ({"name": "list_files"}, "list_files", {}),
    ({"name": "list_files", "id": "1", "type": "function", "index": 0, "call_id": "c"}, "list_files", {}),
    ({"name": "list_files", "arguments": None}, "list_files", {}),
    ({"name": "list_files", "arguments": {}, "why": "x"}, "list_files", {}),
    ({"name": "list_files", "args": ""}, "list_files", {}),
    # Properties that are called like the keys.
    ({"name": "run", "input": "ls"}, "run", {"input": "ls"}),
    ({"name": "run", "input": "ls", "args": ["-l"]}, "run", {"input": "ls", "args": ["-l"]}),
    ({"name": "run", "input": {"input": "ls"}}, "run", {"input": "ls"}),
    ({"name": "run", "arguments": {"input": "ls"}}, "run", {"input": "ls"}),
    ({"name": "run", "input": "5"}, "run", {"input": "5"}),
    ({"name": "pass_on", "arguments": {"a": 1}}, "pass_on", {"a": 1}),
    (
        {"name": "pass_on", "arguments": {"arguments": {"a": 1}, "cwd": "/"}},
        "pass_on",
        {"arguments": {"a": 1}, "cwd": "/"},
    ),
    ({"name": "pass_on", "args": {"arguments": {"a": 1}, "cwd": "/"}}, "pass_on", {"arguments": {"a": 1}, "cwd": "/"}),
    ({"name": "run", "input": {"input": "ls", "cwd": "/"}}, "run", {"input": "ls", "cwd": "/"}),
    ({"name": "pass_on", "arguments": {"arguments": {"a": 1}}}, "pass_on", {"arguments": {"a": 1}}),
    ({"name": "pass_on", "id": "7", "arguments": {"a": 1}}, "pass_on", {"a": 1}),
    ({"name": "exec", "arguments": ["ls", "-l"]}, "exec", {"arguments": ["ls", "-l"]}),
    ({"name": "exec", "arguments": {"arguments": ["ls"]}}, "exec", {"arguments": ["ls"]}),
    ({"tool": "find_person", "name": "Ada"}, "find_person", {"name": "Ada"}),
    ({"tool": "find_person", "arguments": {"name": "Ada"}}, "find_person", {"name": "Ada"}),
    ({"name": "find_person", "arguments": {"name": "Ada"}}, "find_person", {"name": "Ada"}),
    # The text of a custom tool.
    ({"name": "apply_patch", "arguments": "*** Begin Patch\n"}, "apply_patch", "*** Begin Patch\n"),
    ({"name": "apply_patch", "arguments": {"input": "*** x"}}, "apply_patch", "*** x"),
    ({"name": "apply_patch", "arguments": '{"input": "*** x"}'}, "apply_patch", "*** x"),
    ({"name": "apply_patch", "input": "*** x"}, "apply_patch", "*** x"),
    ({"tool": "apply_patch", "args": "*** x"}, "apply_patch", "*** x"),
    ({"name": "apply_patch", "arguments": "{ return 1; }"}, "apply_patch", "{ return 1; }"),
    ({"name": "apply_patch", "arguments": "42"}, "apply_patch", "42"),
    ({"name": "apply_patch", "arguments": "[1, 2,]"}, "apply_patch", "[1, 2,]"),
]


@every("grammar", GRAMMARS)
@every(("written", "name", "arguments"), EVENTS)
def test_arguments_are_found(grammar: Grammar, written: dict[str, Any], name: str, arguments: Any) -> None:
    assert judged(json.dumps(written), grammar) == [(name, arguments)]
    assert judged(json.dumps(written, indent=1), grammar) == [(name, arguments)]


@every("grammar", GRAMMARS)
@every(
    "written",
    [
        {"name": "get_weather", "town": "Paris"},
        {"name": "get_weather", **CITY, "town": "Paris"},
        {"name": "get_weather", "days": 3},
        {"name": "list_files", "why": 1},
        {"name": "list_files", "tool": "list_files"},
        {"name": "get_weather", "input": "Paris"},
        {"name": "get_weather", "arguments": ["Paris"]},
        {"name": "apply_patch", "patch": "*** x"},
        {"name": "apply_patch", "arguments": '{"patch": "*** x"}'},
        {"name": "apply_patch", "arguments": '{"input": "*** x'},
        {"name": "apply_patch", "arguments": ["*** x"]},
        {"name": "apply_patch"},
        {"name": 1, "arguments": {}},
        {"arguments": {}},
        {"function": {"function": {"name": "list_files"}}},
    ],
)
def test_what_cannot_be_read_is_malformed(grammar: Grammar, written: dict[str, Any]) -> None:
    assert judged(json.dumps(written), grammar) is None


@every(
    "grammar",
    [GRAMMARS[0], LLAMA3_JSON.grammar, COHERE.grammar, fenced_json.FORMAT.grammar, bare_json.FORMAT.grammar],
)
def test_every_form_of_such_objects_reads_the_same(grammar: Grammar) -> None:
    for written in ({"tool": "get_weather", "args": CITY}, {"name": "get_weather", **CITY}):
        assert judged(json.dumps(written), grammar) == [("get_weather", CITY)]
        assert judged(json.dumps({"tool_calls": [written]}), grammar) == [("get_weather", CITY)]


def test_values_keep_their_text() -> None:
    for grammar, kept in zip(GRAMMARS, ('{"a":1.0,"b":[1e-07, 2]}', '{"a":1.0,"b":[1e-07,2]}'), strict=True):
        bench = PolicyBench(tool("f", a={}, b={}), syntax=grammar.syntaxes[0])
        assert bench.call('{"name" : "f", "a" : 1.0, "b": [1e-07, 2]}').arguments == kept


def test_references_count_as_properties() -> None:
    schema = {
        "allOf": [{"$ref": "#/$defs/Place"}],
        "type": "object",
        "$defs": {"Place": {"type": "object", "properties": {"city": STRING, "input": STRING}, "required": ["city"]}},
    }
    tools = (ToolSpec("f", parameters=schema),)
    for grammar in GRAMMARS:
        assert judged('{"name":"f","city":"x"}', grammar, *tools) == [("f", {"city": "x"})]
        assert judged('{"name":"f","input":"x"}', grammar, *tools) is None
        assert judged('{"name":"f","city":"x","input":"y"}', grammar, *tools) == [("f", {"city": "x", "input": "y"})]


def test_where_a_string_is_demanded_members_are_none() -> None:
    options = {"sentinel_arguments": "string"}
    assert judged('{"name":"get_weather","city":"x"}', GRAMMARS[1], **options) is None
    assert judged('{"name":"get_weather","args":{"city":"x"}}', GRAMMARS[1], **options) is None
    assert judged('{"tool":"get_weather","args":"{\\"city\\":\\"x\\"}"}', GRAMMARS[1], **options) is not None


names = st.sampled_from(["a", "b", "c", *ARGUMENTS, *NAMES, *sorted(METADATA)])
values = st.recursive(
    st.none() | st.integers(0, 9) | st.sampled_from(["", "x", "{}", '{"a":1}', "[1]"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(names, inner, max_size=2),
    max_leaves=4,
)


@given(
    properties=st.dictionaries(names, st.sampled_from([{}, STRING, {"type": "object"}]), max_size=4),
    members=st.dictionaries(names, values, max_size=4),
    data=st.data(),
)
def test_nothing_vanishes(properties: dict[str, Any], members: dict[str, Any], data: st.DataObject) -> None:
    """A call without arguments has nothing beside its name but metadata and empty or explicit arguments, whatever the
    tool takes."""
    required = data.draw(st.lists(st.sampled_from(sorted(properties)), unique=True)) if properties else []
    tools = (tool("f", *required, **properties),)
    found = judged(json.dumps({**members, "name": "f"}), GRAMMARS[0], *tools)
    if found == [("f", {})]:
        rest = {key: value for key, value in members.items() if key not in METADATA and key != "name"}
        said_none = [key for key in ARGUMENTS if key in rest and rest[key] in (None, "", "{}", {})]
        assert said_none or not rest
    elif found is not None:
        ((_, arguments),) = found
        written = [members, *members.values(), *(_loaded(value) for value in members.values())]
        assert arguments in written or arguments.items() <= members.items()


def _loaded(value: Any) -> Any:
    try:
        return json.loads(value)
    except (TypeError, ValueError):
        return None
