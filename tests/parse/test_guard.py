"""Secrets in the text of a stream: found wherever it is cut, by both twins alike, and by nobody else."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.chunks import reads
from tests.parse.conftest import load
from toolwire.scan import _pyguard
from toolwire.testing import chunk, frame

pytestmark = pytest.mark.twin

IMPLEMENTATIONS = ["compiled", "python"]
WORDS = [
    b"Hello",
    b"lo wor",
    b" it",
    "日本".encode(),
    "🚀".encode(),
    b"s",
    b".",
    b"tool_call",
    b"\n",
    b'"',
    b"chatcmpl-up",
]


def guard_class(implementation: str) -> Any:
    return _pyguard.SecretGuard if implementation == "python" else load("compiled").SecretGuard


@pytest.fixture(params=IMPLEMENTATIONS)
def kind(request: pytest.FixtureRequest) -> Any:
    return guard_class(request.param)


def walk(guard: Any, data: bytes) -> list[int]:
    """The places at which it stops, each frame that it does not take skipped."""
    places, pos = [], 0
    while (pos := guard.frames(data, pos)) < len(data):
        places.append(pos)
        end = data.find(b"\n\n", pos)
        pos = len(data) if end < 0 else end + 2
    return places


@given(stream=reads(), parts=st.lists(st.sampled_from(WORDS), min_size=1, max_size=5, unique=True))
def test_the_twins_are_alike(stream: list[bytes], parts: list[bytes]) -> None:
    guards = [guard_class(name)(tuple(parts)) for name in IMPLEMENTATIONS]
    for data in stream:
        first, second = (walk(guard, data) for guard in guards)
        assert first == second
        assert guards[0].found == guards[1].found


TEXTS = st.text(st.sampled_from('abc\\"\nü🚀'), max_size=40)


@given(
    text=TEXTS,
    parts=st.lists(st.text(st.sampled_from("QXZü"), min_size=1, max_size=5), min_size=1, max_size=4),
    data=st.data(),
)
def test_what_is_found_is_there_and_what_is_there_is_found(text: str, parts: list[str], data: st.DataObject) -> None:
    cuts = data.draw(st.lists(st.integers(0, len(text)), max_size=6))
    pieces = [text[a:b] for a, b in pairwise(sorted({0, *cuts, len(text)}))]
    escaped = data.draw(st.booleans())
    for name in IMPLEMENTATIONS:
        by_text, by_frames = (guard_class(name)(tuple(part.encode() for part in parts)) for _ in range(2))
        seen = ""
        for piece in pieces:
            seen += piece
            there = any(part in seen for part in parts)
            assert by_text.text(piece.encode()) == there
            wire = b"data: " + json.dumps(chunk({"content": piece}), ensure_ascii=escaped).encode() + b"\n\n"
            place = by_frames.frames(wire, 0)
            if piece:
                assert (place, by_frames.found) == (0 if there else len(wire), there)


def test_texts_of_two_kinds_are_not_joined(kind: Any) -> None:
    guard = kind((b"secret",))
    assert not guard.text(b"sec")
    assert not guard.text(b"ret", True)
    assert not guard.text(b"sec", True)
    assert guard.text(b"ret")
    assert guard.text(b"", True)  # stays found


def test_what_stands_around_the_text_is_looked_through_when_it_is_new(kind: Any) -> None:
    guard = kind((b"secret",))
    plain = frame(chunk({"content": "a"}))
    other = plain.replace(b"chatcmpl-up", b"secret")
    assert guard.frames(plain * 3 + other + plain, 0) == 3 * len(plain)
    assert guard.found


def test_it_keeps_little_however_much_comes(kind: Any) -> None:
    guard = kind((b"needle" * 10,))
    for _ in range(20_000):
        assert not guard.text(b"needle" * 9 + b"!")
    assert guard.text(b"needle" * 9 + b"needle")
    kept = guard._text if kind is _pyguard.SecretGuard else b""
    assert len(kept) < 100


def test_many_parts(kind: Any) -> None:
    """As many servers have; more than a byte can number."""
    parts = tuple(b"secret-%d-" % number for number in range(1000))
    for number in (0, 255, 256, 999):
        guard = kind(parts)
        assert not guard.text(b"a secret-%d" % number)
        assert guard.text(b"-")


@pytest.mark.parametrize("end", [b"", b"\n", b"data: {"])
def test_what_is_no_frame_is_not_taken(kind: Any, end: bytes) -> None:
    guard = kind((b"secret",))
    plain = frame(chunk({"content": "a"}))
    assert guard.frames(plain + end, 0) == len(plain)
    assert guard.frames(b"", 0) == 0
