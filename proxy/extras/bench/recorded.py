"""A recording as texts to measure: as it was recorded for its own format, rewritten for other formats."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from math import inf

from ...events import Event
from ...fastparse import IMPLEMENTATION
from ...registry import registries
from ..capture import recording
from . import corpus, timing
from .contestants import CONTESTANTS, OfferedTools, ParseResult, parse_result, parts_of
from .corpus import CorpusCall


@dataclass(frozen=True)
class Recording:
    """A recorded answer: a stream of Chat chunks, a whole Chat answer, or plain text. Its properties raise
    `RecordingError` if it has no text."""

    data: bytes

    @cached_property
    def texts(self) -> list[str]:
        """The pieces of text, as recorded."""
        return recording.deltas(self.data)

    @cached_property
    def format(self) -> str:
        """The format in which it has most calls, with the least text around them and in them; `sentinel` if it has none
        in any."""
        names = ["sentinel", *(name for name in registries().formats.names() if name != "auto")]
        found = {name: scanned(name, self.texts, None) for name in names}
        return max(
            names, key=lambda name: (len(found[name].calls), -len(found[name].text), -len(str(found[name].calls)))
        )

    @cached_property
    def parts(self) -> list[str | CorpusCall]:
        """Its text and its calls in their order."""
        return list(parts_of(_events(self.format, self.texts, None)))

    def in_format(self, name: str) -> list[str] | None:
        """Returns the pieces of text in this format: the recorded ones if its calls are found in them, else its text
        and calls written anew, in one piece; None if the format cannot express them."""
        calls = tuple(part for part in self.parts if isinstance(part, CorpusCall))
        if scanned(name, self.texts, None).calls == calls:
            return self.texts
        written = registries().formats.get(name)
        lines = [
            corpus.rendered(written, [part for part in group if isinstance(part, CorpusCall)])
            if are_calls
            else "".join(part for part in group if isinstance(part, str)).strip()
            for are_calls, group in groupby(self.parts, lambda part: isinstance(part, CorpusCall))
        ]
        text = "\n".join(filter(None, lines))
        return [text] if scanned(name, [text], None).calls == calls else None


def scanned(format: str, pieces: Sequence[str] | Sequence[bytes], offer: OfferedTools) -> ParseResult:
    """Returns the calls and the visible text that the gateway's scanner finds in these pieces."""
    return parse_result(_events(format, pieces, offer))


def _events(format: str, pieces: Sequence[str] | Sequence[bytes], offer: OfferedTools) -> list[Event]:
    make = CONTESTANTS[IMPLEMENTATION].texts(format, offer)
    assert make is not None
    return timing.fed(make, pieces, inf)[0]
