"""The compared parsers: the two scanners, the naive parsers, and other libraries if they are installed.

A contestant creates a parser for a format. `feed` and `finish` of all parsers return events, so that all do the same
work.
"""

from __future__ import annotations

import codecs
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Any, Final, Protocol

from ...config import LimitsConfig
from ...events import BlockKind, Close, Delta, Event, Open
from ...fastparse import IMPLEMENTATION
from ...scanner import open_scanner
from ..replay.steps import FrameScanner
from . import libraries
from .corpus import CorpusCall, value_of
from .naive import TAGS, BufferingScanner, RescanningScanner, Tags

LIMITS: Final = LimitsConfig(block_bytes=1 << 30, calls_per_response=1 << 30)
"""No limit is reached during a measurement, however long the text: text beyond a limit would not be parsed."""


class Parser(Protocol):
    """A parser that is measured."""

    def feed(self, data: Any, /) -> Sequence[Event]:
        """Returns the events in the next piece."""

    def finish(self) -> Sequence[Event]:
        """Returns the events at the end of the answer."""


Make = Callable[[], Parser]
OfferedTools = Sequence[Mapping[str, Any]] | None
"""The tools on offer; None accepts any name."""


@dataclass(frozen=True, slots=True)
class Contestant:
    """A compared parser. `texts` returns a factory of parsers of text for a format, `frames` a factory of parsers of
    server-sent events; None if the contestant does not support it. Both raise `ImportError` if a library is not
    installed."""

    name: str
    texts: Callable[[str, OfferedTools], Make | None]
    frames: Callable[[str, OfferedTools], Make | None] = lambda format, offer: None


def _scanner(module: str, format: str, offer: OfferedTools) -> Make:
    """Returns a factory of one of the scanners, with the tools on offer and the gateway's call policy."""
    scanner = import_module(module).CallScanner
    return partial(open_scanner, format, offer, limits=LIMITS, scanner=scanner)


def _frames(module: str, name: str, format: str, offer: OfferedTools) -> Make | None:
    """Returns a factory for the whole path of a frame; None for the scanner that is not in use, because the reader uses
    the framing that `toolwire.fastparse` chose."""
    if name != IMPLEMENTATION:
        return None
    make = _scanner(module, format, offer)
    # The scanner satisfies `Parser` at run time, but its own protocol has more methods.
    return lambda: FrameScanner(make())  # type: ignore[arg-type]  # `Parser` covers the part that is measured


class NaiveFrames:
    """Splits at empty lines, parses each frame's JSON, and feeds the text of the first choice to a naive parser."""

    def __init__(self, parser: Parser) -> None:
        self._parser = parser
        self._rest = b""

    def feed(self, data: bytes) -> list[Event]:
        """Returns the events in these bytes."""
        out: list[Event] = []
        *frames, self._rest = (self._rest + data).split(b"\n\n")
        for frame in frames:
            if frame.startswith(b"data: {"):
                for choice in json.loads(frame[6:])["choices"][:1]:
                    out += self._parser.feed(choice["delta"].get("content") or "")
        return out

    def finish(self) -> Sequence[Event]:
        """Returns the events for the text that was held back."""
        return self._parser.finish()


def _naive(parser: Callable[[Tags], Parser], format: str, offer: OfferedTools) -> Make | None:
    tags = TAGS.get(format)
    return None if tags is None else partial(parser, tags)


def _naive_frames(parser: Callable[[Tags], Parser], format: str, offer: OfferedTools) -> Make | None:
    make = _naive(parser, format, offer)
    return None if make is None else lambda: NaiveFrames(make())


CONTESTANTS: Final[Mapping[str, Contestant]] = {
    contestant.name: contestant
    for contestant in (
        Contestant(
            "compiled", partial(_scanner, "toolwire._fastparse"), partial(_frames, "toolwire._fastparse", "compiled")
        ),
        Contestant(
            "python", partial(_scanner, "toolwire.scan._pyparse"), partial(_frames, "toolwire.scan._pyparse", "python")
        ),
        Contestant("buffering", partial(_naive, BufferingScanner), partial(_naive_frames, BufferingScanner)),
        Contestant("rescanning", partial(_naive, RescanningScanner), partial(_naive_frames, RescanningScanner)),
        *(
            Contestant(
                library,
                lambda format, offer, library=library: libraries.partial_json(library, format),  # type: ignore[misc]  # mypy infers no type
            )
            for library in libraries.PARTIAL_JSON
        ),
        Contestant("sglang", lambda format, offer: libraries.sglang(format, offer or ())),
    )
}
"""All contestants by name; ratios refer to the first one."""


class Decoding:
    """Decodes bytes for a parser that accepts only text."""

    def __init__(self, parser: Parser) -> None:
        self._feed = parser.feed
        self.finish = parser.finish
        self._decode = codecs.getincrementaldecoder("utf-8")().decode

    def feed(self, data: bytes) -> Sequence[Event]:
        """Returns the events in the next bytes of UTF-8, split anywhere."""
        text = self._decode(data)
        return self._feed(text) if text else ()


def for_bytes(contestant: Contestant, make: Make) -> Make:
    """Returns a factory of parsers that accept bytes: the scanners do so themselves."""
    return make if contestant.name in ("compiled", "python") else lambda: Decoding(make())


@dataclass(frozen=True, slots=True)
class ParseResult:
    """Findings of a parser: complete calls, and the visible text without white space, because the gateway trims around
    calls and others do not."""

    calls: tuple[CorpusCall, ...]
    text: str


def parts_of(events: Sequence[Event]) -> Iterator[str | CorpusCall]:
    """Yields the visible texts and the complete calls in these events, in their order."""
    opened: dict[int, Open] = {}
    texts: dict[int, list[str]] = {}
    whole: set[int] = set()
    for event in events:
        if isinstance(event, Open):
            opened[event.block] = event
            texts[event.block] = []
        elif isinstance(event, Delta):
            texts[event.block].append(event.text)
        elif isinstance(event, Close) and event.status == "complete":
            whole.add(event.block)
    for block, edge in opened.items():
        if edge.kind is BlockKind.TEXT:
            yield "".join(texts[block])
        elif edge.kind is BlockKind.TOOL_CALL and block in whole:
            yield CorpusCall(edge.name or "", value_of("".join(texts[block])))


def parse_result(events: Sequence[Event]) -> ParseResult:
    """Returns the calls and the visible text in these events."""
    parts = list(parts_of(events))
    visible = "".join(part for part in parts if isinstance(part, str))
    return ParseResult(tuple(part for part in parts if isinstance(part, CorpusCall)), "".join(visible.split()))
