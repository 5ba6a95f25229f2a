"""What is quoted in Markdown, in Python: the specification of `_fastquoting.pxi`. Part of the Python twin, see
`_pyparse.py`.

Rules of this module (after CommonMark, decided without looking ahead):

1. A run of ticks opens inline code; the next run of the same length, or the end of the line, ends it.
2. Three ticks or more at the start of a line, indentation aside, open a fence, if no other tick follows in that line.
   As many at the start of a line close it, if no word follows.
3. What comes is read once, whatever its pieces are.
"""

from __future__ import annotations

from typing import Final

_WORD: Final = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
_TICK: Final = ord("`")
_NEWLINE: Final = ord("\n")
_FENCE: Final = 3


class Quoting:
    """Whether the text that was read ends in inline code or in a fence."""

    __slots__ = ("_fence", "_line", "_margin", "_run", "_span")

    def __init__(self) -> None:
        # `_fence`, `_span`: ticks of what is open. `_line`: the fence was opened in this line. `_run`: ticks of the run
        # that is read, which began at the start of a line if `_margin`.
        self._fence = 0
        self._span = 0
        self._line = False
        self._run = 0
        self._margin = False

    @property
    def active(self) -> bool:
        """Text without ticks matters."""
        return bool(self._run or self._span or self._line)

    @property
    def quotes(self) -> bool:
        """What comes next is quoted. No run is being read."""
        return bool(self._fence or self._span)

    def end_line(self) -> None:
        """The line ends here, or what counts as one."""
        self.end_run(_NEWLINE)
        self._span = 0
        self._line = False

    def read(self, buf: bytes, pos: int, end: int, margin: bool) -> None:
        """Take the text between `pos` and `end`. `margin`: it begins at the start of a line, indentation aside."""
        at = pos
        while at < end:
            tick = at
            if not self._run:
                tick = buf.find(b"`", at, end)
                stop = tick if tick >= 0 else end
                if (self._span or self._line) and buf.find(b"\n", at, stop) >= 0:
                    self._span = 0
                    self._line = False
                if tick < 0:
                    return
                self._margin = _at_margin(buf, pos, tick, margin)
            at = tick
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
            self._span, self._fence, self._line = self._fence, 0, False
        if self._fence:
            if self._margin and run >= self._fence and behind not in _WORD:
                self._fence = 0
        elif self._margin and run >= _FENCE:
            self._fence = run
            self._line = behind != _NEWLINE
        else:
            self._span = 0 if self._span == run else self._span or run


def _at_margin(buf: bytes, pos: int, at: int, margin: bool) -> bool:
    """Whether nothing but blanks stands in the line before `at`; what stands before `pos` says `margin`."""
    while at > pos and buf[at - 1] in b" \t":
        at -= 1
    return margin if at == pos else buf[at - 1] == _NEWLINE
