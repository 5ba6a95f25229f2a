"""The gate for plain text of Chat chunks: what passes, what goes the long way, and both twins alike.

That it gives what reading and writing would give is a law of the stream paths, in `tests/unit/test_stream_paths.py`."""

from __future__ import annotations

import json
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.chunks import reads
from tests.parse.conftest import load
from tests.parse.policies import WordPolicy
from tests.parse.texts import GRAMMARS
from toolwire.events import Event
from toolwire.scan import _pychunk
from toolwire.scan._pyguard import SecretGuard
from toolwire.testing import chunk, frame

pytestmark = pytest.mark.twin

IMPLEMENTATIONS = ["compiled", "python"]


def gate_class(implementation: str) -> Any:
    return _pychunk.ChunkGate if implementation == "python" else load("compiled").ChunkGate


class Way:
    """The long way around a gate: it opens the gate, and remembers what came by."""

    def __init__(
        self,
        implementation: str,
        *,
        number: int = -1,
        scanned: bool = False,
        limit: int = 4096,
        reasoning: bool = False,
        writes: bool = True,
    ) -> None:
        self.seen: list[bytes] = []
        self.passed = self.frames = 0
        self.fed = self.given = ""
        self.gate = gate_class(implementation)(self.slow, self.found, limit)
        self.number = number
        self.reasoning = reasoning
        self.head = b"<" if writes else None
        self.scanner: Any = None
        if scanned:
            module = load(implementation)
            self.scanner = module.CallScanner(GRAMMARS["sentinel"], WordPolicy())
            self.scanner.feed("So")

    def slow(self, data: bytes) -> bytes:
        self.take()
        self.seen.append(data)
        self.open()
        return b"[%d]" % len(data)

    def found(self, events: list[Event]) -> bytes:
        assert events
        self.take()
        self.open()
        return b"(%b)" % repr(events).encode()

    def open(self) -> None:
        self.gate.open(self.scanner, self.head, b">", self.number, b":", reasoning=self.reasoning)

    def take(self) -> None:
        self.passed += self.gate.passed
        frames, fed, given = self.gate.take()
        self.frames += frames
        self.fed += fed
        self.given += given


@pytest.fixture(params=IMPLEMENTATIONS)
def way(request: pytest.FixtureRequest) -> Way:
    way = Way(request.param)
    way.gate.feed(b"\n\n")
    return way


@given(
    stream=reads(),
    number=st.sampled_from([-1, 0, 998]),
    kind=st.sampled_from(["text", "scanned", "read", "reasoning"]),
    limit=st.sampled_from([4096, 150]),
)
def test_the_twins_are_alike(stream: list[bytes], number: int, kind: str, limit: int) -> None:
    scanned = kind in ("scanned", "read")
    ways = [
        Way(name, number=number, scanned=scanned, limit=limit, reasoning=kind == "reasoning", writes=kind != "read")
        for name in IMPLEMENTATIONS
    ]
    for data in stream:
        first, second = (way.gate.feed(data) for way in ways)
        assert first == second
    for way in ways:
        way.slow(b"")
    assert ways[0].seen == ways[1].seen
    assert (ways[0].passed, ways[0].frames) == (ways[1].passed, ways[1].frames)
    assert (ways[0].fed, ways[0].given) == (ways[1].fed, ways[1].given)
    if ways[0].scanner is not None:
        assert ways[0].scanner.held == ways[1].scanner.held


@given(data=st.binary(max_size=60), cut=st.integers(0, 60))
def test_nothing_is_lost_on_the_long_way(data: bytes, cut: int) -> None:
    for name in IMPLEMENTATIONS:
        way = Way(name)
        way.gate.feed(data[:cut])
        way.gate.feed(data[cut:])
        assert b"".join(way.seen) == data


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
@given(
    text=st.text(st.characters(codec="utf-8"), min_size=1, max_size=8),
    fresh=st.booleans(),
    escapes=st.sampled_from(["few", "ascii", "all"]),
)
def test_text_passes_as_orjson_escapes_it(implementation: str, text: str, fresh: bool, escapes: str) -> None:
    way = Way(implementation)
    way.gate.feed(b"\n\n" if fresh else b"\n\n" + frame(chunk({"content": "before"})))
    if escapes == "all":
        units = text.encode("utf-16-be")
        written = "".join(f"\\u{units[i : i + 2].hex()}" for i in range(0, len(units), 2)).encode()
    else:
        written = json.dumps(text, ensure_ascii=escapes == "ascii").encode()[1:-1]
    before, _, after = frame(chunk({"content": "@"})).partition(b"@")
    assert way.gate.feed(before + written + after) == b"<%b>" % orjson.dumps(text)[1:-1]
    whole = ("" if fresh else "before") + text
    assert way.gate.take() == (2 - fresh, whole, whole)


