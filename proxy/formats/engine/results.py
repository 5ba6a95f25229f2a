"""How tool results are written for a model that only reads text: in the form that its family was trained on (R5.8).

Rules of this module:

1. A result is data: written, it holds none of the form's own markers (R5.6).
2. Results of one turn stand in the order of their calls. A form without a place for ids names a call only where that
   order does not tell which call a result answers.
3. An answer that is nothing but blocks of the form is a repetition, and its text is the results' text. Any other answer
   stays as the model wrote it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from toolwire.formats.engine.escaping import Escaping, Markup, Pieces
from toolwire.formats.engine.rendering import attribute, result_text
from toolwire.model import ToolResult

_PLACE: Final = re.compile(r"\{(name|id)\}")
_ERROR: Final = "Error: "
"""Before the text of a result that failed and does not say so itself: the forms have no other place for it."""

_PLACE_CHARS: Final = 512
"""Longest id or name in the opener of a repeated result."""


@dataclass(frozen=True)
class ResultForm:
    """Results of one turn are `first result (separator result)* last`, each `opener text closer`.

    The places of `{name}` and `{id}` in an opener take the tool's name and the call's id. `named` is the opener of a
    result whose call the order does not tell; by default `opener` with a line that names the call.
    """

    opener: str
    closer: str
    first: str = ""
    separator: str = "\n"
    last: str = ""
    named: str = ""

    @cached_property
    def markers(self) -> tuple[str, ...]:
        """Texts that open or close a result: data holds none of them."""
        openers = [_PLACE.split(opener)[0] for opener in (self.opener, self.named)]
        texts = [text.strip() for text in (self.first, *openers, self.closer, self.last)]
        return tuple(dict.fromkeys(filter(None, texts)))

    def before(self, result: ToolResult, escaping: Escaping, *, apart: bool) -> Markup:
        """The opener of a result. `apart`: the order of the results tells which call it answers."""
        shown = {"name": result.name or "", "id": result.call_id}
        opener = self.opener if apart else self.named or f"{self.opener}{{name}} {{id}}:\n"
        return Markup(_PLACE.sub(lambda place: attribute(shown[place[1]], escaping), opener))

    def pieces(self, results: Sequence[ToolResult], escaping: Escaping, *, apart: bool = True) -> Pieces:
        """All results of a turn as text."""
        pieces: list[str] = []
        for result in results:
            pieces.append(Markup(self.separator if pieces else self.first))
            pieces += self.before(result, escaping, apart=apart), told_text(result), Markup(self.closer)
        return [*pieces, Markup(self.last)] if pieces else []

    # --- reading a repetition -----------------------------------------------------------------------------------------

    @cached_property
    def heads(self) -> tuple[str, ...]:
        """Texts of which a repetition begins with one."""
        return tuple(dict.fromkeys(filter(None, (self.first.strip(), self.head))))

    @cached_property
    def head(self) -> str:
        """Text with which each block begins."""
        return _PLACE.split(self.opener)[0].strip().removesuffix(">") or self.first.strip()

    def unwrapped(self, answer: str) -> str | None:
        """The text of the results of which `answer` only repeats the blocks; None for any other answer."""
        closer, last = self.closer.strip(), self.last.strip()
        rest = answer.strip().removeprefix(self.first.strip()).lstrip()
        rest = rest.removesuffix(last).rstrip() if last else rest
        texts: list[str] = []
        separator = self.separator.strip()
        while rest:
            if texts and separator:
                rest = rest.removeprefix(separator).lstrip()
            start = self._end_of_opener(rest)
            if start is None:
                return None
            text, ended, rest = rest[start:].partition(closer) if closer else (rest[start:], "", "")
            if closer and not ended:
                return None
            texts.append(text.removesuffix("\n") if self.closer.startswith("\n") else text)
            rest = rest.lstrip()
        return "\n".join(texts) if texts else None

    def behind_opener(self, text: str) -> str | None:
        """The rest of a text that begins with an opener; None if it does not, or not yet."""
        start = self._end_of_opener(text)
        return None if start is None else text[start:]

    def _end_of_opener(self, text: str) -> int | None:
        """Where the text of the block begins that `text` begins with; None if it begins otherwise."""
        for opener in filter(None, (self.named, self.opener)):
            first, *others = _PLACE.split(opener)[::2]
            at = len(first.rstrip("\n"))
            if not text.startswith(first.rstrip("\n")):
                continue
            for literal in others:
                literal = literal.rstrip("\n") or "\n"
                found = text.find(literal, at, at + _PLACE_CHARS + len(literal))
                if found < 0 or "\n" in text[at:found]:
                    break
                at = found + len(literal)
            else:
                return at + (opener.endswith("\n") and text.startswith("\n", at))
        return None


def told_text(result: ToolResult) -> str:
    """The text of a result; of one that failed it says so."""
    text = result_text(result)
    return mark_failed(text) if result.is_error else text


def mark_failed(text: str) -> str:
    """The text of a failed result, which begins with the word error: for prompts, and for servers whose protocol has
    no field for it (R28.6)."""
    return text if text[: len(_ERROR)].lower().startswith("error") else _ERROR + text


TOOL_RESPONSE: Final = ResultForm(
    "<tool_response>\n", "\n</tool_response>", named="<tool_response call_id={id} name={name}>\n"
)
"""Hermes and Qwen; also for families whose results are turns of their own, which a text cannot begin."""
