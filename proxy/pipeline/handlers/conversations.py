"""Conversations over HTTP (R28.7): `/v1/conversations` and their items.

Rules:

1. Every look-up is by id and owner: a conversation of another owner does not exist (404). Without a store none does.
2. A change applies to the stored state at that moment (`ResponseStore.change`), so concurrent changes lose no items,
   also across processes.
3. A change beyond `store.conversation_items` and `store.conversation_bytes` is refused. An answer that began below them
   is added as a whole. Each change prolongs the life of its conversation.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, Final

from aiohttp import web

from ...config import StoreConfig
from ...errors import ClientFault, quote
from ...protocols.shared.turn import StoredTurn
from ...protocols.shared.wire import dump, dump_in_pieces
from ...protocols.turn_form import ConversationForm, Items
from ...support.offload import is_long, offload
from ..conversations.stored import CONVERSATIONS, Conversations
from ..sending.delivery import CLIENTS, OWNER
from .admitting import AdmittedRequest, admit
from .responses import Page, list_of, send_turn

NOBODY: Final = ""
"""The first and the last id of an empty list, because the published type requires strings."""


async def create(request: web.Request) -> web.StreamResponse:
    """Creates a conversation with `items` and `metadata`."""
    form = _form(request)
    conversations = request.app[CONVERSATIONS]
    async with admit(request, counted=True) as asked:
        body = await asked.json()
        if not conversations.keeps:
            raise ClientFault(
                "This gateway does not store conversations: `store.kind` is `none`.",
                code="not_found",
                hint="Send the whole conversation as 'input'.",
            )
        items = await _items(form, body)
        now = time.time()
        turn = form.new(request[OWNER], body.get("metadata") or {}, items, now, now + conversations.max_age_s)
        check_room(form, turn, conversations.config)
        await conversations.put(turn)
        return await send_turn(asked, turn, lambda: dump(form.resource(turn)))


async def read(request: web.Request) -> web.StreamResponse:
    """Returns the conversation without its items."""
    form = _form(request)
    async with admit(request, counted=True) as asked:
        turn = await _found(request, asked)
        return await send_turn(asked, turn, lambda: dump(form.resource(turn)))


async def update(request: web.Request) -> web.StreamResponse:
    """Replaces the metadata."""
    form = _form(request)
    async with admit(request, counted=True) as asked:
        body = await asked.json()
        if "metadata" not in body:
            raise form.missing("metadata")
        form.check({"metadata": body["metadata"]})
        metadata = body["metadata"] or {}
        turn = await _change(request, lambda turn, until: form.changed(turn, until, metadata=metadata))
        return await send_turn(asked, turn, lambda: dump(form.resource(turn)))


async def delete(request: web.Request) -> web.StreamResponse:
    """Deletes the conversation and its items."""
    async with admit(request, counted=True) as asked:
        turn = await _found(request, asked)
        await request.app[CONVERSATIONS].delete(turn.id, turn.owner)
        return await send_turn(
            asked, turn, lambda: dump({"id": turn.id, "object": "conversation.deleted", "deleted": True})
        )


async def list_items(request: web.Request) -> web.StreamResponse:
    """Returns the items in pages (`limit`, `after`), newest first unless `order=asc`."""
    form = _form(request)
    page = Page(request.query)
    async with admit(request, counted=True) as asked:
        turn = await _found(request, asked)
        return await send_turn(asked, turn, lambda: page.write(form.items_of(turn), NOBODY))


async def add_items(request: web.Request) -> web.StreamResponse:
    """Appends `items` to the conversation and returns them."""
    form = _form(request)
    async with admit(request, counted=True) as asked:
        body = await asked.json()
        if body.get("items") is None:
            raise form.missing("items")
        items = await _items(form, body)
        config = request.app[CONVERSATIONS].config

        def work(turn: StoredTurn, until: float) -> StoredTurn:
            longer = form.appended(turn, items, until)
            check_room(form, longer, config)
            return longer

        turn = await _change(request, work)
        return await send_turn(asked, turn, lambda: list_of(items, False, NOBODY))


async def read_item(request: web.Request) -> web.StreamResponse:
    """Returns one item."""
    form = _form(request)
    async with admit(request, counted=True) as asked:
        turn = await _found(request, asked)
        item = form.items_of(turn)[_place(form, turn, request.match_info["item"])]
        return await send_turn(asked, turn, lambda: dump_in_pieces(item))


async def delete_item(request: web.Request) -> web.StreamResponse:
    """Deletes one item. Returns the conversation."""
    form = _form(request)
    ident = request.match_info["item"]

    def work(turn: StoredTurn, until: float) -> StoredTurn:
        at, items = _place(form, turn, ident), form.items_of(turn)
        return form.changed(turn, until, items=[*items[:at], *items[at + 1 :]])

    async with admit(request, counted=True) as asked:
        turn = await _change(request, work)
        return await send_turn(asked, turn, lambda: dump(form.resource(turn)))


# --- shared by all ----------------------------------------------------------------------------------------------------


def check_room(form: ConversationForm, turn: StoredTurn, config: StoreConfig) -> None:
    """Raises `ClientFault` `request_too_large` if a conversation holds more than the store's limits allow."""
    number, size = len(form.items_of(turn)), len(turn.wire_form) if isinstance(turn.wire_form, bytes) else turn.size
    for has, most, what in (
        (number, config.conversation_items, "items"),
        (size, config.conversation_bytes, "bytes"),
    ):
        if has > most:
            raise ClientFault(
                f"The conversation would have {has} {what}, and the maximum is {most}.",
                code="request_too_large",
                hint=f"Delete items, or begin a new conversation. The limit is `store.conversation_{what}`.",
            )


