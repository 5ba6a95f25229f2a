"""Stored responses over HTTP (R8.14): `GET`, `DELETE`, `input_items`, `cancel`.

Every look-up is by id and owner: somebody else's response does not exist (404). Without a store nothing exists. What is
read are messages, whatever protocol they were kept by; what is shown is made by the protocol at whose path somebody
asks.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, Final

from aiohttp import web

from ..config import StoreConfig
from ..errors import Cancelled, ClientFault, Unavailable, quote
from ..protocols.base import TurnForm
from ..protocols.turn import Turn
from ..protocols.wire import dump, dump_in_pieces
from ..record import AccessField
from ..store.base import BudgetExceeded, Change, ReadBudget, ResponseStore, StoreUnavailable
from ..support.offload import OFFLOAD_BYTES, OFFLOAD_MESSAGES, offload
from .admitting import AdmittedRequest, admitted
from .delivery import CLIENTS, OWNER
from .reply import Reply
from .tool_memory import kept_for

LOG: Final = logging.getLogger("toolwire.conversation")

MAX_PAGE: Final = 100
DEFAULT_PAGE: Final = 20


STORE_FAILURES: Final = AccessField("store_failures", "A response could not be kept.")

PRUNE_S: Final = 60.0
"""How often expired turns are removed, at most."""
MARKS_S: Final = 0.25
"""How often is looked for responses that another process wants to have cancelled, while any are made."""
MARKS_AT_ONCE: Final = 256
"""For more streams there are several questions, between which they go on: a millisecond each."""
CANCEL_S: Final = 5.0
"""So long is waited for whoever makes a response to end it."""
CANCEL_LOOK_S: Final = 0.05
CANCEL_MARK_S: Final = 60.0


class Conversations:
    """What an application knows about conversations: the store, and the responses that are being made in this process.

    The store is opened when it is first used, so that nobody needs a place for it who never stores.

    A response is cancelled by whoever makes it. Other processes that share the store leave a mark for it there, a turn
    of its own, for which each of them looks as long as it makes any (docs/adr/0034).
    """

    def __init__(self, store: ResponseStore | None, config: StoreConfig) -> None:
        self.max_age_s = config.max_age_s
        self.config = config
        self.running: dict[tuple[str, str], Reply] = {}  # by the ids of their marks, and owners
        self._looking: asyncio.TimerHandle | asyncio.Task[None] | None = None
        self._store = store
        self._open = False
        self._opening = asyncio.Lock()
        self._pruned = 0.0
        self._tasks: set[asyncio.Task[object]] = set()

    @property
    def keeps(self) -> bool:
        """There is a store."""
        return self._store is not None

    async def get(self, ident: str, owner: str, budget: ReadBudget | None = None) -> Turn | None:
        """A turn. Raises `StoreUnavailable`, and `BudgetExceeded` as a store."""
        store = await self._opened()
        return None if store is None else await store.get(ident, owner, budget)

    async def get_chain(self, ident: str, owner: str, budget: ReadBudget) -> tuple[Turn, ...] | None:
        """A conversation, oldest first. Raises as `get`."""
        store = await self._opened()
        return None if store is None else await store.get_chain(ident, owner, budget)

    async def put(self, turn: Turn) -> None:
        """Keep a turn. Raises `StoreUnavailable`."""
        store = self._store if self._open else await self._opened()
        if store is not None:
            await store.put(turn)
            await self._prune(store)

    async def change(self, ident: str, owner: str, work: Change) -> Turn | None:
        """As `ResponseStore.change`; without a store nothing is there and nothing is put."""
        store = await self._opened()
        if store is None:
            return None
        turn = await store.change(ident, owner, work)
        await self._prune(store)
        return turn

    async def _prune(self, store: ResponseStore) -> None:
        now = time.time()
        if now - self._pruned >= PRUNE_S:
            self._pruned = now
            await store.prune(now)

    async def prolong(self, idents: Iterable[str], owner: str) -> None:
        """Keep turns for as long as what is put now. Raises `StoreUnavailable`."""
        store = await self._opened()
        if store is not None:
            await store.prolong(idents, owner, time.time() + self.max_age_s)

    async def delete(self, ident: str, owner: str) -> bool:
        """Forget a turn; whether it was there. Raises `StoreUnavailable`."""
        store = await self._opened()
        return store is not None and await store.delete(ident, owner)

    # --- cancelling -------------------------------------------------------------------------------------------------

    def began(self, turn: Turn, reply: Reply) -> None:
        """This process makes the response that is kept as `turn`."""
        self.running[_mark_of(turn.id), turn.owner] = reply
        if self._looking is None and self._store is not None and self._store.shared:
            self._look_later()

    def ended(self, turn: Turn) -> None:
        """It does so no more."""
        self.running.pop((_mark_of(turn.id), turn.owner), None)

    async def cancel(self, turn: Turn) -> Turn:
        """End a response that is in progress, wherever it is made; what has become of it then. One that nobody ends in
        `CANCEL_S` is made by nobody any more. Raises `StoreUnavailable`."""
        store = await self._opened()
        assert store is not None  # whose turn it is
        reply = self.running.get((_mark_of(turn.id), turn.owner))
        mark = None
        if reply is not None:
            reply.stop(Cancelled())
        elif store.shared:
            now = time.time()
            mark = Turn(id=_mark_of(turn.id), owner=turn.owner, status="kept", created=now, expires=now + CANCEL_MARK_S)
            await store.put(mark)
        wait, waited = CANCEL_LOOK_S, 0.0
        while waited < CANCEL_S:
            await asyncio.sleep(wait)
            waited += wait
            wait *= 2  # the turn may be large
            latest = await store.get(turn.id, turn.owner)
            if latest is None or latest.status != "in_progress":
                if mark is not None:
                    await store.delete(mark.id, mark.owner)
                return replace(turn, status="cancelled") if latest is None else latest
        ended = replace(turn, status="cancelled")
        await store.put(ended)
        return ended

    def _look_later(self) -> None:
        self._looking = asyncio.get_running_loop().call_later(MARKS_S, self._look)

    def _look(self) -> None:
        self._looking = None
        if self.running:
            self._looking = asyncio.get_running_loop().create_task(self._look_for_marks())

    async def _look_for_marks(self) -> None:
        """Stop those responses of this process that another one has marked."""
        assert self._store is not None
        running = list(self.running.items())
        try:
            for at in range(0, len(running), MARKS_AT_ONCE):
                some = dict(running[at : at + MARKS_AT_ONCE])
                for mark in await self._store.present(some):
                    some[mark].stop(Cancelled())
        except StoreUnavailable as error:
            LOG.debug("cancelled responses cannot be looked for: %s", error)
        self._look_later()

    def later(self, work: Coroutine[Any, Any, object]) -> None:
        """Do something that nobody can wait for any more; `close` waits for it."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Finish what is under way and close the store, if it was opened."""
        if self._looking is not None:
            self._looking.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        if self._store is not None and self._open:
            await self._store.close()

    async def _opened(self) -> ResponseStore | None:
        if self._store is not None and not self._open:
            async with self._opening:
                if not self._open:
                    await self._store.start()
                    self._open = True
        return self._store


