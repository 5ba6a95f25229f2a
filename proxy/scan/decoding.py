"""Converts deltas to valid text with whole characters, however they are cut. Both scanners use this module: few deltas
need it."""

from __future__ import annotations

import codecs

from ._grammar import valid_text

UNKNOWN = "\N{REPLACEMENT CHARACTER}"


class DeltaDecoder:
    """Joins characters that are split over deltas. `half`: the last delta ended inside a character, so the next must be
    decoded."""

    __slots__ = ("_bytes", "_high", "half")

    def __init__(self) -> None:
        self._bytes = codecs.getincrementaldecoder("utf-8")("replace")
        self._high = ""
        self.half = False

    def decode(self, data: str | bytes) -> str:
        """Returns the delta as valid text, without a partial character at its end."""
        if isinstance(data, str):
            text = self._bytes.decode(b"", True) + self._join_surrogates(data)
        else:
            text = self._bytes.decode(data)
            if self._high and data:
                self._high = ""
                text = UNKNOWN + text
        self.half = bool(self._high or self._bytes.getstate()[0])
        return text

    def finish(self) -> str:
        """Returns the replacement for a partial character at the end."""
        return self._bytes.decode(b"", True) + (UNKNOWN if self._high else "")

    def _join_surrogates(self, text: str) -> str:
        text = self._high + text
        self._high = ""
        if text and "\ud800" <= text[-1] <= "\udbff":
            text, self._high = text[:-1], text[-1]
        return valid_text(text)


def size_of(text: str) -> int:
    """The length of a text in bytes of UTF-8."""
    return len(text) if text.isascii() else len(text.encode())
