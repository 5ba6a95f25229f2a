"""Common parts of all stores: turns as bytes, their maximum size, and their keys.

Rules:

1. `toolwire.protocols.stored.json_form` defines the JSON of a turn. Lone surrogates are read back as U+FFFD, as the
   client saw them.
2. A turn of more than `max_turn_bytes` is refused (`TurnTooLarge`), never truncated.
3. The key is a hash of owner and id: a turn cannot be found, counted or guessed without its owner, and any id that a
   client sends (of any length, with any characters) is a valid lookup.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from hashlib import sha256
from typing import Any, Final

from ..protocols.shared.turn import StoredTurn
from ..protocols.shared.wire import dump, dump_in_pieces, load
from ..protocols.stored.json_form import UnknownForm, read_turn, write_turn
from ..support.bounded_json import count_values
from ..support.offload import OFFLOAD_BYTES, is_long, offload
from .base import ReadBudget, StoreUnavailable

MAX_TURNS: Final = 10_000
"""Default maximum number of turns in a store (R12.1)."""
MAX_TURN_BYTES: Final = 64 * 1024 * 1024
"""Twice the default of `limits.body_bytes`, so that every accepted request can be stored with its answer."""
WIRE_FORM_KEY: Final = b'{"said":'
"""The beginning of the JSON of a turn that is stored in its protocol's form (`StoredTurn.wire_form`)."""


class TurnTooLarge(StoreUnavailable):
    """The turn is larger than this store accepts. Retrying does not help."""

    def __init__(self, size: int, limit: int) -> None:
        super().__init__(f"the response and its input have {size} bytes, the store keeps at most {limit}")


async def encoded(turn: StoredTurn, limit: int) -> bytes:
    """Like `encode`, for stores on the event loop: encodes large turns in a thread."""
    long = _is_long(turn)
    return await offload(long, encode, turn, limit, long)


async def decoded(text: bytes, budget: ReadBudget | None = None) -> StoredTurn:
    """Like `decode`, for stores on the event loop: decodes large turns in a thread."""
    return await offload(len(text) > OFFLOAD_BYTES, decode, text, budget)


def encode(turn: StoredTurn, limit: int, long: bool | None = None) -> bytes:
    """Returns a turn as JSON. Raises `TurnTooLarge` beyond `limit` bytes, and `TypeError` for values that JSON cannot
    express. `long`: whether to write in pieces; None: decided by size."""
    rest = encode_rest(turn, limit, long)
    # Joining megabytes releases the interpreter.
    return rest if turn.beginning is None else b"".join((WIRE_FORM_KEY, *turn.beginning.pieces, rest))


def encode_rest(turn: StoredTurn, limit: int, long: bool | None = None) -> bytes:
    """Like `encode`, without `WIRE_FORM_KEY` and the pieces of the turn's beginning, if it has one; `limit` includes
    these."""
    fields = write_turn(turn)
    text = dump_in_pieces(fields) if long or (long is None and _is_long(turn)) else dump(fields)
    if turn.wire_form:
        # It comes first: it begins with the input, which turns of a conversation share.
        wire_form = turn.wire_form if isinstance(turn.wire_form, bytes) else dump_in_pieces(turn.wire_form)
        text = b"".join((WIRE_FORM_KEY if turn.beginning is None else b"", wire_form, b",", text[1:]))
    size = len(text) + (0 if turn.beginning is None else len(WIRE_FORM_KEY) + turn.beginning.length)
    if size > limit:
        raise TurnTooLarge(size, limit)
    return text


def _is_long(turn: StoredTurn) -> bool:
    return is_long((turn.input, turn.output, turn.rounds, turn.extra))


def decode(text: bytes, budget: ReadBudget | None = None) -> StoredTurn:
    """Returns the turn in the bytes of `encode`. Takes its values from `budget`; the caller has taken the bytes. Raises
    `StoreUnavailable` for damaged bytes or another version's form, and `BudgetExceeded`."""
    try:
        fields = load(text)
        values = 0
        if budget is not None:
            values = count_values(_conversation_parts(fields))
            budget.take_values(values)
        turn = read_turn(fields)
    except UnknownForm as error:
        raise StoreUnavailable(str(error)) from None
    except (ValueError, KeyError, TypeError, AttributeError):
        raise StoreUnavailable("a stored response is damaged and cannot be read") from None
    return replace(turn, size=len(text), values=values)


def _conversation_parts(fields: Mapping[str, Any]) -> list[Any]:
    """Returns the parts of a stored turn that become part of the next request. Tools and options, which each response
    echoes, do not."""
    wire_form = fields.get("said") or {}
    resource = wire_form.get("resource") or {}
    messages = (fields.get(name) for name in ("input", "output", "rounds"))
    return [*messages, wire_form.get("input"), resource.get("output")]


def key_of(turn_id: str, owner: str) -> str:
    """Returns the key of a turn in a store: 64 hex digits."""
    return sha256(f"{len(owner)}:{owner}{turn_id}".encode("utf-8", "surrogatepass")).hexdigest()


def check_bounds(*bounds: int | None) -> None:
    """Raises `ValueError` for a bound below 1. None means no bound."""
    if min(bound for bound in bounds if bound is not None) < 1:
        raise ValueError("the bounds of a store must be at least 1")


def with_expiry(turn: StoredTurn, expires: float) -> StoredTurn:
    """Returns the turn with a later expiry, if `expires` is later than its own."""
    return turn if expires <= turn.expires else replace(turn, expires=expires)
