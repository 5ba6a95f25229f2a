"""Conversations that the gateway remembers (R12): `previous_response_id` on the way in, the store on the way out.

Rules:

1. Whoever has seen an id can use it: a turn is kept as `in_progress` before the first event with its id leaves, and in its
   final form before the last one does.
2. `store: false` keeps nothing. An unknown `previous_response_id` is an error, never ignored (R12.2); an unknown
   `item_reference` is ignored (R8.2).
3. A store that is away spoils no answer: that is logged and counted, and the resource says `store: false`, which is then
   true. Loading from it is an error, because the model would answer something else.

Not in the chains of protocols without conversations, so their answers keep their bytes.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Container, Iterable, Mapping
from dataclasses import replace
from itertools import islice
from typing import Any, Final, Literal

from aiohttp import web

from proxy.errors import ClientFault, quote
from proxy.events import Event, Finish, Folding, Kind, Start
from proxy.model import ModelReply
from proxy.pipeline.exchange import EXCHANGE, Exchange
from proxy.pipeline.middleware import Handler, Middleware
from proxy.pipeline.reply import Reply
from proxy.pipeline.stored import CONVERSATIONS, Conversations, away
from proxy.protocols.base import TurnForm
from proxy.store.base import StoreUnavailable, Turn
from proxy.support.offload import OFFLOAD_MESSAGES, is_large, offload

LOG: Final = logging.getLogger("toolwire.conversation")

MAX_REFERRED: Final = 256
"""Responses that the references of one request may lead to; the others are ignored."""


class Conversation(Middleware):
    """Loads what a request goes on from, and keeps what comes of it."""

    for_turns = True

    async def __call__(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        exchange = request[EXCHANGE]
        conversations = request.app[CONVERSATIONS]
        form = exchange.protocol.turns
        assert form is not None  # `for_turns`
        ancestors = await _load(exchange, form, conversations)
        exchange.conversation = exchange.request.messages
        response = await handler(request)
        if not isinstance(response, Reply):
            return response
        if conversations.keeps and exchange.body.get("store") is not False:
            large = is_large(exchange.received)
            keeper = await offload(large, Keeper, exchange, form, conversations, response, ancestors)
            if await keeper.begin():
                keeper.follow()
                return response
        exchange.body = {**exchange.body, "store": False}
        return response


async def _load(exchange: Exchange, form: TurnForm, conversations: Conversations) -> tuple[str, ...]:
    """Put what was said before in front of the request, and items in place of references to them. Gives the ids of the
    turns before, oldest first.

    Raises `ClientFault` `previous_response_not_found`, or `Unavailable` if the store is away.
    """
    body = exchange.body
    previous = body.get("previous_response_id")
    now = await offload(is_large(exchange.received), form.items, body)
    refers = any(item["type"] == "item_reference" for item in now)
    if previous is None and not refers:
        return ()
    try:
        chain = () if previous is None else await _chain(previous, exchange.owner, conversations)
        earlier = [item for turn in chain for item in _items(turn)]
        if refers:
            said = {item.get("id") for item in earlier}
            now = await _with_references(now, said, exchange.owner, form, conversations)
            exchange.body = {**body, "input": now}
    except StoreUnavailable as error:
        raise away(error) from error
    items = [*earlier, *now]
    messages = await offload(len(items) > OFFLOAD_MESSAGES, form.read_messages, body, items)
    exchange.request = replace(exchange.request, messages=messages)
    return tuple(turn.id for turn in chain)


async def _chain(previous: str, owner: str, conversations: Conversations) -> tuple[Turn, ...]:
    chain = await conversations.get_chain(previous, owner)
    if chain is None or chain[-1].resource.get("status") not in ("completed", "incomplete"):
        state = f" is {chain[-1].resource.get('status')}" if chain else " not found"
        raise ClientFault(
            f"Previous response with id {quote(previous)}{state}.",
            code="previous_response_not_found",
            param="previous_response_id",
        )
    return chain


def _items(turn: Turn) -> tuple[Mapping[str, Any], ...]:
    return (*turn.input, *turn.resource.get("output", ()))


async def _with_references(
    items: Iterable[Mapping[str, Any]],
    said: Container[str | None],
    owner: str,
    form: TurnForm,
    conversations: Conversations,
) -> list[Mapping[str, Any]]:
    """`items` with every reference replaced by what it refers to: by nothing if that was `said` before, and left where it
    leads nowhere (it is ignored, R8.2)."""
    items = [item for item in items if item["type"] != "item_reference" or item.get("id") not in said]
    wanted = [item["id"] for item in items if item["type"] == "item_reference" and isinstance(item.get("id"), str)]
    responses = {ident: None for ident in map(form.turn_of, wanted) if ident is not None}
    found: dict[str, Mapping[str, Any]] = {}
    for ident in islice(responses, MAX_REFERRED):
        turn = await conversations.get(ident, owner)
        if turn is not None:
            found |= {item["id"]: item for item in _items(turn) if isinstance(item.get("id"), str)}
    return [found.get(item.get("id", ""), item) if item["type"] == "item_reference" else item for item in items]


class Keeper:
    """Keeps one turn: before its first event, and before its last."""

    def __init__(
        self,
        exchange: Exchange,
        form: TurnForm,
        conversations: Conversations,
        reply: Reply,
        ancestors: tuple[str, ...],
    ) -> None:
        self._exchange = exchange
        self._form = form
        self._conversations = conversations
        self._reply = reply
        self._folding = Folding()
        self._over = False
        now = time.time()
        ident = form.new_id()
        self._options = exchange.write_options()
        self._turn = Turn(
            id=ident,
            owner=exchange.owner,
            ancestors=ancestors,
            input=form.listed(exchange.body, ident),
            resource=form.begun(self._options, ident),
            created=now,
            expires=now + conversations.max_age_s,
        )

    async def begin(self) -> bool:
        """Keep the turn as running; whether that worked."""
        return await self._put(self._turn.resource)

    def follow(self) -> None:
        """Declare on the reply: it goes under the turn's id, and the turn is final before the last event is sent."""
        self._reply.map(self._named, Kind.EDGES)
        self._reply.watch(self._folding.feed)
        self._reply.finish(self._settle, changes=False)
        self._exchange.at_end(self._end)
        self._conversations.running[self._turn.id, self._turn.owner] = self._reply

    def _named(self, event: Event) -> Event:
        if isinstance(event, Start):
            return Start(self._turn.id, event.model, event.created, event.extra, event.usage)
        if isinstance(event, Finish):
            extra = {**event.extra, "completed_at": int(time.time())}
            return Finish(event.reason, event.usage, event.others, extra, event.choices)
        return event

    async def _settle(self, last: Event) -> None:
        self._over = True
        await self._put(self._final())

    def _end(self) -> None:
        conversations, turn = self._conversations, self._turn
        conversations.running.pop((turn.id, turn.owner), None)
        if not self._over:  # it broke off, or the client went away
            failure = self._exchange.failure
            status: Literal["failed", "cancelled"] = "cancelled" if failure is None else "failed"
            conversations.later(self._put(self._form.broken_off(self._so_far(), self._options, status, failure)))
        conversations.cancelled.discard(turn.id)

    def _final(self) -> dict[str, Any]:
        fault = self._folding.fault
        if fault is None:
            return self._form.finished(self._so_far(), self._options)
        if self._turn.id in self._conversations.cancelled:
            return self._form.broken_off(self._so_far(), self._options, "cancelled")
        return self._form.broken_off(self._so_far(), self._options, "failed", fault.error)

    def _so_far(self) -> ModelReply:
        if self._folding.start is None:
            return ModelReply(self._turn.id, "", self._options.created, ())
        return self._folding.reply()

    async def _put(self, shown: Mapping[str, Any]) -> bool:
        try:
            await self._conversations.put(replace(self._turn, resource=shown))
        except StoreUnavailable as error:
            self._exchange.record.count("store_failures")
            LOG.error("request %s: a response could not be kept: %s", self._exchange.id, error)
            return False
        return True
