"""The ids of calls (C1).

An id is used once per conversation. Models start counting again in every turn, and servers make ids without knowing the
history; a client that got an id twice would send a conversation that is refused (R2.7).
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable
from typing import Final

from ..model import Message, ToolResult, ToolUse
from ..protocols.shared.call_ids import numbered

LONGEST_ID: Final = 256
"""A longer call id from a model is replaced: requests with it would be refused."""


_GATEWAY_ID: Final = re.compile(r"(?:call|toolu)_[0-9a-f]{32}")


def new_call_id() -> str:
    """Returns a new call id: `call_` and a UUID4 as 32 hex digits (C1)."""
    raw = bytearray(os.urandom(16))
    raw[6] = raw[6] & 0x0F | 0x40
    raw[8] = raw[8] & 0x3F | 0x80
    return f"call_{raw.hex()}"


def is_gateway_id(call_id: str) -> bool:
    """Returns True if an id has the form of `new_call_id`, or the form with another prefix that some clients see (ADR
    30)."""
    return _GATEWAY_ID.fullmatch(call_id) is not None


class CallIds:
    """The ids of one answer's calls. `history` are the messages before the answer; `new_id` makes a new id. With
    `numbers`, an id that was used before gets a number appended instead of being replaced, because the server that
    wrote it must recognise it (R28.6)."""

    def __init__(
        self, history: Iterable[Message] = (), new_id: Callable[[], str] = new_call_id, *, numbers: bool = False
    ) -> None:
        self._history = history
        self._new_id = new_id
        self._numbers = numbers
        self._taken: set[str] | None = None

    def settle(self, written: str | None) -> str:
        """Returns `written` if it is usable and new in this conversation, else a new id."""
        if not written or len(written) > LONGEST_ID:
            return self._new_id()
        if self._taken is None:  # lazy, because most models write no ids
            self._taken = set(_known(self._history))
        if written in self._taken:
            if not self._numbers:
                return self._new_id()
            written = numbered(written, self._taken)
        self._taken.add(written)
        return written


def _known(history: Iterable[Message]) -> Iterable[str]:
    return (part.call_id for message in history for part in message.parts if isinstance(part, ToolUse | ToolResult))
