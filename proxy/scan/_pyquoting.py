"""What is quoted in Markdown, in Python: the specification of `_fastquoting.pxi`. Part of the Python twin, see
`_pyparse.py`.

Rules of this module (after CommonMark, decided without looking ahead):

1. A run of ticks opens inline code; the next run of the same length, or the end of the line, ends it.
2. Three ticks or more at the start of a line, indentation aside, open a fence, if no other tick follows in that line.
   As many at the start of a line close it, if no word follows.
3. Outside of both, a quotation mark opens a string; the next one, or the end of the line, ends it.
4. What comes is read once, whatever its pieces are.
"""

from __future__ import annotations

import re
from typing import Final

_WORD: Final = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
_TICK: Final = ord("`")
_NEWLINE: Final = ord("\n")
_FENCE: Final = 3
_MARK: Final = re.compile(rb'[`"]')
_MARK_OR_END: Final = re.compile(rb'[`"\n]')


class Quoting:
    """Whether the text that was read ends in inline code (`span`: of so many ticks), in a fence (`fence`: of so many)
    or in a `string`."""

    __slots__ = ("_line", "_margin", "_run", "fence", "span", "string")

    def __init__(self) -> None:
        # `_line`: the fence was opened in this line. `_run`: ticks of the run that is read, which began at the start of
        # a line if `_margin`.
        self.fence = 0
        self.span = 0
        self.string = False
        self._line = False
        self._run = 0
        self._margin = False

    @property
    def active(self) -> bool:
        """Text without ticks and quotation marks matters."""
        return bool(self._run or self.span or self._line or self.string)

    @property
    def quotes(self) -> bool:
        """What comes next is in inline code or in a fence. No run is being read."""
        return bool(self.fence or self.span)

    def end_line(self) -> None:
        """The line ends here, or what counts as one."""
        self.end_run(_NEWLINE)
        self.span = 0
        self.string = self._line = False

    def read(self, buf: bytes, pos: int, end: int, margin: bool) -> None:
        """Take the text between `pos` and `end`. `margin`: it begins at the start of a line, indentation aside."""
        at = pos
        while at < end:
            if not self._run:
                ends = self.span or self._line or self.string
                found = (_MARK_OR_END if ends else _MARK).search(buf, at, end)
                if found is None:
                    return
                at = found.start()
                if buf[at] == _NEWLINE:
                    self.span = 0
                    self.string = self._line = False
                    at += 1
                    continue
                if buf[at] != _TICK:
                    self.string = not (self.string or self.fence or self.span)
                    at += 1
                    continue
                self._margin = _at_margin(buf, pos, at, margin)
            while at < end and buf[at] == _TICK:
                self._run += 1
                at += 1
            if at < end:
                self.end_run(buf[at])

    def end_run(self, behind: int) -> None:
        """The next byte is this one, which is no tick: so the run that is being read, if one is, ends."""
        run, self._run = self._run, 0
        if not run:
            return
        if self._line:  # no fence after all, since another tick stands in its line
            self.span, self.fence, self._line = self.fence, 0, False
        if self.fence:
            if self._margin and run >= self.fence and behind not in _WORD:
                self.fence = 0
        elif self._margin and run >= _FENCE:
            self.fence = run
            self._line = behind != _NEWLINE
            self.string = False
        else:
            self.span = 0 if self.span == run else self.span or run


def _at_margin(buf: bytes, pos: int, at: int, margin: bool) -> bool:
    """Whether nothing but blanks stands in the line before `at`; what stands before `pos` says `margin`."""
    while at > pos and buf[at - 1] in b" \t":
        at -= 1
    return margin if at == pos else buf[at - 1] == _NEWLINE
