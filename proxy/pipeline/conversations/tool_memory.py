"""Results of server-side tools, for the request that continues an answer (R15.9).

A client sees and echoes only its own calls. The calls that the gateway ran before them, or beside them in the same
answer, are kept in the response store under the id of the first of the client's calls. The client echoes that id and so
leads back to them. Such an id is an ordinary one whose last digits are a function of the others, so that no other id
costs a look-up.

If no call of the client follows, or its calls have other ids on the wire, the gateway's calls belong to the stored turn
of the answer, if there is one: `StoredTurn.rounds`. They are kept in one of the two places, never in both.

Rules:

1. Nothing is kept if no answer can be continued, if the client says `store: false`, and without a store. Then the model
   sees only the client's calls, and may call its tools again.
2. An unavailable store fails no answer and no request. It is logged and counted.
3. Kept calls belong to the key that asked, like everything in the store. They live as long as a conversation continues
   from them, and are deleted with the response for which they were kept.
4. Of one answer at most `MAX_CHARS` are kept: whole rounds, the latest ones. Text of the model in them is not kept,
   because the client has seen it in the answer.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import TYPE_CHECKING, Final

from ...call_policy.ids import new_call_id
from ...model import Image, Message, ModelRequest, Part, Text, ToolResult, ToolUse
from ...protocols.shared.turn import StoredTurn
from ...store.base import BudgetExceeded, ReadBudget, StoreUnavailable
from ..exchange.exchange import Exchange
from ..exchange.growth import read_budget, too_much

if TYPE_CHECKING:
    from .stored import Conversations

LOG: Final = logging.getLogger("toolwire.tools")

MAX_LOOKUPS: Final = 256
"""For one request, the latest ones: anybody can make such ids."""
MAX_CHARS: Final = 4 * 1024 * 1024
"""Characters of arguments and results together."""
_FREE: Final = len("call_") + 24
_MARK_BYTES: Final = 4


def marked_id() -> str:
    """A call id that may have something kept under it."""
    head = new_call_id()[:_FREE]
    return head + _mark(head)


def is_marked(call_id: str) -> bool:
    """Whether a call id may have something kept under it; one in four thousand million others is taken for one."""
    return len(call_id) == _FREE + 2 * _MARK_BYTES and call_id[_FREE:] == _mark(call_id[:_FREE])


def _mark(head: str) -> str:
    return blake2b(head.encode("utf-8", "replace"), digest_size=_MARK_BYTES).hexdigest()


@dataclass(frozen=True, slots=True)
class ToolMemory:
    """What came before a client's call. `before` are whole rounds; `uses` were made in the same answer, with their
    `results`."""

    before: Sequence[Message]
    uses: Sequence[ToolUse]
    results: Sequence[ToolResult]

    def unseen(self) -> tuple[Message, ...]:
        """The calls and results, round by round, that are kept (rule 4)."""
        rounds: list[list[Message]] = []
        for message in self.before:
            if message.role == "assistant":
                uses = tuple([part for part in message.parts if isinstance(part, ToolUse)])
                rounds += [[replace(message, parts=uses)]] if uses else []
            else:
                rounds[-1].append(message)
        if self.uses:
            rounds.append([Message("assistant", tuple(self.uses)), Message("tool", tuple(self.results))])
        left = MAX_CHARS
        for at in reversed(range(len(rounds))):
            left -= sum(map(_size, rounds[at]))
            if left < 0:
                LOG.warning("%d rounds of calls of server-side tools are too large to be kept", at + 1)
                rounds = rounds[at + 1 :]
                break
        return tuple([message for group in rounds for message in group])


def _size(message: Message) -> int:
    """The characters of its calls and results."""
    size = 0
    for part in message.parts:
        for inner in part.parts if isinstance(part, ToolResult) else (part,):
            match inner:
                case ToolUse():
                    size += len(inner.name) + len(inner.arguments)
                case Text():
                    size += len(inner.text)
                case Image():
                    size += len(inner.url)
                case _:
                    size += len(repr(inner))
    return size


class HiddenCalls(frozenset[str]):
    """Ids of calls in a conversation that no client has seen: those of `StoredTurn.rounds`. In `Exchange.state`."""

    def without(self, messages: tuple[Message, ...]) -> tuple[Message, ...]:
        """The messages as the client knows them, but for results; the same object if nothing is hidden."""
        if not self:
            return messages
        seen = []
        for message in messages:
            parts = tuple([p for p in message.parts if not (isinstance(p, ToolUse) and p.call_id in self)])
            if parts or not message.parts:
                seen.append(message if len(parts) == len(message.parts) else replace(message, parts=parts))
        return tuple(seen)


def hidden_calls(turns: Iterable[StoredTurn]) -> HiddenCalls:
    """Those of a conversation."""
    parts = (part for turn in turns for message in turn.rounds for part in message.parts)
    return HiddenCalls([part.call_id for part in parts if isinstance(part, ToolUse)])


def leave(exchange: Exchange, rounds: ToolMemory) -> None:
    """These are for whoever keeps the turn of this exchange, if anybody does."""
    exchange.state[ToolMemory] = rounds


def left(exchange: Exchange) -> tuple[Message, ...]:
    """What is to be kept with the turn, as `StoredTurn.rounds`."""
    rounds: ToolMemory | None = exchange.state.get(ToolMemory)
    return () if rounds is None else rounds.unseen()


def kept_for(turn: StoredTurn) -> list[str]:
    """The ids of the turns in which something may be kept for the calls in this one."""
    parts = (part for message in turn.output for part in message.parts)
    return [f"kept_{part.call_id}" for part in parts if isinstance(part, ToolUse) and is_marked(part.call_id)]


def keeps(exchange: Exchange, conversations: Conversations) -> bool:
    """Rule 1, as far as it is known beforehand."""
    asked = exchange.body.get("store") is not False
    return conversations.keeps and asked and exchange.protocol.keeps_call_ids(exchange.write_options())


async def keep(exchange: Exchange, conversations: Conversations, call_id: str, rounds: ToolMemory) -> None:
    """Keep the rounds under the marked id of a client's call."""
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
        LOG.error("request %s: results of server-side tools could not be kept: %s", exchange.id, error)


