"""Keys that an object of a JSON text has twice: the last one stays, and nothing else changes."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cases import every
from toolwire.support.duplicate_keys import each_key_once

numbers = st.sampled_from(["0", "-0", "1.0", "2e0", "1E+3", "1234567890123456789.50", "1e400", "9" * 5000])
strings = st.text(st.characters(codec="utf-8"), max_size=5).map(json.dumps)
keys = st.sampled_from(['"a"', '"b"', r'"\u0061"', '"\\""', '"é"'])
texts = st.recursive(
    numbers | strings | st.sampled_from(["true", "null", r'"\ud83d"']),
    lambda inner: (
        st.lists(inner, max_size=3).map(lambda items: f"[{', '.join(items)}]")
        | st.lists(st.tuples(keys, inner), max_size=4).map(
            lambda members: f"{{{', '.join(f'{key}: {value}' for key, value in members)}}}"
        )
    ),
    max_leaves=8,
)


def value_of(text: str) -> Any:
    """The value, with the texts of its numbers."""
    return json.loads(text, parse_int=lambda number: ("number", number), parse_float=lambda number: ("number", number))


def members_of(text: str) -> list[list[str]]:
    """The keys of each object."""
    found: list[list[str]] = []
    json.loads(
        text, object_pairs_hook=lambda pairs: found.append([key for key, _ in pairs]), parse_int=str, parse_float=str
    )
    return found


@given(text=texts)
def test_law_the_last_one_stays_and_numbers_keep_their_text(text: str) -> None:
    once = each_key_once(text)
    assert value_of(once) == value_of(text)
    assert all(count == 1 for keys in members_of(once) for count in Counter(keys).values())
    once.encode()  # a client can be sent it
    if all(len(set(keys)) == len(keys) for keys in members_of(text)):
        assert once == text


@every("text", ['{"a":1,"a":%s}' % ("[" * 100_000 + "]" * 100_000), '{"a":NaN,"a":NaN}', '{"a":1,"a"'])
def test_what_cannot_be_written_so_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        each_key_once(text)
