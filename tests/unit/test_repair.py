"""Safe repair (R9.7): every step, every refusal, and the laws."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cases import every, examples
from tests.unit.json_values import OBJECTS, VALUES
from toolwire.repair.relaxed_json import (
    MAX_DEPTH,
    MAX_REPAIRED_VALUES,
    REPAIR_KINDS,
    parses,
    read_json,
    read_value,
    repair_json,
)

REPAIRED = {
    "fence": ('```json\n{"a": 1}\n```', '{"a": 1}', ("fence",)),
    "fence on one line": (' ```json {"a": 1}``` ', '{"a": 1}', ("fence",)),
    "comma in an object": ('{"a": 1, }', '{"a": 1 }', ("commas",)),
    "commas at all levels": ('{"a":[{"b":1,},],}', '{"a":[{"b":1}]}', ("commas",)),
    "single quotes": ("{'a': 'b'}", '{"a": "b"}', ("quotes",)),
    "single quotes, double inside": ("{'a': 'say \"hi\"'}", '{"a": "say \\"hi\\""}', ("quotes",)),
    "single quotes, escaped double inside": ("{'a': 'say \\\"hi\\\"'}", '{"a": "say \\"hi\\""}', ("quotes",)),
    "escaped single quote": (r"{'a': 'it\'s'}", '{"a": "it\'s"}', ("quotes",)),
    "mixed quotes": ("{'a': \"it's\"}", '{"a": "it\'s"}', ("quotes",)),
    "curly quotes with escapes": (r"{“a”: “1\n2\“3”}", '{"a": "1\\n2“3"}', ("quotes",)),
    "curly quotes around backslashes": (r"{“a”: “C:\dir”}", r'{"a": "C:\\dir"}', ("quotes",)),
    "curly quotes": ('{“a”: “say "hi"”, "b": ”c”}', '{"a": "say \\"hi\\"", "b": "c"}', ("quotes",)),
    "bare keys": ("{a: 1, b_2: {c-d: 2}}", '{"a": 1, "b_2": {"c-d": 2}}', ("quotes",)),
    "bare strings": ("{unit: celsius, all: [a, b]}", '{"unit": "celsius", "all": ["a", "b"]}', ("quotes",)),
    "bare word of another alphabet": ("{имя: Ünal}", '{"имя": "Ünal"}', ("quotes",)),
    "Python words": ("{'a': True, 'b': [None, False]}", '{"a": true, "b": [null, false]}', ("quotes",)),
    "line break in a string": ('{"a": "x\ny"}', '{"a": "x\\ny"}', ("controls",)),
    "every control character": (
        '{"a": "\x00\x08\x09\x0a\x0c\x0d\x1f"}',
        '{"a": "\\u0000\\b\\t\\n\\f\\r\\u001f"}',
        ("controls",),
    ),
    "one brace": ('{"a": {"b": 1}', '{"a": {"b": 1}}', ("brackets",)),
    "several brackets": ('{"a": [{"b": "c"', '{"a": [{"b": "c"}]}', ("brackets",)),
    "after whitespace": ('{"a": true\n', '{"a": true\n}', ("brackets",)),
    "a brace too many": ('{"a": {"b": 1}}}', '{"a": {"b": 1}}', ("brackets",)),
    "a semicolon": ('{"a": [1]}};', '{"a": [1]}', ("brackets",)),
    "a comma": ('{"a": 1},\n', '{"a": 1}', ("brackets",)),
    "brackets too many": ('[{"a": 1}] ]}\n', '[{"a": 1}] ', ("brackets",)),
    "all at once": (
        "```json\n{'a': [1,2,], b: \"x\ty\", 'c': {'d': None}\n```",
        '{"a": [1,2], "b": "x\\ty", "c": {"d": null}}',
        ("fence", "commas", "quotes", "controls", "brackets"),
    ),
}

REFUSED = {
    "nothing": "",
    "prose": "hello",
    "a bare string": "'hello'",
    "inner double quote": '{"a": "say "hi" now"}',
    "inner curly quote": "{“a”: “say “hi” now”}",
    "inner quote before a comma": "{'a': 'it's, well, fine'}",
    "text before": 'Sure: {"a": 1,}',
    "a second object": '{"a": 1}{"b": 2}',
    "text behind a brace too many": '{"a": 1}}, "b": 2',
    "wrong bracket": '{"a": [1, 2}',
    "double comma": "[1,,2]",
    "unterminated string": '{"a": "b',
    "opening brace at the end": '{"name": "x", "arguments": {',
    "missing colon": '{"a" 1}',
    "several bare words": "{a: hello world}",
    "number as key": "{1: 2}",
    "NaN": '{"a": NaN}',
    "undefined": "{a: undefined}",
    "Python words alone": '{"a": True}',
    "Python and JSON words": "{'a': True, 'b': null}",
    "TRUE": "{'a': TRUE}",
    "leading zero": '{"a": 01,}',
    "comment": '{"a": 1, // one\n}',
    "bad escape": '{"a": "\\x41",}',
    "tuple": "{'a': (1, 2)}",
    "no-break space": '{"a":\u00a01,}',
    "byte order mark": '\ufeff{"a": 1}',
    "fence without end": '```json\n{"a": 1}',
    "fence that ends in other words": "```json\n{'a': 1}end",
    "too deep": "[" * (MAX_DEPTH + 1),
    "too deep by far": "[" * 100_000,
    "too many values": "[" + "1," * (MAX_REPAIRED_VALUES + 1) + "]",
    "too many values to repair": "[" + "'x'," * (MAX_REPAIRED_VALUES + 1) + "]",
}


@every(("text", "expected", "kinds"), REPAIRED.values())
def test_repairs(text: str, expected: str, kinds: tuple[str, ...]) -> None:
    assert repair_json(text) == (expected, kinds)


@every("text", REFUSED.values())
def test_refuses(text: str) -> None:
    assert repair_json(text) is None


def test_the_cases_reach_every_kind() -> None:
    assert {kind for _, _, kinds in REPAIRED.values() for kind in kinds} == set(REPAIR_KINDS)


def test_reads_strictly() -> None:
    assert read_json(' {"a": [1, "x", null]}\n') == {"a": [1.0, "x", None]}
    assert read_value('{"a": [1] , "b"', 6) == ([1.0], 9)
    assert parses("9" * 10_000), "integers of any length are JSON"
    for text in ("", "NaN", "-Infinity", '"\n"', "1 2", "{}x", "[1,]", "\ufeff{}"):
        assert not parses(text)


def test_nesting_is_bounded_whatever_the_stack() -> None:
    assert parses("[" * MAX_DEPTH + "]" * MAX_DEPTH)
    assert not parses("[" * (MAX_DEPTH + 1) + "]" * (MAX_DEPTH + 1))
    assert not parses('{"a":' * 100_000 + "1" + "}" * 100_000)
    assert parses("[" + "[]," * 1000 + "[]]"), "many brackets are not deep brackets"
    with pytest.raises(ValueError, match="nested deeper"):
        read_json("[" * 100_000 + "]" * 100_000)


def test_words_among_what_is_right_already_count_too() -> None:
    assert repair_json("{'a':True,\"b\":[1,2]}") == ('{"a":true,"b":[1,2]}', ("quotes",))
    assert repair_json("{'a':True,\"b\":[1,false]}") is None
    assert repair_json('{\'a\':True,"b":[1,"false"]}') is not None


def test_brackets_in_strings_do_not_count_as_nesting() -> None:
    text = json.dumps({"a": "[" * 1000})
    assert repair_json(text) == (text, ())


# --- laws -----------------------------------------------------------------------------------------------------------
NEARLY_JSON = st.text("{}[]:,'\"\\` \nabnTrueFalsNoj01-./é\x01", max_size=40)


def strings_in(value: Any) -> list[str]:
    """All keys and strings of a value."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, list):
        return [text for item in value for text in strings_in(item)]
    if isinstance(value, dict):
        return [*value, *(text for item in value.values() for text in strings_in(item))]
    return []


