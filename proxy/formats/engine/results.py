"""Tool results as text, for models that only read text: in the form their family was trained on (R5.8).

Rules of this module:

1. A result is data: when written, it contains none of the form's own markers (R5.6).
2. Results of one turn are in the order of their calls. A form without a place for ids names the call only if that order
   does not identify it.
3. An answer that consists only of blocks of the form repeats results, and its text is their text. The last block may
   lack its closer, or the end of it, unless the text after the opener looks like a sentence about the marker. Any other
   answer stays as the model wrote it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, NamedTuple

from ...model import ToolResult
from .escaping import Escaping, Markup, Pieces
from .markers import MarkerSet
from .rendering import attribute, result_text
from .restoring import Form, Restorer, known_form

_PLACE: Final = re.compile(r"\{(name|id)\}")
_ERROR: Final = "Error: "
"""Put before the text of a failed result that does not say so itself, because the forms have no field for it."""

_BEHIND_MENTION: Final = " \t.,;:)"
"""Characters after a marker that a sentence mentions."""

_PLACE_CHARS: Final = 512
"""Longest id or name in the opener of a repeated result."""


@dataclass(frozen=True)
class ResultForm:
    """Results of one turn are `first result (separator result)* last`, each `opener text closer`.

    `{name}` and `{id}` in an opener are replaced by the tool's name and the call's id. `named` is the opener used when
    the order does not identify the call; default: `opener` with a line that names the call.
    """

    opener: str
    closer: str
    first: str = ""
    separator: str = "\n"
    last: str = ""
    named: str = ""

    @cached_property
    def markers(self) -> tuple[str, ...]:
        """Texts that open or close a result. They are escaped in data."""
        openers = [_PLACE.split(opener)[0] for opener in (self.opener, self.named)]
        texts = [text.strip() for text in (self.first, *openers, self.closer, self.last)]
        return tuple(dict.fromkeys(filter(None, texts)))

    def before(self, result: ToolResult, escaping: Escaping, *, apart: bool) -> Markup:
        """Returns the opener of a result. `apart`: the order of the results identifies its call."""
        shown = {"name": result.name or "", "id": result.call_id}
        opener = self.opener if apart else self.named or f"{self.opener}{{name}} {{id}}:\n"
        return Markup(_PLACE.sub(lambda place: attribute(shown[place[1]], escaping), opener))

    def pieces(self, results: Sequence[ToolResult], escaping: Escaping, *, apart: bool = True) -> Pieces:
        """Returns all results of a turn as pieces of text: markup, and data that is still to be escaped."""
        pieces: list[str] = []
        for result in results:
            pieces.append(Markup(self.separator if pieces else self.first))
            pieces += self.before(result, escaping, apart=apart), marked_text(result), Markup(self.closer)
        return [*pieces, Markup(self.last)] if pieces else []

    # --- reading a repetition -----------------------------------------------------------------------------------------

    @cached_property
    def heads(self) -> tuple[str, ...]:
        """The texts with which an answer that repeats results may begin."""
        return tuple(dict.fromkeys(filter(None, (self.first.strip(), self.head))))

    @cached_property
    def head(self) -> str:
        """The text with which the block of each result begins: the opener up to its first placeholder."""
        return _PLACE.split(self.opener)[0].strip().removesuffix(">") or self.first.strip()

    def unwrapped(self, answer: str) -> str | None:
        """Returns the text of the results if `answer` only repeats their blocks, else None."""
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
                return "\n".join(texts) if texts and last.startswith(rest) else None
            text, ended, rest = rest[start:].partition(closer) if closer else (rest[start:], "", "")
            if closer and not ended:
                text = self._without_cut_closer(text)
                if not text.strip() or text[0] in _BEHIND_MENTION:
                    return None
            texts.append(text.removesuffix("\n") if self.closer.startswith("\n") else text)
            rest = rest.lstrip()
        return "\n".join(texts) if texts else None

    def _without_cut_closer(self, text: str) -> str:
        """Returns the text without the beginning of a closer at its end. A single character may belong to the
        result."""
        sizes = range(len(self.closer) - 1, 1, -1)
        cut = next((size for size in sizes if text.endswith(self.closer[:size])), 0)
        return text[: len(text) - cut]

    def behind_opener(self, text: str) -> str | None:
        """Returns the rest of a text after an opener, or None if it does not begin with one (yet)."""
        start = self._end_of_opener(text)
        return None if start is None else text[start:]

    def _end_of_opener(self, text: str) -> int | None:
        """Returns the end of the opener that `text` begins with, or None."""
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


def marked_text(result: ToolResult) -> str:
    """Returns the text of a result, marked as an error if the tool failed."""
    text = result_text(result)
    return mark_failed(text) if result.is_error else text


def mark_failed(text: str) -> str:
    """Returns the text of a failed result, beginning with the word error: for prompts, and for servers whose protocol
    has no field for it (R28.6)."""
    return text if text[: len(_ERROR)].lower().startswith("error") else _ERROR + text


TOOL_RESPONSE: Final = ResultForm(
    "<tool_response>\n", "\n</tool_response>", named="<tool_response call_id={id} name={name}>\n"
)
"""The form of Hermes and Qwen; also used for families that have a separate turn for results, which text cannot
express."""


# --- escapes of one prompt --------------------------------------------------------------------------------------------


class EscapesMade(NamedTuple):
    """The fields of an `Escapes`, immutable, so that they can be kept for the next request."""

    forms: frozenset[Form] = frozenset()
    results: ResultForm | None = None
    result_chars: int = 0

    def and_those(self, more: Escapes) -> EscapesMade:
        """Returns these escapes together with those made in later texts (`more`)."""
        forms = self.forms | more.forms if more.forms else self.forms
        return EscapesMade(forms, more.results or self.results, self.result_chars + more.result_chars)


class Escapes:
    """The escapes made while one prompt was written. `markers` are the ones its data was searched for.

    `results` is the form of its tool results (None: it has none); `result_chars` their total size.
    """

    def __init__(self) -> None:
        self.forms: set[Form] = set()
        self.markers: MarkerSet | None = None
        self.results: ResultForm | None = None
        self.result_chars = 0

    def note_results(self, form: ResultForm, chars: int) -> None:
        """Records that results of one turn were written in this form with this many characters."""
        self.results = form
        self.result_chars += chars

    def add(self, made: EscapesMade) -> None:
        """Adds the escapes made in later texts."""
        self.forms |= made.forms
        self.results = made.results or self.results
        self.result_chars += made.result_chars

    def __bool__(self) -> bool:
        return bool(self.forms)

    def restorer(self, *, json: bool = False) -> Restorer:
        """Returns a restorer of these escapes for one text of the answer. `json`: see `Restorer`."""
        assert self.markers is not None
        return Restorer(self.markers, json=json, made={known_form(form, self.markers) for form in self.forms})
