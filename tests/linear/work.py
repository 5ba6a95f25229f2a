"""The work of functions of the package, counted: their lines, and the characters that searches look at."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any, Final

import toolwire

PACKAGE: Final = str(Path(toolwire.__file__).parent)


class _Counted:
    """A text whose searches are counted, and those of its pieces."""

    looked = 0
    """Characters that searches have looked at, of all texts."""

    def _look(self, found: int, size: int, start: Any = 0, end: Any = None) -> int:
        begin, stop, _ = slice(start, end).indices(size)
        _Counted.looked += (found - begin) if found >= 0 else max(0, stop - begin)
        return found


class CountedBytes(_Counted, bytes):
    """Bytes whose searches are counted."""

    def find(self, what: Any, *place: Any) -> int:
        """See `bytes`."""
        return self._look(bytes.find(self, what, *place), len(self), *place)

    def __contains__(self, what: Any) -> bool:
        return self.find(what) >= 0

    def __getitem__(self, place: Any) -> Any:
        found = bytes.__getitem__(self, place)
        return CountedBytes(found) if isinstance(place, slice) else found


class CountedText(_Counted, str):
    """A text whose searches are counted."""

    __slots__ = ()

    def find(self, what: Any, *place: Any) -> int:
        """See `str`."""
        return self._look(str.find(self, what, *place), len(self), *place)

    def __contains__(self, what: Any) -> bool:
        return self.find(what) >= 0

    def __getitem__(self, place: Any) -> str:
        return CountedText(str.__getitem__(self, place))


def work(function: Callable[[], object]) -> int:
    """Lines of the package that a call runs, and characters that its searches look at."""
    lines = 0

    def count(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal lines
        lines += event == "line"
        return count

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        return count if frame.f_code.co_filename.startswith(PACKAGE) else None

    _Counted.looked = 0
    before = sys.gettrace()
    sys.settrace(trace)
    try:
        function()
    finally:
        sys.settrace(before)
    return lines + _Counted.looked


def calls(function: Callable[[], object], module: str) -> int:
    """Functions that modules whose names begin so call while it runs, C functions included. Others do not count: the
    garbage collector's callbacks (hypothesis has one) run whenever they like."""
    made = 0

    def count(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal made
        made += event in ("call", "c_call") and frame.f_globals.get("__name__", "").startswith(module)

    sys.setprofile(count)
    try:
        function()
    finally:
        sys.setprofile(None)
    return made