@examples(0.5)
@given(VALUES, st.sampled_from([None, 1]), st.booleans())
def test_valid_json_is_left_alone(value: Any, indent: int | None, escaped: bool) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=escaped)
    assert repair_json(text) == (text, ())


@given(NEARLY_JSON | NEARLY_JSON.map(lambda text: "{" + text + "}"))
def test_what_comes_back_parses_and_was_there(text: str) -> None:
    found = repair_json(text)
    if found is None:
        return
    repaired, kinds = found
    value = json.loads(repaired)
    assert (repaired == text) == (not kinds)
    assert list(kinds) == [kind for kind in REPAIR_KINDS if kind in kinds]
    assert repair_json(repaired) == (repaired, ())
    unescaped = text.replace("\\", "")
    for string in strings_in(value):
        if "\\" not in text:
            assert string in unescaped
    # Nothing but punctuation may go: what is left of both texts is the same.
    if (
        "\\" not in text
        and "controls" not in kinds
        and "True" not in text
        and "None" not in text
        and "False" not in text
    ):
        kept = [c for c in text if c not in "'\"`,{}[] \n\r\t"]
        assert kept == [c for c in repaired if c not in "'\"`,{}[] \n\r\t\\"] or "fence" in kinds


@examples(0.5)
@given(OBJECTS)
def test_reads_python_as_python_does(value: dict[str, Any]) -> None:
    """`repr` of a dict either gives back the dict, or is refused for an escape or a number that JSON has no form
    for."""
    found = repair_json(repr(value))
    if found is not None:
        assert json.loads(found[0]) == value
    else:
        assert any(sign in repr(value) for sign in ("\\x", "\\U", "\\u", "True", "False", "None", "\\'"))


@examples(0.5)
@given(OBJECTS.filter(bool), st.data())
def test_a_text_cut_anywhere_never_gains_a_value(value: dict[str, Any], data: st.DataObject) -> None:
    """What comes back of a text that was cut holds only strings of the whole, whole."""
    text = json.dumps(value)
    cut = text[: data.draw(st.integers(0, len(text) - 1))]
    found = repair_json(cut)
    if found is not None:
        whole = strings_in(value)
        assert all(string in whole for string in strings_in(json.loads(found[0])))