async def restored(exchange: Exchange, conversations: Conversations, request: ModelRequest) -> ModelRequest:
    """The request with everything that was kept in its place; the same object if nothing was. Raises `ClientFault`
    `request_too_large` if that would be larger than a body may be (R33.2)."""
    messages = request.messages
    if not conversations.keeps:
        return request
    given = exchange.protocol.gateway_call_id
    marked = [(n, ident) for n, message in enumerate(messages) if (ident := _marked(message, given)) is not None]
    if not marked:
        return request
    limits = exchange.route.limits
    budget = read_budget(request, limits)
    kept: dict[str, StoredTurn | None] = {}
    found: dict[int, StoredTurn] = {}
    grown = request.grown
    try:
        for index, ident in marked[-MAX_LOOKUPS:]:
            turn = kept.get(ident)
            if turn is not None:
                budget.take_bytes(turn.size)
            elif ident not in kept:
                turn = kept[ident] = await _get(exchange, conversations, ident, budget)
            if turn is not None:
                found[index] = turn
                grown += turn.size
    except BudgetExceeded as error:
        raise too_much(error.kind, limits, None) from None
    live = [turn.id for turn in kept.values() if turn is not None]
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
    """What a conversation goes on from lives on with it."""
    try:
        await conversations.prolong(idents, exchange.owner)
    except StoreUnavailable as error:
        exchange.record.count("store_failures")
        LOG.error("request %s: results of server-side tools could not be prolonged: %s", exchange.id, error)


def _marked(message: Message, given: Callable[[str], str]) -> str | None:
    """The id under which something may be kept for a message; `given` makes it of the client's."""
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
