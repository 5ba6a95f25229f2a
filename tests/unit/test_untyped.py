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
        ("plain", {"string"}),
        ("listed", {"integer", "null"}),
        ("nullable", {"number", "null"}),
        ("any", {"string", "null"}),
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
        (" a\nb ", "string", '" a\\nb "'),
        ("null", "string", '"null"'),
        ('{"a": 1}', "string", '"{\\"a\\": 1}"'),
        ('"x"', "string", '"\\"x\\""'),
        # JSON, compactly.
        (' {"a" : [1.0, 2]}\n', "object", '{"a":[1.0,2]}'),
        ('"x"', "integer", '"x"'),
        ("true", "boolean", "true"),
        # Python.
        ("True", "boolean", "true"),
        ("None", "null integer", "null"),
        ("{'a': None, 'b': 'it\\'s'}", "object", '{"a":null,"b":"it\'s"}'),
        ("('a', 'b')", "array", '["a","b"]'),
        ("'x'", "integer", '"x"'),
        ("+5", "integer", "5"),
        # What cannot be read.
        ("hello", "integer", '"hello"'),
        ("", "integer", '""'),
        ("{'a': x}", "object", "\"{'a': x}\""),
        ("NaN", "number", '"NaN"'),
        ("[" * 200 + "]" * 200, "array", f'"{"[" * 200 + "]" * 200}"'),
        # Strings among others.
        ("5", "string integer", "5"),
        ("5.0", "string integer", '"5.0"'),
        ("5", "string number", "5"),
        ("5", "string null", '"5"'),
        ("null", "string null", "null"),
        ("None", "string null", "null"),
        ("None", "string integer", '"None"'),
        ("true", "string boolean", "true"),
        ("True", "string boolean", "true"),
        ("true", "string integer", '"true"'),
        ('["a"]', "string array", '["a"]'),
        ("['a']", "string array", '["a"]'),
        ("['a']", "string object", "\"['a']\""),
        ("+47", "string integer", '"+47"'),
        ("(1, 2)", "string array", '"(1, 2)"'),
        ('"x"', "string integer", '"\\"x\\""'),
        ("'x'", "string integer", "\"'x'\""),
        (" x ", "string integer", '" x "'),
        # Nothing known.
        ('{"a": 1}', None, '{"a":1}'),
        ("false", None, "false"),
        ('"x"', None, '"\\"x\\""'),
        (" x ", None, '" x "'),
        ("True", None, '"True"'),
        ("", None, '""'),
    ],
)
def test_values(text: str, types: str | None, read: str) -> None:
    assert typed_value(text, None if types is None else frozenset(types.split())) == read


def test_a_schema_that_refers_to_itself_is_read_once() -> None:
    """Every part refers to all parts: walked by paths it would take 2^40 steps."""
    defs = {f"d{n}": {"anyOf": [{"$ref": f"#/$defs/d{m}"} for m in range(40)]} for n in range(40)}
    known = ParameterTypes({"properties": {"a": {"$ref": "#/$defs/d0"}}, "$defs": defs})
    assert known.of("a") is None
