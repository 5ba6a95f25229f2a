"""Values in a model's own syntax: Python, and braces with strings between marks."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cases import every
from tests.unit.json_values import VALUES
from toolwire.repair import literals
from toolwire.repair.literals import (
    PythonCall,
    braces_value,
    json_string,
    python_call,
    python_calls,
    python_value,
    scalar,
)
from toolwire.repair.relaxed_json import MAX_DEPTH

MARK = '<|"|>'


# --- Python ---------------------------------------------------------------------------------------------------------


@every(
    ("text", "read"),
    [
        *(("'x'", '"x"'), ('"x"', '"x"'), ("''", '""'), ("('a')", '"a"'), ("( 1 )", "1")),
        *(("[]", "[]"), ("()", "[]"), ("(1,)", "[1]"), ("(1, 2)", "[1,2]"), ("{}", "{}")),
        ("((1, 2), (3))", "[[1,2],3]"),
        ("{'a': {'b': [1, 'c',],},}", '{"a":{"b":[1,"c"]}}'),
        ("{1: 'x', True: None}", '{"1":"x","true":null}'),
        ("[True, False, None, true, false, null]", "[true,false,null,true,false,null]"),
        ("  {\n'a' :\t1 }\r\n", '{"a":1}'),
        # Numbers that only Python has.
        *(("+5", "5"), ("1_000", "1000"), (".5", "0.5"), ("-5.", "-5.0")),
        *(("5.e3", "5.0e3"), ("0x1F", "31"), ("-0b11", "-3")),
    ],
)
def test_python_values(text: str, read: str) -> None:
    assert python_value(text) == read


@every("number", ["0", "-0", "1.0", "1.50", "1e-07", "-2E+5", "12345678901234567890123", "1e999"])
def test_numbers_keep_their_text(number: str) -> None:
    assert python_value(f"[{number}]") == f"[{number}]"
    assert scalar(number) == number


@every(
    ("text", "value"),
    [
        (r"'a\n\t\\\'\"\x41\u00e9\U0001f600\101'", "a\n\t\\'\"A\u00e9\U0001f600A"),
        (r"'\d\/\N{DASH}\x4'", r"\d\/\N{DASH}\x4"),
        (r"'\ud83d\ude00'", "\U0001f600"),
        (r"'\ud83d'", "\ufffd"),
        ("'a\\\nb'", "ab"),
        (r"r'\n\''", r"\n\'"),
        (r"b'\x41'", "A"),
        ("f'{x}'", "{x}"),
        ("'''a 'b' \"c\"\nd'''", "a 'b' \"c\"\nd"),
        ('""""""', ""),
        ("'line\nline'", "line\nline"),
        ("'it's'", "it's"),
        ('"say "hi" to "her""', 'say "hi" to "her"'),
        ("'\\\\'", "\\"),
    ],
)
def test_python_strings(text: str, value: str) -> None:
    assert json.loads(python_value(text)) == value
    assert json.loads(python_value(f"[{text}, {{'k':{text}}}]")) == [value, {"k": value}]


@every(
    "text",
    [
        *["", "x", "nan", "inf", "-inf", "Unit.C", "1 + 1", "--1", "+-1", "1__0", "007", "'a' 'b'", "'a''b'", "'''a''''", "['a' \"b\", 'c']", "'a'\nr'b'", "'a", "'''a'", "[1", "[1}"],
        *["[1 2]", "[,]", "{'a'}", "{'a': }", "{a: 1}", "{'a' 1}", "f(1)", "[f()]", "*x", "1j", "'a' # b", "...", "0x" + "f" * 65],
    ],
)  # fmt: skip
def test_what_is_no_python_value(text: str) -> None:
    with pytest.raises(ValueError):
        python_value(text)


def test_calls() -> None:
    text = " [ get.we-ather(city = 'Oslo', n=1.0,), über(1, 'x', k=[2]) ,f() ] "
    assert python_calls(text) == [
        PythonCall("get.we-ather", (), {"city": '"Oslo"', "n": "1.0"}, "get.we-ather(city = 'Oslo', n=1.0,)"),
        PythonCall("über", ("1", '"x"'), {"k": "[2]"}, "über(1, 'x', k=[2])"),
        PythonCall("f", (), {}, "f()"),
    ]
    assert python_calls("[]") == []
    assert python_call("f(a=1, a=2)\n").keywords == {"a": "2"}
    assert python_call("f(a=x)".replace("x", "'b=1, c'")).keywords == {"a": '"b=1, c"'}


@every(
    "text",
    ["f", "f(", "f(a=)", "f(a=1", "f(a=1, 2)", "f(a==1)", "f(**x)", "f (a=1)", "f(a=1) b", "f(a=g(1))", "1f()", ""],
)
def test_what_is_no_call(text: str) -> None:
    for read, written in ((python_call, text), (python_calls, f"[{text},g()]")):
        with pytest.raises(ValueError):
            read(written)


@given(VALUES)
def test_what_python_writes_is_read_back(value: Any) -> None:
    assert json.loads(python_value(repr(value))) == value
    assert json.loads(python_value(json.dumps(value))) == value


@given(st.dictionaries(st.from_regex(r"[a-z_]\w{0,5}", fullmatch=True), VALUES, max_size=4))
def test_calls_that_python_writes_are_read_back(values: dict[str, Any]) -> None:
    text = f"f({', '.join(f'{key}={value!r}' for key, value in values.items())})"
    call = python_call(text)
    assert {key: json.loads(read) for key, read in call.keywords.items()} == values
    assert python_calls(f"[{text}]") == [call]


@given(st.text("fg([{)]}'\"\\,:=01.-+_eTrue \n", max_size=40))
def test_no_text_raises_anything_else(text: str) -> None:
    for read in (python_value, python_call, python_calls, lambda text: braces_value(text, "'")):
        try:
            found = read(text)
        except ValueError:
            continue
        if isinstance(found, str):
            json.loads(found)


# --- braces ---------------------------------------------------------------------------------------------------------


def test_braces() -> None:
    text = f'{{city: {MARK}Os"lo, {{x}}\n{MARK} ,n:1.0,b:true,o:{{k:[{MARK}a{MARK},null]}},{MARK}q k{MARK}:{{}},e:[]}}'
    read = '{"city":"Os\\"lo, {x}\\n","n":1.0,"b":true,"o":{"k":["a",null]},"q k":{},"e":[]}'
    assert braces_value(text, MARK) == read
    assert braces_value("{}", MARK) == "{}"
    assert braces_value("{k:<escape><escape>}", "<escape>") == '{"k":""}'


@every(
    "text",
    [
        *("", "{", "{a}", "{a:}", "{a:Oslo}", f"{{a:{MARK}x}}", f"{{a{MARK}:{MARK}x{MARK}}}", "{:1}"),
        *("{a:1 b:2}", "{a:1]", "{a:[1}", "{a:1}}"),
    ],
)
def test_what_is_no_object_in_braces(text: str) -> None:
    with pytest.raises(ValueError):
        braces_value(text, MARK)


# --- hostile input --------------------------------------------------------------------------------------------------


@every(("bracket", "closer"), [("[", "]"), ("(", ",)"), ("{'a':", "}")])
def test_depth_is_bounded(bracket: str, closer: str) -> None:
    assert python_value(bracket * MAX_DEPTH + "1" + closer * MAX_DEPTH)
    with pytest.raises(ValueError, match="levels"):
        python_value(bracket * (MAX_DEPTH + 1) + "1" + closer * (MAX_DEPTH + 1))


@every("bracket", ["[", "(", "{'a':", "{"])
def test_brackets_without_end(bracket: str) -> None:
    for text in (bracket * 100_000, f"f(a={bracket * 100_000}"):
        for read in (python_value, python_call, lambda text: braces_value(text, MARK)):
            with pytest.raises(ValueError):
                read(text)


def test_values_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(literals, "MAX_VALUES", 100)
    many = ",".join(["1"] * 100)
    assert python_value(f"[{many}]") == f"[{many}]"
    for text in (f"[{many},1]", f"[f({many},1)]", f"[{','.join(['f()'] * 101)}]"):
        with pytest.raises(ValueError, match="more than 100 values"):
            (python_calls if "f" in text else python_value)(text)
    with pytest.raises(ValueError, match="more than 100 values"):
        braces_value("{" + ",".join(["a:1"] * 101) + "}", MARK)


@every("quotes", ["'", "' ", '"', "\\'", "'\"", "'''"])
def test_very_many_quotes_are_read_in_one_go(quotes: str) -> None:
    """The pattern for a string is possessive, so that it neither recurses nor keeps anything to come back to."""
    text = quotes * (300_000 // len(quotes))
    with pytest.raises(ValueError):
        python_value(f"['{text}x")
    inner = python_value(f"['it's x{text}x']")
    assert len(json.loads(inner)[0]) >= 150_000


def test_strings_are_valid_text() -> None:
    assert json_string('a"\n\ud83d\ude00\ud83d') == '"a\\"\\n\U0001f600\ufffd"'
