"""Things that the tests of all stores share: turns, and a clock that moves only when told."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from toolwire.model import Message, Text, ToolUse, scoped
from toolwire.protocols.shared.turn import StoredTurn, TurnStatus
from toolwire.store.base import ReadBudget, ResponseStore

START = 1_800_000_000.0
HOUR = 3_600.0
DAY = 24 * HOUR


class Clock:
    """Unix seconds that stand still."""

    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> float:
        return self.now


def turn(
    ident: str,
    *,
    owner: str = "alice",
    ancestors: Sequence[str] = (),
    text: str = "hello",
    status: TurnStatus = "completed",
    expires: float = START + DAY,
    **more: Any,
) -> StoredTurn:
    """A turn as the gateway would make it, in the form in which it comes back."""
    return StoredTurn(
        id=ident,
        owner=owner,
        ancestors=tuple(ancestors),
        input=(Message("user", (Text(text),)),),
        output=(Message("assistant", (Text("Yes."), ToolUse("call_1", "look", "{}"))),),
        status=status,
        extra=scoped("responses", more),
        created=START,
        expires=expires,
    )


async def chain_of(
    store: ResponseStore, ident: str, owner: str, budget: ReadBudget | None = None
) -> tuple[StoredTurn, ...] | None:
    """The conversation up to a turn, oldest first; None if one of its turns is missing."""
    last = await store.get(ident, owner, budget)
    earlier = None if last is None else await store.get_many(last.ancestors, owner, budget)
    return None if last is None or earlier is None else (*earlier, last)
