"""Results of server-side tools, for the request that continues an answer (R15.9).

A client sees and echoes only its own calls. The calls that the gateway ran before them, or beside them in the same
answer, are stored under the id of the first of the client's calls. The client's next request echoes that id, and the
gateway finds them by it. The last digits of such an id are a checksum of the others, so that other ids cost no look-up.

If no call of the client follows, or its protocol has other ids on the wire, the gateway's calls are stored with the
turn of the answer, if there is one: `StoredTurn.rounds`. They are stored in one of the two places, never in both.

Rules:

1. Nothing is stored without a store, with `store: false`, and for protocols without echoed ids. Then the model sees
   only the client's calls, and may call the gateway's tools again.
2. An unavailable store fails no answer and no request. It is logged and counted.
3. Stored calls belong to the client's key, like everything in the store. A conversation that continues from them
   extends their life. They are deleted with the response for which they were stored.
4. At most `MAX_BYTES` of one answer are stored: whole rounds, the latest ones. The model's text in them is left out,
   because the client got it in the answer.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import TYPE_CHECKING, Final

from ...call_policy.ids import new_call_id
from ...model import Message, ModelRequest, Part, ToolResult, ToolUse
from ...protocols.shared.turn import StoredTurn
from ...store.base import BudgetExceeded, ReadBudget, StoreUnavailable
from ...support.offload import weight
from .growth import read_budget, too_much
from .request_state import Exchange

if TYPE_CHECKING:
    from ..conversations.stored import Conversations

LOG: Final = logging.getLogger("toolwire.tools")

MAX_LOOKUPS: Final = 256
"""Maximum number of look-ups for one request, for its latest calls. Limited because a client can invent such ids."""
MAX_BYTES: Final = 4 * 1024 * 1024
"""Maximum bytes of the stored calls and results of one answer, as JSON."""
_FREE: Final = len("call_") + 24
_MARK_BYTES: Final = 4


def marked_id() -> str:
    """Returns a new call id under which results can be stored."""
    head = new_call_id()[:_FREE]
    return head + _mark(head)


def is_marked(call_id: str) -> bool:
    """Returns True if results may be stored under a call id. An ordinary id passes by chance once in four billion."""
    return len(call_id) == _FREE + 2 * _MARK_BYTES and call_id[_FREE:] == _mark(call_id[:_FREE])


def _mark(head: str) -> str:
    return blake2b(head.encode("utf-8", "replace"), digest_size=_MARK_BYTES).hexdigest()


@dataclass(frozen=True, slots=True)
class ToolMemory:
    """Server-side calls and results before a client's call. `before` holds complete rounds; `uses` are calls in the
    same answer as the client's, with their `results`."""

    before: Sequence[Message]
    uses: Sequence[ToolUse]
    results: Sequence[ToolResult]

    def unseen(self) -> tuple[Message, ...]:
        """Returns the calls and results to store, round by round (rule 4)."""
        rounds: list[list[Message]] = []
        for message in self.before:
            if message.role == "assistant":
                uses = tuple([part for part in message.parts if isinstance(part, ToolUse)])
                rounds += [[replace(message, parts=uses)]] if uses else []
            else:
                rounds[-1].append(message)
        if self.uses:
            rounds.append([Message("assistant", tuple(self.uses)), Message("tool", tuple(self.results))])
        left = MAX_BYTES
        for at in reversed(range(len(rounds))):
            left -= weight(rounds[at])
            if left < 0:
                LOG.warning("%d rounds of calls of server-side tools are too large to be stored", at + 1)
                rounds = rounds[at + 1 :]
                break
        return tuple([message for group in rounds for message in group])


class HiddenCalls(frozenset[str]):
    """Ids of server-side calls in a conversation that the client never got (`StoredTurn.rounds`). Kept in
    `Exchange.state`."""

    def without(self, messages: tuple[Message, ...]) -> tuple[Message, ...]:
        """Returns the messages without hidden calls; their results stay. Returns the same object if no call is
        hidden."""
        if not self:
            return messages
        seen = []
        for message in messages:
            parts = tuple([p for p in message.parts if not (isinstance(p, ToolUse) and p.call_id in self)])
            if parts or not message.parts:
                seen.append(message if len(parts) == len(message.parts) else replace(message, parts=parts))
        return tuple(seen)


def hidden_calls(turns: Iterable[StoredTurn]) -> HiddenCalls:
    """Returns the ids of the hidden calls of these turns."""
    parts = (part for turn in turns for message in turn.rounds for part in message.parts)
    return HiddenCalls([part.call_id for part in parts if isinstance(part, ToolUse)])


def note_rounds(exchange: Exchange, rounds: ToolMemory) -> None:
    """Notes server-side calls and results in the exchange, to be stored with its turn."""
    exchange.state[ToolMemory] = rounds


