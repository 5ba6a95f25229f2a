r"""Restores the escapes of `escaping.py` in an answer that comes in pieces.

Rules of this module:

1. The way the input is split never changes the output as a whole.
2. Held back are only a backslash and the beginning of a marker after it; and up to `TAIL_CHARS` of a text that begins
   with `{\` or `[\`, in a format whose whole answer may be a call.
3. A false beginning of a marker is examined a second time; everything else once.
4. Only escapes made in the answer's own prompt (`Escapes`) are restored. Similar text is the model's own.

In JSON a character may be spelled `\n` or `\u003c`. It is compared by its meaning and passed on as spelled; a *unit*
is the pair of both. In plain text they are the same.
"""

from __future__ import annotations

import re
from collections.abc import Set
from typing import Final

from ...scan._grammar import SPACE
from .markers import STEP_CHARS, TAIL_CHARS, MarkerSet

_HIGH: Final = r"\\u[dD][89abAB][0-9a-fA-F]{2}"
_UNIT: Final = re.compile(
    rf'{_HIGH}\\u[dD][c-fC-F][0-9a-fA-F]{{2}}|\\u[0-9a-fA-F]{{4}}|\\.|"|[^"\\]{{1,{STEP_CHARS}}}+', re.DOTALL
)
"""Two escapes that form a surrogate pair are one unit."""
_CUT: Final = re.compile(rf"(?:{_HIGH})?\\(?:u[0-9a-fA-F]{{0,3}})?|{_HIGH}")
_PAIR_CHARS: Final = 12
_LETTERS: Final = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}

_SPACE, _RUN, _TAIL, _INSIDE = range(4)
"""Position in a text: in leading whitespace, in the backslashes after the first character, in the text after those, or
beyond the beginning."""


Form = tuple[str, int, str | None]
"""The form of an escaped marker: first character, number of backslashes, rest. The rest is None for the beginning of a
whole answer, which has many continuations."""


def known_form(form: Form, markers: MarkerSet) -> Form:
    """Returns the form of an escape as `markers`, which answers are searched for, know it. Its marker may be shorter
    than the one that was escaped inside a call."""
    first, slashes, rest = form
    matching = (known for known in markers.rests.get(first, ()) if rest is not None and rest.startswith(known))
    return first, slashes, next(matching, rest)


def _meant(spelled: str) -> str:
    """Returns the character that a JSON escape means."""
    if spelled[1] != "u" or len(spelled) == 2:
        return _LETTERS.get(spelled[1], spelled[1])
    codes = (int(spelled[at : at + 4], 16) for at in range(2, len(spelled), 6))
    return b"".join(code.to_bytes(2, "little") for code in codes).decode("utf-16-le", "surrogatepass")


