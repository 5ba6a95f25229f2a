"""Removal of result markup from answers that only repeat tool results of their prompt (R5.8).

Weak models answer with the block that they were shown last. Rules:

1. An answer is unwrapped if it consists of nothing but blocks of the form in which this prompt wrote results; the last
   one may be unclosed. Any other answer stays unchanged. Both hold at any split of a stream.
2. A stream is held back only while it may still become such an answer, and never longer than the prompt's results are.
"""

from __future__ import annotations

from typing import Final

from ...events import BlockKind, Open
from ...formats.engine.results import Escapes, ResultForm
from ...model import ModelReply, Text
from .block_texts import RewritingStage

_SLACK_CHARS: Final = 1024
"""Characters by which a repetition may exceed the results: whitespace, and escapes that a model adds."""


class Unwrapper:
    """Unwraps one text, which comes in pieces. `chars` is the number of characters of the results in the prompt."""

    def __init__(self, form: ResultForm, chars: int) -> None:
        self._form = form
        self._closer = form.closer.strip()
        self._limit = chars + _SLACK_CHARS
        self._held: list[str] | None = []  # None once it is decided: further text is forwarded
        self._size = 0
        self._begun = False
        self._tail = ""  # the end of the held text, which may begin a closer
        self._behind: str | None = None  # the text after the last closer

    @property
    def decided(self) -> bool:
        """True if all further text is forwarded unchanged."""
        return self._held is None

    def feed(self, text: str) -> str:
        """Takes a piece of text and returns the text that can be sent."""
        if self._held is None:
            return text
        self._held.append(text)
        self._size += len(text)
        may_repeat = self._size <= self._limit and self._may_repeat(text)
        if self._begun and not self._closer:
            rest = self._form.behind_opener("".join(self._held).lstrip())
            if rest is not None:
                self._held = None
                return rest
        return "" if may_repeat else self._released()

    def finish(self) -> str:
        """Ends the text and returns the rest of it."""
        if self._held is None:
            return ""
        text = self._released()
        unwrapped = self._form.unwrapped(text) if self._begun else None
        return text if unwrapped is None else unwrapped

    def _released(self) -> str:
        text = "".join(self._held or ())
        self._held = None
        return text

    def _may_repeat(self, text: str) -> bool:
        """Takes the next piece of text. Returns True as long as the text may be a repetition of results."""
        if not self._begun:
            lead = "".join(self._held or ()).lstrip()
            if not any(lead.startswith(head) for head in self._form.heads):
                return self._size <= _SLACK_CHARS and any(head.startswith(lead) for head in self._form.heads)
            self._begun = True
            text = lead
        if not self._closer:
            return self._size <= _SLACK_CHARS
        _, found, behind = (self._tail + text).rpartition(self._closer)
        if found:
            self._behind = behind
        elif self._behind is not None:
            self._behind += text
        self._tail = "" if found else behind[-len(self._closer) :]
        if self._behind is None:
            return True
        return self._goes_on(self._behind.strip())

    def _goes_on(self, behind: str) -> bool:
        """Returns True if this text may follow a block: nothing, another block, or the end of the turn."""
        if behind.startswith(self._form.head):
            self._behind, self._tail = None, behind[-len(self._closer) :]
            return True
        expected = (self._form.separator.strip(), self._form.last.strip(), self._form.head)
        return any(text.startswith(behind) for text in expected)


class UnwrapStage(RewritingStage):
    """Unwraps each text block of an answer with an `Unwrapper`, which may hold back text. Text may bypass the stage as
    soon as its block is decided (`waits_in`)."""

    ignores_text = True

    def __init__(self, written: Escapes) -> None:
        assert written.results is not None
        super().__init__()
        self._form = written.results
        self._chars = written.result_chars

    def whole(self, reply: ModelReply) -> ModelReply | None:
        """See `toolwire.pipeline.answers.stages.Stage`. Nothing is unwrapped in an answer without the beginning of a
        result."""
        begins = any(
            head in part.text
            for choice in reply.choices
            for part in choice.parts
            if isinstance(part, Text)
            for head in self._form.heads
        )
        return None if begins else reply

    def waits_in(self, block: int) -> bool:
        """Returns True if this text block may still become a repetition."""
        unwrapper = self._texts.get(block)
        return isinstance(unwrapper, Unwrapper) and not unwrapper.decided

    def rewriter(self, opened: Open) -> Unwrapper | None:
        return Unwrapper(self._form, self._chars) if opened.kind is BlockKind.TEXT else None
