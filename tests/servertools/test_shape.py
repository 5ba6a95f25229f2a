"""What a handler gets of arguments that fit (R15.6): defaults at any depth, integers that are `int`, members that are
known."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cases import every
from tests.servertools.conftest import tool
from toolwire.schemas.schema import compile_schema
from toolwire.servertools.definition import BadArguments, Parameters, ToolModuleError, read_tools

Schema = dict[str, Any]
INTEGER: Schema = {"type": "integer"}
NUMBER: Schema = {"type": "number"}
TEXT: Schema = {"type": "string"}


def obj(required: tuple[str, ...] = (), more: Schema | None = None, **properties: Any) -> Schema:
    """An object with these properties."""
    schema: Schema = {"type": "object", "properties": properties, **(more or {})}
    return {**schema, "required": list(required)} if required else schema


def many(items: Schema, **more: Any) -> Schema:
    return {"type": "array", "items": items, **more}


def default(schema: Schema, value: Any) -> Schema:
    return {**schema, "default": value}


def got(schema: Schema, arguments: str) -> str:
    """What a handler gets, with its types."""
    return repr(Parameters(schema).values(arguments))


LIMITED = obj(limit=default(INTEGER, 10), name=TEXT)
CAT = obj(("kind",), kind={"const": "cat"}, lives=default(INTEGER, 9))
DOG = obj(("kind",), kind={"const": "dog"}, tricks=default(many(TEXT), ["sit"]))


@every(
    ("schema", "arguments", "values"),
    [
        (obj(a=LIMITED), "{}", {}),
        (obj(a=LIMITED), '{"a":{}}', {"a": {"limit": 10}}),
        (obj(a=LIMITED), '{"a":{"limit":3,"name":"x"}}', {"a": {"limit": 3, "name": "x"}}),
        (obj(a=default(LIMITED, {})), "{}", {"a": {"limit": 10}}),
        (obj(a=obj(b=obj(c=LIMITED))), '{"a":{"b":{"c":{}}}}', {"a": {"b": {"c": {"limit": 10}}}}),
        (obj(rows=many(many(LIMITED))), '{"rows":[[{}],[]]}', {"rows": [[{"limit": 10}], []]}),
        (
            obj(pair={"type": "array", "prefixItems": [TEXT, LIMITED], "items": CAT}),
            '{"pair":["x",{},{"kind":"cat"}]}',
            {"pair": ["x", {"limit": 10}, {"lives": 9, "kind": "cat"}]},
        ),
        (
            {"$schema": "http://json-schema.org/draft-07/schema#", **obj(pair={"type": "array", "items": [TEXT, LIMITED], "additionalItems": CAT})},
            '{"pair":["x",{},{"kind":"cat"}]}',
            {"pair": ["x", {"limit": 10}, {"lives": 9, "kind": "cat"}]},
        ),
        (obj(more={"additionalProperties": LIMITED}), '{"x":{},"y":{"limit":1}}', {"x": {"limit": 10}, "y": {"limit": 1}}),
        (
            obj(more={"patternProperties": {"^x-": LIMITED}}, a=TEXT),
            '{"x-a":{},"y":{}}',
            {"x-a": {"limit": 10}, "y": {}},
        ),
        (obj(a={"allOf": [obj(b=default(INTEGER, 1)), obj(c=default(INTEGER, 2))]}), '{"a":{}}', {"a": {"b": 1, "c": 2}}),
        (obj(more={"allOf": [obj(b=default(INTEGER, 1))]}, a=TEXT), "{}", {"b": 1}),
        (obj(a={"anyOf": [LIMITED, {"type": "null"}]}), '{"a":{}}', {"a": {"limit": 10}}),
        (obj(a={"anyOf": [LIMITED, {"type": "null"}]}), '{"a":null}', {"a": None}),
        (obj(pet={"oneOf": [CAT, DOG]}), '{"pet":{"kind":"dog"}}', {"pet": {"tricks": ["sit"], "kind": "dog"}}),
        (obj(pets=many({"anyOf": [CAT, DOG]})), '{"pets":[{"kind":"cat"}]}', {"pets": [{"lives": 9, "kind": "cat"}]}),
        (obj(a=default({"anyOf": [INTEGER, {"type": "null"}]}, None)), "{}", {"a": None}),
        (obj(a={"type": ["object", "null"], "properties": {"b": default(TEXT, "x")}}), '{"a":{}}', {"a": {"b": "x"}}),
    ],
)  # fmt: skip
def test_defaults(schema: Schema, arguments: str, values: Any) -> None:
    assert got(schema, arguments) == repr(values)


@every(
    "part",
    [
        {"anyOf": [obj(b=default(INTEGER, 1)), obj(c=default(INTEGER, 2))]},  # it fits both
        {"allOf": [obj(b=default(INTEGER, 1)), obj(b=default(INTEGER, 2))]},  # two defaults
        {"allOf": [obj(b=default(INTEGER, 1)), {"properties": {"b": default(NUMBER, 1.5)}}]},
        {"if": obj(b=INTEGER), "then": obj(b=default(INTEGER, 1))},
        {"not": obj(("z",), z=TEXT, b=default(INTEGER, 1))},
        obj(b={"items": default(INTEGER, 1)}),  # of an element that is not there
    ],
)
def test_where_it_is_not_clear_nothing_is_filled_in(part: Schema) -> None:
    assert got(obj(a=part), '{"a":{}}') == "{'a': {}}"


def test_two_schemas_with_the_same_default_are_clear() -> None:
    both = {"allOf": [obj(b=default(INTEGER, 1)), obj(b=default(INTEGER, 1))]}
    assert got(obj(a=both), '{"a":{}}') == "{'a': {'b': 1}}"


def test_what_is_required_is_never_filled_in() -> None:
    inner = obj(("b",), b=default(INTEGER, 1))
    with pytest.raises(BadArguments, match=r"Invalid parameters - `\$\.a`: \"b\" is a required property"):
        Parameters(obj(a=inner)).values('{"a":{}}')
    with pytest.raises(BadArguments, match="Missing required parameter: b"):
        Parameters(inner).values("{}")


def test_what_was_filled_in_is_checked() -> None:
    few = obj(a=obj(more={"maxProperties": 1}, b=default(INTEGER, 1), c=TEXT))
    with pytest.raises(BadArguments, match="more than 1 property"):
        Parameters(few).values('{"a":{"c":"x"}}')
    assert got(
        obj(a=obj(more={"dependentRequired": {"c": ["b"]}}, b=default(INTEGER, 1), c=TEXT)), '{"a":{"c":"x"}}'
    ) == ("{'a': {'b': 1, 'c': 'x'}}")


def test_each_call_has_defaults_of_its_own() -> None:
    tags = default(many(TEXT), [])
    parameters = Parameters(obj(rows=many(obj(tags=tags)), tags=tags))
    first = parameters.values('{"rows":[{},{}]}')
    first["rows"][0]["tags"].append("x")
    first["tags"].append("x")
    assert first == {"rows": [{"tags": ["x"]}, {"tags": []}], "tags": ["x"]}
    assert parameters.values('{"rows":[{}]}') == {"rows": [{"tags": []}], "tags": []}


@every(
    ("schema", "place"),
    [
        (obj(a=default(INTEGER, "x")), "a"),
        (obj(a=obj(b=default(INTEGER, 1.5))), "a.b"),
        (obj(rows=many(obj(b=default(INTEGER, None)))), "rows.[].b"),
        (obj(a={"anyOf": [obj(b=default(TEXT, 1)), {"type": "null"}]}), "a.b"),
        (obj(more={"allOf": [obj(b=default(TEXT, 1))]}), "b"),
        (obj(more={"additionalProperties": obj(b=default(TEXT, 1))}), "b"),
        (obj(a=default(obj(("b",), b=TEXT), {})), "a"),
        (
            {
                "$schema": "http://json-schema.org/draft-07/schema#",
                **obj(a=default({"type": "array", "items": [TEXT]}, [1])),
            },
            "a",
        ),
    ],
)
def test_a_default_that_does_not_fit_is_found_when_the_module_is_loaded(schema: Schema, place: str) -> None:
    with pytest.raises(ToolModuleError) as caught:
        read_tools([tool(parameters=schema)], lambda name, values: "", "m")
    assert caught.value.kind == "ValidationError"
    assert f"the default of `{place}` does not fit: `$.{place.split('.')[-1]}" in caught.value.message


@every(
    ("schema", "written", "value"),
    [
        (INTEGER, "5.0", 5),
        (INTEGER, "-0.0", 0),
        (INTEGER, "0e9999999999", 0),
        (INTEGER, "5e3", 5000),
        (INTEGER, "1e23", 10**23),
        (INTEGER, "1E+300", 10**300),
        (INTEGER, "123456789012345678901234567890", 123456789012345678901234567890),
        (INTEGER, "-123456789012345678901234567890.0", -123456789012345678901234567890),
        (INTEGER, "12.5e1", 125),
        (INTEGER, "5.00000000000000000001", 5),  # as the check saw it
        (NUMBER, "5.0", 5.0),
        (NUMBER, "1e20", 1e20),
        ({}, "5.0", 5.0),
        ({"type": ["integer", "null"]}, "5.0", 5),
        ({"type": ["integer", "number"]}, "5.0", 5.0),
        ({"anyOf": [INTEGER, {"type": "null"}]}, "5.0", 5),
        ({"anyOf": [INTEGER, NUMBER]}, "5.0", 5.0),
        ({"anyOf": [INTEGER, {"type": "integer", "minimum": 0}]}, "5.0", 5),
        ({"oneOf": [INTEGER, {"type": "number", "exclusiveMaximum": 5}]}, "5.0", 5),
        ({"allOf": [NUMBER, INTEGER]}, "5.0", 5),
        ({"enum": [1, 5]}, "5.0", 5),
        ({"const": 5}, "5.0", 5),
        ({"type": "number", "enum": [2.5, 5]}, "5.0", 5),
        ({"enum": [5.5, 5.0]}, "5.0", 5.0),
        (INTEGER, "true", None),
        (INTEGER, "5.5", None),
        (INTEGER, '"5"', None),
    ],
)
def test_an_integer_is_an_int(schema: Schema, written: str, value: Any) -> None:
    """Alone, nested, in arrays and in maps; whatever its schema does not take is an error."""
    deep = obj(
        n=schema,
        a=obj(n=schema),
        rows=many(many(schema)),
        pair={"type": "array", "prefixItems": [TEXT, schema]},
        map=obj(more={"additionalProperties": schema}),
        all={"allOf": [obj(n=schema)]},
        one={"anyOf": [obj(("k",), k=TEXT, n=schema), {"type": "null"}]},
    )
    arguments = (
        f'{{"n":{written},"a":{{"n":{written}}},"rows":[[{written},{written}]],"pair":["x",{written}],'
        f'"map":{{"x":{written}}},"all":{{"n":{written}}},"one":{{"k":"x","n":{written}}}}}'
    )
    if value is None:
        with pytest.raises(BadArguments, match="Invalid parameters"):
            Parameters(deep).values(arguments)
        return
    assert got(deep, arguments) == repr(
        {
            "n": value,
            "a": {"n": value},
            "rows": [[value, value]],
            "pair": ["x", value],
            "map": {"x": value},
            "all": {"n": value},
            "one": {"k": "x", "n": value},
        }
    )


def test_a_default_is_an_int_too() -> None:
    assert got(obj(a=obj(n=default(INTEGER, 5.0))), '{"a":{}}') == "{'a': {'n': 5}}"


def test_a_fraction_stays_where_a_keyword_of_another_draft_lists_integers() -> None:
    """`prefixItems` means nothing in Draft 7."""
    pair = {"type": "array", "prefixItems": [INTEGER]}
    assert got(obj(more={"$schema": "http://json-schema.org/draft-07/schema#"}, pair=pair), '{"pair":[5.5]}') == (
        "{'pair': [5.5]}"
    )


def test_truth_is_no_number() -> None:
    assert got(obj(a={"enum": [True, 1]}, b=many({"type": ["boolean", "integer"]})), '{"a":true,"b":[true,1.0]}') == (
        "{'a': True, 'b': [True, 1]}"
    )


@every(
    ("schema", "kept"),
    [
        (obj(b=INTEGER), False),
        (obj(more={"additionalProperties": True}, b=INTEGER), True),
        (obj(more={"additionalProperties": INTEGER}, b=INTEGER), True),
        (obj(more={"patternProperties": {"^x": INTEGER}}, b=INTEGER), True),
        ({"type": "object"}, True),  # lists nothing: any object
        ({}, True),
        (obj(), True),
        ({"type": "object", "required": ["b"]}, True),
        (obj(("x",), b=INTEGER), True),
        ({"allOf": [obj(b=INTEGER)]}, False),
        ({"allOf": [obj(b=INTEGER), obj(x=INTEGER)]}, True),
        (obj(more={"anyOf": [{"required": ["b"]}, {"required": ["c"]}]}, b=INTEGER), False),
        ({"anyOf": [obj(b=INTEGER), obj(x=INTEGER)]}, True),
        ({"anyOf": [obj(b=INTEGER), {"type": "object"}]}, True),
        ({"anyOf": [obj(b=INTEGER), {"type": "null"}]}, False),
        ({"if": obj(b={"const": 2}), "then": obj(x=INTEGER), **obj(b=INTEGER)}, True),
        (obj(more={"dependentSchemas": {"b": obj(x=INTEGER)}}, b=INTEGER), True),
    ],
)
def test_members_that_nobody_lists(schema: Schema, kept: bool) -> None:
    """By one rule at every depth; only that an object which lists nothing at all is free."""
    values = {"a": {"b": 1, "x": 2} if kept else {"b": 1}}
    assert got(obj(a=schema), '{"a":{"b":1,"x":2}}') == repr(values)
    assert got(obj(rows=many(schema)), '{"rows":[{"b":1,"x":2}]}') == repr({"rows": [values["a"]]})


def test_at_the_root_nothing_listed_is_nothing_taken() -> None:
    assert got({"type": "object"}, '{"x":1}') == "{}"
    assert got({"type": "object", "allOf": [obj(a=INTEGER)]}, '{"x":1,"a":2.0}') == "{'a': 2}"


# --- laws -----------------------------------------------------------------------------------------------------------

LEAVES = st.sampled_from([INTEGER, NUMBER, TEXT, {"type": "boolean"}, {}, default(INTEGER, 3), default(TEXT, "d")])
NAMES = st.sampled_from("abc")


def objects(inner: st.SearchStrategy[Schema]) -> st.SearchStrategy[Schema]:
    return st.builds(
        lambda properties, others: obj(more={"additionalProperties": others}, **properties),
        st.dictionaries(NAMES, inner, max_size=3),
        st.booleans() | inner,
    )


def combined(inner: st.SearchStrategy[Schema]) -> st.SearchStrategy[Schema]:
    groups = st.tuples(st.sampled_from(["anyOf", "oneOf", "allOf"]), st.lists(inner, min_size=1, max_size=2))
    return objects(inner) | inner.map(many) | groups.map(lambda group: {group[0]: group[1]})


SCHEMAS = st.recursive(LEAVES, combined, max_leaves=6)
NUMBERS = st.sampled_from(["0", "1", "2.0", "1e3", "2.5", "1e25", "-7.0"])
WRITTEN = st.recursive(
    NUMBERS | st.sampled_from(["true", "null", '"x"']),
    lambda inner: (
        st.lists(inner, max_size=2).map(lambda items: f"[{','.join(items)}]")
        | st.dictionaries(NAMES, inner, max_size=3).map(
            lambda members: "{" + ",".join(f'"{key}":{text}' for key, text in members.items()) + "}"
        )
    ),
    max_leaves=6,
)


@given(SCHEMAS, WRITTEN)
def test_law_what_a_handler_gets_fits_and_says_the_same(schema: Schema, written: str) -> None:
    """Equal to what was written but for defaults and members that nobody lists, and it fits the schema still."""
    whole = obj(("a",), a=schema)
    arguments = f'{{"a":{written}}}'
    try:
        values = Parameters(whole).values(arguments)
    except BadArguments:
        return
    assert compile_schema(whole).check(json.dumps(values)) is None
    agrees(values["a"], json.loads(written))


def agrees(found: Any, written: Any) -> None:
    if isinstance(written, dict):
        assert isinstance(found, dict)
        for name in written.keys() & found.keys():
            agrees(found[name], written[name])
    elif isinstance(written, list):
        assert isinstance(found, list)
        assert len(found) == len(written)
        for one, other in zip(found, written, strict=True):
            agrees(one, other)
    else:
        assert (
            (float(found), bool is type(found)) == (float(written), bool is type(written))
            if type(written) in (int, float)
            else found == written
        )
