"""Data that crosses from a worker to the gateway: declarations, frames, printed text. None of it is trusted."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cases import every
from tests.servertools.test_definition import BAD, GOOD
from toolwire.servertools.definition import ToolModuleError, read_tools
from toolwire.servertools.output_log import MAX_CHARS, MAX_LINE, MAX_LINES, OutputLog
from toolwire.servertools.worker.frames import HEAD, BadFrame, decode_frame, encode_frame
from toolwire.servertools.worker.values import MAX_NODES, MAX_TEXT, NotDeclarable, decode, encode
from toolwire.support.legible import visible

PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.tuples(inner, inner) | st.dictionaries(st.text() | st.integers(), inner),
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)
NODES = st.lists(
    st.lists(
        st.sampled_from(["value", "text", "int", "float", "list", "tuple", "dict", "other"])
        | st.integers(-2, 6)
        | st.text(max_size=3),
        max_size=6,
    )
)


def crossed(value: Any) -> Any:
    """The value as the gateway gets it."""
    return decode(json.loads(json.dumps(encode(value))))


async def runs(*_: Any) -> Any:
    raise NotImplementedError


def verdict(declared: Any) -> Any:
    """The tools, or the error."""
    try:
        return [tool.spec for tool in read_tools(declared, runs, "m")]
    except ToolModuleError as error:
        return error.kind, error.message


@given(PLAIN)
def test_law_plain_values_cross_as_they_are(value: Any) -> None:
    assert repr(crossed(value)) == repr(value)


@every("which", [*GOOD, *BAD])
def test_what_is_declared_is_judged_as_if_it_had_not_crossed(which: str) -> None:
    declared = GOOD[which] if which in GOOD else BAD[which][0]
    assert verdict(crossed(declared)) == verdict(declared)


def test_shared_and_circular_parts_stay_so() -> None:
    shared: list[Any] = []
    circle: dict[str, Any] = {"a": (shared, shared)}
    circle["self"] = [circle]
    found = crossed(circle)
    assert found["self"][0] is found
    assert found["a"][0] is found["a"][1]


def test_of_what_is_no_value_the_type_is_told() -> None:
    class Liar(dict[str, Any]):
        def items(self) -> Any:
            raise OSError

    found = crossed([object(), len, {1}, Liar(a=1), float("inf"), 10**5000, "\ud800"])
    assert [type(item).__name__ for item in found[:3]] == ["object", "builtin_function_or_method", "set"]
    assert found[3:] == [{"a": 1}, float("inf"), 10**5000, "\ud800"]


@every("value", [list(range(MAX_NODES)), ["x" * MAX_TEXT, "y"], {str(n): n for n in range(MAX_NODES)}])
def test_too_much_is_refused(value: Any) -> None:
    with pytest.raises(NotDeclarable, match="more than"):
        encode(value)


@every(
    "nodes",
    [
        [],
        [["value", None]] * (MAX_NODES + 1),
        [["text", "x" * (MAX_TEXT + 1)]],
        [["value", "text"]],
        [["dict", 1], ["text", "a key without a value"]],
        [["list", 1]],
        [["list", -1]],
        [["tuple", 0]],
        [["set"]],
    ],
)
def test_nodes_that_encode_does_not_write_are_refused(nodes: Any) -> None:
    with pytest.raises(NotDeclarable):
        decode(nodes)


def test_tuples_in_tuples_take_no_longer_than_lists() -> None:
    """Counted in looks at nodes, since what takes a minute here blocks everybody."""

    class Nodes(list[Any]):
        looks = 0

        def __getitem__(self, index: Any) -> Any:
            Nodes.looks += 1
            return super().__getitem__(index)

    depth = 5000
    value: Any = ()
    for _ in range(depth - 1):
        value = (value,)
    found = decode(Nodes(map(Nodes, encode(value))))
    assert Nodes.looks < 20 * depth
    for _ in range(depth - 1):
        (found,) = found
    assert found == ()


@given(JSON | NODES)
def test_law_no_bytes_of_a_worker_make_the_gateway_fail(sent: Any) -> None:
    try:
        decode(sent)
    except NotDeclarable:
        pass


@given(st.binary() | st.text().map(str.encode) | JSON.map(json.dumps).map(str.encode))
def test_law_a_frame_is_an_object_or_no_frame(text: bytes) -> None:
    try:
        assert isinstance(decode_frame(text), dict)
    except BadFrame:
        pass


@every("text", ["[" * 100_000, '{"a":' * 100_000, '{"a":' + "9" * 10_000 + "}", "", "null"])
def test_frames_that_are_made_to_hurt(text: str) -> None:
    with pytest.raises(BadFrame):
        decode_frame(text.encode())


@given(st.dictionaries(st.text(), st.text() | st.integers() | st.booleans() | st.lists(st.text())))
def test_a_frame_says_what_was_packed(value: dict[str, Any]) -> None:
    frame = encode_frame(value)
    assert HEAD.unpack(frame[: HEAD.size])[0] == len(frame) - HEAD.size
    assert repr(decode_frame(frame[HEAD.size :])) == repr(value)


class Seen(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


def printed(parts: list[bytes]) -> list[str]:
    """The lines of the log, for bytes that come in these parts."""
    seen, log = Seen(), logging.getLogger("toolwire.tools")
    before = log.level
    log.addHandler(seen)
    log.setLevel(logging.INFO)
    try:
        lines = OutputLog("one", {"tool": "one"})
        for part in parts:
            lines.feed(part)
        lines.end()
    finally:
        log.removeHandler(seen)
        log.setLevel(before)
    return seen.lines


def test_a_flood_of_lines_takes_no_longer_than_what_is_written() -> None:
    """What is looked at is counted: the pipe is read on the event loop, 64 KiB at a time."""

    class Bytes(bytes):
        looks = 0

        def find(self, *where: Any) -> int:
            Bytes.looks += 1
            return super().find(*where)

        def split(self, *by: Any) -> list[bytes]:  # type: ignore[override]
            found = super().split(*by)
            Bytes.looks += len(found)
            return found

    lines = printed([Bytes(b"\n" * 65_536)] * 3)
    assert Bytes.looks <= MAX_LINES
    assert lines[:-1] == ["one: "] * MAX_LINES
    assert lines[-1] == f"one: {3 * 65_536 - MAX_LINES} bytes more were printed and are left out"


OUTPUT = st.lists(
    st.binary(max_size=20) | st.sampled_from([b"\n", b"\r\n", b"x" * 5000, b"\x1b[2J", "\u00e4\u202e".encode()]),
    max_size=20,
)


@given(OUTPUT)
def test_law_lines_do_not_depend_on_how_bytes_come(parts: list[bytes]) -> None:
    whole = b"".join(parts)
    assert printed(parts) == printed([whole]) == printed([whole[n : n + 1] for n in range(len(whole))])


@given(st.lists(st.binary(max_size=50) | st.sampled_from([b"y" * 3000, b"\n" * 50]), max_size=60))
def test_law_what_is_printed_is_bounded_and_harmless(parts: list[bytes]) -> None:
    lines = printed(parts)
    assert len(lines) <= MAX_LINES + 1
    assert sum(map(len, lines)) <= 8 * MAX_CHARS + 8 * MAX_LINE + 100 * MAX_LINES  # an escape takes up to eight
    assert all(line.isprintable() or line == visible(line) for line in lines)
    assert not any("\n" in line or "\r" in line or "\x1b" in line for line in lines)
