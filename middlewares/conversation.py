"""Stored conversations (R12): loads the turns before a request, and stores the new turn.

Rules:

1. A client that has seen a response id can use it: a streamed turn is stored as `in_progress` before the first event
   with its id is sent, and every turn in its final form before the last event. A client cannot know the id of an answer
   that is not streamed earlier than that.
2. `store: false` stores nothing, except in the memory of a WebSocket connection, which ends with it. An unknown
   `previous_response_id` is an error, never ignored (R12.2); an unknown `item_reference` is ignored (R8.2).
3. Tool calls that the gateway ran without showing them are stored with the turn and given to the model again (R12.3).
   Clients cannot read them.
4. A request including its loaded turns has the limits of a request body (R33.2): its own bytes, those of the earlier
   turns as stored, and those of each referenced item as often as it is inserted. Beyond the limit nothing is read or
   inserted.
5. An unavailable store does not harm an answer that has begun: the failure is logged and counted, and the response says
   `store: false`. Loading from an unavailable store is an error, because the model would answer something else.

This middleware is not in the chains of protocols without conversations, so their answers keep their bytes.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, ClassVar, Final, Literal

from aiohttp import web

from toolwire.config import GatewayConfig
from toolwire.errors import Cancelled, ClientFault, GatewayError, quote
from toolwire.events import Event, Finish, Start
from toolwire.folding import Folding
from toolwire.known.past import Past
from toolwire.model import Message, ModelReply, ReplyChoice, Usage
from toolwire.pipeline.answers.reply import Reply
from toolwire.pipeline.answers.stages import Stage
from toolwire.pipeline.chain.middleware import Handler, Middleware
from toolwire.pipeline.conversations.known_turns import KNOWN_TURNS, Continuing, EarlierTurns
from toolwire.pipeline.conversations.stored import CONVERSATIONS, STORE_FAILURES, Conversations, store_fault
from toolwire.pipeline.exchange.growth import read_budget, too_much
from toolwire.pipeline.exchange.request_state import EXCHANGE, Exchange
from toolwire.pipeline.exchange.tool_memory import HiddenCalls, hidden_calls, noted_rounds
from toolwire.pipeline.exchange.tool_servers import tool_server_declarations
from toolwire.pipeline.handlers.conversations import append, check_room, not_found
from toolwire.pipeline.transforms.sealing import seal_reply
from toolwire.pipeline.transforms.summarising import Summarising
from toolwire.pipeline.websocket.lane_memory import LANE, LaneMemory
from toolwire.protocols.shared.turn import ANSWERED, StoredTurn
from toolwire.protocols.shared.wire import dump_in_pieces
from toolwire.protocols.turn_form import TurnForm
from toolwire.record import AccessField
from toolwire.store.base import BudgetExceeded, ReadBudget, StoreUnavailable
from toolwire.store.factory import described
from toolwire.support.bounded_json import count_values
from toolwire.support.offload import OFFLOAD_BYTES, is_large, is_long, offload
from toolwire.tolerances import INPUT_REPEATED

LOG: Final = logging.getLogger("toolwire.conversation")

MAX_REFERRED: Final = 256
"""The most responses that the references of one request may load; further references are ignored."""


class Conversation(Middleware):
    """Loads the earlier turns of a request, and stores the new one."""

    proxied_requests = "stands_aside"
    for_turns = True
    access_fields: ClassVar[tuple[AccessField, ...]] = (STORE_FAILURES,)

    @classmethod
    def start_note(cls, config: GatewayConfig, used: bool) -> str | None:
        if not used:
            return "conversations are not stored: no chain has `conversation`"
        return described(config.store, config.server.workers)

    async def __call__(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        exchange = request[EXCHANGE]
        conversations = request.app[CONVERSATIONS]
        form = exchange.protocol.turns
        assert form is not None  # `for_turns`
        lane = request.get(LANE)
        named = None if form.conversations is None else form.conversations.named(exchange.body)
        chain, own = await _load(request, exchange, form, named)
        asked, sealed = exchange.request, exchange.route.sealed
        large = is_large(asked, reused=True)
        if sealed is not None and asked is not exchange.received:
            context = exchange.owner, exchange.record, exchange.id
            exchange.request = await offload(large, sealed.open_request, asked, *context)
        exchange.conversation = exchange.request.messages
        turn = _new_turn(exchange, form, conversations, () if named is not None else chain, own)
        if (run := exchange.background) is not None:
            try:
                turn = await run.queue(turn, form, exchange.write_options(), large=large)
            except StoreUnavailable as error:
                raise store_fault(error) from error
        prepares = lane is not None and exchange.body.get("generate") is False
        response = Reply.of(_nothing(exchange)) if prepares else await handler(request)
        if not isinstance(response, Reply):
            return response
        if not exchange.received.tools and form.asks_summary(exchange.body):
            response.map(Summarising(form.summary_part))
        stores = conversations.keeps and exchange.body.get("store") is not False and not exchange.only_counted
        named = None if exchange.aside else named
        if stores or named is not None or lane is not None:
            seal_reply(response, exchange, stored=True)
            memory = None if lane is None else LaneTurns(lane, chain)
            recorder = await offload(
                large, TurnRecorder, exchange, form, conversations, response, turn, large, named, memory
            )
            if not stores or (exchange.received.stream and not await recorder.begin() and run is None):
                recorder.stores = False
                _mark_unstored(exchange)
            if recorder.stores or named is not None or lane is not None:
                recorder.follow()
            return response
        _mark_unstored(exchange)
        return response


def _new_turn(
    exchange: Exchange,
    form: TurnForm,
    conversations: Conversations,
    chain: tuple[StoredTurn, ...],
    own: tuple[Message, ...],
) -> StoredTurn:
    """Returns the turn of a request that continues the turns of `chain`."""
    now = time.time()
    return StoredTurn(
        id=form.new_id(),
        owner=exchange.owner,
        ancestors=tuple([earlier.id for earlier in chain]),
        input=own,
        status="in_progress",
        model=exchange.received.model,
        created=now,
        expires=now + conversations.max_age_s,
    )


def _nothing(exchange: Exchange) -> ModelReply:
    """Returns the empty answer to a request that only prepares a WebSocket lane (`generate: false`)."""
    return ModelReply("", exchange.received.model, exchange.created, (ReplyChoice(()),), Usage())


def _mark_unstored(exchange: Exchange) -> None:
    exchange.body = {**exchange.body, "store": False}


async def _load(
    request: web.Request, exchange: Exchange, form: TurnForm, named: str | None
) -> tuple[tuple[StoredTurn, ...], tuple[Message, ...]]:
    """Puts the earlier messages before those of the request, and replaces references by their items. Returns the
    earlier turns, oldest first (or the conversation `named`), and the messages of the request itself.

    Raises `ClientFault` `previous_response_not_found`, or `request_too_large` if the result exceeds the limits of a
    body; and `Unavailable` if the store is unavailable.
    """
    body, received = exchange.body, exchange.received
    own = form.own(received, body)
    previous = body.get(form.previous)
    wanted = await offload(is_large(received, reused=True), form.references, body)
    if previous is None and named is None and not wanted:
        return (), own
    limits = exchange.route.limits
    budget = read_budget(received, limits)
    loading = _Loading(request, form, request.app[CONVERSATIONS], exchange.owner, budget)
    chain: tuple[StoredTurn, ...] = ()
    past: Past | None = None
    read = added = 0
    try:
        if named is not None:
            chain = (await loading.conversation(named),)
            read = chain[0].size
        elif previous is not None:
            chain, read, past = await loading.earlier(previous, Continuing(received.size, own, budget, form.reduced))
        if wanted:
            known = await offload(read > OFFLOAD_BYTES, _ids, form, chain)
            items = await loading.referenced(wanted, known)
            left = ReadBudget(max(0, limits.body_bytes - received.size - read), budget.values)
            added = await offload(is_long(items), _take_items, wanted, items, left)
            large = received.size + added > OFFLOAD_BYTES
            exchange.body, own = await offload(large, form.resolve_references, body, items, known)
        if past is not None and len(own) > 1 and own[0].role != "tool":
            large = is_large(received, reused=True) or read > OFFLOAD_BYTES
            if (shorter := await offload(large, form.without_repeated, exchange.body, chain)) is not None:
                exchange.body, own = shorter
                exchange.record.tolerate(INPUT_REPEATED, "items of an earlier input", exchange.id)
    except StoreUnavailable as error:
        raise store_fault(error) from error
    except BudgetExceeded as error:
        param = "conversation" if named is not None else form.previous if previous is not None else "input"
        raise too_much(error.kind, limits, param) from None
    if hidden := hidden_calls(chain):
        exchange.state[HiddenCalls] = hidden
    earlier = [message for turn in chain for some in (turn.input, turn.rounds, turn.output) for message in some]
    model_request, grown = exchange.request, read + added
    if past is not None and received.origin is not None:
        model_request = replace(model_request, origin=received.origin.after(read, past))
        grown = added
    large = is_large(replace(model_request, grown=grown), reused=True)
    messages = await offload(large, form.full_conversation, body, earlier, own, past)
    before, model_request = model_request, await offload(large, form.with_tools, model_request, body, chain)
    if model_request is not before:
        servers = tool_server_declarations(exchange, model_request.tools)
        tools = exchange.route.permission.permitted(model_request.tools, servers)
        model_request = replace(model_request, tools=tools)
        exchange.received = replace(received, tools=tools, tool_choice=model_request.tool_choice)
    exchange.request = replace(model_request, messages=messages, grown=grown)
    return chain, own


def _ids(form: TurnForm, chain: Iterable[StoredTurn]) -> set[str]:
    """Returns the ids of all items of a conversation."""
    return {ident for turn in chain for ident, _ in form.items(turn)}


@dataclass(frozen=True, slots=True)
class _Loading:
    """Reads the stored turns that a request of `owner` continues, and the items that it refers to, within `budget`.
    Every method raises as `_load`, and `BudgetExceeded`, and `StoreUnavailable`."""

    request: web.Request
    form: TurnForm
    conversations: Conversations
    owner: str
    budget: ReadBudget

    async def earlier(self, previous: str, continuing: Continuing) -> EarlierTurns:
        """Returns the turn `previous` and those before it, from the WebSocket lane if it is there."""
        known, lane = self.request.app[KNOWN_TURNS], self.request.get(LANE)
        earlier = None
        if lane is not None and (found := lane.find(previous)) is not None:
            earlier = await known.read(found[0], found[1], previous, continuing)
        if earlier is None:
            earlier = await known.read(self.conversations, self.owner, previous, continuing)
        if earlier is None or earlier.turns[-1].status not in ANSWERED:
            if earlier is not None:
                state = f" is {earlier.turns[-1].status}"
            elif await self.conversations.present([(previous, self.owner)]):
                state = " continues a response that was deleted or has expired"
            else:
                state = " not found"
            raise ClientFault(
                f"Previous response with id {quote(previous)}{state}.",
                code="previous_response_not_found",
                param=self.form.previous,
            )
        return earlier

    async def conversation(self, ident: str) -> StoredTurn:
        """Returns a conversation by its id."""
        assert self.form.conversations is not None
        turn = await self.conversations.get(ident, self.owner, self.budget)
        if turn is None or not self.form.conversations.is_conversation(turn):
            raise not_found(ident, "conversation")
        check_room(self.form.conversations, turn, self.conversations.config)
        return turn

    async def referenced(self, wanted: Iterable[str], known: Container[str]) -> dict[str, Mapping[str, Any]]:
        """Returns the items of the references, by their ids, except those `known` already. Keeps nothing else of the
        turns that it reads."""
        named = dict.fromkeys(ident for ident in wanted if ident not in known)
        turns = {ident: None for ident in map(self.form.turn_of, named) if ident is not None}
        items: dict[str, Mapping[str, Any]] = {}
        for ident in islice(turns, MAX_REFERRED):
            turn = await self.conversations.get(ident, self.owner, self.budget)
            if turn is not None:
                items |= await offload(turn.size > OFFLOAD_BYTES, _named, self.form, turn, named)
        return items


def _named(form: TurnForm, turn: StoredTurn, named: Container[str]) -> dict[str, Mapping[str, Any]]:
    """Returns the items of a turn that have these ids."""
    return {ident: item for ident, item in form.items(turn) if ident in named}


def _take_items(wanted: Iterable[str], items: Mapping[str, Mapping[str, Any]], budget: ReadBudget) -> int:
    """Subtracts the items of all references from the budget, each as often as it is referenced, and returns their
    bytes. Raises `BudgetExceeded`."""
    added = 0
    for ident, times in Counter(ident for ident in wanted if ident in items).items():
        size = len(dump_in_pieces(items[ident]))
        budget.take_bytes(size * times)
        budget.take_values(count_values(items[ident]) * times)
        added += size * times
    return added


@dataclass(frozen=True, slots=True)
class LaneTurns:
    """The WebSocket lane of a request (the requests with its `stream_id`, answered in order), and the turns `before`
    that it continues."""

    lane: LaneMemory
    before: tuple[StoredTurn, ...]


class TurnRecorder:
    """Stores one turn: a streamed one before its first event, and each before its last event. `stores`: store the turn;
    `conversation`: the id of the conversation that it is added to; `memory`: the WebSocket lane that remembers it."""

    def __init__(
        self,
        exchange: Exchange,
        form: TurnForm,
        conversations: Conversations,
        reply: Reply,
        turn: StoredTurn,
        large: bool,
        conversation: str | None,
        memory: LaneTurns | None,
    ) -> None:
        self._exchange = exchange
        self._form = form
        self._conversations = conversations
        self._reply = reply
        self._folding = Folding()
        self._whole: ModelReply | None = None
        self._over = False
        self._large = large
        self.stores = True
        self._conversation = conversation
        self._memory = memory
        self._run = exchange.background
        self._begun = False
        self._options = exchange.write_options()
        begins = exchange.received.stream or large  # a large one is prepared here, because this runs in a thread
        if begins:
            turn = turn if turn.status == "in_progress" else replace(turn, status="in_progress")
            turn = form.begun(turn, self._options)
        self._turn = turn

    async def begin(self) -> bool:
        """Stores the turn as running. Returns False if that failed. Frees the item texts of the turn: they are written
        again with the answer, and need no memory during a stream."""
        self._begun = await self._put(self._turn)
        self._turn = replace(self._turn, wire_form=b"", beginning=None)
        return self._begun

    def follow(self) -> None:
        """Declares on the reply: the turn's id becomes the id of the answer, and the turn is stored before the last
        event is sent."""
        self._reply.map(Naming(self._turn.id))
        self._reply.watch(self._folding.feed, unless=self._take)
        self._reply.finish(self._settle, changes=False)
        if self._exchange.received.stream and self.stores and self._run is None:  # a background run stores its own end
            self._exchange.at_end(self._end)
            self._conversations.began(self._turn, self._reply)

    def _take(self, reply: ModelReply) -> bool:
        """Takes a complete answer. Returns True: its events need not be followed."""
        self._whole = reply
        return True

    async def _settle(self, last: Event) -> None:
        self._over = True
        fault = self._folding.fault
        if fault is None:
            rounds = noted_rounds(self._exchange)
            begun = replace(self._turn, rounds=rounds) if rounds else self._turn
            reply = self._so_far()
            long = self._large or is_long(reply.choices)
            finished, options = self._form.finished, self._options
            turn = await offload(True, finished, begun, reply, options) if long else finished(begun, reply, options)
            if self._conversation is not None and turn.status in ANSWERED:
                await self._append(self._conversation, turn, long)
            if self._memory is not None:
                await self._memory.lane.remember(turn, self._memory.before)
            if self.stores and not await self._put(turn) and not self._exchange.received.stream:
                _mark_unstored(self._exchange)
        elif self._exchange.received.stream and self.stores:  # an error instead of a complete answer has no id
            await self._put_broken_off(fault.error)

    def _end(self) -> None:
        """Called at the end of a stream."""
        conversations, turn = self._conversations, self._turn
        conversations.ended(turn)
        if not self._over:  # it failed, or the client disconnected
            conversations.later(self._put_broken_off(self._exchange.failure))

    async def _put_broken_off(self, error: GatewayError | None) -> None:
        """Stores the turn of an answer that ended with an error; None means that the client disconnected."""
        status: Literal["failed", "cancelled"] = "failed"
        if error is None or isinstance(error, Cancelled):
            status, error = "cancelled", None
        reply = self._so_far()
        long = self._large or is_long(reply.choices)
        await self._put(await offload(long, self._form.broken_off, self._turn, reply, self._options, status, error))

    async def _append(self, ident: str, turn: StoredTurn, long: bool) -> None:
        assert self._form.conversations is not None
        items = await offload(long, _items, self._form, turn)
        try:
            await append(self._conversations, self._form.conversations, ident, turn.owner, items)
        except StoreUnavailable as error:
            self._note(error)

    def _so_far(self) -> ModelReply:
        if self._whole is not None:
            return self._whole
        if self._folding.start is None:
            return ModelReply(self._turn.id, "", self._options.created, ())
        return self._folding.reply()

    async def _put(self, turn: StoredTurn) -> bool:
        try:
            if self._run is None:
                await self._conversations.put(turn, prolongs=not self._begun)
            else:
                await self._run.put(turn)
        except StoreUnavailable as error:
            self._note(error)
            return False
        return True

    def _note(self, error: StoreUnavailable) -> None:
        self._exchange.record.count("store_failures")
        LOG.error("request %s: a response could not be stored: %s", self._exchange.id, error)


def _items(form: TurnForm, turn: StoredTurn) -> list[Mapping[str, Any]]:
    """Returns the items of a turn."""
    return [item for _, item in form.items(turn)]


class Naming(Stage):
    """Gives an answer the id of its turn and the time of its completion."""

    ignores_text = True

    def __init__(self, ident: str) -> None:
        self._ident = ident

    def feed(self, events: list[Event]) -> list[Event]:
        return [self._named(event) if isinstance(event, Start | Finish) else event for event in events]

    def whole(self, reply: ModelReply) -> ModelReply:
        extra = {**reply.extra, "completed_at": int(time.time())}
        return ModelReply(self._ident, reply.model, reply.created, reply.choices, reply.usage, extra)

    def _named(self, event: Start | Finish) -> Event:
        if isinstance(event, Start):
            return Start(self._ident, event.model, event.created, event.extra, event.usage)
        extra = {**event.extra, "completed_at": int(time.time())}
        return Finish(event.reason, event.usage, event.others, extra, event.choices)
