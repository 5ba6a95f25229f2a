"""What tools print in threads of the gateway goes to the log: a full pipe or terminal must block nobody, and standard
error is for the gateway's own lines.

Only what goes through `sys.stdout` and `sys.stderr` in the threads of tools; a handler that writes to the file
descriptor itself, or starts a program that does, is not stopped. In worker processes nothing of this is needed.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final, TextIO, cast

from .printed import Printed

_STREAM: Final[ContextVar[TextIO | None]] = ContextVar("toolwire_printing", default=None)


class _Sink(io.BufferedIOBase):
    """Bytes of a call, for the log."""

    def __init__(self, printed: Printed) -> None:
        self._printed = printed

    def writable(self) -> bool:
        """See `io.IOBase`."""
        return True

    def write(self, data: Any, /) -> int:
        """See `io.BufferedIOBase`."""
        before = _STREAM.set(None)  # a handler of the log may write to `sys.stderr`
        try:
            self._printed.feed(bytes(data))
        finally:
            _STREAM.reset(before)
        return len(data)


class _Filter:
    """A standard stream that leads to the log for what runs in `printing`. For all else it is the stream behind it.

    There is one for all applications of a process, as there is one standard stream.
    """

    def __init__(self, behind: TextIO) -> None:
        self.users = 0
        self.behind = behind

    def __getattr__(self, name: str) -> Any:
        return getattr(_STREAM.get() or self.behind, name)


@contextmanager
def printing(who: str, fields: Mapping[str, Any]) -> Iterator[None]:
    """What this thread or task prints meanwhile goes to the log under this name, provided `filter_streams` is on."""
    printed = Printed(who, fields)
    stream = io.TextIOWrapper(
        cast("io.BufferedWriter", _Sink(printed)), "utf-8", "backslashreplace", write_through=True
    )
    before = _STREAM.set(stream)
    try:
        yield
    finally:
        _STREAM.reset(before)
        printed.end()


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
            if not stream.users and getattr(sys, name) is stream:
                setattr(sys, name, stream.behind)

    return undo
