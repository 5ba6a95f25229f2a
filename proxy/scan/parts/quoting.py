"""Text that is quoted in Markdown.

Rules of this module (after CommonMark, decided without looking ahead):

1. A run of backticks opens inline code; the next run of the same length, or the end of the line, ends it.
2. Three or more backticks at the start of a line (after indentation) open a fence, unless another backtick follows in
   that line. As many backticks at the start of a line close it, unless a word follows.
3. Outside both, a quotation mark opens a string; the next one, or the end of the line, ends it.
4. Each piece is read once, however the text is split.
"""

from __future__ import annotations

from typing import Final

from .. import octets

_FENCE: Final = 3
_BRIEF: Final = 32
"""Bytes that are compared one by one, because the next mark is usually near. After these, `octets.find` is used."""


class Quoting:
    """Tells whether the text read so far ends in inline code (`span`: its number of backticks), in a fence (`fence`:
    its number of backticks) or in a `string`. `active`: also text without backticks and quotation marks must be
    read."""

    __slots__ = ("_line", "_margin", "_run", "active", "fence", "span", "string")

    def __init__(self) -> None:
        # `_line`: the fence was opened in this line. `_run`: length of the pending run of backticks, which began at the
        # start of a line if `_margin`.
        self.fence = 0
        self.span = 0
        self.string = False
        self.active = False
        self._line = False
        self._run = 0
        self._margin = False

    def quotes(self) -> bool:
        """Returns True if the next character is in inline code or in a fence. Must not be called inside a run of
        backticks."""
        return self.fence > 0 or self.span > 0

    def end_line(self) -> None:
        """Ends the line: inline code and strings end with it, a fence continues."""
        self.end_run(ord("\n"))
        self._forget_line()
        self.active = False

    def read(self, buf: bytes, pos: int, end: int, margin: bool) -> None:
        """Reads the text between `pos` and `end`. `margin`: it begins at the start of a line (after indentation)."""
        at = pos if self.active else _next_mark(buf, pos, end, False)
        if at < end:
            self._read(buf, pos, at, end, margin)
            self.active = self._run > 0 or self.span > 0 or self._line or self.string

    def end_run(self, behind: int) -> None:
        """Ends a pending run of backticks before the byte `behind`, which is not a backtick."""
        run = self._run
        if not run:
            return
        self._run = 0
        if self._line:  # not a fence after all, because another backtick follows in its line
            self.span = self.fence
            self.fence = 0
            self._line = False
        if self.fence:
            if self._margin and run >= self.fence and not _is_word(behind):
                self.fence = 0
        elif self._margin and run >= _FENCE:
            self.fence = run
            self._line = behind != ord("\n")
            self.string = False
        elif self.span == run:
            self.span = 0
        elif not self.span:
            self.span = run

    def _read(self, buf: bytes, pos: int, at: int, end: int, margin: bool) -> None:
        while at < end:
            if not self._run:
                at = _next_mark(buf, at, end, self.span > 0 or self._line or self.string)
                if at == end:
                    return
                if buf[at] == ord("\n"):
                    self._forget_line()
                    at += 1
                    continue
                if buf[at] == ord('"'):
                    self.string = not (self.string or self.fence or self.span)
                    at += 1
                    continue
                self._margin = _at_margin(buf, pos, at, margin)
            while at < end and buf[at] == ord("`"):
                self._run += 1
                at += 1
            if at < end:
                self.end_run(buf[at])

    def _forget_line(self) -> None:
        self.span = 0
        self.string = self._line = False


def _next_mark(buf: bytes, at: int, end: int, ends: bool) -> int:
    """Returns the position of the next backtick or quotation mark (with `ends` also of a line end) before `end`, else
    `end`."""
    near = min(end, at + _BRIEF)
    while at < near:
        if buf[at] in b'`"' or (ends and buf[at] == ord("\n")):
            return at
        at += 1
    size = _BRIEF  # growing, so that no search goes much further than its result
    while at < end:
        size *= 2
        stop = min(end, at + size)
        found = octets.find(buf, ord("`"), at, octets.find(buf, ord('"'), at, stop))
        if ends:
            found = octets.find(buf, ord("\n"), at, found)
        if found < stop:
            return found
        at = stop
    return end


def _is_word(byte: int) -> bool:
    return byte in b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"


def _at_margin(buf: bytes, pos: int, at: int, margin: bool) -> bool:
    """Returns True if only blanks precede `at` in its line. `margin` says so for the position `pos`."""
    while at > pos and buf[at - 1] in b" \t":
        at -= 1
    return margin if at == pos else buf[at - 1] == ord("\n")
