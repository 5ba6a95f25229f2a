"""From fields to calls, in every encoding: the classes of mistakes that break parsers, and round trips."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cases import every
from tests.linear.work import calls
from toolwire.call_policy.assembly import MAX_PIECES, assemble
from toolwire.call_policy.tags import tag_key, tag_name
from toolwire.call_policy.untyped import OTHERS, STRING
from toolwire.scan._grammar import Block, BlockSyntax, Branch, Field

JSON = BlockSyntax(opener="<call>", closer="</call>")
TAUGHT_STRING = BlockSyntax(opener="<call>", closer="</call>", arguments="string")
COHERE = BlockSyntax(opener="<call>", names=("tool_name", "name"), parameters=("parameters", "arguments"))
APERTUS = BlockSyntax(opener="<call>", names=())
ARRAY = BlockSyntax(opener="[T]", body=((Branch(read="array", field="calls"),),))
PYTHON = BlockSyntax(opener="", anchor="answer", body=((Branch(read="list", field="calls"),),))
LINES = BlockSyntax(opener="<calls>", body=((Branch(read="call", field="call", then=0), Branch(literal="</calls>")),))
TAGS = BlockSyntax(opener="<call>", closer="</call>")
FRAMED = BlockSyntax(opener="<call>", closer="</call>", framed=True)
BRACES = BlockSyntax(opener="<call>", quote="<escape>")

WEATHER: Mapping[str, Any] = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "days": {"type": "integer"}, "tags": {"type": "array"}},
}

Call = tuple[str, str | None, str]
Pieces = tuple[tuple[Field, str], ...]


def read(
    syntax: BlockSyntax,
    *pieces: tuple[Field, str],
    parameters: Mapping[str, Any] | None = WEATHER,
    repair: bool = True,
    broken: bool = False,
    closed: bool = True,
) -> list[Call]:
    """Names, ids and arguments of the calls in a block."""
    found = assemble(Block(syntax, "", pieces, closed, broken), repair=repair)
    return [
        (call.name, call.call_id, call.arguments.settle(parameters, repair=repair, objects=True).text)
        for call in found.calls
    ]


def refused(*args: Any, **options: Any) -> str:
    """Why there is no call."""
    with pytest.raises(ValueError) as caught:
        read(*args, **options)
    return str(caught.value)


# --- JSON -----------------------------------------------------------------------------------------------------------


@every("syntax", [ARRAY, PYTHON])
def test_an_array(syntax: BlockSyntax) -> None:
    text = '[{"name": "f", "arguments": {"a": 3.50}}, {"function":{"arguments":"{}","name":"g"}}]'
    assert read(syntax, ("calls", text)) == [("f", None, '{"a": 3.50}'), ("g", None, "{}")]
    assert read(syntax, ("calls", f'{{"tool_calls": {text}}}')) == read(syntax, ("calls", text))
    assert read(syntax, ("calls", '{"name":"f"}')) == [("f", None, "{}")]
    assert read(syntax, ("calls", "[]")) == []
    for wrong in ('["f"]', '[{"name":"f"}, 7]', '{"tool_calls":{}}', "[{]"):
        refused(syntax, ("calls", wrong))


# --- tags -----------------------------------------------------------------------------------------------------------


def test_keys_and_values() -> None:
    pieces: Pieces = (
        *(("name", "get_weather\n"), ("key", "city"), ("value", "\n\n  Os<lo> \n\n")),
        *(("key", "days"), ("value", "\n12345678901234567890\n"), ("key", "city"), ("value", "\n\tx\n")),
        *(("key", "more"), ("value", "[1, 2]")),
    )
    assert read(FRAMED, *pieces) == [("get_weather", None, '{"city":"\\tx","days":12345678901234567890,"more":[1,2]}')]
    assert read(FRAMED, *pieces[:3]) == [("get_weather", None, '{"city":"\\n  Os<lo> \\n"}')]
    assert read(TAGS, *pieces[:3]) == [("get_weather", None, '{"city":"\\n\\n  Os<lo> \\n\\n"}')]
    assert read(FRAMED, ("name", "f"), ("key", "city"), ("value", "\n")) == [("f", None, '{"city":""}')]
    assert read(FRAMED, ("name", "f")) == [("f", None, "{}")]


@every(
    ("text", "name"),
    [
        *((text, "f") for text in ("f", "\n f\n", '"f"', "'f'", 'f"', '"f', '"f" index="1"', "f' index='1'", "f json")),
        ("functions.f <|constrain|>json", "functions.f"),
        ("functions.f<|channel|>commentary<|constrain|>json", "functions.f"),
        *((text, "") for text in ("", '""', "<|x|>")),
    ],
)
def test_names_in_tags(text: str, name: str) -> None:
    assert tag_name(text) == name


@every(
    ("text", "key", "types"),
    [
        ("a b", "a b", None),
        (' "a b" ', "a b", None),
        ('"q" string="true"', "q", STRING),
        ('"q" string="false"', "q", OTHERS),
        ('q" string="true', "q", STRING),
        ('key" type="number"', "key", frozenset(("number",))),
        ('"k" index="1" type="string"', "k", STRING),
        ("k=v", "k=v", None),
    ],
)
def test_keys_in_tags(text: str, key: str, types: frozenset[str] | None) -> None:
    assert tag_key(text) == (key, types)


def test_arguments_as_json() -> None:
    for text, arguments in (
        *((' {"a" : 1.0}\n', '{"a" : 1.0}'), ('"{\\"a\\": 1}"', '{"a": 1}'), ("{'a': 1,}", '{"a": 1}')),
        *(("", "{}"), ("null", "{}")),
    ):
        assert read(TAGS, ("name", "f"), ("arguments", text)) == [("f", None, arguments)]
    assert read(TAUGHT_STRING, ("name", "f"), ("arguments", '{"a" : 1}')) == [("f", None, '{"a":1}')]
    for text in ("[1]", "7", "{", '{"a":1} x', "nonsense"):
        assert "its arguments" in refused(TAGS, ("name", "f"), ("arguments", text))
    assert "its arguments" in refused(TAGS, ("name", "f"), ("arguments", "{'a': 1}"), repair=False)


def test_arguments_in_braces() -> None:
    for text, arguments in (
        ("{city:<escape>Os}lo<escape>,days:1.0}", '{"city":"Os}lo","days":1.0}'),
        (' {"city": "Oslo"} ', '{"city": "Oslo"}'),
        ("{}", "{}"),
    ):
        assert read(BRACES, ("name", "f"), ("arguments", text)) == [("f", None, arguments)]
    bare = ("arguments", "{city:Oslo}")
    assert read(BRACES, ("name", "f"), bare) == [("f", None, '{"city":"Oslo"}')], "a slip of Gemma's"
    refused(BRACES, ("name", "f"), bare, repair=False)
    for text in ("[1]", "", "{city}", "{city:Oslo"):
        refused(BRACES, ("name", "f"), ("arguments", text))


@every(
    "pieces",
    [
        [("name", "f"), ("value", "1")],
        [("name", "f"), ("key", "a")],
        [("name", "f"), ("key", "a"), ("key", "b"), ("value", "1")],
        [("name", "f"), ("arguments", "{}"), ("arguments", "{}")],
        [("name", "f"), ("arguments", "{}"), ("key", "a"), ("value", "1")],
        [],
    ],
)
def test_fields_that_do_not_fit(pieces: list[tuple[Field, str]]) -> None:
    refused(TAGS, *pieces)


def test_a_broken_block_in_tags_is_malformed() -> None:
    """The last field reaches to the closer, so that nobody knows what it is; JSON says itself whether it is whole."""
    name: tuple[Field, str] = ("name", "f")
    broken: list[Pieces] = [
        *((("name", "f junk"),), (("id", "f:0 junk"),), (name, ("arguments", '{"a":1}}x'))),
        *((name, ("key", "a"), ("value", "1</value>junk")), (name, ("key", "a>junk"))),
    ]
    for pieces in broken:
        refused(TAGS, *pieces, broken=True)
    for arguments in ('{"a":1', '{"a":1}}'):
        assert read(TAGS, name, ("arguments", arguments), broken=True) == [("f", None, '{"a":1}')]


# --- laws; that each format reads what it writes stands in `tests/formats` ------------------------------------------


def tagged(name: str, pairs: Iterable[tuple[str, str]]) -> Pieces:
    pieces: list[tuple[Field, str]] = [("name", name)]
    for key, value in pairs:
        pieces += [("key", key), ("value", value)]
    return tuple(pieces)


SHAPES = (JSON, TAUGHT_STRING, COHERE, APERTUS, ARRAY, PYTHON, LINES, TAGS, FRAMED, BRACES)
FIELDS: tuple[Field, ...] = ("name", "id", "key", "value", "arguments", "call", "calls", "")


@given(
    st.sampled_from(SHAPES),
    st.lists(
        st.tuples(st.sampled_from(FIELDS), st.text("fg{}[]():,=\"'\\ \nname0.-<|escap>`", max_size=30)), max_size=5
    ),
    st.booleans(),
    st.booleans(),
)
def test_no_fields_raise_anything_else(
    syntax: BlockSyntax, pieces: list[tuple[Field, str]], broken: bool, closed: bool
) -> None:
    try:
        found = read(syntax, *pieces, broken=broken, closed=closed)
    except ValueError:
        return
    for _, _, arguments in found:
        json.loads(arguments)


# --- hostile input: counted in calls of functions, not in time ------------------------------------------------------


def work(syntax: BlockSyntax, pieces: Pieces) -> int:
    """How many functions are called to read a block, C functions included."""

    def reading() -> None:
        with suppress(ValueError):
            read(syntax, *pieces)

    return calls(reading, "toolwire.")


def pairs(key: str, value: str, times: int) -> Pieces:
    return tagged("f", ((key.format(number), value) for number in range(times)))


HOSTILE: dict[str, Callable[[int], tuple[BlockSyntax, Pieces]]] = {
    "brackets": lambda n: (JSON, (("call", "[" * n),)),
    "nested objects": lambda n: (JSON, (("call", '{"name":"f","arguments":' + '{"a":' * n),)),
    "members": lambda n: (JSON, (("call", "{" + ",".join(f'"{k}":1' for k in range(n)) + "}"),)),
    "calls": lambda n: (ARRAY, (("calls", "[" + ",".join(['{"a":1,"name":"f"}'] * n) + "]"),)),
    "single quotes": lambda n: (PYTHON, (("calls", "[f(a=" + "'" * n),)),
    "quotes and spaces": lambda n: (PYTHON, (("calls", "[f(a='x" + "' " * n),)),
    "quotes and commas": lambda n: (PYTHON, (("calls", "[f(a='x" + "'," * n),)),
    "python brackets": lambda n: (PYTHON, (("calls", "[f(a=" + "[" * n),)),
    "python keys": lambda n: (PYTHON, (("calls", "[f(" + ",".join(f"k{k}=1" for k in range(n)) + ")]"),)),
    "python calls": lambda n: (PYTHON, (("calls", "[" + "f()," * n + "]"),)),
    "keys": lambda n: (FRAMED, pairs("k{}", "1", n)),
    "one key": lambda n: (FRAMED, pairs("city", "[", n)),
    "brackets in values": lambda n: (FRAMED, pairs("tags", "[" * n, 1)),
    "spaces in a key": lambda n: (FRAMED, pairs("a" + " " * n + "b", "1", 1)),
    "names": lambda n: (TAGS, (("name", "f"),) * n),
    "braces": lambda n: (BRACES, (("name", "f"), ("arguments", "{a:" * n))),
    "marks": lambda n: (BRACES, (("name", "f"), ("arguments", "{" + "<escape>a<escape>:1," * n + "}"))),
}


@every("kind", HOSTILE)
def test_work_is_linear(kind: str) -> None:
    assert work(*HOSTILE[kind](2000)) <= 2 * work(*HOSTILE[kind](1000)) + 200


def test_fields_are_counted() -> None:
    most = pairs("k{}", "1", MAX_PIECES // 2 - 1)
    assert len(read(TAGS, *most)) == 1
    assert "fields" in refused(TAGS, *most, ("key", "x"), ("value", "1"))
