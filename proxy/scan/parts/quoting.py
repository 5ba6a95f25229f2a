"""Text that is quoted in Markdown.

Rules of this module (after CommonMark, decided without looking ahead):

1. A run of backticks opens inline code; the next run of the same length, or the end of the line, ends it.
2. Three or more backticks or tildes at the start of a line (after indentation and marks of list items) open a fence,
   unless backticks are followed by another one in that line. As many of them at the start of a line (after indentation)
   close it, unless a word follows.
3. Outside both, a quotation mark opens a string; the next one, or the end of the line, ends it.
4. Each piece is read once, however the text is split.
"""

from __future__ import annotations

from typing import Final

from .. import octets

_FENCE: Final = 3
_TICK: Final = ord("`")
_BRIEF: Final = 32
"""Bytes that are compared one by one, because the next mark is usually near. After these, `octets.find` is used."""


class Quoting:
    """Tells whether the text read so far ends in inline code (`span`: its number of backticks), in a fence (`fence`:
    its number of backticks or tildes, which `fence_mark` tells) or in a `string`. `active`: also text without marks
    must be read."""

    __slots__ = ("_begins", "_line", "_mark", "_run", "active", "fence", "fence_mark", "span", "string")

    def __init__(self) -> None:
        # `_line`: the fence was opened in this line. `_run`: length of the pending run of backticks or tildes (`_mark`)
        # in a line that began with `_begins`.
        self.fence = 0
        self.span = 0
        self.string = False
        self.active = False
        self._line = False
        self._run = 0
        self._begins = octets.BLANK
        self._mark = self.fence_mark = _TICK

    def quotes(self) -> bool:
        """Returns True if the next character is in inline code or in a fence. Must not be called inside a run of
        backticks."""
        return self.fence > 0 or self.span > 0

    def end_line(self) -> None:
        """Ends the line: inline code and strings end with it, a fence continues."""
        self.end_run(ord("\n"))
        self._forget_line()
        self.active = False

    def read(self, buf: bytes, pos: int, end: int, begins: int) -> None:
        """Reads the text between `pos` and `end`. `begins`: what the line begins with before it."""
        at = pos if self.active else _next_mark(buf, pos, end, False)
        if at < end:
            self._read(buf, pos, at, end, begins)
            self.active = self._run > 0 or self.span > 0 or self._line or self.string

    def end_run(self, behind: int) -> None:
        """Ends a pending run of backticks or tildes before the byte `behind`, which is another one."""
        run = self._run
        if not run:
            return
        self._run = 0
        if self._line and self._mark == _TICK:  # not a fence after all: another backtick follows in its line
            self.span = self.fence
            self.fence = 0
            self._line = False
        if self.fence:
            if (
                self._begins == octets.BLANK
                and self._mark == self.fence_mark
                and run >= self.fence
                and not _is_word(behind)
            ):
                self.fence = 0
        elif self._begins <= octets.ITEM and run >= _FENCE:
            self.fence = run
            self.fence_mark = self._mark
            self._line = self._mark == _TICK and behind != ord("\n")
            self.string = False
        elif self._mark != _TICK:
            return
        elif self.span == run:
            self.span = 0
        elif not self.span:
            self.span = run

    def _read(self, buf: bytes, pos: int, at: int, end: int, begins: int) -> None:
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
                self._begins = _line_at(buf, pos, at, begins)
                self._mark = buf[at]
            while at < end and buf[at] == self._mark:
                self._run += 1
                at += 1
            if at < end:
                self.end_run(buf[at])

    def _forget_line(self) -> None:
        self.span = 0
        self.string = self._line = False


def _next_mark(buf: bytes, at: int, end: int, ends: bool) -> int:
    """Returns the position of the next backtick, tilde or quotation mark (with `ends` also of a line end) before `end`,
    else `end`."""
    near = min(end, at + _BRIEF)
    while at < near:
        byte = buf[at]
        if byte == ord('"') or byte == ord("`") or byte == ord("~") or (ends and byte == ord("\n")):
            return at
        at += 1
    size = _BRIEF  # growing, so that no search goes much further than its result
    while at < end:
        size *= 2
        stop = min(end, at + size)
        found = octets.find(buf, _TICK, at, octets.find(buf, ord('"'), at, octets.find(buf, ord("~"), at, stop)))
        if ends:
            found = octets.find(buf, ord("\n"), at, found)
        if found < stop:
            return found
        at = stop
    return end


def _is_word(byte: int) -> bool:
    return byte in b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"


def _line_at(buf: bytes, pos: int, at: int, begins: int) -> int:
    """Returns what the line with `at` begins with, before it, as far as that matters for a fence. `begins` says so for
    the position `pos`."""
    line = at
    while line > pos and buf[line - 1] in b" \t-*+.)0123456789":
        line -= 1
    if line > pos:
        if buf[line - 1] != ord("\n"):
            return octets.PROSE_LINE
        begins = octets.BLANK
    while line < at and begins < octets.PROSE_LINE:
        begins = octets.begins_with(begins, buf[line])
        line += 1
    return begins