SAYS_NOTHING_MORE = [
    frame({**chunk({"content": "ok", "refusal": None, "tool_calls": None, "role": "assistant"}), "usage": None}),
    frame({**chunk({"content": "ok"}), "obfuscation": "xyz", "error": None, "deep": [1, {"a": [True, -1.5e-7, None]}]}),
    b'data: { "choices" : [ { "delta" : { "content" : "ok" } } ] , "n" : [ ] }\n\n',
    frame({**chunk({}), "choices": [{"index": 0, "delta": {"content": "ok"}, "text": "y", "more": {"delta": 1}}]}),
    frame(chunk({"content": "ok"})).replace(b"data: ", b"data:"),
    b'data: {"choices":[{"index":0,"delta":{"content":"ok"}}],"created":1e400,"n":-1e-400}\n\n',
]


@pytest.mark.parametrize("data", SAYS_NOTHING_MORE, ids=range(len(SAYS_NOTHING_MORE)))
def test_what_says_nothing_more_passes(way: Way, data: bytes) -> None:
    assert way.gate.feed(data * 2) == b"<ok><ok>"
    assert way.gate.passed == 2


def test_a_shut_gate_lets_nothing_pass(way: Way) -> None:
    way.gate.shut()
    way.gate.feed(frame(chunk({"content": "a"})))
    assert way.gate.passed == 0


REASONING = [
    {"reasoning_content": "ok"},
    {"reasoning_content": "ok", "content": None},
    {"role": "assistant", "content": "", "reasoning": "ok"},
    {"reasoning_text": "ok", "reasoning_content": ""},
]


def test_a_guard_that_finds_something_keeps_its_frame_back(way: Way, request: pytest.FixtureRequest) -> None:
    """The text up to there has passed; the frame goes the long way, where somebody ends the answer."""
    implementation = request.node.callspec.params["way"]
    guard = (SecretGuard if implementation == "python" else load("compiled").SecretGuard)((b"secret",))
    way.gate.watch(guard)
    assert way.gate.feed(frame(chunk({"content": "a sec"})) + frame(chunk({"content": "re"}))) == b"<a sec><re>"
    last = frame(chunk({"content": "\\u0074."})).replace(b"\\\\", b"\\")
    way.gate.feed(last + frame(chunk({"content": "more"})))
    assert guard.found
    assert b"".join(way.seen[1:]) == last + frame(chunk({"content": "more"}))


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_reasoning_passes_where_it_belongs(implementation: str) -> None:
    way = Way(implementation, reasoning=True)
    way.gate.feed(b"\n\n")
    for delta in REASONING:
        assert way.gate.feed(frame(chunk(delta)) * 2) == b"<ok><ok>"
    way.reasoning = False
    way.slow(b"")
    for delta in REASONING:
        assert way.gate.feed(frame(chunk(delta))).startswith(b"[")
    assert way.gate.feed(frame(chunk({"content": "ok", "reasoning": ""}))) == b"<ok>"


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_the_scanner_has_the_last_word(implementation: str) -> None:
    way = Way(implementation, scanned=True)
    way.gate.feed(b"\n\n")
    assert way.gate.feed(frame(chunk({"content": "a"}))) == b"<a>"
    texts = [" < b <", "tool_call>", '{"name":"f",', '"arguments":"x"}</tool', "_call>", " x"]
    got = [way.gate.feed(frame(chunk({"content": text}))) for text in texts]
    assert [bytes(1) if one else b"" for one in got] == [bytes(1), b"", b"", b"", bytes(1), bytes(1)]
    assert all(one.startswith(b"(") for one in got if one)
    assert way.seen == [b"\n\n"]
    assert (way.fed, way.given) == ("a" + "".join(texts), "a")


def test_who_cannot_write_yet_is_told_what_the_scanner_finds() -> None:
    for implementation in IMPLEMENTATIONS:
        way = Way(implementation, scanned=True, writes=False)
        way.gate.feed(b"\n\n")
        assert way.gate.feed(frame(chunk({"content": "a"}))) == b"([Delta(block=0, text='a', extra=None)])"
        assert (way.fed, way.given) == ("a", "")


def test_what_is_declined_goes_on_in_growing_groups(way: Way) -> None:
    plain, strange = frame(chunk({"content": "a"})), b": strange\n\n"
    way.seen.clear()
    way.gate.feed(strange * 9 + plain)
    assert way.seen == [strange * 2, strange * 4, strange * 3 + plain]
    assert way.gate.feed(plain) == b"<a>"
    way.gate.feed(strange * 3)
    assert way.seen[3:] == [strange, strange * 2]


def test_what_has_passed_is_asked_for_before_it_grows(way: Way) -> None:
    data = frame(chunk({"content": "x" * 1000}))
    for _ in range(30):
        way.gate.feed(data)
    assert len(way.seen) > 3
    assert way.fed.count("x") + way.gate.take()[1].count("x") + sum(map(len, way.seen)) > 30_000 - 1000


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_whitespace_that_may_touch_a_call_waits(implementation: str) -> None:
    way = Way(implementation, scanned=True)
    way.scanner.feed("\n")
    way.gate.feed(b"\n\n")
    texts = ['a "b" ', "\n", "\t", "c\\ "]
    assert b"".join(way.gate.feed(frame(chunk({"content": text}))) for text in texts) == rb"<\na \"b\">< \n\tc\\>"
    assert way.gate.passed == 4
    way.take()
    assert (way.frames, way.fed, way.given) == (2, "".join(texts), "\n" + "".join(texts)[:-1])
