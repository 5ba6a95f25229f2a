"""Stages that rewrite the texts of an answer's blocks and may hold back a part of them.

`UnescapeStage` undoes the prompt's escapes (R5.6a). Rules:

1. Law: data that a model copies from its prompt into text, reasoning or strings of arguments comes out as it was before
   it was escaped, whole and streamed at any split.
2. Text that looks like an escape stays unchanged, unless this prompt has the same escape, with as many backslashes. It
   cannot be distinguished from a copy then.
3. The stage follows the scanner and precedes all other stages. The model's own bytes decide what is a call.

`UnwrapStage` removes the markup of results from answers that only repeat tool results of their prompt (R5.8): weak
models answer with the block that they were shown last. Rules:

1. An answer is unwrapped if it consists of nothing but blocks of the form in which this prompt wrote results; the last
   one may be unclosed. Any other answer stays unchanged. Both hold at any split of a stream.
2. A stream is held back only while it may still become such an answer, and never longer than the prompt's results are.
"""

from __future__ import annotations

from typing import Final, Protocol

from ...events import BlockKind, Close, Delta, Event, Fault, Finish, Open
from ...formats.engine.restoring import Restorer
from ...formats.engine.results import Escapes, ResultForm
from ...model import ModelReply, Reasoning, Refusal, Text, ToolUse
from ..answers.stages import Stage

_SLACK_CHARS: Final = 1024
"""Characters by which a repetition may exceed the results: whitespace, and escapes that a model adds."""


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


class UnescapeStage(RewritingStage):
    """Unescapes each block of an answer with a `Restorer`, which may hold back text."""

    def __init__(self, escapes: Escapes) -> None:
        super().__init__()
        self._escapes = escapes

    def whole(self, reply: ModelReply) -> ModelReply | None:
        """See `toolwire.pipeline.answers.stages.Stage`. A text without a backslash has no escape."""
        for choice in reply.choices:
            for part in choice.parts:
                match part:
                    case Text(text=text) | Reasoning(text=text) | Refusal(text=text) | ToolUse(arguments=text):
                        if "\\" in text:
                            return None
        return reply

    def rewriter(self, opened: Open) -> Restorer:
        return self._escapes.restorer(json=opened.kind is BlockKind.TOOL_CALL and opened.call_kind != "custom")


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
