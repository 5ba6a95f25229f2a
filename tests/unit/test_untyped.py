"""Values without a type: what the tool's schema makes of them."""

from __future__ import annotations

from typing import Any

from tests.cases import every
from toolwire.call_policy.untyped import OTHERS, STRING, ParameterTypes, typed_value

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "plain": {"type": "string"},
        "listed": {"type": ["integer", "null"]},
        "nullable": {"type": "number", "nullable": True},
        "any": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        "one": {"oneOf": [{"$ref": "#/$defs/point"}, {"type": "array"}]},
        "enum": {"enum": ["a", 1, 1.5, None, True, [], {}]},
        "const": {"const": "x"},
        "shape": {"properties": {"x": {}}},
        "items": {"items": {}},
        "escaped": {"$ref": "#/$defs/a~1b%20c"},
        "indexed": {"$ref": "#/properties/any/anyOf/1"},
        "loop": {"$ref": "#/$defs/loop"},
        "lost": {"$ref": "#/$defs/nowhere"},
        "remote": {"$ref": "https://example.com/x"},
        "free": {},
        "true": True,
    },
    "$defs": {
        "point": {"type": "object"},
        "a/b c": {"type": "boolean"},
        "loop": {"anyOf": [{"$ref": "#/$defs/loop"}, {"$ref": "#"}, {"type": "integer"}]},
    },
}


@every(
    ("key", "types"),
    [
        ("listed", {"integer", "null"}),
        ("nullable", {"number", "null"}),
        ("one", {"object", "array"}),
        ("enum", {"string", "integer", "number", "null", "boolean", "array", "object"}),
        ("const", {"string"}),
        ("shape", {"object"}),
        ("items", {"array"}),
        ("escaped", {"boolean"}),
        ("indexed", {"null"}),
        ("loop", {"object", "integer"}),
        *[(key, None) for key in ("lost", "remote", "free", "true", "unknown")],
    ],
)
def test_types_of_a_parameter(key: str, types: set[str] | None) -> None:
    assert ParameterTypes(SCHEMA).of(key) == (None if types is None else frozenset(types))


def test_parameters_of_composed_schemas() -> None:
    schema = {
        "$ref": "#/$defs/base",
        "allOf": [{"properties": {"b": {"type": "integer"}}}],
        "additionalProperties": {"type": "boolean"},
        "$defs": {"base": {"properties": {"a": {"type": "string"}}}},
    }
    known = ParameterTypes(schema)
    assert set(known.names) == {"a", "b"}
    assert [known.of(key) for key in "abc"] == [frozenset((name,)) for name in ("string", "integer", "boolean")]
    assert ParameterTypes(SCHEMA).names == tuple(SCHEMA["properties"])
    assert ParameterTypes(None).of("a") is None


NUMBERS = ("0", "-1", "1.0", "1e-07", "12345678901234567890", "-2E+5")


@every("text", NUMBERS)
def test_numbers_keep_their_text(text: str) -> None:
    for types in (frozenset(("number",)), frozenset(("number", "string")), None, OTHERS):
        assert typed_value(text, types) == text
        assert typed_value(f"\n {text} ", types) == text
    assert typed_value(text, STRING) == f'"{text}"'


@every(
    ("text", "types", "read"),
    [
        # A string keeps its text.
        ("null", "string", '"null"'),
        # JSON, compactly.
        (' {"a" : [1.0, 2]}\n', "object", '{"a":[1.0,2]}'),
        # Python.
        *(("True", "boolean", "true"), ("{'a': None, 'b': 'it\\'s'}", "object", '{"a":null,"b":"it\'s"}')),
        # What cannot be read.
        *(("hello", "integer", '"hello"'), ("NaN", "number", '"NaN"')),
        ("[" * 200 + "]" * 200, "array", f'"{"[" * 200 + "]" * 200}"'),
        # Strings among others.
        *(("5", "string integer", "5"), ("5.0", "string integer", '"5.0"'), ("+47", "string integer", '"+47"')),
        *(("null", "string null", "null"), ("None", "string null", "null"), ("['a']", "string array", '["a"]')),
        *(("true", "string boolean", "true"), ("True", "string boolean", "true")),
        ('"x"', "string integer", '"\\"x\\""'),
        # Nothing known.
        *(('{"a": 1}', None, '{"a":1}'), ("false", None, "false"), ('"x"', None, '"\\"x\\""')),
    ],
)
def test_values(text: str, types: str | None, read: str) -> None:
    assert typed_value(text, None if types is None else frozenset(types.split())) == read


def test_a_schema_that_refers_to_itself_is_read_once() -> None:
    """Every part refers to all parts: walked by paths it would take 2^40 steps."""
    defs = {f"d{n}": {"anyOf": [{"$ref": f"#/$defs/d{m}"} for m in range(40)]} for n in range(40)}
    known = ParameterTypes({"properties": {"a": {"$ref": "#/$defs/d0"}}, "$defs": defs})
    assert known.of("a") is None
