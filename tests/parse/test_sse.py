"""Framing of server-sent events: against the steps of the HTML standard, for every split, on both twins."""

from __future__ import annotations

from itertools import chain, product
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cases import every
from tests.parse.test_laws import modules
from toolwire.scan._grammar import FrameTooLarge

pytestmark = pytest.mark.twin

Frame = tuple[str | None, bytes]

PIECES = [
    *(b"data: a", b"data:", b"data", b"data:  b ", b"event: e", b"event", b"event:\xff", b"id: 1", b"retry: 9"),
    *(b": c", b'error: {"a": 1}', b'error:{"', b"error: e", b"error"),
]
PIECES += [
    *(b"\n", b"\r", b"\r\n", b"\n\n", b"\r\r", b"\xef\xbb\xbf", b":", b" ", b"\x00"),
    b'data: {"x": "\xc3\xa9"}\n\n',
]

streams = st.lists(st.sampled_from(PIECES), max_size=20).map(b"".join)


def standard(data: bytes) -> list[Frame]:
    """The standard's own steps over the whole stream; the last event is given without its blank line as well, and an
    object in a field `error` is the data of an event of that name."""
    data = data.removeprefix(b"\xef\xbb\xbf").replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    frames: list[Frame] = []
    name, values = b"", []
    for line in [*data.split(b"\n"), b""]:
        if not line:
            if values:
                frames.append((name.decode("utf-8", "replace") if name else None, b"\n".join(values)))
            name, values = b"", []
            continue
        field, colon, value = line.partition(b":")
        if colon and value.startswith(b" "):
            value = value[1:]
        if field == b"data":
            values.append(value)
        elif field == b"event":
            name = value
        elif field == b"error" and value.startswith(b"{"):
            values.append(value)
            name = field
    return frames


def frames_of(module: ModuleType, data: bytes, size: int, bound: int = 1 << 20) -> tuple[list[Frame], bool]:
    """The frames, and whether one was too large."""
    framer = module.SseFramer(bound)
    frames: list[Frame] = []
    try:
        for at in range(0, len(data), size):
            frames += framer.feed(data[at : at + size])
        frames += framer.finish()
    except FrameTooLarge:
        with pytest.raises(FrameTooLarge, match=str(bound)):
            framer.feed(b"")
        with pytest.raises(FrameTooLarge):
            framer.finish()
        return frames, True
    return frames, False


LINES = (b"data: a", b"data", b"event: e", b"id: 1", b'error: {"a": 1}', b"")


def test_every_order_of_a_few_lines() -> None:
    """Behind a byte order mark and without one, whole and byte by byte."""
    for lines in chain.from_iterable(product(LINES, repeat=count) for count in range(5)):
        for mark, end in ((b"", b"\n"), (b"\xef\xbb\xbf", b"\r\n")):
            data = mark + b"".join(line + end for line in lines)
            for module, size in product(modules(), (1, 1 << 20)):
                assert frames_of(module, data, size) == (standard(data), False), data


@given(streams, st.integers(1, 30))
def test_frames_are_those_of_the_standard_for_every_split(data: bytes, size: int) -> None:
    for module in modules():
        assert frames_of(module, data, size) == (standard(data), False)


@given(streams, st.integers(1, 30), st.integers(5, 30))
def test_the_bound_does_not_depend_on_the_split(data: bytes, size: int, bound: int) -> None:
    """What came whole before the event that is too large is given; then it raises, and goes on raising."""
    expected = frames_of(modules()[0], data, 1, bound)
    for module in modules():
        assert frames_of(module, data, size, bound) == expected


def test_frames_before_an_oversize_one_are_not_lost(twin: ModuleType) -> None:
    framer = twin.SseFramer(frame_bytes=10)
    assert framer.feed(b"data: a\n\ndata: 0123456789\n\ndata: b\n\n") == [(None, b"a")]
    with pytest.raises(FrameTooLarge):
        framer.feed(b"data: c\n\n")


def test_a_frame_of_exactly_the_bound_fits(twin: ModuleType) -> None:
    assert twin.SseFramer(frame_bytes=10).feed(b"data: 0123\n\n") == [(None, b"0123")]
    with pytest.raises(FrameTooLarge):
        twin.SseFramer(frame_bytes=9).feed(b"data: 0123")


@every("unit", [b"\r", b"\n", b"\r\n", b"data:\r", b":\n", b"data: x\r\r"])
def test_many_short_lines_in_one_piece(twin: ModuleType, unit: bytes) -> None:
    """A search that began anew at every line would take minutes."""
    data = unit * (500_000 // len(unit)) + b"\n\n"
    assert frames_of(twin, data, len(data), 1 << 22) == (standard(data), False)


@every(
    ("plain", "rest"),
    [
        (b"", b""),
        (b'data: {"delta":1}\n\n', b""),
        (b'data: {"delta":1}\n\nid: 1\ndata: {"delta":{}}\n\n', b""),
        (b"", b'data: {"other":1}\n\n'),
        (b'data: {"delta":1}\n\n', b'data: {"other":1}\n\n'),
        (b"", b'data: {"other":1}\n\ndata: {"delta":1,"delta":2}\n\n'),
        (b"", b'data: {"delta":1\n\n'),
        (b'data: {"delta":1}\n\n', b'data: {"delta":\n\n'),
        (b'data: {"delta":1}\n\n', b"\n\n"),
        (b"", b'data: {"delta":1}\r\n\r\n'),
        (b"", b'data: {"delta":"odd"}\n\n'),
        (b'data: {"delta":1}\n\n', b'data: {"delta":"odder"}\n\n'),
        (b'data: {"delta":1}\n\ndata: {"x":1,"delta":2}\n\n', b'data: [DONE]\n\ndata: {"delta":"odd"}\n\n'),
        (b"", b'data: {"delta":1}'),
        (b"", b'data: {"delta":1}\n'),
    ],
)
def test_frames_that_need_no_look(twin: ModuleType, plain: bytes, rest: bytes) -> None:
    assert twin.plain_length(plain + rest, b'"delta"', (b"odd", b"[DONE]")) == len(plain)


@given(st.lists(st.sampled_from([b"}\n\n", b"}", b"\n", b"\n\n", b"\r", b"use", b"us", b"odd", b"x"])).map(b"".join))
def test_both_agree_which_frames_need_no_look(data: bytes) -> None:
    assert len({module.plain_length(data, b"use", (b"odd",)) for module in modules()}) == 1
