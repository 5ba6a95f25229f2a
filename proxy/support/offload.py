"""Work that grows with a request: on a small one it is done at once, on a large one in a thread, so that others are
served meanwhile.

The interpreter gives every thread its turn between two steps of Python, but not inside of one. So nothing that is
called this way may give megabytes at once to a function that keeps the interpreter: see `proxy.ingress.bodies`,
`proxy.protocols.wire.dump_in_pieces`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from operator import attrgetter
from typing import Any, Final, TypeVar

from ..model import (
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
    ToolUse,
)

T = TypeVar("T")

OFFLOAD_BYTES: Final = 64 * 1024
"""A body beyond this is large."""

OFFLOAD_MESSAGES: Final = 512
"""So is a conversation of more messages, which a short body may go on from."""


_HELD: Final[Mapping[type, Callable[[Any], tuple[object, ...]]]] = {
    Message: attrgetter("parts", "extra"),
    ModelReply: attrgetter("choices", "extra"),
    ReplyChoice: attrgetter("parts", "extra"),
    ToolUse: attrgetter("arguments", "extra"),
    ToolResult: attrgetter("parts", "extra"),
    Image: attrgetter("url", "extra"),
    Opaque: attrgetter("payload", "protocol"),
    **dict.fromkeys((Text, Attempt, Refusal, Reasoning), attrgetter("text", "extra")),
}
"""What of a message, or of an answer, may be long."""
_SHORT: Final = frozenset({int, float, bool})


def is_large(request: ModelRequest) -> bool:
    """Whether work that looks at all of this request takes milliseconds."""
    origin = request.origin
    return (origin is not None and origin.size > OFFLOAD_BYTES) or len(request.messages) > OFFLOAD_MESSAGES


def is_long(value: object) -> bool:
    """Whether JSON of this value, which may hold messages, has more than about `OFFLOAD_BYTES`. Looks no further than
    that."""
    left = OFFLOAD_BYTES
    todo = [value]
    while todo:
        item = todo.pop()
        if not item:
            continue
        kind = type(item)
        if kind in _SHORT:
            continue
        if isinstance(item, str):
            left -= len(item)
        elif (held := _HELD.get(kind)) is not None:
            todo += held(item)
        elif kind is dict or isinstance(item, Mapping):
            left -= 8 * len(item)  # type: ignore[arg-type]
            todo += item.values()  # type: ignore[attr-defined]
        elif isinstance(item, list | tuple):
            left -= 8 * len(item)
            todo += item
        if left < 0:
            return True
    return False


async def offload(large: bool, work: Callable[..., T], *args: object) -> T:
    """What `work` gives for `args`: from a thread if it is `large`. (Where every request comes by, the question is
    asked before: so much does a coroutine cost that only calls.)"""
    return await asyncio.to_thread(work, *args) if large else work(*args)


async def in_thread(work: Callable[..., T], *args: object) -> T:
    """What `work` gives for `args`, from a thread. It has ended when this has, also for who is cancelled: what it works
    on is theirs again."""
    working = asyncio.ensure_future(asyncio.to_thread(work, *args))
    try:
        return await asyncio.shield(working)
    except asyncio.CancelledError:
        while not working.done():
            with suppress(asyncio.CancelledError):
                await asyncio.wait({working})
        raise
