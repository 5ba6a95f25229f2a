"""Schemas that mean harm: a clear problem or a bounded check, never a fetch, a hang, or code that runs."""

from __future__ import annotations

import json
import socket
from itertools import product
from typing import Any

import orjson
import pytest

from tests.cases import every, first_and_in_turn
from tests.linear.steps import Steps
from toolwire.schemas._schema_walk import BUDGET, Graph
from toolwire.schemas.schema import _BEYOND, SchemaProblem, compile_schema, validate_tool_schema


@pytest.fixture(autouse=True)
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """Opening a connection, looking up a name, or reading a file fails the test."""

    def refused(*args: Any, **kwargs: Any) -> Any:
        pytest.fail("something was fetched")

    monkeypatch.setattr(socket.socket, "connect", refused)
    monkeypatch.setattr(socket, "getaddrinfo", refused)
    monkeypatch.setattr(socket, "create_connection", refused)


@pytest.fixture
def port() -> Any:
    """A port that notices whoever connects, also from native code."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        server.setblocking(False)
        yield server.getsockname()[1]
        with pytest.raises(BlockingIOError):
            server.accept()


def at(port: int, schema: Any) -> Any:
    """The schema with the port in its addresses."""
    return json.loads(json.dumps(schema).replace("{port}", str(port)))


REMOTE = ["http://127.0.0.1:{port}/s.json", "//127.0.0.1:{port}/s", "http://127.0.0.1:{port}/#/a"]
OTHER = ["file:///etc/passwd", "data:application/json,{}", "ftp://h/x", "urn:x:y", "other.json", "../x", "?q", "/x",
         "json-schema:///x", "http://json-schema.org/draft-07/schema#", "HTTP://H/x", "jar:file:/x!/y", " http://h"]  # fmt: skip


BASES = product([None, "http://127.0.0.1:{port}/base.json", "mine.json", "/y"], ["$ref", "$dynamicRef"])


@every(("target", "place"), first_and_in_turn(REMOTE + OTHER, BASES))
def test_remote_references_are_refused(target: str, place: tuple[str | None, str], port: int) -> None:
    base, keyword = place
    schema: dict[str, Any] = {"properties": {"a": {"items": {keyword: target}}}}
    with pytest.raises(SchemaProblem) as caught:
        compile_schema(at(port, schema if base is None else {**schema, "$id": base}))
    assert caught.value.where == f".properties.a.items.{keyword}"
    assert "leads out of the schema" in caught.value.message


@every(
    "schema",
    [
        {"properties": {"a": {"$id": "http://127.0.0.1:{port}/", "$ref": "#/x"}}},
        {"properties": {"a": {"$id": "//127.0.0.1:{port}/x"}}},
        {"$schema": "http://127.0.0.1:{port}/meta"},
        {"$id": "http://127.0.0.1:{port}/T0", "$defs": {"x": {"$id": "T0"}}, "properties": {"a": {"$ref": "T1"}}},
        {"$defs": {"x": {"$id": "x"}, "y": {"$id": "x"}}, "properties": {"a": {"$ref": "x"}}},
    ],
)
def test_names_cannot_move_references_out(schema: dict[str, Any], port: int) -> None:
    assert validate_tool_schema(at(port, schema)) is not None


@every(
    "schema",
    [
        {"$schema": "https://json-schema.org/draft/2020-12/schema", "$vocabulary": {"http://127.0.0.1:{port}/v": True}},
        {"properties": {"a": {"$id": "x", "$schema": "http://127.0.0.1:{port}/meta", "type": "string"}}},
        {"$recursiveRef": "http://127.0.0.1:{port}/x"},
        {"properties": {"a": {"contentMediaType": "application/json", "contentSchema": {"type": "string"}}}},
    ],
)
def test_what_could_fetch_does_not(schema: dict[str, Any], port: int) -> None:
    assert compile_schema(at(port, schema)).check("{}") is None


@every(
    "schema",
    [
        {"$ref": "#"},
        {"anyOf": [{"type": "object"}, {"$ref": "#"}]},
        {"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "properties": {"x": {"$ref": "#/$defs/a"}}},
        {"$defs": {"a": {"allOf": [{"not": {"$ref": "#/$defs/a"}}]}}},
        {"$defs": {"a": {"if": {"dependentSchemas": {"x": {"$ref": "#/$defs/a"}}}}}},
        {"$defs": {"a": {"$dynamicAnchor": "a", "$dynamicRef": "#a"}}},
    ],
)
def test_endless_loops(schema: dict[str, Any]) -> None:
    assert "endless loop" in (validate_tool_schema(schema) or "")


def test_recursive_types_are_fine() -> None:
    items = {"type": "array", "items": {"$ref": "#/$defs/node"}}
    node = {"type": "object", "properties": {"value": {"type": "integer"}, "next": items}, "required": ["value"]}
    tree = compile_schema({"$defs": {"node": node}, "$ref": "#/$defs/node"})

    def nested(levels: int, inner: str = '{"value":1}') -> str | None:
        return tree.check('{"value":1,"next":[' * levels + inner + "]}" * levels)

    assert nested(2) is nested(200) is None
    assert nested(2, "{}") == '`$.next[0].next[0]`: "value" is a required property.'
    assert "not valid JSON" in (nested(600) or "")  # beyond what the parser follows


def fan_out(levels: int) -> dict[str, Any]:
    defs: dict[str, Any] = {
        f"a{i}": {"allOf": [{"$ref": f"#/$defs/a{i + 1}"}, {"$ref": f"#/$defs/a{i + 1}"}]} for i in range(levels)
    }
    return {"$defs": {**defs, f"a{levels}": {}}, "$ref": "#/$defs/a0"}


def test_exponential_references() -> None:
    assert compile_schema(fan_out(8)).check("{}") is None
    for levels in (20, 60, 100):
        assert "unfold to more than" in (validate_tool_schema(fan_out(levels)) or "")


def test_exponential_recursion_is_bounded_by_the_arguments() -> None:
    twice = {"properties": {"k": {"$ref": "#/$defs/n"}}}
    schema = compile_schema({"$defs": {"n": {"anyOf": [twice, {**twice, "required": ["z"]}]}}, "$ref": "#/$defs/n"})
    assert schema.check('{"k":' * 8 + "1" + "}" * 8) is None
    for depth in (30, 60, 200):
        assert "too deeply nested" in (schema.check('{"k":' * depth + "1" + "}" * depth) or "")


def test_chains_of_references() -> None:
    def chain(length: int) -> dict[str, Any]:
        links = {f"a{i}": {"$ref": f"#/$defs/a{i + 1}"} for i in range(length)}
        return {"$defs": {**links, f"a{length}": {}}, "properties": {"x": {"$ref": "#/$defs/a0"}}}

    assert validate_tool_schema(chain(100)) is None
    assert "in a row" in (validate_tool_schema(chain(1_500)) or "")


def deep(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {}
    for _ in range(levels):
        schema = {"properties": {"a": schema}}
    return schema


@every(
    ("schema", "words"),
    [
        ({"properties": {f"p{i}": {"type": "string"} for i in range(10_000)}}, "20001 values"),
        (deep(64), "nested 129 deep"),
        (deep(10_000), "nested without end"),
        ({"patternProperties": {f"^{i}$": {} for i in range(33)}}, "33 different patterns"),
        ({"patternProperties": {"(a{1000}){1000}": {}}}, "too large"),
        ({"patternProperties": {"(" * 5_000: {}}}, "too large"),
        ({"patternProperties": {"(" * 4_000 + ")" * 4_000: {}}}, "too large"),
    ],
)
def test_sizes(schema: dict[str, Any], words: str) -> None:
    assert words in (validate_tool_schema(schema) or "")


@every(
    "pattern",
    ["(", "(?i)x", "(a{1000}){1000}", "(" * 5_000, r"^\w{1,60}[\p{L}\d]{1,40}$", "^(?!x)y", r"\k<none>", "(?P<a>x)(?P=a)"],
)  # fmt: skip
def test_a_pattern_that_cannot_be_checked_is_not_checked(pattern: str) -> None:
    """It costs a tool that is not strict nothing else: one odd field ends no session."""
    schema = compile_schema({"properties": {"a": {"type": "string", "pattern": pattern}, "b": {"pattern": "^b$"}}})
    assert schema.dropped == 1 or schema.check('{"a":"x"}') is None
    assert schema.check('{"a":5}') is not None
    assert schema.check('{"b":"a"}') is not None


def test_of_many_patterns_the_first_are_checked() -> None:
    schema = compile_schema({"properties": {f"p{i}": {"pattern": f"^{i}$"} for i in range(40)}})
    assert schema.dropped == 8
    assert schema.check('{"p0":"x"}') is not None
    assert schema.check('{"p39":"x"}') is None


@every(
    "pattern",
    ["^(a+)+$", "^(a|aa)+$", "^(a|a?)+$", "(.*)*x", r"^(([a-z])+.)+[A-Z]([a-z])+$", r"(?:a+)+\1b", "(?=(a+))+b"],
)
def test_catastrophic_patterns(pattern: str) -> None:
    text = "a" * 15_000 + "!"
    flaw = validate_tool_schema({"properties": {"a": {"pattern": pattern}}})
    if flaw is None:
        compile_schema({"properties": {"a": {"pattern": pattern}}}).check(f'{{"a":"{text}"}}')
    else:
        assert "regular expression" in flaw


def test_text_matched_against_patterns_is_bounded() -> None:
    schema = compile_schema({"properties": {"a": {"pattern": "[01]*1[01]{200}[^01]x?"}, "b": {"type": "string"}}})
    assert schema.check('{"a":"%s"}' % ("01" * 5_000)) is not None
    assert "too large" in (schema.check('{"a":"%s"}' % ("01" * 50_000)) or "")
    assert schema.check('{"b":"%s"}' % ("01" * 500_000)) is None  # no pattern looks at it
    keys = compile_schema({"patternProperties": {"[01]*1[01]{200}[^01]x?": {}}})
    assert "too large" in (keys.check('{"%s":1}' % ("01" * 50_000)) or "")


def test_many_schemas_times_many_values() -> None:
    schema = compile_schema({"properties": {"a": {"items": {"allOf": [{"type": "integer"}] * 900}}}})
    assert schema.check('{"a":[1,2,3]}') is None
    assert "too large" in (schema.check('{"a":[%s1]}' % ("1," * 100_000)) or "")
    plain = compile_schema({"properties": {"a": {"items": {"type": "integer"}}}})
    assert plain.check('{"a":[%s1]}' % ("1," * 100_000)) is None


def test_counting_work_costs_no_more_than_it_saves() -> None:
    """The loop that counts stops at the budget, however large the arguments are."""
    itself = {"$ref": "#"}
    graph = Graph({"type": "object", "properties": {"k": itself}, "additionalProperties": itself}, most=100)
    visits = 0

    class Wide(dict[str, Any]):
        def items(self) -> Any:
            nonlocal visits
            for item in super().items():
                visits += 1
                yield item

    value = Wide({f"k{i}": Wide({f"k{j}": 1 for j in range(1_000)}) for i in range(1_000)})
    assert not graph.work(value, values=1_000_000, chars=10_000_000)
    assert visits <= BUDGET / 20


CODE = ['"); import os; ("', "'''", "\\", "{variable}", "__import__('os')", "\n", "a\0b", "</script>", "%s", "$ref", "é", ""]  # fmt: skip


@every("name", CODE)
def test_code_like_names(name: str) -> None:
    properties = {name: {"type": "string", "enum": [name]}}
    schema = compile_schema(
        {"properties": properties, "required": [name], "additionalProperties": False, "title": name}
    )
    for value, fits in (({name: name}, True), ({name: 1}, False), ({name + "x": name}, False)):
        assert (schema.check(orjson.dumps(value).decode()) is None) is fits


@every(
    "schema",
    [
        {"properties": {"\ud800": {}}},
        {"enum": ["\ud800"]},
        {"description": "\udc00"},
        {"properties": {"a": {"pattern": "\ud800"}}},
    ],
)
def test_lone_surrogates(schema: dict[str, Any]) -> None:
    assert "surrogates" in (validate_tool_schema(schema) or "")


@every("number", [1e308, 2**63, 2**64 - 1, -0.0, 1e-300])
@every("keyword", ["minLength", "maxItems", "maximum", "minProperties"])
def test_huge_numbers(keyword: str, number: float) -> None:
    schema = {"properties": {"a": {keyword: number}}}
    if validate_tool_schema(schema) is None:
        compile_schema(schema).check('{"a":"x"}')
        compile_schema(schema).check('{"a":1e308}')


@every("text", ["1e400", "9" * 309, "-" + "9" * 5000, "1" + "0" * 400 + ".5"])
def test_numbers_beyond_a_float(text: str) -> None:
    schema = compile_schema({"type": "object", "properties": {"a": {"type": "number"}, "b": {"const": 1}}})
    assert schema.check(f'{{"a":{text},"b":1}}') is None
    assert schema.check(f'{{"a":{text},"b":2}}') is not None
    assert schema.check(f'{{"a":"{text}","b":1}}') is not None


def test_numbers_that_are_just_too_short_take_a_few_steps_a_digit() -> None:
    counted = Steps(_BEYOND)
    text = ("9" * 308 + "a") * 4
    assert not counted.find_all(text)
    assert counted.steps < 10 * len(text)


def test_errors_do_not_repeat_large_values() -> None:
    flaw = compile_schema({"properties": {"a": {"type": "integer"}}}).check('{"a":"%s"}' % ("x" * 100_000))
    refusal = validate_tool_schema({"properties": {"a": {"type": "y" * 10_000}}})
    assert 0 < len(flaw or "") <= 400
    assert 0 < len(refusal or "") <= 400
