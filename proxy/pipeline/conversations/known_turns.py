"""Known turns: turns that were read for an earlier request of the conversation are not read again.

A request may name the response that it continues (`previous_response_id`) instead of sending the whole conversation.
`KnownTurns` caches the turns that were read for the latest requests, so that only the last turn of a conversation is
read and decoded. The messages of the others are the same objects as before, so later code can reuse its results for
them (`toolwire.known.past`).

Rules of this module:

1. A cached turn counts only while the store has it: every request asks for the presence of all of them, with one query.
   Finished turns never change, so nothing else has to be compared.
2. A read budget (R33.2) is charged as if all turns were read.
3. A continued conversation replaces its earlier version. A conversation that branches off is read once more.

Law: the same turns are returned with and without the cache.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final, NamedTuple

from aiohttp import web

from ...fastparse import bytes_of
from ...known.past import Past
from ...model import Message
from ...protocols.shared.turn import ANSWERED, StoredTurn
from ...store.base import ReadBudget
from ...support.cache import BudgetedCache
from ...support.offload import OFFLOAD_BYTES, offload
from .stored import Conversations


class Continuing(NamedTuple):
    """A request that continues a turn. `size` is the number of its bytes, `own` are its messages, `budget` is what it
    may read, and `reduced` returns a turn with only what later requests need of it."""

    size: int
    own: tuple[Message, ...]
    budget: ReadBudget
    reduced: Callable[[StoredTurn], StoredTurn]


class EarlierTurns(NamedTuple):
    """The turns before a request, oldest first, their bytes as stored, and the results of the conversation's earlier
    requests."""

    turns: tuple[StoredTurn, ...]
    bytes: int
    past: Past


class _Conversation(NamedTuple):
    """Cached turns, and their total of bytes, JSON values and memory. `own` are the messages of the latest request that
    continued them. `mark` identifies the entry."""

    turns: tuple[StoredTurn, ...]
    bytes: int
    values: int
    weight: int
    own: tuple[Message, ...]
    past: Past
    mark: object


class KnownTurns:
    """The turns of the latest conversations, as many as `cache` has room for."""

    def __init__(self, cache: BudgetedCache[_Conversation]) -> None:
        self._cache = cache

    async def read(self, source: Conversations, owner: str, ident: str, request: Continuing) -> EarlierTurns | None:
        """Returns the turn `ident` with those before it; None if any is missing. Raises `BudgetExceeded`, and
        `StoreUnavailable`."""
        budget = request.budget
        known = self._cache.get((owner, ident))
        read: tuple[StoredTurn, ...] = ()
        if known is None:
            last = await source.get(ident, owner, budget)
            if last is None:
                return None
            before = last.ancestors
            known = self._cache.get((owner, before[-1])) if before else None
            if known is not None:
                # the messages of the previous request, whose results are known, instead of equal ones
                read = (replace(last, input=known.own) if last.input == known.own else last,)
            else:
                earlier = await source.get_many(before, owner, budget) if before else ()
                if earlier is None:
                    return None
                read = (*earlier, last)
        if known is not None:
            budget.take_bytes(known.bytes)
            budget.take_values(known.values)
            if len(await source.present([(turn.id, owner) for turn in known.turns])) < len(known.turns):
                return None
        return await self._keep(known, tuple(map(request.reduced, read)), owner, request)

    async def _keep(
        self, known: _Conversation | None, turns: tuple[StoredTurn, ...], owner: str, request: Continuing
    ) -> EarlierTurns:
        """Caches the conversation of the `known` turns and of the `turns` after them."""
        number, values = sum([turn.size for turn in turns]), sum([turn.values for turn in turns])
        weighed = [(turn.messages, turn.wire_form) for turn in turns]
        weight = await offload(number > OFFLOAD_BYTES, bytes_of, weighed) + TURN_BYTES * len(turns)
        past = Past(request.size + number, None if known is None else known.past)
        if known is not None:
            turns = (*known.turns, *turns)
            number, values, weight = known.bytes + number, known.values + values, known.weight + weight
        if turns[-1].status in ANSWERED:
            if known is not None:
                self._cache.drop((owner, known.turns[-1].id))
            key, mark = (owner, turns[-1].id), object()
            conversation = _Conversation(turns, number, values, weight, request.own, past, mark)
            self._cache.put(key, conversation, weight + past.weight)

            def grown(by: int) -> None:  # must not refer to `past`: see `toolwire.ingress.known_conversations`
                entry = self._cache.get(key)
                if entry is not None and entry.mark is mark:
                    self._cache.grow(key, by)

            past.grown = grown
        return EarlierTurns(turns, number, past)


TURN_BYTES: Final = 500
"""Estimated memory of a turn without its messages, in bytes."""

KNOWN_TURNS: Final = web.AppKey("toolwire.known_turns", KnownTurns)
"""The known turns of an application."""
