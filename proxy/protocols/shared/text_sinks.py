"""Receivers of the text of one block of a streamed answer: the base class, and inline reasoning (R7.8)."""

from __future__ import annotations

from ...events import BlockStatus
from ...model import Extra


class TextSink:
    """Receiver of a block's text. This base class drops the text."""

    __slots__ = ()

    def write(self, text: str) -> None:
        """Adds text to the block."""

    def learn(self, extra: Extra) -> None:
        """Adds the `extra` from the end of the block."""

    def close(self, status: BlockStatus) -> None:
        """Ends the block."""


class InlineReasoning(TextSink):
    """Reasoning that is written into a text, between tags."""

    __slots__ = ("_opened", "_tags", "_text")

    def __init__(self, text: TextSink, tags: tuple[str, str]) -> None:
        self._text = text
        self._tags = tags
        self._opened = False

    def write(self, text: str) -> None:
        """Sends text, after the opening tag."""
        if text and not self._opened:
            self._opened = True
            text = self._tags[0] + text
        self._text.write(text)

    def close(self, status: BlockStatus) -> None:
        """Sends the closing tag if there was any text."""
        if self._opened:
            self._text.write(self._tags[1])
