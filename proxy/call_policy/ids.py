"""Which ids calls get (C1).

Rule: an id is given out once in a conversation. Models begin to count anew in every turn, and servers make ids that say
nothing of the history; a client that got the same id twice would send a conversation that is refused (R2.7).
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable
from typing import Final

from toolwire.model import Message, ToolResult, ToolUse
from toolwire.support.repeated_ids import numbered

LONGEST_ID: Final = 256
"""A longer call id that a model wrote is not handed on: it would not be taken back."""


_GIVEN: Final = re.compile(r"(?:call|toolu)_[0-9a-f]{32}")


def new_call_id() -> str:
    """A fresh call id: `call_` and a UUID4 as 32 hex digits (C1)."""
    raw = bytearray(os.urandom(16))
    raw[6] = raw[6] & 0x0F | 0x40
    raw[8] = raw[8] & 0x3F | 0x80
    return f"call_{raw.hex()}"


def is_given(call_id: str) -> bool:
    """Whether an id has the form of `new_call_id`, or what a client with another prefix got to see of it
    (docs/adr/0030)."""
    return _GIVEN.fullmatch(call_id) is not None


class CallIds:
    """The ids of one answer's calls. `history` are the messages that the answer follows; `new_id` makes a fresh id.
    `numbers`: an id that was given out before gets a number behind it, and is no fresh one, since the server that wrote
    it is to get it back (R28.6)."""

    def __init__(
        self, history: Iterable[Message] = (), new_id: Callable[[], str] = new_call_id, *, numbers: bool = False
    ) -> None:
        self._history = history
        self._new_id = new_id
        self._numbers = numbers
        self._taken: set[str] | None = None

    def settle(self, written: str | None) -> str:
        """The id for a call that came with the id `written`: that one if nothing in the conversation has it, else a
        fresh one."""
        if not written or len(written) > LONGEST_ID:
            return self._new_id()
        if self._taken is None:  # most models write no ids, so most histories are never looked through
            self._taken = set(_known(self._history))
        if written in self._taken:
            if not self._numbers:
                return self._new_id()
            written = numbered(written, self._taken)
        self._taken.add(written)
        return written


def _known(history: Iterable[Message]) -> Iterable[str]:
    return (part.call_id for message in history for part in message.parts if isinstance(part, ToolUse | ToolResult))
