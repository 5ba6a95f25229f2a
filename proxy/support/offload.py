"""Work that grows with a request: on a small one it is done at once, on a large one in a thread, so that others are
served meanwhile.

The interpreter gives every thread its turn between two steps of Python, but not inside of one. So nothing that is
called this way may give megabytes at once to a function that keeps the interpreter: see
`toolwire.protocols.shared.wire.dump_in_pieces`.

A thread that is busy gives the interpreter up after 5 ms (`sys.getswitchinterval`; 0.5 ms under `toolwire serve`), so
the event loop may wait that long for each of them, after each call to the system. There are only `THREADS` for such
work, whatever else the default executor does.
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

from toolwire.model import (
    Attempt,
    Image,
    Message,
    ModelReply,
    ModelRequest,
    Opaque,
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
"""A body beyond this is large."""

KNOWN_BYTES: Final = 512 * 1024
"""A larger conversation is large even if nearly all of it is known: for another route all has to be done again."""

OFFLOAD_OBJECTS: Final = 256
"""So is a shorter body of more objects: naming the mistake in it takes up to 50 us for each."""

OFFLOAD_MESSAGES: Final = 512
"""So is a conversation of more messages, which a short body may go on from."""

THREADS: Final = 2
"""Pieces of large work that run at once."""

_HELD: Final[Mapping[type, Callable[[Any], tuple[object, ...]]]] = {
    Message: attrgetter("parts", "extra"),
    ModelReply: attrgetter("choices", "extra"),
    ToolUse: attrgetter("arguments", "extra"),
    ToolResult: attrgetter("parts", "extra"),
    Image: attrgetter("url", "extra"),
    Opaque: attrgetter("payload", "protocol"),
    ReplyChoice: attrgetter("parts", "extra"),
    ToolSpec: attrgetter("parameters", "description", "name"),
    **dict.fromkeys((Text, Attempt, Refusal, Reasoning), attrgetter("text", "extra")),
}
"""Fields of a message, an answer or a tool that may be long."""
_SHORT: Final = frozenset({int, float, bool})


def is_large(request: ModelRequest) -> bool:
    """Whether work that looks at all of this request takes milliseconds."""
    origin = request.origin
    if origin is None and not request.grown:  # made by a program, so nobody has measured it
        return len(request.messages) > OFFLOAD_MESSAGES or is_long(request.messages)
    size = request.grown if origin is None else origin.size + request.grown
    return size > OFFLOAD_BYTES or len(request.messages) > OFFLOAD_MESSAGES


def is_slow(request: ModelRequest) -> bool:
    """As `is_large`, for work that goes on from where it came to in the request before (`toolwire.known.past`): what is
    new decides."""
    origin = request.origin
    if origin is None or origin.past is None or request.past is None or origin.size > KNOWN_BYTES:
        return is_large(request)
    return origin.new + request.grown > OFFLOAD_BYTES


def is_long(value: object) -> bool:
    """Whether JSON of this value, which may hold messages, has more than about `OFFLOAD_BYTES`. Looks no further than
    that."""
    return weight(value, OFFLOAD_BYTES) > OFFLOAD_BYTES


def weight(value: object, most: int = sys.maxsize) -> int:
    """About how many bytes JSON of this value has, which may hold messages. Looks no further than `most`."""
    found = 0
    todo = [value]
    while todo and found <= most:
        item = todo.pop()
        if not item:
            continue
        kind = type(item)
        if kind in _SHORT:
            continue
        if isinstance(item, str):
            short = item.isascii() or len(item) > most
            found += len(item) if short else len(item.encode("utf-8", "surrogatepass"))
        elif (held := _HELD.get(kind)) is not None:
            todo += held(item)
        elif kind is dict or isinstance(item, Mapping):
            found += 8 * len(item)  # type: ignore[arg-type]
            todo += item.values()  # type: ignore[attr-defined]
        elif isinstance(item, list | tuple):
            found += 8 * len(item)
            todo += item
    return found


_THREADS: Final[WeakKeyDictionary[asyncio.AbstractEventLoop, ThreadPoolExecutor]] = WeakKeyDictionary()
"""By event loop: the applications of a loop wait for one interpreter."""


def _in_threads(work: Callable[..., T], *args: object) -> asyncio.Future[T]:
    """`work` in one of the `THREADS` of the running loop, in the order of the calls."""
    loop = asyncio.get_running_loop()
    threads = _THREADS.get(loop)
    if threads is None:
        threads = _THREADS[loop] = ThreadPoolExecutor(THREADS, "toolwire-large")
    return loop.run_in_executor(threads, partial(copy_context().run, work, *args))


async def offload(large: bool, work: Callable[..., T], *args: object) -> T:
    """Returns what `work` returns for `args`: from a thread if it is `large`. (On the way of every request the caller
    asks before: a coroutine that only calls is too expensive there.)"""
    return await _in_threads(work, *args) if large else work(*args)


async def in_thread(work: Callable[..., T], *args: object) -> T:
    """Returns what `work` returns for `args`, from a thread. The thread has ended when this has, also for a caller that
    is cancelled: then nothing else uses the arguments."""
    working = asyncio.ensure_future(_in_threads(work, *args))
    try:
        return await asyncio.shield(working)
    except asyncio.CancelledError:
        while not working.done():
            with suppress(asyncio.CancelledError):
                await asyncio.wait({working})
        raise
