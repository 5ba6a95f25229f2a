"""JSON of megabytes is read and written slice by slice, with the same result."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.strategies import json_objects
from toolwire.formats.engine import longjson
from toolwire.formats.engine.longjson import Number, TooMuch, compact, join_surrogates, quoted, read_long_json

strings = st.text(st.sampled_from('ab"\\/\n\x7fé\u2028😀\ud83d\ude00 {[,:'), max_size=60)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | strings,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(strings, inner, max_size=4),
    max_leaves=8,
)
spellings = st.sampled_from(
    [json.dumps, lambda v: json.dumps(v, ensure_ascii=False), lambda v: json.dumps(v, indent=1).replace("/", "\\/")]
)
short = settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture(autouse=True)
def few_characters_are_long() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(longjson, "LONG_CHARS", 20)
        patch.setattr(longjson, "SLICE_CHARS", 7)
        yield


def plain(text: str) -> Any:
    return json.loads(text, parse_int=Number, parse_float=Number)


@short
@given(value=values, spelled=spellings)
def test_what_is_read_is_the_same(value: Any, spelled: Any) -> None:
    text = spelled(value)
    try:
        found = read_long_json(text)
    except TooMuch:  # neither long keys nor very many values are looked at
        return
    assert found == plain(text)


@short
@given(value=values, at=st.integers(0, 200), more=st.sampled_from(["", '"', "\\", "\n", "{", "x"]))
@example(value='::"😀😀', at=60, more="")  # a long string without its last quote
def test_what_is_no_json_is_none(value: Any, at: int, more: str) -> None:
    text = json.dumps(value)
    broken = text[: at % (len(text) + 1)] + more
    try:
        expected = plain(broken)
    except ValueError:
        with pytest.raises(ValueError):
            read_long_json(broken)
    else:
        with suppress(TooMuch):
            assert read_long_json(broken) == expected


@short
@given(value=values | json_objects)
def test_what_is_written_is_the_same(value: Any) -> None:
    assert compact(value) == json.dumps(value, ensure_ascii=False, separators=(",", ":"))


@short
@given(text=strings)
def test_strings(text: str) -> None:
    assert quoted(text) == json.dumps(text, ensure_ascii=False)
    join_surrogates(text).encode()  # has a UTF-8 form
    if not any("\ud800" <= char <= "\udfff" for char in text):
        assert join_surrogates(text) is text


def test_what_has_too_many_values_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(longjson, "MOST_VALUES", 50)
    monkeypatch.setattr(longjson, "LONG_CHARS", 1000)
    assert len(read_long_json(json.dumps(["x" * 100] * 20 + ["y" * 2000]))) == 21
    for value in (["x" * 20] * 60, [[]] * 1000, {str(n): n for n in range(300)}, [10**2000, 10**2000, 10**2000]):
        with pytest.raises(TooMuch):
            read_long_json(json.dumps(value))
