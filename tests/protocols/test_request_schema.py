"""Two engines read the schemas of requests: whatever the body, both say the same (docs/adr/0063)."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

import fastjsonschema
import jsonschema_rs
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.protocols.test_nothing_is_lost import CASES
from tests.strategies import texts
from toolwire.errors import ClientFault
from toolwire.protocols.shared import request_schema
from toolwire.protocols.shared.request_schema import PIECE_ITEMS, RequestSchema, _compiled, _pieces, _schema

NAMES = ("chat_request", "messages_request", "responses_request")
LIKE_BOTH = {
    *("$schema", "title", "definitions", "$ref", "type", "enum", "const", "properties", "required", "items"),
    *("additionalProperties", "propertyNames", "if", "then", "else"),
    *("minimum", "maximum", "minLength", "maxLength", "minItems", "maxItems", "maxProperties"),
}
"""Keywords that both engines read alike. `pattern` and `format` are not among them: one reads Rust's regular
expressions, the other Python's."""

GOOD = {f"{name}_request": body for name, (_, _, body) in CASES.items()}
WHOLE = [0, 1, -1, 2, 256, 257, 2**53 + 1, 2**63, 2**64, -(2**64), 10**400]
BROKEN = [-0.0, 0.5, 1.0, 2.0, 2.0000000000000004, 1e20, 1e308, -1e-320]
ODD = [
    *(None, True, False, *WHOLE, *BROKEN),
    *("", "a", "\0", "x" * 257, "x" * 600, "\U0001f600" * 256, "\U0001f600" * 257, "e\u0301" * 129),
    *("text", "function", "custom", "message", "user", "assistant", "image_url", "tool_use", "namespace", "mcp"),
    *([], {}, [1], [{}], ["a"] * 5, [None], {"": ""}, {"type": "text"}, {"type": []}, {"type": None}, {"url": 1}),
    {f"k{n}": "v" for n in range(17)},
    {"k" * 65: "v"},
    {"\U0001f600" * 64: "v"},
]


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Each place inside of it: what it is in, and its key there."""
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in list(inside):
        yield value, key
        yield from places(item)


def fits(name: str, body: Any) -> bool:
    """The verdict of both engines."""
    quick, exact = _compiled(name)
    try:
        exact(body)
        said = True
    except fastjsonschema.JsonSchemaValueException:
        said = False
    assert quick(body) is said, body
    return said


@pytest.mark.parametrize("name", NAMES)
def test_what_clients_send_fits(name: str) -> None:
    assert fits(name, GOOD[name])


@pytest.mark.parametrize("name", NAMES)
def test_whatever_stands_at_one_place(name: str) -> None:
    """A sixth of the odd values at each place, in turn: most places have neighbours with the same schema."""
    refused = 0
    for number in range(len(list(places(GOOD[name])))):
        body = copy.deepcopy(GOOD[name])
        inside, key = list(places(body))[number]
        for odd in ODD[number % 6 :: 6]:
            inside[key] = odd
            refused += not fits(name, body)
        del inside[key]
        fits(name, body)
    assert refused


@pytest.mark.parametrize("name", NAMES)
def test_whatever_stands_in_a_field(name: str) -> None:
    for field in [*_schema(name)["properties"], "unknown"]:
        for odd in ODD:
            fits(name, {**GOOD[name], field: odd})


def _words(schema: Any) -> Iterator[str]:
    """Names of fields, and values of `enum` and `const`."""
    if isinstance(schema, list):
        for item in schema:
            yield from _words(item)
    elif isinstance(schema, dict):
        yield from (key for key in schema.get("properties", ()) if isinstance(key, str))
        yield from (value for value in [*schema.get("enum", ()), schema.get("const")] if isinstance(value, str))
        yield from _words(list(schema.values()))


WORDS = {name: sorted(set(_words(_schema(name)))) for name in NAMES}
LEAVES = st.sampled_from(ODD) | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts


def values(words: list[str]) -> st.SearchStrategy[Any]:
    keys = st.sampled_from(words)
    return st.recursive(
        LEAVES | keys,
        lambda inner: st.lists(inner, max_size=2) | st.dictionaries(keys, inner, max_size=4),
        max_leaves=6,
    )


VALUES = {name: values(sorted(set(_words(_schema(name))))) for name in NAMES}
"""JSON of the words that a schema has."""


@pytest.mark.parametrize("name", NAMES)
@given(st.data())
def test_whatever_is_put_together(name: str, data: st.DataObject) -> None:
    """A body with a few places of it replaced, each by any value of the schema's words."""
    body = copy.deepcopy(GOOD[name])
    found = list(places(body))
    for number in data.draw(st.lists(st.integers(0, len(found) - 1), min_size=1, max_size=3)):
        inside, key = found[number]
        inside[key] = data.draw(VALUES[name])
    fits(name, body)


