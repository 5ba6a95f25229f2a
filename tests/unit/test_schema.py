"""Tool names and schemas: what is taken, what is refused and where, what fits, and that nothing is compiled twice."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from tests.cases import every
from toolwire.config import LimitsConfig
from toolwire.schemas.lenient import mended
from toolwire.schemas.schema import (
    SchemaCache,
    SchemaProblem,
    check_tool_schema,
    compile_schema,
    validate_tool_name,
    validate_tool_schema,
)
from toolwire.support.cache import CacheBudget

DRAFT_7 = "http://json-schema.org/draft-07/schema#"
DRAFT_2020 = "https://json-schema.org/draft/2020-12/schema"


def problem(schema: Any, *, strict: bool = False, limits: LimitsConfig | None = None) -> SchemaProblem:
    with pytest.raises(SchemaProblem) as caught:
        check_tool_schema(schema, limits, strict=strict)
    return caught.value


def strict_object(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


# --- names ----------------------------------------------------------------------------------------------------------


def test_names() -> None:
    for good in ("a", "get_weather", "A-1", "_x", "9", "x" * 64):
        assert validate_tool_name(good), good
    for bad in ("", "x" * 65, "a b", "a.b", "a/b", "ä", "a\n", "a\0", "٣", None, 5):
        assert not validate_tool_name(bad), bad
    assert not validate_tool_name("a-b", allow_hyphen=False)
    assert validate_tool_name("a_b", allow_hyphen=False)
    assert validate_tool_name("mcp:server/tool.v2", relaxed=True)
    assert not validate_tool_name("mcp tool", relaxed=True)
    assert validate_tool_name("x" * 128, longest=128)


# --- what may be a schema -------------------------------------------------------------------------------------------


@every(
    "schema",
    [
        None,
        {},
        {"type": "object"},
        {"properties": {"a": True, "b": False}},
        {"$schema": DRAFT_7, "properties": {"a": {"items": [{"type": "string"}]}}},
        {"$schema": "http://json-schema.org/draft-07/schema", "definitions": {"x": {"$id": "#x"}}, "$ref": "#x"},
        {"$schema": DRAFT_2020, "$defs": {"x": {"$anchor": "x"}}, "properties": {"a": {"$ref": "#x"}}},
        {"$id": "https://example.com/tool.json", "properties": {"a": {"$ref": "#/properties/b"}, "b": {}}},
        {"$id": "T0", "properties": {"next": {"$ref": "T0"}}},
        {"properties": {"a": {"$id": "T1", "properties": {"next": {"$ref": "T1"}}}}},
        {"properties": {"a/b": {"type": "string"}, "c": {"$ref": "#/properties/a~1b"}}},
        {"properties": {"~1": {}, "c": {"$ref": "#/properties/~01"}}},
        {"properties": {"a b": {}, "c": {"$ref": "#/properties/a%20b"}}},
        {"anyOf": [{}, {}], "properties": {"c": {"$ref": "#/anyOf/1"}}},
        {"my:own": {"x": {"type": "string"}}, "properties": {"c": {"$ref": "#/my:own/x"}}},
        {"$defs": {"no": False}, "properties": {"c": {"$ref": "#/$defs/no"}}},
        {"properties": {"c": {"enum": [{"$ref": "http://not.a.reference/"}], "default": {"$ref": "#/nowhere"}}}},
        {"properties": {"a": {"format": "no-such-format", "x-mine": 1}}},
    ],
)
def test_good_schemas(schema: Any) -> None:
    assert validate_tool_schema(schema) is None


@every(
    ("schema", "where", "words"),
    [
        ([], "", "must be a JSON object"),
        ("object", "", "must be a JSON object"),
        ({"type": "array"}, ".type", '"object"'),
        ({"type": None}, ".type", '"object"'),
        ({"type": ["object", "null"]}, ".type", '"object"'),
        ({"properties": {"a": {"type": "strin"}}}, ".properties.a.type", "is not a type"),
        ({"properties": {"a": {"type": 5}}}, ".properties.a.type", "is not a type"),
        ({"properties": {"a": 5}}, ".properties.a", "not valid JSON Schema"),
        ({"properties": []}, ".properties", "not valid JSON Schema"),
        ({"required": "a"}, ".required", "not valid JSON Schema"),
        ({"properties": {"a b": {"minLength": -1}}}, '.properties["a b"].minLength', "minimum"),
        ({"anyOf": [{}, {"enum": 1}]}, ".anyOf[1].enum", "not valid JSON Schema"),
        ({"anyOf": []}, ".anyOf", "not valid JSON Schema"),
        ({"$schema": "http://json-schema.org/draft-03/schema#"}, ".$schema", "not known"),
        ({"$schema": 7}, ".$schema", "not known"),
        ({"properties": {"a": {"$ref": "#/$defs/nope"}}}, ".properties.a.$ref", "points to nothing"),
        ({"properties": {"a": {"$ref": "#nope"}}}, ".properties.a.$ref", "no schema has this anchor"),
        ({"title": "t", "properties": {"a": {"$ref": "#/title"}}}, ".properties.a.$ref", "no schema"),
        ({"anyOf": [{}], "properties": {"a": {"$ref": "#/anyOf/1"}}}, ".properties.a.$ref", "points to nothing"),
        ({"properties": {"a": {"$anchor": "x"}, "b": {"$anchor": "x"}}}, ".properties.b.$anchor", "twice"),
        ({"properties": {"a": {"not": {"pattern": "("}}}}, ".properties.a.not.pattern", "regular expression"),
        ({"patternProperties": {"[": {}}}, '.patternProperties["["]', "regular expression"),
        ({"properties": {"a": {"minimum": float("nan")}}}, ".properties.a.minimum", "number"),
        ({"properties": {"a": {"enum": [object()]}}}, "", "cannot be written as JSON"),
    ],
)  # fmt: skip
def test_bad_schemas(schema: Any, where: str, words: str) -> None:
    found = problem(schema)
    assert found.where == where
    assert words in found.message
    text = validate_tool_schema(schema)
    assert text is not None
    assert words in text


def test_limits() -> None:
    limits = LimitsConfig(schema_bytes=2_000, schema_properties=20, schema_depth=9)
    for schema, words in (
        ({"description": "x" * 2_000}, "2018 bytes"),
        ({"properties": {f"p{i}": True for i in range(21)}}, "21 properties"),
        ({"properties": {f"p{i}": {} for i in range(21)}}, "21 properties"),
        ({"allOf": [{"title": ""}] * 41}, "40 subschemas"),
        ({"enum": [1] * 500}, "values"),
        ({"properties": {"a": {"properties": {"a": {"properties": {"a": {"properties": {"a": {}}}}}}}}}, "nested 9"),
    ):
        if words == "nested 9":
            check_tool_schema(schema, limits)
            schema = {"properties": {"a": schema}}
            words = "nested 11"
        assert words in problem(schema, limits=limits).message
        if words != "nested 11":
            check_tool_schema(schema)


# --- strict ---------------------------------------------------------------------------------------------------------


def test_strict_schemas() -> None:
    node = strict_object(
        value={"type": ["string", "null"]}, next={"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]}
    )
    for schema in (
        strict_object(),
        strict_object(a={"type": "string"}, b=strict_object(c={"type": "array", "items": strict_object()})),
        {**strict_object(a={"$ref": "#/$defs/node"}), "$defs": {"node": node}},
        strict_object(**{f"p{i}": {} for i in range(100)}),
    ):
        check_tool_schema(schema, strict=True)


@every(
    ("schema", "where"),
    [
        ({"type": "object"}, ".additionalProperties"),
        ({"properties": {}, "additionalProperties": {}}, ".additionalProperties"),
        ({"properties": {"a": {}}, "additionalProperties": False}, '.required: "a"'),
        (strict_object(a={"properties": {}}), ".properties.a.additionalProperties"),
        (
            strict_object(a={"items": {"type": ["object", "null"], "properties": {"b": {}}}}),
            '.properties.a.items.required: "b"',
        ),
        (strict_object(a={"anyOf": [{"type": "object"}]}), ".properties.a.anyOf[0].additionalProperties"),
        ({**strict_object(), "$defs": {"x": {"type": "object"}}}, ".$defs.x.additionalProperties"),
        (strict_object(**{f"p{i}": {} for i in range(101)}), ".properties: 101 properties"),
        (strict_object(a={"type": "string", "pattern": "^(?!x)"}), ".properties.a.pattern: look-around"),
    ],
)
def test_strict_rules(schema: Any, where: str) -> None:
    found = problem(schema, strict=True)
    where, _, words = where.partition(": ")
    assert found.where == where
    assert (words or "additionalProperties") in found.message
    check_tool_schema(schema)


def test_strict_levels() -> None:
    def levels(count: int) -> dict[str, Any]:
        return strict_object(a=levels(count - 1)) if count > 1 else strict_object()

    check_tool_schema(levels(5), strict=True)
    assert problem(levels(6), strict=True).where == ".properties.a" * 5
    check_tool_schema({**strict_object(), "$defs": {"x": levels(5)}}, strict=True)


# --- do arguments fit -----------------------------------------------------------------------------------------------


CHECKED = compile_schema(
    {
        "properties": {
            "a": {"type": "string"},
            "n": {"type": "integer"},
            "l": {"items": {"properties": {"k": {"type": "number"}}}},
        },
        "required": ["a"],
        "additionalProperties": False,
    }
)


@every(
    ("arguments", "flaw"),
    [
        *((fine, None) for fine in ('{"a":"x"}', '{"a":"x","n":1}', '{"a":"x","n":1.0}', '{"a":1,"a":"x"}')),
        ("{}", '`$`: "a" is a required property.'),
        ('{"a":"x","n":1.5}', '`$.n`: 1.5 is not of type "integer".'),
        ('{"a":"x","z":1}', "`$`: Additional properties are not allowed ('z' was unexpected)."),
        ('{"a":"x","l":[{"k":1},{"k":"x"}]}', '`$.l[1].k`: "x" is not of type "number".'),
        ("[]", '`$`: [] is not of type "object".'),
        ("null", '`$`: null is not of type "object".'),
        *((no_json, "The arguments are not valid JSON: ") for no_json in ('{"a":', "", '{"a":"\ud800"}')),
    ],
)
def test_check(arguments: str, flaw: str | None) -> None:
    found = CHECKED.check(arguments)
    assert found is None if flaw is None else (found or "").startswith(flaw)


def test_no_parameters_take_any_object_and_formats_are_not_asserted() -> None:
    schema = compile_schema(None)
    assert [schema.check(text) is None for text in ("{}", '{"a":1}', "[]")] == [True, True, False]
    assert compile_schema({"properties": {"a": {"format": "email"}}}).check('{"a":"no"}') is None


def test_draft_decides() -> None:
    tuples = {"properties": {"a": {"items": [{"type": "string"}]}}}
    assert compile_schema({"$schema": DRAFT_7, **tuples}).check('{"a":[1]}') is not None
    assert problem({"$schema": DRAFT_2020, **tuples}).where == ".properties.a.items"
    assert problem(tuples).where == ".properties.a.items"


@every("keyword", ["not", "if", "contains"])
def test_patterns_that_cannot_be_left_out(keyword: str) -> None:
    hard = {"pattern": "^(?!x)"}
    assert problem({"properties": {"a": {keyword: hard}}}).where == f".properties.a.{keyword}.pattern"
    shared = {"$defs": {"hard": hard}, "properties": {"a": {keyword: {"anyOf": [{"$ref": "#/$defs/hard"}]}}}}
    assert problem(shared).where == ".$defs.hard.pattern"
    assert problem({"patternProperties": {"^(?!x)": {}}}).where == '.patternProperties["^(?!x)"]'


@every(
    ("part", "valid"),
    [
        ({"minimum": 0, "exclusiveMinimum": True}, {"minimum": 0, "exclusiveMinimum": 0}),
        ({"minimum": 0, "exclusiveMinimum": False}, {"minimum": 0}),
        ({"maximum": 9, "exclusiveMaximum": False}, {"maximum": 9}),
        ({"items": [{}], "additionalItems": False}, {"prefixItems": [{}], "items": False}),
    ],
)
def test_forms_of_older_drafts_are_mended(part: Any, valid: Any) -> None:
    assert mended({"properties": {"a": part}}) == {"properties": {"a": valid}}


def test_a_tuple_of_a_schema_that_names_its_draft_stays() -> None:
    schema = {"$schema": DRAFT_7, "properties": {"a": {"items": [{}], "additionalItems": False}}}
    assert mended(schema) == schema


def test_the_callers_schema_is_left_alone() -> None:
    schema = {"$id": "http://x/y", "properties": {"a": {"pattern": "^(?!x)"}}}
    before = orjson.dumps(schema)
    compile_schema(schema)
    assert orjson.dumps(schema) == before


# --- caches ---------------------------------------------------------------------------------------------------------


def test_equal_schemas_are_compiled_once() -> None:
    cache = SchemaCache(CacheBudget())
    first = cache.get({"properties": {"a": {}}})
    assert cache.get({"properties": {"a": {}}}) is first
    assert cache.get({"properties": {"b": {}}}) is not first
    assert cache.get(None) is cache.get(None)
    assert cache.compiles == 3
    for _ in range(2):  # problems are kept as well, and strictness is part of the key
        with pytest.raises(SchemaProblem) as caught:
            cache.get({"properties": {"a": {"type": "x"}}})
        assert caught.value.where == ".properties.a.type"
        with pytest.raises(SchemaProblem):
            cache.get({"properties": {"a": {}}}, strict=True)
        assert cache.get({"properties": {"a": {}}}) is first
    assert cache.compiles == 5


@every(
    ("draft", "late"),
    [("http://json-schema.org/draft-04/schema#", False), ("http://json-schema.org/draft-06/schema", False),
     ("https://json-schema.org/draft/2019-09/schema", True)],
)  # fmt: skip
def test_older_drafts_are_read_as_the_nearer_dialect(draft: str, late: bool) -> None:
    """`$ref` with neighbours tells the two apart: Draft 7 ignores the neighbours."""
    schema = {
        "$schema": draft,
        "properties": {"a": {"$ref": "#/definitions/any", "type": "string"}},
        "definitions": {"any": {}},
    }
    assert (compile_schema(schema).check('{"a": 1}') is not None) is late
