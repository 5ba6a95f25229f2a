"""What all stores share: a turn as bytes, how large it may be, and the key it is found by.

Rules:

1. What a turn looks like as JSON is said in `proxy.protocols.stored_form`. Half a character comes back as U+FFFD, as
   the client saw it.
2. A turn of more than `max_turn_bytes` is refused (`TurnTooLarge`), never cut.
3. The key is a hash of owner and id together: a turn cannot be found, counted or guessed without its owner, and
   whatever a client sends as an id (any length, any characters) is a valid look-up that finds nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from hashlib import sha256
from typing import Any, Final

from ..protocols.stored_form import UnknownForm, read_turn, write_turn
from ..protocols.turn import Turn
from ..protocols.wire import dump, dump_in_pieces, load
from ..support.bounded_json import count_values
from ..support.offload import OFFLOAD_BYTES, is_long, offload
from .base import ReadBudget, StoreUnavailable

MAX_TURNS: Final = 10_000
"""Turns that a store holds if nothing else is said (R12.1)."""
MAX_TURN_BYTES: Final = 64 * 1024 * 1024
"""Twice the default `limits.body_bytes`: what was let in as a request can be kept with its answer."""


class TurnTooLarge(StoreUnavailable):
    """The turn is larger than this store keeps. Trying again does not help."""

    def __init__(self, size: int, limit: int) -> None:
        super().__init__(f"the response and its input have {size} bytes, the store keeps at most {limit}")


async def encoded(turn: Turn, limit: int) -> bytes:
    """As `encode`, for stores that live on the event loop: large turns in a thread."""
    long = _is_long(turn)
    return await offload(long, encode, turn, limit, long)


async def decoded(text: bytes, budget: ReadBudget | None = None) -> Turn:
    """As `decode`, for the same: large turns in a thread."""
    return await offload(len(text) > OFFLOAD_BYTES, decode, text, budget)


def encode(turn: Turn, limit: int, long: bool | None = None) -> bytes:
    """A turn as JSON. Raises `TurnTooLarge` beyond `limit` bytes, `TypeError` if it holds what JSON cannot. `long`:
    whether it is written in pieces, if that is known."""
    kept = write_turn(turn)
    text = dump_in_pieces(kept) if long or (long is None and _is_long(turn)) else dump(kept)
    if turn.said:
        said = turn.said if isinstance(turn.said, bytes) else dump_in_pieces(turn.said)
        text = b"".join((text[:-1], b',"said":', said, b"}"))  # others run while it copies megabytes
    if len(text) > limit:
        raise TurnTooLarge(len(text), limit)
    return text


def _is_long(turn: Turn) -> bool:
    return is_long((turn.input, turn.output, turn.rounds, turn.extra))


def decode(text: bytes, budget: ReadBudget | None = None) -> Turn:
    """The turn in what `encode` gave. Takes its values from `budget`, whose bytes the caller has taken. Raises
    `StoreUnavailable` if it was damaged since, or if another version wrote it, and `BudgetExceeded`."""
    try:
        kept = load(text)
        if budget is not None:
            budget.take_values(count_values(_spoken(kept)))
        turn = read_turn(kept)
    except UnknownForm as error:
        raise StoreUnavailable(str(error)) from None
    except (ValueError, KeyError, TypeError, AttributeError):
        raise StoreUnavailable("a kept response is damaged and cannot be read") from None
    return replace(turn, size=len(text))


def _spoken(kept: Mapping[str, Any]) -> list[Any]:
    """The parts of a stored turn that a conversation goes on from. Tools and options, which each response echoes, do
    not become part of the next request."""
    said = kept.get("said") or {}
    resource = said.get("resource") or {}
    messages = (kept.get(name) for name in ("input", "output", "rounds"))
    return [*messages, said.get("input"), resource.get("output")]


def key_of(turn_id: str, owner: str) -> str:
    """What a turn is kept under: 64 hex digits."""
    return sha256(f"{len(owner)}:{owner}{turn_id}".encode("utf-8", "surrogatepass")).hexdigest()


def check_bounds(*bounds: int | None) -> None:
    """Raises `ValueError` unless each bound of a store is at least one, or None: there is none."""
    if min(bound for bound in bounds if bound is not None) < 1:
        raise ValueError("the bounds of a store must be at least 1")


def living_until(turn: Turn, expires: float) -> Turn:
    """The turn, kept longer than was said when it was put."""
    return turn if expires <= turn.expires else replace(turn, expires=expires)