class Restorer:
    """Removes one backslash from everything that looks like an escaped marker (R5.6a).

    Use a new one for each text. `json`: the input is JSON, and each string in it is a text of its own. `made`: restore
    only these forms; None: all.
    """

    def __init__(self, markers: MarkerSet, *, json: bool = False, made: Set[Form] | None = None) -> None:
        self._markers = markers
        self._json = json
        self._made = made
        self._out: list[str] = []
        self._cut = ""  # the beginning of an escape at the end of the input
        self._quoted = False

        # `_first`: first character of a possible marker. `_slash`: the last backslash after it, held back as spelled;
        # `_slashes`: their number. `_part`: the part of the rest read so far; `_spelled`: its units.
        self._first = ""
        self._slash = ""
        self._slashes = 0
        self._part = ""
        self._spelled: list[str] = []

        # The beginning of a text: `_opening` is its first character, `_waiting` the backslash held back, `_run` the
        # number of backslashes, `_tail` the units after them.
        begins = markers.beginnings.firsts and (made is None or any(rest is None for _, _, rest in made))
        self._at = self._start = _SPACE if begins else _INSIDE
        self._opening = ""
        self._run = 0
        self._waiting = ""
        self._tail: list[tuple[str, str]] = []

    def feed(self, text: str) -> str:
        """Takes the next piece and returns the restored text that is certain so far."""
        if self._json:
            self._read_json(self._cut + text)
        else:
            self._read(text)
        return self._taken()

    def finish(self) -> str:
        """Ends the text and returns the rest of it, restored."""
        if self._cut:
            self._take_unit(self._cut[-1], self._cut)
            self._cut = ""
        self._settle()
        return self._taken()

    def _taken(self) -> str:
        text = "".join(self._out)
        self._out.clear()
        return text

    # --- units ------------------------------------------------------------------------------------------------------

    def _read(self, text: str) -> None:
        """Reads text in which each character means itself."""
        at = 0
        while at < len(text):
            if self._at == _INSIDE and not self._slash:  # nothing to do before the next backslash
                end = text.find("\\", at)
                end = len(text) if end < 0 else end
                if end > at:
                    self._out.append(text[at:end])
                    self._first = text[end - 1] if text[end - 1] in self._markers.rests else ""
                    at = end
                    continue
            self._take_unit(text[at], text[at])
            at += 1

    def _read_json(self, text: str) -> None:
        at = 0
        while found := _UNIT.match(text, at):
            spelled = found[0]
            if spelled == '"':  # a string begins or ends
                self._settle()
                self._out.append(spelled)
                self._at = self._start
                self._quoted = not self._quoted
            elif not self._quoted:
                self._out.append(spelled)
            elif spelled[0] != "\\":
                self._read(spelled)
            elif len(text) - at < _PAIR_CHARS and _CUT.fullmatch(text, at):
                break
            else:
                self._take_unit(_meant(spelled), spelled)
            at = found.end()
        self._cut = text[at:]

    def _take_unit(self, char: str, spelled: str) -> None:
        """Takes the next unit. At the beginning of a text, a call that is a whole answer may begin."""
        if self._at == _INSIDE:
            self._take(char, spelled)
        elif self._at == _SPACE:
            self._take(char, spelled)
            if self._markers.beginnings.starts(char):
                self._at, self._opening, self._run = _RUN, char, 0
            elif char not in SPACE:
                self._at = _INSIDE
        elif self._at == _RUN and char == "\\":
            if self._waiting:
                self._take("\\", self._waiting)
            self._waiting = spelled
            self._run += 1
        elif not self._waiting:
            self._at = _INSIDE
            self._take(char, spelled)
        else:
            self._at = _TAIL
            self._tail.append((char, spelled))
            if len(self._tail) == TAIL_CHARS:
                self._settle_beginning()

    def _settle_beginning(self) -> None:
        """Decides whether the text begins like an escaped call."""
        tail, waiting = self._tail, self._waiting
        self._at, self._tail, self._waiting = _INSIDE, [], ""
        if not (
            self._is_ours(self._opening, self._run, None)
            and self._markers.beginnings.begins(self._opening, "".join([char for char, _ in tail]))
        ):
            self._take("\\", waiting)
        for char, spelled in tail:
            self._take(char, spelled)

    def _settle(self) -> None:
        """Ends the current text."""
        if self._waiting:
            self._settle_beginning()
        while self._slash:
            self._give_up()
        self._first = ""

    # --- markers ----------------------------------------------------------------------------------------------------

    def _is_ours(self, first: str, slashes: int, rest: str | None) -> bool:
        return self._made is None or (first, slashes, rest) in self._made

    def _take(self, char: str, spelled: str) -> None:
        first = self._first
        if first and char == "\\" and not self._part:
            self._out.append(self._slash)
            self._slash = spelled
            self._slashes += 1
            return
        if self._slash:
            part = self._part + char
            if part in self._markers.rests[first]:
                if not self._is_ours(first, self._slashes, part):
                    self._out.append(self._slash)
                self._out += *self._spelled, spelled
                self._forget()
                return
            if part in self._markers.parts[first]:
                self._part = part
                self._spelled.append(spelled)
                return
            self._give_up()
            self._take(char, spelled)
            return
        self._out.append(spelled)
        self._first = char if char in self._markers.rests else ""

    def _give_up(self) -> None:
        """Releases text that was not a marker, and searches it for another beginning of one."""
        units = list(zip(self._part, self._spelled, strict=True))
        # A marker of one character is complete with its backslashes.
        if "" not in self._markers.rests[self._first] or not self._is_ours(self._first, self._slashes, ""):
            self._out.append(self._slash)
        self._forget()
        for char, spelled in units:
            self._take(char, spelled)

    def _forget(self) -> None:
        self._first = self._slash = self._part = ""
        self._slashes = 0
        self._spelled.clear()
