"""The wire: frames out of bytes, events out of frames, frames out of events, per frame."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import orjson
import pytest

from bench import corpus
from bench.measuring import Measure
from toolwire import _fastparse
from toolwire.events import Delta, Event, Finish
from toolwire.model import Message, ModelRequest, Text
from toolwire.protocols.chat.reader import ChatReader
from toolwire.protocols.chat.writer import ChatWriter
from toolwire.protocols.streams import WriteOptions
from toolwire.scan import _pychunk, _pyparse
from toolwire.scanner import open_scanner

FRAME_BYTES: Final = 1 << 20
FRAMES: Final = [corpus.frame(delta) for delta in corpus.prose(2_000)]
READS: Final = {"one frame per read": FRAMES, "reads of 64 KiB": []}
_STREAM: Final = b"".join(FRAMES)
HEAD, _, TAIL = FRAMES[0].partition(orjson.dumps(corpus.prose(1)[0])[1:-1])
READS["reads of 64 KiB"] += [_STREAM[i : i + 65536] for i in range(0, len(_STREAM), 65536)]


class NaiveFramer:
    """Splits at empty lines and takes the text after `data: `: enough for well-behaved servers."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[tuple[None, bytes]]:
        """Returns the frames that are complete now."""
        *frames, self._rest = (self._rest + data).split(b"\n\n")
        return [(None, frame[6:]) for frame in frames if frame.startswith(b"data: ")]


FRAMERS: Final = {"compiled": _fastparse.SseFramer, "Python twin": _pyparse.SseFramer, "naive": NaiveFramer}


def fed(machine: Any, reads: list[bytes]) -> list[Any]:
    return [item for read in reads for item in machine.feed(read)]


@pytest.mark.parametrize("name", FRAMERS)
@pytest.mark.parametrize("kind", READS)
def test_framer(measure: Measure, kind: str, name: str) -> None:
    make, reads = FRAMERS[name], READS[kind]
    assert fed(make(), reads) == fed(NaiveFramer(), reads)
    measure(lambda: fed(make(), reads), table="Framing", row=kind, column=name, units=len(FRAMES), unit="frame")


def framed(reads: list[bytes], load: Any) -> None:
    framer = NaiveFramer()
    for read in reads:
        for _, frame in framer.feed(read):
            load(frame)["choices"][0]["delta"]["content"]


def read(reads: list[bytes]) -> None:
    fed(ChatReader(FRAME_BYTES), reads)


def read_and_scanned(reads: list[bytes]) -> None:
    reader = ChatReader(FRAME_BYTES)
    scanner = open_scanner(tools=["f"])
    for read in reads:
        for event in reader.feed(read):
            if isinstance(event, Delta):
                scanner.feed(event.text)


GATES: Final[dict[str, tuple[Any, Any]]] = {
    "gate, to client frames": (_fastparse.ChunkGate, _fastparse.CallScanner),
    "gate, Python twin": (_pychunk.ChunkGate, _pyparse.CallScanner),
}


def gated(reads: list[bytes], name: str) -> list[bytes]:
    """Runs framing, JSON, scan and the client's frames in one step: all frames pass, except those split
    between reads."""
    make, twin = GATES[name]
    scanner = open_scanner(tools=["f"], scanner=twin)
    scanner.feed("So")

    def slow(data: bytes) -> bytes:
        gate.take()
        gate.open(scanner, HEAD, TAIL)
        return data

    def found(events: list[Event]) -> bytes:
        return slow(b"")

    gate = make(slow, found)
    slow(b"")
    return [gate.feed(read) for read in reads]


NAIVE: Final = {"naive, orjson": orjson.loads, "naive, json": json.loads}


@pytest.mark.parametrize("name", [*GATES, "chat reader", "chat reader and scanner", *NAIVE])
@pytest.mark.parametrize("kind", READS)
def test_reader(measure: Measure, kind: str, name: str) -> None:
    reads = READS[kind]
    run: Callable[[], object]
    if name in GATES:
        assert texts(b"".join(gated(reads, name))) == texts(_STREAM)
        run = partial(gated, reads, name)
    elif name in NAIVE:
        run = partial(framed, reads, NAIVE[name])
    elif name == "chat reader":
        run = partial(read, reads)
    else:
        run = partial(read_and_scanned, reads)
    measure(run, table="Frames to events", row=kind, column=name, units=len(FRAMES), unit="frame")


def texts(stream: bytes) -> str:
    """Returns all text in a stream of chunks without white space, which the scanner of a gate may hold back."""
    content = "".join(orjson.loads(f)["choices"][0]["delta"]["content"] for _, f in NaiveFramer().feed(stream))
    return "".join(content.split())


def written(events: list[Event]) -> bytes:
    request = ModelRequest("example-8b-instruct", (Message("user", (Text("hi"),)),))
    writer = ChatWriter(WriteOptions(request=request, created=1790000000))
    return b"".join(writer.feed([event]) for event in events)


def dumped(deltas: list[str], dump: Any) -> None:
    for delta in deltas:
        chunk = {
            "id": "chatcmpl-6f1c2f7e9f0a4c0f9b1d2e3f4a5b6c7d",
            "object": "chat.completion.chunk",
            "created": 1790000000,
            "model": "example-8b-instruct",
            "choices": [{"index": 0, "delta": {"content": delta}, "logprobs": None, "finish_reason": None}],
        }
        b"data: %b\n\n" % dump(chunk)


@pytest.mark.parametrize("name", ["chat writer", "naive, orjson", "naive, json"])
def test_writer(measure: Measure, name: str) -> None:
    events = fed(ChatReader(FRAME_BYTES), [*FRAMES, corpus.closing_frames()])
    assert isinstance(events[-1], Finish)
    deltas = corpus.prose(2_000)
    run = {
        "chat writer": lambda: written(events),
        "naive, orjson": lambda: dumped(deltas, orjson.dumps),
        "naive, json": lambda: dumped(deltas, lambda chunk: json.dumps(chunk).encode()),
    }[name]
    measure(run, table="Events to frames", row="one delta at a time", column=name, units=len(deltas), unit="frame")
