"""Stored responses over HTTP (R8.14, R28.7): `GET`, `DELETE`, `input_items`, `cancel`.

Every look-up is by id and owner: a response of another owner does not exist (404). Without a store nothing exists. The
store has messages, whatever protocol they came in. The protocol of the requested path writes them.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

from aiohttp import web

from ...errors import ClientFault, quote
from ...protocols.shared.turn import RUNNING, StoredTurn
from ...protocols.shared.wire import dump, dump_in_pieces
from ...protocols.turn_form import TurnForm
from ...support.offload import OFFLOAD_BYTES, OFFLOAD_MESSAGES, offload
from ..conversations.background_events import MARK, current_turn, forget_events
from ..conversations.stored import CONVERSATIONS
from ..exchange.tool_memory import memory_ids
from ..sending.background import BACKGROUND
from ..sending.delivery import CLIENTS, OWNER
from .admitting import AdmittedRequest, admit

MAX_PAGE: Final = 100
DEFAULT_PAGE: Final = 20


async def read(request: web.Request) -> web.StreamResponse:
    """Returns the response as it is now. With `stream=true`, sends the events of a background response after number
    `starting_after`."""
    form, after = _form(request), _after(request.query)
    async with _turn(request) as (turn, asked):
        if after is not None and request.method == "GET":
            follower = request.app[BACKGROUND].replay(turn, form, after)
            if not await follower.exists():
                raise ClientFault(
                    "The events of this response are not stored: it was not made in the background, or they have expired.",
                    param="stream",
                    hint="Ask for it without `stream`.",
                )
            return await follower.send(request, asked.monitor)
        return await send_turn(asked, turn, lambda: dump_in_pieces(form.shown(turn)))


async def delete(request: web.Request) -> web.StreamResponse:
    """Deletes a response, and the stored results of server-side tools for its calls. Conversations cannot be continued
    from it afterwards."""
    conversations = request.app[CONVERSATIONS]
    async with _turn(request) as (turn, asked):
        if turn.status in RUNNING and MARK in turn.extra:  # it has no client whose disconnect would end it
            await conversations.cancel(turn)
        for ident in (turn.id, *memory_ids(turn)):
            await conversations.delete(ident, turn.owner)
        await forget_events(conversations, turn)
        return await send_turn(asked, turn, lambda: dump({"id": turn.id, "object": "response", "deleted": True}))


async def list_input(request: web.Request) -> web.StreamResponse:
    """Returns the input items of a response, newest first unless `order=asc`, in pages (`limit`, `after`)."""
    form, page = _form(request), Page(request.query)
    async with _turn(request) as (turn, asked):
        return await send_turn(asked, turn, lambda: page.write(form.listed(turn)))


def _after(query: Mapping[str, str]) -> int | None:
    """Returns the number of the event after which a stream begins; None if the query asks for no stream. Raises
    `ClientFault` for an invalid query."""
    text = query.get("starting_after")
    stream = query.get("stream", "false").lower()
    if stream not in ("true", "false"):
        raise ClientFault(f"`stream` must be 'true' or 'false', not {quote(stream)}.", param="stream")
    if text is not None and not (text.isascii() and text.isdigit() and len(text) < 16):
        raise ClientFault(
            f"`starting_after` must be the number of an event, not {quote(text)}.", param="starting_after"
        )
    if stream == "false":
        return None
    return -1 if text is None else int(text)


class Page:
    """The page of a list that a query asks for. Raises `ClientFault` for an invalid query."""

    def __init__(self, query: Mapping[str, str]) -> None:
        order = query.get("order", "desc")
        if order not in ("asc", "desc"):
            raise ClientFault(f"`order` must be 'asc' or 'desc', not {quote(order)}.", param="order")
        text = query.get("limit", str(DEFAULT_PAGE))
        if not (text.isascii() and text.isdigit() and len(text) < 16 and 1 <= int(text) <= MAX_PAGE):
            raise ClientFault(f"`limit` must be 1 to {MAX_PAGE}, not {quote(text)}.", param="limit")
        self._newest_first = order == "desc"
        self._after = query.get("after")
        self._most = int(text)

    def write(self, items: Sequence[Mapping[str, Any]], nobody: str | None = None) -> bytes:
        """Returns the page as JSON. `nobody` is the first and last id of an empty page. Reads only the items of the
        page, and those before it that a search for `after` needs. Raises `ClientFault` if no item has the id
        `after`."""
        return list_of(*_page(items, self._newest_first, self._after, self._most), nobody)


def _page(
    items: Sequence[Mapping[str, Any]], newest_first: bool, after: str | None, most: int
) -> tuple[Sequence[Mapping[str, Any]], bool]:
    """Returns the items of a page, and whether more follow."""
    places = range(len(items))[::-1] if newest_first else range(len(items))
    if after is not None:
        at = next((at for at, place in enumerate(places) if items[place].get("id") == after), None)
        if at is None:
            raise ClientFault(f"No item has the id {quote(after)}.", param="after")
        places = places[at + 1 :]
    return [items[place] for place in places[:most]], len(places) > most


def list_of(page: Sequence[Mapping[str, Any]], more: bool, nobody: str | None) -> bytes:
    """Returns a list of items as JSON. `more`: further items follow."""
    return dump_in_pieces(
        {
            "object": "list",
            "data": page,
            "first_id": page[0].get("id") if page else nobody,
            "last_id": page[-1].get("id") if page else nobody,
            "has_more": more,
        }
    )


async def cancel(request: web.Request) -> web.StreamResponse:
    """Stops a running response and returns it; a finished one stays unchanged. The request does not count as one of the
    concurrent ones, because the response may hold the last place of this key."""
    form = _form(request)
    async with _turn(request, limited=False) as (turn, asked):
        ended = await request.app[CONVERSATIONS].cancel(turn) if turn.status in RUNNING else turn
        return await send_turn(asked, ended, lambda: dump_in_pieces(form.shown(ended)))


@asynccontextmanager
async def _turn(request: web.Request, *, limited: bool = True) -> AsyncIterator[tuple[StoredTurn, AdmittedRequest]]:
    """Yields the turn that a request names, with the admitted request. `limited`: the request counts against the
    limits. The bytes of a large turn count in the body budget (R33.2). Raises `ClientFault` `not_found`."""
    ident, owner = request.match_info["id"], request[OWNER]
    conversations = request.app[CONVERSATIONS]
    async with admit(request, limited=limited, counted=limited) as asked:
        turn = await conversations.get_counted(ident, owner, asked.hold)
        if turn is None or turn.status == "kept":  # "kept": stored results of tools, a lease, events
            raise ClientFault(f"Response with id {quote(ident)} not found.", code="not_found")
        yield await current_turn(conversations, turn, _form(request)), asked


async def send_turn(asked: AdmittedRequest, turn: StoredTurn, write: Callable[[], bytes]) -> web.StreamResponse:
    """Sends the body that `write` returns. A large turn is written in a thread."""
    large = max(turn.size, len(turn.wire_form)) > OFFLOAD_BYTES or len(turn.messages) > OFFLOAD_MESSAGES
    body = await offload(large, write)
    return await asked.send(web.Response(body=body, content_type="application/json"))


def _form(request: web.Request) -> TurnForm:
    """Returns the protocol's form of turns."""
    form = request.app[CLIENTS].of(request.path, request.headers).turns
    assert form is not None  # these paths are served only for protocols with turns
    return form
