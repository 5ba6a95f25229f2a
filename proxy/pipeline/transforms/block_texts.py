"""Stages that rewrite the texts of an answer's blocks and may hold back a part of them."""

from __future__ import annotations

from typing import Protocol

from ...events import Close, Delta, Event, Fault, Finish, Open
from ..answers.stages import Stage


class TextRewriter(Protocol):
    """Interface: rewrites the text of one block, which comes in pieces."""

    def feed(self, text: str, /) -> str:
        """Takes a piece of text and returns the text that can be sent."""

    def finish(self) -> str:
        """Ends the text and returns the rest of it."""


class RewritingStage(Stage):
    """Passes the text of each block through a rewriter of its own. A block ends with its `Close`, or with the
    answer."""

    def __init__(self) -> None:
        self._texts: dict[int, TextRewriter] = {}

    def rewriter(self, opened: Open) -> TextRewriter | None:
        """Returns the rewriter for a new block; None if its text stays as it is."""
        raise NotImplementedError

    def feed(self, events: list[Event]) -> list[Event]:
        out: list[Event] = []
        for event in events:
            match event:
                case Delta() if event.block in self._texts:
                    text = self._texts[event.block].feed(event.text)
                    if text == event.text:
                        out.append(event)
                    elif text or event.extra:
                        out.append(Delta(event.block, text, event.extra))
                    continue
                case Open():
                    if (rewriter := self.rewriter(event)) is not None:
                        self._texts[event.block] = rewriter
                case Close():
                    self._end(event.block, out)
                case Finish() | Fault():
                    for block in [*self._texts]:
                        self._end(block, out)
            out.append(event)
        return out

    def _end(self, block: int, out: list[Event]) -> None:
        rewriter = self._texts.pop(block, None)
        if rewriter is not None and (text := rewriter.finish()):
            out.append(Delta(block, text))
