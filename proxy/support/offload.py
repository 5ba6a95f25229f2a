"""Runs large work in a thread, so that the event loop stays free, and small work directly.

The interpreter switches threads between two Python bytecodes, never inside one call of a C function. Work that runs
here must therefore not pass megabytes to such a function at once; see `toolwire.protocols.shared.wire.dump_in_pieces`.

A busy thread releases the interpreter after 5 ms (`sys.getswitchinterval`; 0.5 ms under `toolwire serve`). The event
loop may wait that long for each busy thread after each system call. So there are only `THREADS` for such work,
independent of the default executor.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from operator import attrgetter
from typing import Any, Final, TypeVar
from weakref import WeakKeyDictionary

from ..model import (
    Attempt,
    Image,
    Message,
    ModelReply,
    ModelRequest,
    OpaquePart,
    Reasoning,
    Refusal,
    ReplyChoice,
    Text,
    ToolResult,
    ToolSpec,
    ToolUse,
)

T = TypeVar("T")

OFFLOAD_BYTES: Final = 64 * 1024
"""A longer body is large: work on it is done in a thread."""

KNOWN_BYTES: Final = 512 * 1024
"""A longer body is slow even if most of it is known: its results may be for another route, so all work is repeated."""

OFFLOAD_OBJECTS: Final = 256
"""A shorter body with more objects is large too: finding the mistake in it takes up to 50 us per object."""

OFFLOAD_MESSAGES: Final = 512
"""A conversation with more messages is large too, even if the body is short and continues a stored one."""

OBJECT_BYTES: Final = 64
"""Bytes that `is_long` counts for each message and each part, beside its text. Writing 1,024 takes up to 50 ms."""

THREADS: Final = 2
"""Number of threads for large work."""

_HELD: Final[Mapping[type, Callable[[Any], tuple[object, ...]]]] = {
    Message: attrgetter("parts", "extra"),
    ModelReply: attrgetter("choices", "extra"),
    ToolUse: attrgetter("arguments", "extra"),
    ToolResult: attrgetter("parts", "extra"),
    Image: attrgetter("url", "extra"),
    OpaquePart: attrgetter("payload", "protocol"),
    ReplyChoice: attrgetter("parts", "extra"),
    ToolSpec: attrgetter("parameters", "description", "name"),
    **dict.fromkeys((Text, Attempt, Refusal, Reasoning), attrgetter("text", "extra")),
}
"""Fields of each model class that may be long."""
_SHORT: Final = frozenset({int, float, bool})


def is_large(request: ModelRequest, *, reused: bool = False) -> bool:
    """True if work on the request would take milliseconds. `reused`: the work reuses results of the previous request
    (`toolwire.known.past`), so with such results only the new bytes count."""
    origin = request.origin
    if (
        reused
        and origin is not None
        and origin.size <= KNOWN_BYTES
        and origin.past is not None
        and request.past is not None
    ):
        return origin.new + request.grown > OFFLOAD_BYTES
    if origin is None and not request.grown:  # built by code instead of parsed from a body, so its size is unknown
        return len(request.messages) > OFFLOAD_MESSAGES or is_long(request.messages)
    size = request.grown if origin is None else origin.size + request.grown
    return size > OFFLOAD_BYTES or len(request.messages) > OFFLOAD_MESSAGES


def is_long(value: object) -> bool:
    """True if the JSON of `value`, which may hold messages, has more than about `OFFLOAD_BYTES`. Stops counting
    there."""
    return weight(value, OFFLOAD_BYTES, OBJECT_BYTES) > OFFLOAD_BYTES


def weight(value: object, most: int = sys.maxsize, each: int = 0) -> int:
    """Returns the approximate number of bytes of `value` as JSON; it may hold messages, which count `each` beside their
    content, and so do their parts. Stops counting beyond `most`."""
    total = 0
    todo = [value]
    while todo and total <= most:
        item = todo.pop()
        if not item:
            continue
        kind = type(item)
        if (held := _HELD.get(kind)) is not None:
            total += each
            todo += held(item)
        elif isinstance(item, str):
            short = item.isascii() or len(item) > most
            total += len(item) if short else len(item.encode("utf-8", "surrogatepass"))
        elif isinstance(item, list | tuple):
            total += 8 * len(item)
            todo += item
        elif kind is dict or (kind not in _SHORT and isinstance(item, Mapping)):  # asking an `int` is slow
            total += 8 * len(item)  # type: ignore[arg-type]
            todo += item.values()  # type: ignore[attr-defined]
    return total


_THREADS: Final[WeakKeyDictionary[asyncio.AbstractEventLoop, ThreadPoolExecutor]] = WeakKeyDictionary()
"""By event loop, because all applications of a loop share one interpreter."""


def _in_threads(work: Callable[..., T], *args: object) -> asyncio.Future[T]:
    """Starts `work` in one of the threads of the running loop and returns its future. Calls start in order."""
    loop = asyncio.get_running_loop()
    threads = _THREADS.get(loop)
    if threads is None:
        threads = _THREADS[loop] = ThreadPoolExecutor(THREADS, "toolwire-large")
    return loop.run_in_executor(threads, partial(copy_context().run, work, *args))


async def offload(large: bool, work: Callable[..., T], *args: object) -> T:
    """Returns the result of `work(*args)`, computed in a thread if `large`. On the hot path callers check `large`
    themselves, because awaiting a coroutine that only calls a function is too slow there."""
    return await _in_threads(work, *args) if large else work(*args)


async def in_thread(work: Callable[..., T], *args: object) -> T:
    """Returns the result of `work(*args)`, computed in a thread. If the caller is cancelled, waits until the thread has
    finished, so nothing uses the arguments afterwards."""
    working = asyncio.ensure_future(_in_threads(work, *args))
    try:
        return await asyncio.shield(working)
    except asyncio.CancelledError:
        while not working.done():
            with suppress(asyncio.CancelledError):
                await asyncio.wait({working})
        raise
