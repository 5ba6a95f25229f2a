"""Which part of streamed arguments can be sent, because no conversion can change it (R6.13, R23.3)."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.cases import every
from toolwire.call_policy.candidate import custom_input
from toolwire.call_policy.coercion import coerce
from toolwire.call_policy.early import InputGate, SafeCall, ValueGate
from toolwire.call_policy.untyped import ParameterTypes
from toolwire.schemas.schema import compile_schema

EDIT = {"type": "object", "properties": {"old": {"type": "string"}, "n": {"type": "integer"}}}
OPTIONAL = {"anyOf": [{"type": "string"}, {"type": "null"}]}
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "s": {"type": "string", "minLength": 1, "description": "A text."},
        "n": {"type": "integer"},
        "b": {"type": "boolean"},
        "e": {"type": "string", "enum": ["on", "Off"]},
        "o": OPTIONAL,
        "u": {"anyOf": [{"type": "string", "maxLength": 1}, {"type": "number"}]},
        "l": {"type": "array", "items": {"$ref": "#/$defs/Edit"}},
        "m": {"anyOf": [{"type": "array", "items": {"type": "string"}}, {"type": "null"}]},
        "t": {"type": "array", "prefixItems": [{"type": "integer"}]},
        "p": {"type": ["string", "number"]},
        "a": {},
    },
    "required": ["s"],
    "$defs": {"Edit": EDIT},
}


def sent(text: str, schema: Any = SCHEMA, size: int = 1000, *, custom: bool = False) -> str:
    """The part of the arguments that is sent, which come in pieces of this size."""
    gate = InputGate() if custom else None if schema is None else ValueGate(schema)
    call = SafeCall(lambda: None, ParameterTypes(schema), gate)
    return "".join(call.release(text[at : at + size].encode()).decode() for at in range(0, len(text), size))


@every(
    ("text", "stops"),
    [
        ('{"s":"a text", "n": 5, "b":true', "true"),  # whether it has ended is not known
        ('{"s":"a text", "n": 5, "b":true,', ""),
        ('{"s":"so far', ""),
        ('{"s":5, "n":1,', "5, "),
        ('{"n":"5","s":"a', '"5"'),
        ('{"n":5.0,"b":"true",', '"true"'),
        ('{"e":"on","s":"a', ""),
        ('{"e":"off","s":"a', '"off"'),
        ('{"e":"o', '"o'),
        ('{"o":"text","o":null,"o":5,', "5,"),
        ('{"u":"text', '"text'),
        ('{"l":[{"old":"a\\"b","n":1},{"n":"1"', '"1"'),
        ('{"l":{"old":"a"}', '{"old"'),
        ('{"l":"[1]"', '"[1]"'),
        ('{"m":["a","b", 1, ', "1, "),
        ('{"m":"a"', '"a"'),
        ('{"t":[1', "[1"),
        ('{"p":1,"p":"a","p":true,', "true,"),
        ('{"a":{"x":["1",2,{}]},"more":[null,1,"t', ""),
        ('{"a":"\\ud800","n":1e999,', "1e999,"),
        ('{"type":"object","properties":{', ':"object","properties":{'),  # the tool's definition
        ('{"a":{"type":"object"},"l":[{"type":"object"},{"required":[', ""),
    ],
)
def test_a_value_that_may_be_converted_waits(text: str, stops: str) -> None:
    expected = text[: text.rindex(stops)] if stops else text
    assert sent(text) == sent(text, size=1) == expected


ESCAPES = (
    r'{"s":"\\\"\u00e9\ud83d\ude80\ud800' + "é\U0001f680" + r'\\","\u0073":"\n",'
    r'"n":-1.5e3,"l":[{"old":"\\"},{}],"a":[null,"\\\\"]}'
)
"""Escapes, surrogate pairs and characters of several bytes, in keys and values."""
EVERYWHERE = [{"additionalProperties": part, "$defs": SCHEMA["$defs"]} for part in SCHEMA["properties"].values()]


@every("schema", [SCHEMA, {**SCHEMA, "additionalProperties": {"enum": ["\n"]}}, EDIT, {}, None, *EVERYWHERE])
def test_cuts_change_nothing(schema: Any) -> None:
    """Bytes may be cut anywhere: reading ends, and the same bytes are sent."""
    raw = ESCAPES.encode()

    def released(*pieces: bytes) -> bytes:
        call = SafeCall(lambda: None, ParameterTypes(schema or {}), None if schema is None else ValueGate(schema))
        return b"".join(map(call.release, pieces))

    whole = released(raw)
    assert raw.startswith(whole)
    assert released(*(raw[at : at + 1] for at in range(len(raw)))) == whole
    for at in range(len(raw)):
        for size in (0, 1):
            assert released(raw[:at], raw[at : at + size], raw[at + size :]) == whole


@every("keyword", ["oneOf", "allOf", "not", "if", "patternProperties", "dependentSchemas"])
def test_a_schema_that_is_not_read_sends_nothing(keyword: str) -> None:
    part: Any = [{"type": "object"}, {"type": "object"}] if keyword.endswith("Of") else {"type": "object"}
    assert sent('{"s":"a', {**SCHEMA, keyword: part}) == ""


@every("schema", [{"type": 5}, {"type": "object", "properties": []}, {"type": "object", "items": [5]}, {"anyOf": 5}])
def test_a_schema_that_is_none_breaks_nothing(schema: Any) -> None:
    sent('{"s":"a","l":[{"n":1,"e":[', schema)


def test_without_conversion_all_is_sent() -> None:
    assert sent('{"n":"5', None) == '{"n":"5'


VALUES = st.recursive(
    st.sampled_from(["", "5", "true", "null", "on", "OFF", "[1]", '{"n":"1"}', 5, 5.0, 0.5, True, None]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["old", "n"]), inner, max_size=2),
    max_leaves=5,
)


@given(arguments=st.dictionaries(st.sampled_from([*SCHEMA["properties"], "other"]), VALUES, max_size=5))
def test_the_final_arguments_begin_with_what_was_sent(arguments: dict[str, Any]) -> None:
    """Whatever conversion makes of them, and however they were cut."""
    text = json.dumps(arguments)
    checker = compile_schema(SCHEMA)
    mended = None if checker.check(text) is None else coerce(text, checker)
    before = sent(text[:-1])
    assert (text if mended is None else mended.text).startswith(before), before
    assert sent(text[:-1], size=1) == before


# --- the text of custom tools ---------------------------------------------------------------------------------------


@every(
    ("text", "passes"),
    [
        (r'{"input":"a \"b\"\n\\u00e9\u00e9 \/', 'a "b"\n\\u00e9é /'),
        (' { "input" :\n"a","other":"b"}', "a"),
        ('{"input":"","input":"b"}', ""),
        (r'{"input":"a\ud83d', "a"),
        (r'{"input":"a\ud83d\ude', "a"),
        ('{"input":"a\\ud83d\\ude80\\', "a\U0001f680"),
        (r'{"input":"a\ud83d\ud83d\ude80b\ude80"', "a\ufffd\U0001f680b\ufffd"),
        (r'{"input":"\ud83d\\ude80"', "\ufffd\\ude80"),
        (r'{"input":"\ud83d"', "\ufffd"),
        ('{"other":1,"input":"a"', ""),  # may still be the text itself
        ('{"input":["a"', ""),
        ('{"inputs":"a', ""),
        ('{"input":' + " " * 64 + '"a', ""),
        ('{"in', ""),
    ],
)
def test_the_text_of_a_custom_tool_passes_decoded(text: str, passes: str) -> None:
    assert sent(text, custom=True) == sent(text, size=1, custom=True) == sent(text, None, size=3, custom=True) == passes


@given(
    text=st.text(st.characters(exclude_categories=()), max_size=30), ascii_only=st.booleans(), size=st.integers(1, 9)
)
def test_the_text_of_a_custom_tool_is_the_final_one(text: str, ascii_only: bool, size: int) -> None:
    """Also with halves of surrogate pairs, which only escapes can write."""
    halves = any("\ud800" <= char <= "\udfff" for char in text)
    arguments = json.dumps({"input": text}, ensure_ascii=ascii_only or halves)
    assert sent(arguments, size=size, custom=True) == custom_input(arguments)
