"""JSON read in pieces is what the parser makes of it at once; bounds hold before values are built; keys that occur
twice are found, or left out but for the last."""

from __future__ import annotations

import gc
import json
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cases import every
from toolwire.support import bounded_json
from toolwire.support.bounded_json import (
    LARGE_BYTES,
    PIECE_BYTES,
    PIECE_VALUES,
    BoundExceeded,
    DuplicateKey,
    JsonBounds,
    MalformedJson,
    loads,
)
from toolwire.support.duplicate_keys import count_keys, duplicate_key, each_key_once

BOUNDS = JsonBounds(1_000_000, 200, 200_000)

TEXT = st.text('"\\\\,[]{}: aé漢😀\n\0/u', max_size=12)
LEAVES = st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(-1e9, 1e9) | TEXT
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=6) | st.dictionaries(TEXT, inner, max_size=6),
    max_leaves=60,
)
INDENT = st.sampled_from([None, None, 1])


def text_of(value: Any, ascii_only: bool, indent: int | None) -> bytes:
    return json.dumps(value, ensure_ascii=ascii_only, indent=indent).encode()


def in_pieces(text: bytes, size: int, bounds: JsonBounds = BOUNDS) -> Any:
    """As `loads`, in pieces of about so many bytes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bounded_json, "PIECE_BYTES", size)
        patch.setattr(bounded_json, "PIECE_VALUES", 0)
        return loads(text, bounds)


def pairs(value: Any) -> Any:
    """`value` with the order of its keys, and with the types of its numbers."""
    if isinstance(value, dict):
        return [(key, pairs(item)) for key, item in value.items()]
    return [pairs(item) for item in value] if isinstance(value, list) else (type(value), value)


def outcome(text: bytes, size: int) -> Any:
    """What is read in pieces, or a word for why it is refused; None for what is not JSON."""
    try:
        return pairs(in_pieces(text, size))
    except BoundExceeded as error:
        return error.kind
    except DuplicateKey:
        return "twice"
    except MalformedJson:
        return None


@given(VALUES, st.booleans(), INDENT, st.integers(1, 80))
def test_law_pieces_are_what_the_parser_reads_at_once(
    value: Any, ascii_only: bool, indent: int | None, size: int
) -> None:
    text = text_of(value, ascii_only, indent)
    read = outcome(text, size)
    assert read == pairs(orjson.loads(text)) or read == "key"  # longer than a piece


DAMAGE = st.lists(
    st.tuples(st.floats(0, 1), st.sampled_from([b"", b",", b"[", b"]", b"{", b"}", b":", b'"', b" ", b"1", b"\\"])),
    min_size=1,
    max_size=3,
)


@given(VALUES, DAMAGE, st.integers(1, 80))
def test_law_a_text_is_refused_in_pieces_if_it_is_at_once(
    value: Any, damage: list[tuple[float, bytes]], size: int
) -> None:
    damaged = bytearray(text_of(value, False, None))
    for place, put in damage:
        at = int(place * len(damaged))
        damaged[at : at + (not put)] = put
    text = bytes(damaged)
    try:
        expected: Any = pairs(orjson.loads(text))
    except orjson.JSONDecodeError:
        expected = None
    found = outcome(text, size)
    if found == "twice":
        assert expected is None or duplicate_key(text) is not None
    elif found not in ("key", "depth"):
        assert found == expected


def test_keys_are_counted() -> None:
    assert count_keys([{"a": {"b": 1, "c": [{}, {"d": 2}]}}, "e"]) == 4


@every(
    ("text", "kind"),
    [
        (b"[" + b"[]," * 2_000_000 + b"0]", "containers"),
        (b"[" + b'{"":0},' * 1_000_000 + b"0]", "containers"),
        (b"[" + b"0," * 3_000_000 + b"0]", "values"),
        (b"[" + b"[]," * 300_000 + b"0]", "containers"),
        (b"[" * 1_000_000, "depth"),
        (b'{"a":' * 1_000_000, "depth"),
        (b"[" * 1_000, "depth"),
        (b"[" * 201 + b"]" * 201, "depth"),
        (b'[1,{"' + b"k" * LARGE_BYTES + b'" \n :1}]', "key"),
    ],
)
def test_bounds_hold_before_values_are_built(text: bytes, kind: str) -> None:
    parsed: list[bytes] = []

    def watched(piece: bytes) -> Any:
        parsed.append(piece)
        return orjson.loads(piece)

    with pytest.raises(BoundExceeded) as caught:
        loads(text, BOUNDS, watched)
    assert caught.value.kind == kind
    assert max(map(len, parsed), default=0) <= (1_000 if kind == "depth" else 10)


def test_bounds_are_exact() -> None:
    for count in (10, 100, PIECE_VALUES + 10):
        text = orjson.dumps([1] * count)
        assert loads(text, JsonBounds(count + 1, 1)) == [1] * count
        with pytest.raises(BoundExceeded, match=f"more than {count} JSON values"):
            loads(text, JsonBounds(count, 1))
    assert loads(b"[[[]]]", JsonBounds(10, 3)) == [[[]]]
    with pytest.raises(BoundExceeded, match="more than 2 levels"):
        loads(b"[[[]]]", JsonBounds(10, 2))


@every(
    "text",
    [
        orjson.dumps([{"token": "a", "top": [{"b": [1, 2]}] * 20}] * 3_000),
        orjson.dumps({"first": [[]] * 100_000, "x" * 1000: "y" * 300_000, "last": {"a": list(range(100_000))}}),
        orjson.dumps(["x" * 70_000 + "é"] * 50),
        orjson.dumps({f"key {number}": {"a": None} for number in range(60_000)}),
        b"[1, " + b" " * 3_000_000 + b"2]",
        orjson.dumps("\\" * 2_000_000),
        orjson.dumps("漢😀" * 300_000),
    ],
)
def test_large_texts(text: bytes) -> None:
    sizes: list[int] = []

    def watched(piece: bytes) -> Any:
        sizes.append(len(piece))
        return orjson.loads(piece)

    assert loads(text, BOUNDS, watched) == orjson.loads(text)
    assert gc.isenabled()
    assert max(sizes) <= 2 * PIECE_BYTES


def test_blanks_are_no_glue() -> None:
    with pytest.raises(MalformedJson):
        loads(b"[1" + b" " * LARGE_BYTES + b"2]", BOUNDS)


# --- each key once --------------------------------------------------------------------------------------------------


NINES = "9" * 5000


@every(
    ("text", "once"),
    [
        ('{"a": 1.0, "b": [-0, {"a": "é"}]}', '{"a": 1.0, "b": [-0, {"a": "é"}]}'),
        ('{"a": 1, "b": 2, "\\u0061": 1e400}', '{"a":1e400,"b":2}'),
        ('{"x": [{"a": 1, "a": {"b": 0, "b": 1E+3}}, "\\ud83d"]}', '{"x":[{"a":{"b":1E+3}},"\\ud83d"]}'),
        ('[{"é": 1, "é": [1.50]}, "é"]', '[{"é":[1.50]},"é"]'),
        ('{"\\"": 1, "\\"": null}', '{"\\"":null}'),
        (f'[1, {{"a": true, "a": {NINES}}}]', f'[1,{{"a":{NINES}}}]'),
    ],
)
def test_the_last_one_stays_and_numbers_keep_their_text(text: str, once: str) -> None:
    assert each_key_once(text) == once
    once.encode()  # a client can be sent it


@every("text", ['{"a":1,"a":%s}' % ("[" * 100_000 + "]" * 100_000), '{"a":NaN,"a":NaN}', '{"a":1,"a"'])
def test_what_cannot_be_written_so_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        each_key_once(text)