def _mark_of(ident: str) -> str:
    """The id of the turn that says that a response is to be cancelled."""
    return f"cancel_{ident}"


CONVERSATIONS: Final = web.AppKey("toolwire.conversations", Conversations)


async def read(request: web.Request) -> web.StreamResponse:
    """The response as it is now."""
    form = _form(request)
    async with _turn(request) as (turn, asked):
        return await _answer(asked, turn, lambda: dump_in_pieces(form.shown(turn)))


async def delete(request: web.Request) -> web.StreamResponse:
    """Forget a response, and what server-side tools gave for the calls in it. Conversations that go on from it end."""
    conversations = request.app[CONVERSATIONS]
    async with _turn(request) as (turn, asked):
        try:
            for ident in (turn.id, *kept_for(turn)):
                await conversations.delete(ident, turn.owner)
        except StoreUnavailable as error:
            raise away(error) from error
        return await _answer(asked, turn, lambda: dump({"id": turn.id, "object": "response", "deleted": True}))


async def list_input(request: web.Request) -> web.StreamResponse:
    """The input items of a response, newest first unless `order=asc`, in pages (`limit`, `after`)."""
    form, page = _form(request), Page(request.query)
    async with _turn(request) as (turn, asked):
        return await _answer(asked, turn, lambda: page.write(form.listed(turn)))


