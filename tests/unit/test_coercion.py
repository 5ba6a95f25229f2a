"""Arguments of the wrong type that can only mean one thing are mended (R23.3)."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.cases import every, examples
from toolwire.call_policy.coercion import COERCIONS, coerce
from toolwire.schemas.schema import compile_schema

INTEGER = {"type": "integer"}
NUMBER = {"type": "number"}
STRING = {"type": "string"}
BOOLEAN = {"type": "boolean"}
UNIT = {"type": "string", "enum": ["Celsius", "Kelvin"]}
POINT = {"type": "object", "properties": {"x": INTEGER, "y": INTEGER}, "required": ["x"]}


def kind_of(name: str, of: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {"kind": {"const": name}, "of": of}, "required": ["kind"]}


KINDS = {"anyOf": [kind_of("number", INTEGER), kind_of("text", STRING)]}
DEFINED = {"Count": INTEGER, "a/b %": {"type": "object", "properties": {"n": {"$ref": "#/$defs/Count"}}}}
NEXT = {"n": INTEGER, "next": {"$ref": "#/properties/a"}}
TREE = {"type": "object", "properties": NEXT, "additionalProperties": False}


def array(items: Any) -> dict[str, Any]:
    return {"type": "array", "items": items}


def optional(*schemas: Any) -> dict[str, Any]:
    return {"anyOf": [*schemas, {"type": "null"}]}


def mended(schema: Any, value: str, dialect: str | None = None) -> str | None:
    """What becomes of the argument `a`; None if it stays."""
    whole = {"type": "object", "properties": {"a": schema}, "$defs": DEFINED}
    if dialect is not None:
        whole["$schema"] = dialect
    compiled = compile_schema(whole)
    before = f'{{ "z" : [1.0, "5"],"a":{value} ,"y":1e3}}'
    assert compiled.check(before) is not None
    found = coerce(before, compiled)
    if found is None:
        return None
    assert compiled.check(found.text) is None
    assert found.kinds
    assert set(found.kinds) <= set(COERCIONS)
    head, tail = '{ "z" : [1.0, "5"],"a":', ' ,"y":1e3}'
    assert found.text.startswith(head)
    assert found.text.endswith(tail)
    return found.text[len(head) : -len(tail)]


MENDED: list[tuple[Any, str, str]] = [
    # Text that is a number, a boolean, null.
    (INTEGER, '"5"', "5"),
    (INTEGER, '" -5\\n"', "-5"),
    (INTEGER, '"5.0"', "5"),
    (INTEGER, '"12345678901234567890123"', "12345678901234567890123"),
    (NUMBER, '"5.0"', "5.0"),
    (NUMBER, '"1e-07"', "1e-07"),
    (BOOLEAN, '"true"', "true"),
    (BOOLEAN, '"False"', "false"),
    ({"type": ["integer", "null"]}, '"None"', "null"),
    ({"enum": [1, 2, 3]}, '"2"', "2"),
    ({"const": True}, '"true"', "true"),
    ({**INTEGER, "minimum": 5}, '"5"', "5"),
    # A number or a boolean where text is demanded: by its text.
    (STRING, "5", '"5"'),
    (STRING, "5.00", '"5.00"'),
    (STRING, "12345678901234567890123", '"12345678901234567890123"'),
    (STRING, "true", '"true"'),
    ({"enum": ["1", "2"]}, "1", '"1"'),
    # JSON in a string; what stands in it is mended as well, and otherwise keeps its text.
    (array(INTEGER), '"[1,  2]"', "[1,  2]"),
    (array(INTEGER), '"[\\"1\\",  2.0]"', "[1,  2.0]"),
    (array(STRING), '"[\\"a\\", \\"b\\"]"', '["a", "b"]'),
    (array(STRING), "\"['a', 'b']\"", '["a", "b"]'),
    (POINT, '"{\\"x\\": 1.0}"', '{"x": 1.0}'),
    (POINT, '"{\\"x\\": \\"1\\"}"', '{"x": 1}'),
    (array(POINT), '"{\\"x\\": 1}"', '[{"x": 1}]'),
    # One for an array of such.
    (array(STRING), '"a, b"', '["a, b"]'),
    (array(INTEGER), "5", "[5]"),
    (array(INTEGER), '"5"', "[5]"),
    (array(STRING), "5", '["5"]'),
    (array(POINT), '{"x": 1}', '[{"x": 1}]'),
    (array(POINT), '{"x": "1"}', '[{"x": 1}]'),
    (array(UNIT), '"kelvin"', '["Kelvin"]'),
    # Case.
    (UNIT, '"celsius"', '"Celsius"'),
    (UNIT, '"KELVIN"', '"Kelvin"'),
    ({"const": "Yes"}, '"yes"', '"Yes"'),
    # Inside of others.
    (POINT, '{"x": 1.0, "y" : "2"}', '{"x": 1.0, "y" : 2}'),
    (array(POINT), '[{"x":"1"}, {"x": 2},{"x":"3","q":"4"}]', '[{"x":1}, {"x": 2},{"x":3,"q":"4"}]'),
    (array(array(INTEGER)), '[["1"], [2], ["3"]]', "[[1], [2], [3]]"),
    ({"properties": {"a/b~1": array(INTEGER)}}, '{"a/b~1":"[\\"1\\"]"}', '{"a/b~1":[1]}'),
    ({"type": "object", "additionalProperties": INTEGER}, '{"q":"1","r":2}', '{"q":1,"r":2}'),
    ({"type": "object", "patternProperties": {"^n_": INTEGER}}, '{"n_a":"1","b":"2"}', '{"n_a":1,"b":"2"}'),
    ({"type": "array", "prefixItems": [INTEGER, STRING]}, '["1", 2]', '[1, "2"]'),
    # References and combinations.
    ({"$ref": "#/$defs/Count"}, '"5"', "5"),
    ({"$ref": "#/$defs/a~1b%20%25"}, '{"n":"5"}', '{"n":5}'),
    (TREE, '{"n":"1","next":{"n":"2","next":{"n":3}}}', '{"n":1,"next":{"n":2,"next":{"n":3}}}'),
    ({"allOf": [INTEGER, {"minimum": 1}]}, '"5"', "5"),
    (optional(INTEGER), '"5"', "5"),
    (optional(INTEGER), '"null"', "null"),
    (optional(STRING), "5", '"5"'),
    (optional(array(STRING)), '"a"', '["a"]'),
    (optional({"$ref": "#/$defs/a~1b%20%25"}), '{"n":"5"}', '{"n":5}'),
    ({"oneOf": [INTEGER, BOOLEAN]}, '"5"', "5"),
    ({"anyOf": [INTEGER, NUMBER]}, '"5"', "5"),
    (KINDS, '{"kind":"text","of":5}', '{"kind":"text","of":"5"}'),
    (KINDS, '{"kind":"number","of":"5"}', '{"kind":"number","of":5}'),
    ({"if": {"type": "string"}, "then": {"enum": ["A"]}}, '"a"', '"A"'),
]


@every(("schema", "before", "after"), MENDED)
def test_one_reading(schema: Any, before: str, after: str) -> None:
    assert mended(schema, before) == after


@every("dialect", ["http://json-schema.org/draft-07/schema#", "http://json-schema.org/draft-04/schema#"])
def test_in_the_older_dialect(dialect: str) -> None:
    schemas = [{"$ref": "#/$defs/Count"}, optional(INTEGER), {"oneOf": [INTEGER, BOOLEAN]}]
    assert [mended(schema, '"5"', dialect) for schema in schemas] == ["5"] * 3


LEFT: list[tuple[Any, str]] = [
    *((INTEGER, text) for text in ('"5.5"', '"1,000"', '"007"', '"+5"', '"five"', '""', "5.5", "true", "[5]")),
    ({**INTEGER, "maximum": 4}, '"5"'),
    *((BOOLEAN, text) for text in ('"yes"', "1", '"1"')),
    *((STRING, text) for text in ("null", '{"x": 1}', '["x"]')),
    ({**STRING, "minLength": 2}, "5"),
    *((array(INTEGER), text) for text in ('"[1, 2"', '"a"')),
    *((array(STRING), text) for text in ('"[a, "', "null", '"null"', '""')),
    ({**array(STRING), "minItems": 2}, '"a"'),
    *((POINT, text) for text in ('"{}"', '{"y": "1"}', '"x: 1"')),
    *((UNIT, text) for text in ('"fahrenheit"', '"celsius "')),
    ({"enum": ["A", "a", "b"]}, '"B "'),
    ({"enum": ["aB", "Ab"]}, '"ab"'),
    ({"anyOf": [INTEGER, array(STRING)]}, '"5"'),
    ({"anyOf": [INTEGER, array(INTEGER)]}, '"5"'),
    ({"not": {"const": "5"}}, '"5"'),
    ({"oneOf": [INTEGER, NUMBER]}, '"5"'),
    (False, '"5"'),
]


@every(("schema", "value"), LEFT)
def test_no_reading_or_several(schema: Any, value: str) -> None:
    assert mended(schema, value) is None


def test_argument_by_argument() -> None:
    """What cannot be mended, or is missing, keeps nothing else from being mended."""
    properties = {"a": INTEGER, "b": INTEGER, "c": POINT}
    whole = {"type": "object", "properties": properties, "required": ["d"], "additionalProperties": False}
    schema = compile_schema(whole)
    found = coerce('{"a": "1", "b":"x","c":{"x":"1","y":"z"},"e":"2"}', schema)
    assert found == ('{"a": 1, "b":"x","c":{"x":"1","y":"z"},"e":"2"}', ("number",))
    assert coerce('{"b":"x"}', schema) is None


def test_of_equal_keys_the_last_one_counts() -> None:
    schema = compile_schema({"type": "object", "properties": {"a": INTEGER}})
    assert coerce('{"a":"x","a":"5"}', schema) == ('{"a":"x","a":5}', ("number",))


def test_branches_of_the_root() -> None:
    branches = [
        {"properties": {"by": {"const": "id"}, "id": INTEGER}, "required": ["by", "id"]},
        {"properties": {"by": {"const": "name"}, "name": STRING}, "required": ["by", "name"]},
    ]
    schema = compile_schema({"type": "object", "anyOf": branches})
    assert coerce('{"by":"name","name":5}', schema) == ('{"by":"name","name":"5"}', ("string",))
    assert coerce('{"by":"id","id":"5"}', schema) == ('{"by":"id","id":5}', ("number",))


@every("text", ["", "x", "[]", '"x"', "5", '{"a":' * 200 + '"5"' + "}" * 200])
def test_what_is_no_object_stays(text: str) -> None:
    tree = {"type": "object", "properties": {"a": {"anyOf": [{"$ref": "#"}, INTEGER]}}}
    assert coerce(text, compile_schema(tree)) is None


def test_parts_with_names_of_their_own_are_left_alone() -> None:
    schema = {"type": "object", "$defs": {"N": {"$id": "N", "type": "integer"}}, "properties": {"a": {"$ref": "N"}}}
    assert coerce('{"a":"5"}', compile_schema(schema)) is None


def test_work_is_bounded() -> None:
    """So many characters are checked, and no more, whatever the schema makes of them."""
    nested = {"L": {"anyOf": [array({"$ref": "#/$defs/L"}), array(INTEGER)]}}
    schema = compile_schema({"type": "object", "$defs": nested, "properties": {"a": {"$ref": "#/$defs/L"}}})
    checked: list[int] = []

    class Counting:
        can_coerce, at = schema.can_coerce, schema.at

        def flaws(self, value: Any, where: Any = ()) -> Any:
            checked.append(len(json.dumps(value)))
            return schema.flaws(value, where)

    text = json.dumps({"a": ["x"] * 300})
    assert coerce(text, Counting()) is None  # type: ignore[arg-type]
    assert sum(checked) <= 4096 + 21 * len(text)
    many = json.dumps({"a": ["5"] * 5000})
    assert coerce(many, compile_schema({"type": "object", "properties": {"a": array(BOOLEAN)}})) is None


# --- laws -----------------------------------------------------------------------------------------------------------

leaves = st.sampled_from([INTEGER, NUMBER, STRING, BOOLEAN, UNIT, {"type": "null"}, {"enum": [1, "a", None]}, {}])
schemas = st.recursive(
    leaves,
    lambda inner: (
        inner.map(array)
        | st.dictionaries(st.sampled_from("abc"), inner, max_size=3).map(
            lambda properties: {"type": "object", "properties": properties, "required": sorted(properties)[:1]}
        )
        | st.lists(inner, min_size=1, max_size=3).map(lambda some: {"anyOf": some})
        | st.lists(inner, min_size=1, max_size=2).map(lambda some: {"oneOf": some})
    ),
    max_leaves=6,
)
written = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-3, 3)
    | st.sampled_from([0.5, "5", "5.0", "true", "x", "kelvin", "[1]", '["x"]', '{"a":"1"}', "", "null"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=6,
)


@examples(0.6)
@given(
    properties=st.dictionaries(st.sampled_from("abc"), schemas, min_size=1, max_size=3),
    value=st.dictionaries(st.sampled_from("abcd"), written, max_size=4),
)
def test_laws(properties: dict[str, Any], value: dict[str, Any]) -> None:
    """What fits is never touched. What changed fits, argument by argument, and the rest is as it was. Twice is once."""
    schema = compile_schema({"type": "object", "properties": properties})
    text = json.dumps(value, indent=1)
    found = coerce(text, schema)
    if schema.check(text) is None:
        assert found is None
    if found is None:
        return
    after = json.loads(found.text)
    assert list(after) == list(value)
    changed = {key for key in value if repr(after[key]) != repr(value[key])}
    assert changed
    failing = {flaw.path[0] for flaw in schema.flaws(value)}
    assert changed <= failing
    assert not changed & {flaw.path[0] for flaw in schema.flaws(after)}
    assert coerce(found.text, schema) is None
