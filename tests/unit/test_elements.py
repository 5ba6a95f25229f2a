"""Arguments that are elements with names of their own: what they become says the schema, and nothing of them is
lost."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cases import every
from toolwire.call_policy.elements import MAX_DEPTH, Element, element_value, object_of, read_elements
from toolwire.call_policy.untyped import ParameterTypes
from toolwire.repair.literals import MAX_VALUES

P = "]<]"


def value(text: str, schema: dict[str, Any] | None = None) -> Any:
    """The object that a row of elements is. In `text` every tag gets its prefix."""
    elements = read_elements(text.replace("<", f"{P}<"), P)
    return json.loads(object_of(elements, ParameterTypes(schema)))


ROW = {"type": "object", "properties": {"n": {"type": "integer"}, "s": {"type": "string"}}}
SCHEMA = {
    "$defs": {"row": ROW},
    "properties": {
        "rows": {"type": "array", "items": {"$ref": "#/$defs/row"}},
        "words": {"type": "array", "items": {"type": "string"}},
        "row": {"$ref": "#/$defs/row"},
        "text": {"type": "string"},
        "either": {"anyOf": [{"type": "array", "items": {"type": "string"}}, {"type": "null"}]},
    },
}


@every(
    ("text", "wanted"),
    [
        ("<text>1</text>", {"text": "1"}),
        ("<rows><item><n>1</n><s>2</s></item></rows>", {"rows": [{"n": 1, "s": "2"}]}),
        ("<rows><row><n>1</n></row><row><n>2</n></row></rows>", {"rows": [{"n": 1}, {"n": 2}]}),
        ("<words><item>1</item></words>", {"words": ["1"]}),
        ("<words></words><row>\n</row><text></text>", {"words": [], "row": {}, "text": ""}),
        ('<words>["a"]</words>', {"words": ["a"]}),
        ("<either><item>1</item></either>", {"either": ["1"]}),
        ("<either>null</either>", {"either": None}),
        ("<row>so <s>x</s></row>", {"row": {"s": "x", "$text": "so "}}),
        ("<row><s>x</s><s>y</s></row>", {"row": {"s": ["x", "y"]}}),
        # Of these it says nothing.
        ("<a>1</a><b>x</b>", {"a": 1, "b": "x"}),
        ("<a><item>1</item><item>x</item></a>", {"a": [1, "x"]}),
        ("<a><b>1</b><c><item>2</item></c></a>", {"a": {"b": 1, "c": [2]}}),
    ],
)
def test_the_schema_says_what_it_is(text: str, wanted: Any) -> None:
    assert value(text, SCHEMA) == wanted
    if "<a>" in text:
        assert value(text) == wanted


@every(
    ("text", "problem"),
    [
        ("<a>", "not closed"),
        ("<a><b></a></b>", "in the order"),
        ("</a>", "in the order"),
        ("<a", "not closed"),
        ("<a>" * (MAX_DEPTH + 1), "too deep"),
        ("<a></a>" * (MAX_VALUES + 1), "more than"),
    ],
)
def test_what_is_no_row_of_elements(text: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        value(text)


def test_a_schema_is_read_once_for_each_of_its_places(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not for each element."""
    reads = 0
    read = ParameterTypes._read

    def counted(self: ParameterTypes, schemas: Any) -> None:
        nonlocal reads
        reads += 1
        read(self, schemas)

    monkeypatch.setattr(ParameterTypes, "_read", counted)
    rows = "<item><row><n>1</n></row></item>" * 1000
    schema = {"properties": {"rows": {"type": "array", "items": {"properties": {"row": ROW}}}}}
    assert value(f"<rows>{rows}</rows>", schema) == {"rows": [{"row": {"n": 1}}] * 1000}
    assert reads < 10


names = st.sampled_from(["a", "b", "item"])
rows = st.recursive(
    st.sampled_from(["x", "y z", "\nw"]),
    lambda inner: st.lists(st.tuples(names, inner), min_size=1, max_size=3),
    max_leaves=8,
)
Row = str | list[tuple[str, Any]]


def written(row: Row) -> str:
    return row if isinstance(row, str) else "".join(f"<{name}>{written(inner)}</{name}>" for name, inner in row)


def leaves(row: Row) -> list[str]:
    return [row] if isinstance(row, str) else [text for _, inner in row for text in leaves(inner)]


def strings(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    return [text for inner in (value.values() if isinstance(value, dict) else value) for text in strings(inner)]


@given(st.lists(st.tuples(names, rows), min_size=1, max_size=3))
def test_nothing_is_lost(row: list[tuple[str, Any]]) -> None:
    """Every text arrives somewhere, whatever the elements are called."""
    found = read_elements(written(row).replace("<", f"{P}<"), P)
    value = json.loads(element_value(Element("top", [], found), None, ParameterTypes(None)))
    assert sorted(strings(value)) == sorted(leaves(row))