def not_found(ident: str, param: str | None = None) -> ClientFault:
    """Returns the error for a conversation that this client does not have."""
    return ClientFault(f"Conversation with id {quote(ident)} not found.", code="not_found", param=param)


async def append(
    conversations: Conversations, form: ConversationForm, ident: str, owner: str, items: Sequence[Any]
) -> None:
    """Adds the output of a turn to a conversation. Does nothing if the conversation was deleted meanwhile. Raises
    `StoreUnavailable`."""
    new = [item for item in items if item.get("type") != "item_reference" and isinstance(item.get("id"), str)]
    expires = time.time() + conversations.max_age_s
    await conversations.change(ident, owner, lambda turn: None if turn is None else form.appended(turn, new, expires))


def _form(request: web.Request) -> ConversationForm:
    """Returns the protocol's form of conversations."""
    turns = request.app[CLIENTS].of(request.path, request.headers).turns
    assert turns is not None  # these paths are served only for protocols with conversations
    assert turns.conversations is not None
    return turns.conversations


async def _items(form: ConversationForm, body: dict[str, Any]) -> Items:
    """Returns the items in a body, with ids. Raises `ClientFault` for invalid items."""
    await offload(True, form.check, body)
    return await offload(is_long(body), form.with_ids, body.get("items") or ())


async def _found(request: web.Request, asked: AdmittedRequest) -> StoredTurn:
    """Returns the conversation that a request names. The bytes of a large one count in the body budget (R33.2). Raises
    `ClientFault` `not_found`."""
    form = _form(request)
    ident, owner = request.match_info["id"], request[OWNER]
    turn = await request.app[CONVERSATIONS].get_counted(ident, owner, asked.hold)
    if turn is None or not form.is_conversation(turn):
        raise not_found(ident)
    return turn


async def _change(request: web.Request, work: Callable[[StoredTurn, float], StoredTurn]) -> StoredTurn:
    """Applies `work` to the conversation that a request names and returns the changed one. Raises `ClientFault`
    `not_found`."""
    form = _form(request)
    ident, owner = request.match_info["id"], request[OWNER]
    conversations = request.app[CONVERSATIONS]
    expires = time.time() + conversations.max_age_s

    def change(turn: StoredTurn | None) -> StoredTurn | None:
        return work(turn, expires) if turn is not None and form.is_conversation(turn) else None

    turn = await conversations.change(ident, owner, change)
    if turn is None:
        raise not_found(ident)
    return turn


def _place(form: ConversationForm, turn: StoredTurn, ident: str) -> int:
    for place, item in enumerate(form.items_of(turn)):
        if item["id"] == ident:
            return place
    raise ClientFault(f"Item with id {quote(ident)} not found in conversation {quote(turn.id)}.", code="not_found")
