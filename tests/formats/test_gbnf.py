"""Grammars for constrained decoding: whatever they allow is a call that fits the schema (R10.10)."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.formats.base import ToolFormat
from proxy.formats.layout import Layout
from proxy.gbnf.grammar import Bounds, Inexpressible, answer_grammar
from proxy.gbnf.rules import MAX_STEPS, integers, numbers
from proxy.model import ToolSpec, ToolUse
from tests.formats.cases import FORMATS, SEARCH, STOPS, WEATHER, scan
from tests.formats.sampler import Grammar, GrammarError

TREE = {
    "type": "object",
    "properties": {"root": {"$ref": "#/$defs/node"}},
    "required": ["root"],
    "additionalProperties": False,
    "$defs": {
        "node": {
            "type": "object",
            "properties": {
                "value": {"type": "integer"},
                "children": {"type": "array", "items": {"$ref": "#/$defs/node"}},
            },
            "required": ["value"],
            "additionalProperties": False,
        }
    },
}


def closed(properties: dict[str, Any], *required: str, **more: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": [*required], "additionalProperties": False, **more}


def arguments_grammar(schema: dict[str, Any], bounds: Bounds = Bounds(string=9, items=4)) -> str:  # noqa: B008
    """The grammar of the arguments alone."""
    text = answer_grammar([("t", schema)], False, Layout(opener="", middle="", closer=""), bounds)
    return text.replace('"\\"t\\"" ', "")


SCHEMAS: list[dict[str, Any]] = [
    {"type": "object", "properties": {}},
    {"type": "object"},
    closed({"a": {"type": "string"}}, "a"),
    closed({"a": {"type": "string", "minLength": 2, "maxLength": 4}, "b": {"type": "string", "maxLength": 0}}, "b"),
    closed({name: {"type": "boolean"} for name in "abcd"}),
    closed({name: {"type": "null"} for name in "abcd"}, "c"),
    closed({name: {"type": "boolean"} for name in "abcd"}, "a", "d"),
    closed({"e": {"enum": ["x", 1, 1.5, None, True, {"k": ["</tool_call>"]}]}, "s": {"type": "string", "enum": ["x", 1]}}, "e", "s"),
    closed({"n": {"type": "integer", "minimum": -3, "maximum": 12}, "m": {"type": "integer", "exclusiveMinimum": 0}}, "n", "m"),
    closed({"n": {"type": "number", "minimum": 0, "maximum": 2}, "m": {"type": "number", "exclusiveMaximum": -1.5}}, "n", "m"),
    closed({"n": {"type": "number"}, "i": {"type": "integer"}, "x": {"type": "integer", "multipleOf": 5, "minimum": 3}}, "n", "i", "x"),
    closed({"c": {"type": "number", "multipleOf": 0.5}, "t": {"type": ["string", "null"]}}, "c", "t"),
    closed({"l": {"type": "array", "items": {"type": "integer"}, "minItems": 2, "maxItems": 3}}, "l"),
    closed({"l": {"type": "array", "items": {"type": "string"}, "minItems": 1}, "o": {"type": "array", "maxItems": 0}}, "l", "o"),
    closed({"l": {"type": "array"}, "p": {"prefixItems": [{"type": "integer"}, {"type": "string"}], "items": False}}, "l", "p"),
    closed({"any": {}, "yes": True}, "any", "yes"),
    closed({"map": {"type": "object", "additionalProperties": {"type": "integer"}, "minProperties": 1}}, "map"),
    closed({"free": {"type": "object"}, "none": {"type": "object", "additionalProperties": False}}, "free", "none"),
    closed({"u": {"anyOf": [{"type": "string"}, closed({"k": {"type": "integer"}}, "k")]}}, "u"),
    closed({"u": {"type": "object", "required": ["k"], "oneOf": [{"properties": {"k": {"const": 1}}}, {"properties": {"k": {"const": 2}}}]}}, "u"),
    closed({"u": {"allOf": [{"type": "object", "properties": {"a": {"type": "integer"}}}, {"properties": {"a": {"minimum": 3}, "b": {}}, "required": ["a"]}]}}, "u"),
    closed({"p": {"$ref": "#/definitions/p~1q", "description": "beside"}}, "p", definitions={"p/q": {"type": "string", "maxLength": 1}}),
    closed({"p": {"$ref": "#/$defs/p", "minimum": 5}}, "p", **{"$defs": {"p": {"type": "integer", "minimum": 1}}}),
    closed({"p": {"allOf": [{"$ref": "#/$defs/p"}]}}, "p", **{"$defs": {"p": {"enum": ["a", "b"]}}}),
    {"type": "object", "properties": {"a": {}}, "required": ["undeclared"]},
    {"properties": {"a": {"minimum": 2}, "b": {"maxLength": 3}, "c": {"items": {"type": "null"}}}, "required": ["a", "b", "c"]},
    closed({"gone": {"type": "integer", "minimum": 5, "maximum": 4}, "never": False, "kept": {"type": "boolean"}}, "kept"),
    TREE,
    {"type": "object", "properties": {"self": {"$ref": "#"}}, "additionalProperties": False},
]  # fmt: skip


ODD: dict[str, Any] = closed({'odd "key" \\ \n é <tool_call>': {"const": 'odd "value" \\ \n é </tool_call> ```json'}}, 'odd "key" \\ \n é <tool_call>')  # fmt: skip
"""A name that not every format can say."""


@pytest.mark.parametrize(
    ("tool_format", "schema"),
    [
        (tool_format, schema)
        for tool_format in FORMATS
        for schema in (*SCHEMAS, ODD)
        if schema is not ODD or tool_format.name not in STOPS or "gemma" in tool_format.name
    ],
    ids=lambda value: value.name if isinstance(value, ToolFormat) else json.dumps(value)[:60],
)
def test_every_allowed_text_is_a_call_that_fits(tool_format: ToolFormat, schema: dict[str, Any]) -> None:
    assert tool_format.gbnf is not None
    tool = ToolSpec("one", None, schema)
    grammar = Grammar(tool_format.gbnf((tool,), False, Bounds(string=12, items=4)))
    valid = jsonschema_rs.validator_for(schema)
    random = Random(str(schema))
    for _ in range(12):
        text = grammar.sample(random)
        parts = scan(tool_format, (tool,), [text])
        assert len(parts) == 1, text
        (call,) = parts
        assert isinstance(call, ToolUse), text
        assert valid.is_valid(json.loads(call.arguments)), (text, call.arguments)


@pytest.mark.parametrize("tool_format", FORMATS, ids=lambda f: f.name)
def test_parallel_allows_several_calls_and_no_text(tool_format: ToolFormat) -> None:
    assert tool_format.gbnf is not None
    grammar = Grammar(tool_format.gbnf((WEATHER, SEARCH), True, Bounds(string=5, calls=3)))
    random = Random(0)
    counts = set()
    for _ in range(60):
        parts = scan(tool_format, (WEATHER, SEARCH), [grammar.sample(random)])
        assert all(isinstance(part, ToolUse) for part in parts)
        counts.add(len(parts))
    assert counts == {1, 2, 3}


@given(st.integers(-3000, 3000), st.integers(0, 3000), st.integers(0, 2**32))
def test_integer_ranges_are_exact(low: int, width: int, seed: int) -> None:
    high = low + width
    grammar = Grammar(f"root ::= {integers(low, high, 15)}\n")
    random = Random(seed)
    values = {int(grammar.sample(random)) for _ in range(30)}
    assert all(low <= value <= high for value in values)


@pytest.mark.parametrize(("low", "high"), [(-3, 12), (0, 0), (95, 105), (-1, 0), (7, 7), (-12, -9), (0, 120)])
def test_integer_ranges_are_complete(low: int, high: int) -> None:
    grammar = Grammar(f"root ::= {integers(low, high, 15)}\n")
    random = Random(1)
    assert {int(grammar.sample(random)) for _ in range(20 * (high - low + 1) + 200)} == set(range(low, high + 1))


@pytest.mark.parametrize(
    ("low", "high", "ends"),
    [
        (None, None, (-999, 999)), (5, None, (5, 999)), (None, 5, (-999, 5)), (5000, None, (5000, 5000)),
        (None, -5000, (-5000, -5000)), (-(10**300), 10**300, (-999, 999)), (5000, 5003, (5000, 5003)),
    ],
)  # fmt: skip
def test_open_and_far_ends_have_few_digits(low: int | None, high: int | None, ends: tuple[int, int]) -> None:
    assert integers(low, high, 3) == integers(*ends, 3)
    assert numbers(low, high, 3) == numbers(*ends, 3)


@given(st.integers(-300, 300), st.integers(0, 300), st.integers(0, 2**32))
def test_number_ranges_hold(low: int, width: int, seed: int) -> None:
    grammar = Grammar(f"root ::= {numbers(low, low + width, 15)}\n")
    random = Random(seed)
    assert all(low <= float(grammar.sample(random)) <= low + width for _ in range(30))


@pytest.mark.parametrize(
    "schema",
    [
        closed({"a": False}, "a"),
        closed({"a": {"$ref": "https://example.com/schema"}}, "a"),
        closed({"a": {"$ref": "#/nowhere"}}, "a"),
        closed({"a": {"type": "integer", "minimum": 5, "maximum": 4}}, "a"),
        closed({"a": {"type": "string", "minLength": 5, "maxLength": 4}}, "a"),
        closed({"a": {"enum": []}}, "a"),
        closed({"a": {"allOf": [{"type": "string"}, {"type": "integer"}]}}, "a"),
        closed({"a": {"$ref": "#/$defs/a"}}, "a", **{"$defs": {"a": {"$ref": "#/$defs/a"}}}),
        closed({"a": {"$ref": "#/$defs/a"}}, "a", **{"$defs": {"a": closed({"a": {"$ref": "#/$defs/a"}}, "a")}}),
        closed({f"p{index}": {"type": "string"} for index in range(MAX_STEPS + 1)}),
    ],
    ids=lambda s: json.dumps(s)[:70],
)
def test_what_nothing_fits_may_have_any_arguments(schema: dict[str, Any]) -> None:
    grammar = Grammar(arguments_grammar(schema))
    random = Random(7)
    values = [json.loads(grammar.sample(random)) for _ in range(30)]
    assert all(isinstance(value, dict) for value in values)
    assert any(value and not value.keys() & {"a", "p0"} for value in values)


def test_there_is_no_grammar_without_tools_or_for_a_name_that_is_not_unicode() -> None:
    for tools in ([], [("\ud800", {})]):
        with pytest.raises(Inexpressible):
            answer_grammar(tools, False, Layout(opener="", middle="", closer=""))


@pytest.mark.parametrize("tool_format", FORMATS, ids=lambda f: f.name)
@pytest.mark.parametrize("schema", [closed({"a": {"const": "\ud800"}}, "a"), closed({"a": False}, "a"), ODD], ids=repr)
def test_a_tool_that_cannot_be_said_is_still_called(tool_format: ToolFormat, schema: dict[str, Any]) -> None:
    assert tool_format.gbnf is not None
    tool = ToolSpec("one", None, schema)
    grammar = Grammar(tool_format.gbnf((tool,), False, Bounds(string=12, items=4)))
    random = Random(1)
    for _ in range(12):
        (call,) = scan(tool_format, (tool,), [grammar.sample(random)])
        assert isinstance(call, ToolUse)


@pytest.mark.parametrize("word", ["allOf", "anyOf", "oneOf"])
def test_hostile_references_end(word: str) -> None:
    """Six ways on from each of nine definitions, around and around: about 10^7 paths if nothing stopped it."""
    nodes = {
        f"n{i}": {
            "type": "object",
            "properties": {k: {word: [{"$ref": f"#/$defs/n{(i + 1) % 9}"}, {}]} for k in "abcdef"},
        }
        for i in range(9)
    }
    schema = {"type": "object", "properties": {"a": {"$ref": "#/$defs/n0"}}, "required": ["a"], "$defs": nodes}
    random = Random(3)
    assert isinstance(json.loads(Grammar(arguments_grammar(schema)).sample(random)), dict)
    loop = {"properties": {"a": {word: [{"$ref": "#/properties/a"}, {"$ref": "#/properties/a"}]}}, "required": ["a"]}
    assert isinstance(json.loads(Grammar(arguments_grammar(loop)).sample(random)), dict)


def test_recursion_is_bounded() -> None:
    grammar = Grammar(arguments_grammar(TREE, Bounds(depth=3, items=3)))
    random = Random(5)

    def depth(node: dict[str, Any]) -> int:
        return 1 + max(map(depth, node.get("children", ())), default=0)

    depths = {depth(json.loads(grammar.sample(random))["root"]) for _ in range(200)}
    assert max(depths) in range(2, 6)


def test_strings_can_hold_what_programs_need() -> None:
    schema = closed({"a": {"type": "string", "minLength": 3}}, "a")
    tool = ToolSpec("write", None, schema)
    for tool_format in FORMATS:
        assert tool_format.gbnf is not None
        grammar = Grammar(tool_format.gbnf((tool,), False))
        random = Random(2)
        seen: set[str] = set()
        for _ in range(200):
            (call,) = scan(tool_format, (tool,), [grammar.sample(random)])
            assert isinstance(call, ToolUse)
            seen |= set(json.loads(call.arguments)["a"])
        assert {'"', "\\", "\n", "\t"} <= seen


def test_the_text_is_deterministic_and_ordered_like_the_schema() -> None:
    schema = closed({"z": {"type": "null"}, "a": {"type": "null"}}, "z", "a")
    assert arguments_grammar(schema) == arguments_grammar(json.loads(json.dumps(schema)))
    assert Grammar(arguments_grammar(schema)).sample(Random(0)) == '{"z":null,"a":null}'


@pytest.mark.parametrize(
    "text", ["root ::= missing\n", 'root ::= "a\n', "root ::= ()\n", 'root ::= "a"{2001}\n', "root\n"]
)
def test_the_sampler_refuses_what_is_not_gbnf(text: str) -> None:
    with pytest.raises(GrammarError):
        Grammar(text)