class Page:
    """The part of a list that a query asks for. Raises `ClientFault` for a query that asks for none."""

    def __init__(self, query: Mapping[str, str]) -> None:
        order = query.get("order", "desc")
        if order not in ("asc", "desc"):
            raise ClientFault(f"`order` must be 'asc' or 'desc', not {quote(order)}.", param="order")
        text = query.get("limit", str(DEFAULT_PAGE))
        if not (text.isascii() and text.isdigit() and 1 <= int(text) <= MAX_PAGE):
            raise ClientFault(f"`limit` must be 1 to {MAX_PAGE}, not {quote(text)}.", param="limit")
        self._newest_first = order == "desc"
        self._after = query.get("after")
        self._most = int(text)

    def write(self, items: Sequence[Mapping[str, Any]], nobody: str | None = None) -> bytes:
        """The page as JSON. Only its own items are made, but for the search for `after`. An empty one has `nobody` as
        its first and last id. Raises `ClientFault` if no item has the id that was named."""
        return list_of(*_page(items, self._newest_first, self._after, self._most), nobody)


def _page(
    items: Sequence[Mapping[str, Any]], newest_first: bool, after: str | None, most: int
) -> tuple[Sequence[Mapping[str, Any]], bool]:
    """The items, and whether there are more."""
    places = range(len(items))[::-1] if newest_first else range(len(items))
    if after is not None:
        at = next((at for at, place in enumerate(places) if items[place].get("id") == after), None)
        if at is None:
            raise ClientFault(f"No item has the id {quote(after)}.", param="after")
        places = places[at + 1 :]
    return [items[place] for place in places[:most]], len(places) > most


def list_of(page: Sequence[Mapping[str, Any]], more: bool, nobody: str | None = None) -> bytes:
    """A list of items as JSON; `more`: there are further ones."""
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
    """Stop a response that is being made; one that is over stays as it is. A client may do so while the response takes
    the last of its places."""
    form = _form(request)
    async with _turn(request, limited=False) as (turn, asked):
        if turn.status == "in_progress":
            try:
                turn = await request.app[CONVERSATIONS].cancel(turn)
            except StoreUnavailable as error:
                raise away(error) from error
        ended = turn
        return await _answer(asked, ended, lambda: dump_in_pieces(form.shown(ended)))


def away(error: StoreUnavailable) -> Unavailable:
    """What the client gets to see when the store cannot be reached."""
    return Unavailable(f"The response store cannot be used now: {error}.", code="store_unavailable", retry_after_s=5)


@asynccontextmanager
async def _turn(request: web.Request, *, limited: bool = True) -> AsyncIterator[tuple[Turn, AdmittedRequest]]:
    """The turn that a request is about. The request is held against the limits, unless it is not `limited`, and the
    bytes of a large turn count in the budget of bodies (R33.2)."""
    ident, owner = request.match_info["id"], request[OWNER]
    conversations = request.app[CONVERSATIONS]
    async with admitted(request, limited=limited, counted=limited) as asked:
        try:
            try:
                turn = await conversations.get(ident, owner, ReadBudget(OFFLOAD_BYTES, OFFLOAD_BYTES))
            except BudgetExceeded as large:
                asked.hold(large.size)
                turn = await conversations.get(ident, owner)
        except StoreUnavailable as error:
            raise away(error) from error
        if turn is None or turn.status == "kept":  # the latter is no response, but what one will go on from
            raise ClientFault(f"Response with id {quote(ident)} not found.", code="not_found")
        yield turn, asked


async def _answer(asked: AdmittedRequest, turn: Turn, write: Callable[[], bytes]) -> web.StreamResponse:
    """Sends what `write` returns. It is written in a thread for a large turn."""
    body = await offload(turn.size > OFFLOAD_BYTES or len(turn.messages) > OFFLOAD_MESSAGES, write)
    return await asked.send(web.Response(body=body, content_type="application/json"))


def _form(request: web.Request) -> TurnForm:
    """In whose words a turn is shown."""
    form = request.app[CLIENTS].of(request.path, request.headers).turns
    assert form is not None  # only who has turns has these routes
    return form
