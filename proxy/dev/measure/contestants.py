"""Who is measured: the scanner's twins, the naive parsers, and other people's libraries where they are installed.

A contestant makes a parser for a format. `feed` and `finish` of the parser give events, so that all do the same work.
"""

from __future__ import annotations

import codecs
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Any, Final, Protocol

from ...config import LimitsConfig
from ...events import BlockKind, Close, Delta, Event, Open
from ...fastparse import IMPLEMENTATION
from ...scanner import open_scanner
from ..replay import FrameScanner
from . import libraries
from .corpus import Call, value_of
from .naive import TAGS, BufferingScanner, RescanningScanner, Tags

LIMITS: Final = LimitsConfig(block_bytes=1 << 30, calls_per_response=1 << 30)
"""No limit is reached while measuring, however long the text is: what is beyond one would not be parsed."""


class Parser(Protocol):
    """A parser that is measured."""

    def feed(self, data: Any, /) -> Sequence[Event]:
        """Take the next piece."""

    def finish(self) -> Sequence[Event]:
        """The answer is over."""


Make = Callable[[], Parser]
OfferedTools = Sequence[Mapping[str, Any]] | None
"""The tools on offer; None: any name is a call."""


@dataclass(frozen=True, slots=True)
class Contestant:
    """`texts` gives what makes parsers of text for a format, `frames` parsers of server-sent events: None where the
    contestant cannot read that. Both raise `ImportError` if something is not installed."""

    name: str
    about: str
    texts: Callable[[str, OfferedTools], Make | None]
    frames: Callable[[str, OfferedTools], Make | None] = lambda format, offer: None


def _scanner(module: str, format: str, offer: OfferedTools) -> Make:
    """One of the twins, with the tools on offer and the call policy that the gateway has."""
    scanner = import_module(module).CallScanner
    return partial(open_scanner, format, offer, limits=LIMITS, scanner=scanner)


def _frames(module: str, name: str, format: str, offer: OfferedTools) -> Make | None:
    """The whole path of a frame. The reader has the framing that `proxy.fastparse` chose, so only that twin can."""
    if name != IMPLEMENTATION:
        return None
    make = _scanner(module, format, offer)
    # A `Parser` for who only measures; of this twin it is the scanner itself.
    return lambda: FrameScanner(make())  # type: ignore[arg-type]


class NaiveFrames:
    """Splits at empty lines, loads each frame, and gives what stands in the first choice to a naive parser."""

    def __init__(self, parser: Parser) -> None:
        self._parser = parser
        self._rest = b""

    def feed(self, data: bytes) -> list[Event]:
        """The events in these bytes."""
        out: list[Event] = []
        *frames, self._rest = (self._rest + data).split(b"\n\n")
        for frame in frames:
            if frame.startswith(b"data: {"):
                for choice in json.loads(frame[6:])["choices"][:1]:
                    out += self._parser.feed(choice["delta"].get("content") or "")
        return out

    def finish(self) -> Sequence[Event]:
        """What was held back."""
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
            "compiled",
            "the scanner, compiled",
            partial(_scanner, "proxy._fastparse"),
            partial(_frames, "proxy._fastparse", "compiled"),
        ),
        Contestant(
            "python",
            "the scanner's Python twin",
            partial(_scanner, "proxy.scan._pyparse"),
            partial(_frames, "proxy.scan._pyparse", "python"),
        ),
        Contestant(
            "buffering",
            "naive: keeps a buffer and looks for the next tag in it",
            partial(_naive, BufferingScanner),
            partial(_naive_frames, BufferingScanner),
        ),
        Contestant(
            "rescanning",
            "naive: a regular expression over the whole answer with every delta",
            partial(_naive, RescanningScanner),
            partial(_naive_frames, RescanningScanner),
        ),
        *(
            Contestant(
                library,
                f"tags by hand, unfinished JSON by {library}",
                # mypy infers no type for a lambda with a default.
                lambda format, offer, library=library: libraries.partial_json(library, format),  # type: ignore[misc]
            )
            for library in libraries.PARTIAL_JSON
        ),
        Contestant(
            "sglang",
            "SGLang's streaming parsers",
            lambda format, offer: libraries.sglang(format, offer or ()),
        ),
    )
}
"""All contestants by name; the first one is what ratios are made to."""


class Decoding:
    """Gives text to a parser that takes no bytes."""

    def __init__(self, parser: Parser) -> None:
        self._feed = parser.feed
        self.finish = parser.finish
        self._decode = codecs.getincrementaldecoder("utf-8")().decode

    def feed(self, data: bytes) -> Sequence[Event]:
        """Take the next bytes of UTF-8, cut anywhere."""
        text = self._decode(data)
        return self._feed(text) if text else ()


def for_bytes(contestant: Contestant, make: Make) -> Make:
    """What makes parsers that take pieces of bytes: the twins do by themselves."""
    return make if contestant.name in ("compiled", "python") else lambda: Decoding(make())


@dataclass(frozen=True, slots=True)
class Found:
    """What a parser made of a text: whole calls, and the visible text without white space, since the gateway trims
    around calls and others do not."""

    calls: tuple[Call, ...]
    text: str


def found(events: Sequence[Event]) -> Found:
    """What events amount to."""
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
    calls = [(edge.name or "", "".join(texts[n])) for n, edge in opened.items() if edge.name is not None and n in whole]
    visible = ["".join(texts[n]) for n, edge in opened.items() if edge.kind is BlockKind.TEXT]
    return Found(tuple(Call(name, value_of(text)) for name, text in calls), "".join("".join(visible).split()))
