"""What tools print goes nowhere: a full pipe or terminal must block nobody, and standard error is for the gateway's own
lines.

Only what goes through `sys.stdout` and `sys.stderr` in the threads of tools; a handler that writes to the file
descriptor itself, or starts a program that does, is not stopped.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, TextIO

_HERE: Final = threading.local()


class _Filter:
    """A standard stream that leads nowhere for threads of tools. For all others it is the stream behind it.

    There is one for all applications of a process, as there is one standard stream.
    """

    def __init__(self, behind: TextIO) -> None:
        self.users = 0
        self.behind = behind
        self.nowhere = open(os.devnull, "w", encoding="utf-8", errors="replace")  # noqa: SIM115  # closed by the last user

    def __getattr__(self, name: str) -> Any:
        return getattr(self.nowhere if getattr(_HERE, "silent", False) else self.behind, name)


@contextmanager
def silenced() -> Iterator[None]:
    """What this thread prints meanwhile is dropped, provided `filter_streams` is on."""
    _HERE.silent = True
    try:
        yield
    finally:
        _HERE.silent = False


def filter_streams() -> Callable[[], None]:
    """Put filters around the standard streams. Gives what removes them, if nobody else needs them."""
    held: list[tuple[str, _Filter]] = []
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:  # a program without a console
            continue
        if not isinstance(stream, _Filter):
            stream = _Filter(stream)
            setattr(sys, name, stream)
        stream.users += 1
        held.append((name, stream))

    def undo() -> None:
        for name, stream in held:
            stream.users -= 1
            if not stream.users:
                if getattr(sys, name) is stream:
                    setattr(sys, name, stream.behind)
                stream.nowhere.close()

    return undo