@pytest.mark.parametrize("name", NAMES)
def test_only_keywords_that_both_read_alike(name: str) -> None:
    def look(schema: Any) -> None:
        assert schema.keys() <= LIKE_BOTH
        for keyword in ("if", "then", "else", "items", "additionalProperties", "propertyNames"):
            if keyword in schema:
                look(schema[keyword])
        for keyword in ("properties", "definitions"):
            for inner in schema.get(keyword, {}).values():
                look(inner)

    look(_schema(name))


# --- RequestSchema -------------------------------------------------------------------------------------------------


SHAPE = RequestSchema("chat_request", lambda path, code: code)


class Words(str):
    """Text that no JSON parser makes."""


@pytest.mark.parametrize(
    "body",
    [
        MappingProxyType(GOOD["chat_request"]),
        {**GOOD["chat_request"], "model": Words("m")},
        {**GOOD["chat_request"], "temperature": float("nan")},
        {**GOOD["chat_request"], "model": "\ud800"},
    ],
    ids=["mapping", "subclass", "nan", "surrogate"],
)
def test_what_no_json_has_is_read_by_the_other_engine(body: Mapping[str, Any]) -> None:
    SHAPE.check(body)
    with pytest.raises(ClientFault, match="Invalid 'n': expected at least 1, got 0"):
        SHAPE.check({**body, "n": 0})


MESSAGE = {"role": "user", "content": "a"}


@pytest.mark.parametrize("size", [0, 10**6])
@given(
    st.lists(st.sampled_from([MESSAGE, 1, {"role": "nobody"}]), max_size=7),
    st.lists(st.sampled_from([{"type": "function"}, {}]), max_size=7),
    st.sampled_from([None, ["a"] * 4, ["a"] * 5, []]),
)
@example([MESSAGE] * 6, [{"type": "x"}] * 6, None)
@example([*[MESSAGE] * 5, 1], [], None)
def test_large_bodies_are_checked_in_pieces(size: int, messages: list[Any], tools: list[Any], stop: Any) -> None:
    """In pieces, each message and each tool once, and with the verdict on the whole."""
    body = {"model": "m", "messages": messages, "tools": tools, "stop": stop}
    exact = fits("chat_request", body)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(request_schema, "PIECE_ITEMS", 5)  # one more than `stop` may have
        pieces = list(_pieces(body))
        assert all(len(piece[name]) <= 5 for piece in pieces for name in ("messages", "tools"))
        assert all(map(_compiled("chat_request")[0], pieces)) is exact
        try:
            SHAPE.check(body, size)
            checked = True
        except ClientFault:
            checked = False
        assert checked is exact


@pytest.mark.parametrize("name", NAMES)
def test_a_piece_is_longer_than_any_list_whose_length_is_bounded(name: str) -> None:
    """Else a list that is too long could be cut into pieces that are not."""
    assert all(inside.get("maxItems", 0) < PIECE_ITEMS for inside in _schema(name)["properties"].values())


def test_a_body_nested_as_deeply_as_any_parser_takes() -> None:
    """The engine recurses in native code, where nothing catches it; orjson reads up to 1,024 levels."""
    tool: Any = {"type": "function"}
    for _ in range(512):
        tool = {"type": "namespace", "name": "n", "tools": [tool]}
    assert _compiled("responses_request")[0]({"model": "m", "tools": [tool]})


def test_the_engine_reads_without_building_a_copy() -> None:
    """An unknown value is never looked at: not even one that the engine has no form for."""
    assert jsonschema_rs.Draft7Validator(_schema("chat_request")).is_valid(
        {**GOOD["chat_request"], "unknown": {1: b""}}
    )