def noted_rounds(exchange: Exchange) -> tuple[Message, ...]:
    """Returns the rounds that `note_rounds` has noted, as messages to store with the turn (`StoredTurn.rounds`)."""
    rounds: ToolMemory | None = exchange.state.get(ToolMemory)
    return () if rounds is None else rounds.unseen()


def memory_ids(turn: StoredTurn) -> list[str]:
    """Returns the ids of the store's entries that may hold results for the calls in this turn."""
    parts = (part for message in turn.output for part in message.parts)
    return [f"kept_{part.call_id}" for part in parts if isinstance(part, ToolUse) and is_marked(part.call_id)]


def keeps(exchange: Exchange, conversations: Conversations) -> bool:
    """Returns True if results may be stored for this exchange (rule 1). The client's later calls do not matter here."""
    asked = exchange.body.get("store") is not False
    return conversations.keeps and asked and exchange.protocol.keeps_call_ids(exchange.write_options())


async def keep(exchange: Exchange, conversations: Conversations, call_id: str, rounds: ToolMemory) -> None:
    """Stores the rounds under the marked id of a client's call. A failure of the store is logged and counted."""
    messages = rounds.unseen()
    if not messages:
        return
    beside = len(messages) - 2 if rounds.uses else len(messages)
    now = time.time()
    turn = StoredTurn(
        id=f"kept_{call_id}",
        owner=exchange.owner,
        ancestors=(),
        input=messages[:beside],
        output=messages[beside:],
        status="kept",
        created=now,
        expires=now + conversations.max_age_s,
    )
    try:
        await conversations.put(turn)
    except StoreUnavailable as error:
        exchange.record.count("store_failures")
        LOG.error("request %s: results of server-side tools could not be stored: %s", exchange.id, error)


async def restored(exchange: Exchange, conversations: Conversations, request: ModelRequest) -> ModelRequest:
    """Returns the request with all stored calls and results put back in their positions; the same object if none are
    stored. Raises `ClientFault` `request_too_large` if the result exceeds the limit of a body (R33.2)."""
    messages = request.messages
    if not conversations.keeps:
        return request
    given = exchange.protocol.gateway_call_id
    marked = [(n, ident) for n, message in enumerate(messages) if (ident := _marked(message, given)) is not None]
    if not marked:
        return request
    limits = exchange.route.limits
    budget = read_budget(request, limits)
    turns: dict[str, StoredTurn | None] = {}
    found: dict[int, StoredTurn] = {}
    grown = request.grown
    try:
        for index, ident in marked[-MAX_LOOKUPS:]:
            turn = turns.get(ident)
            if turn is not None:
                budget.take_bytes(turn.size)
            elif ident not in turns:
                turn = turns[ident] = await _get(exchange, conversations, ident, budget)
            if turn is not None:
                found[index] = turn
                grown += turn.size
    except BudgetExceeded as error:
        raise too_much(error.kind, limits, None) from None
    live = [turn.id for turn in turns.values() if turn is not None]
    if not live:
        return request
    conversations.later(_prolong(exchange, conversations, live))
    out: list[Message] = []
    for index, message in enumerate(messages):
        turn = found.get(index)
        if turn is None:
            out.append(message)
            continue
        out += turn.input
        beside = turn.output
        out.append(replace(message, parts=_with_uses(message.parts, beside[0].parts)) if beside else message)
        out += beside[1:]
    return replace(request, messages=tuple(out), grown=grown)


async def _prolong(exchange: Exchange, conversations: Conversations, idents: Sequence[str]) -> None:
    """Extends the life of entries from which a conversation continues."""
    try:
        await conversations.prolong(idents, exchange.owner)
    except StoreUnavailable as error:
        exchange.record.count("store_failures")
        LOG.error("request %s: the life of results of server-side tools could not be extended: %s", exchange.id, error)


def _marked(message: Message, given: Callable[[str], str]) -> str | None:
    """Returns the id under which results for a message may be stored; None if no call of it has such an id. `given`
    converts the client's call id into the gateway's."""
    ids = (given(part.call_id) for part in message.parts if isinstance(part, ToolUse))
    return next((ident for ident in ids if is_marked(ident)), None)


async def _get(exchange: Exchange, conversations: Conversations, call_id: str, budget: ReadBudget) -> StoredTurn | None:
    try:
        return await conversations.get(f"kept_{call_id}", exchange.owner, budget)
    except StoreUnavailable as error:
        exchange.record.count("store_failures")
        LOG.error("request %s: results of server-side tools could not be loaded: %s", exchange.id, error)
        return None


def _with_uses(parts: tuple[Part, ...], uses: tuple[Part, ...]) -> tuple[Part, ...]:
    at = next(index for index, part in enumerate(parts) if isinstance(part, ToolUse))
    return (*parts[:at], *uses, *parts[at:])
