"""Background responses (R28.7): a request with `background: true` continues without its client.

Rules:

1. The exchange is the same as any other and runs in a task of its own. A `ResponseSink` takes the place of the
   client's connection and writes the frames to the store. All clients, also the first one, read the frames from the
   store (`EventReplay`), in any process.
2. A response is `queued` in the store before its client knows its id. The worker that makes it renews a *lease*, an
   entry that lives for `background.lease_s`. A response that is neither over nor leased has lost its worker. The
   first process that notices this stores it as failed (`settled`).
3. The result of a response never changes: a result that comes after the response was stored as failed is dropped.
4. The lease is released last, when all events are in the store. An event that is missing then was never written.
5. The number of running responses is also in the store, one entry for each key and one for all: the limits hold over
   all processes. A response without a lease takes no place.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final, Literal

from aiohttp import web

from ...config import BackgroundConfig
from ...errors import Cancelled, ClientFault, Defect, GatewayError, Unavailable
from ...ingress.liveness import LivenessMonitor
from ...protocols.shared.turn import StoredTurn
from ...protocols.streams import WriteOptions
from ...protocols.turn_form import TurnForm
from ...store.base import StoreUnavailable
from ...support.offload import offload
from ..exchange.request_state import Exchange
from ..sending.detached import ResponseSink, detached
from .background_events import MARK, EventLog, EventReplay, lease_id, runs
from .stored import Conversations

LOG: Final = logging.getLogger("toolwire.background")

FLUSH_S: Final = 0.05
"""Seconds between two writes of new events."""
AWAY_S: Final = 1.0
"""Seconds between two attempts to reach a store that is unavailable."""
RENEWALS: Final = 4
"""Renewals of a lease within its lifetime."""
END_S: Final = 5.0
"""Seconds that a stopping application waits for its responses to end."""

Work = Callable[[web.Request], Coroutine[Any, Any, web.StreamResponse]]


class Background:
    """The background responses of an application. `silence_s`: the time without events after which a keep-alive frame
    is sent."""

    def __init__(self, config: BackgroundConfig, conversations: Conversations, silence_s: float) -> None:
        self.config = config
        self.conversations = conversations
        self._silence_s = silence_s
        self._runs: set[BackgroundRun] = set()
        self._idle: asyncio.Event | None = None

    def replay(self, turn: StoredTurn, form: TurnForm, after: int = -1) -> EventReplay:
        """Returns a sender of the events of a response after number `after`."""
        return EventReplay(self.conversations, self._silence_s, turn, form, after)

    @property
    def number(self) -> int:
        """The number of responses that are running now."""
        return len(self._runs)

    async def begin(self, request: web.Request, exchange: Exchange, work: Work) -> web.StreamResponse | StoredTurn:
        """Runs `work` in a task of its own, for a request without a connection. Returns the stored turn once it is
        queued, or the answer if the work ended before that. Raises `ClientFault` if there is no store."""
        if not self.conversations.keeps:
            raise ClientFault(
                "Invalid 'background': no responses are kept here.",
                code="unsupported_parameter",
                param="background",
                hint="Leave it out. The operator sets `store.kind`.",
            )
        run = exchange.background = BackgroundRun(self, exchange)
        task = asyncio.get_running_loop().create_task(run.carry_out(detached(request, run.sink), work))
        request[DETACHED] = True
        self._runs.add(run)
        task.add_done_callback(lambda _: self._ended(run, task))
        begun = asyncio.ensure_future(run.begun.wait())
        try:
            await asyncio.wait({task, begun}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            begun.cancel()
        return run.turn if run.turn is not None else task.result()

    async def idle(self) -> None:
        """Waits until no response is running."""
        while self._runs:
            if self._idle is None or self._idle.is_set():
                self._idle = asyncio.Event()
            await self._idle.wait()

    async def running(self, app: web.Application) -> AsyncIterator[None]:
        """For `app.cleanup_ctx`: stops all running responses when the application ends."""
        yield
        for run in [*self._runs]:
            run.stop(Unavailable("The gateway is stopping. Send the request again.", code="shutting_down"))
        with suppress(TimeoutError):
            async with asyncio.timeout(END_S):
                await self.idle()

    def _ended(self, run: BackgroundRun, task: asyncio.Task[web.StreamResponse]) -> None:
        self._runs.discard(run)
        if not task.cancelled():
            task.exception()  # marks the exception as retrieved, or asyncio would log it
        if self._idle is not None and not self._runs:
            self._idle.set()


DETACHED: Final = web.RequestKey("toolwire.detached", bool)
"""Marks a request whose exchange continues in the background and ends there."""
BACKGROUND: Final = web.AppKey("toolwire.background", Background)


class BackgroundRun:
    """One background response. `turn` is its stored state, None until it is queued; `begun` is set at that moment.
    `monitor` can stop it."""

    def __init__(self, background: Background, exchange: Exchange) -> None:
        self.turn: StoredTurn | None = None
        self.begun = asyncio.Event()
        self.monitor: LivenessMonitor | None = None
        self._background = background
        self._conversations = background.conversations
        self._exchange = exchange
        self._log = EventLog(background.conversations, background.config.event_bytes)
        self.sink = ResponseSink(self._log.add)
        self._upkeep: asyncio.Task[None] | None = None
        self._places: list[str] = []
        self._over = False

    def stop(self, reason: GatewayError) -> None:
        """Ends the response with this error."""
        if self.monitor is not None:
            self.monitor.stop(reason)

    async def carry_out(self, request: web.Request, work: Work) -> web.StreamResponse:
        """Runs `work`, and stores an end of the response whatever happens."""
        timer = asyncio.get_running_loop().call_later(self._background.config.max_s, self._too_long)
        try:
            return await work(request)
        finally:
            timer.cancel()
            await self._finish()
            self._exchange.background = None  # breaks the reference cycle

    def _too_long(self) -> None:
        seconds = self._background.config.max_s
        self.stop(
            GatewayError(f"The response took longer than {seconds:g} s (`background.max_s`).", code="upstream_timeout")
        )

    # --- start ------------------------------------------------------------------------------------------------------

    async def queue(self, turn: StoredTurn, form: TurnForm, options: WriteOptions, *, large: bool) -> StoredTurn:
        """Stores `turn` as queued and starts renewing its lease. Returns the stored turn. `large`: write it in a
        thread.

        Raises `ClientFault` `rate_limit_exceeded` if too many responses are running, and `StoreUnavailable`.
        """
        ident, owner, config = turn.id, turn.owner, self._background.config
        self._form = form
        marked = replace(turn, extra={**turn.extra, MARK: {}})
        turn, frames = await offload(large, form.queued, marked, options)
        await self._renew(ident, owner)
        self._log.turn = turn
        try:
            for account, most in ((owner, config.per_key), (MARK, config.total)):
                await self._take_place(account, most, (ident, owner))
                self._places.append(account)
            self._log.add(frames)
            await self._log.flush()
            await self._conversations.put(turn)
        except BaseException:
            await self._leave(ident, owner)
            raise
        self._upkeep = asyncio.get_running_loop().create_task(self._keep_up(ident, owner))
        assert self.monitor is not None
        self._conversations.began(turn, self.monitor)
        self.turn = turn
        self.begun.set()
        return turn

    async def put(self, turn: StoredTurn) -> None:
        """Stores the result, unless the response is over (rule 3). Raises `StoreUnavailable`."""
        await self._conversations.change(turn.id, turn.owner, lambda now: turn if runs(now) else None)

    async def _take_place(self, account: str, most: int, me: tuple[str, str]) -> None:
        for last in (False, True):
            taken = await self._conversations.change(MARK, account, lambda turn: _with_place(turn, account, most, me))
            if taken is not None:
                return
            if last:
                break
            known = await self._conversations.get(MARK, account)
            places = _places(known)
            leases = {(lease_id(ident), owner): (ident, owner) for ident, owner in places}
            present = await self._conversations.present(leases)
            alive = {leases[lease] for lease in present}
            await self._conversations.change(
                MARK,
                account,
                lambda turn, alive=alive, places=places: _without_ended(turn, alive, places),  # type: ignore[misc]
            )
        who, option = ("in all", "total") if account == MARK else ("for one API key", "per_key")
        raise ClientFault(
            f"{most} responses are made in the background at once {who}, which is the limit (`background.{option}`). "
            "Please try again when another one has ended.",
            code="rate_limit_exceeded",
            headers={"Retry-After": "1"},
        )

    async def _renew(self, ident: str, owner: str) -> None:
        now = time.time()
        expires = now + self._background.config.lease_s
        lease = StoredTurn(id=lease_id(ident), owner=owner, status="kept", created=now, expires=expires)
        await self._conversations.put(lease)

    async def _keep_up(self, ident: str, owner: str) -> None:
        """Writes events and renews the lease until the response is over."""
        pause = self._background.config.lease_s / RENEWALS
        loop = asyncio.get_running_loop()
        due = loop.time() + pause
        while not self._over:
            with suppress(TimeoutError):
                async with asyncio.timeout_at(due):
                    await self._log.news.wait()
            try:
                if loop.time() >= due:
                    due = loop.time() + pause
                    await self._renew(ident, owner)
                await self._log.flush()
            except StoreUnavailable as error:
                LOG.warning("response %s: the store cannot be reached: %s", ident, error)
                await asyncio.sleep(AWAY_S)
            await asyncio.sleep(FLUSH_S)

    # --- end --------------------------------------------------------------------------------------------------------

    async def _finish(self) -> None:
        turn = self.turn
        if turn is None:
            return
        self._conversations.ended(turn)
        if self._upkeep is not None:
            self._over = True
            self._log.news.set()
            await asyncio.wait({self._upkeep})
        failure = self._exchange.failure or Defect("The answer was broken off.")
        status: Literal["failed", "cancelled"] = "cancelled" if isinstance(failure, Cancelled) else "failed"
        error = None if status == "cancelled" else failure
        try:
            await self._log.flush()
            await self._conversations.change(
                turn.id, turn.owner, lambda now: self._form.ended(now, status, error) if now and runs(now) else None
            )
        except StoreUnavailable as away:
            LOG.error("response %s: its end could not be kept: %s", turn.id, away)
        await self._leave(turn.id, turn.owner)

    async def _leave(self, ident: str, owner: str) -> None:
        """Releases the places and the lease of the response."""
        try:
            for account in self._places:
                await self._conversations.change(MARK, account, lambda turn: _without_ended(turn, (), [(ident, owner)]))
            await self._conversations.delete(lease_id(ident), owner)
        except StoreUnavailable as error:
            LOG.warning("response %s: its lease could not be given up: %s", ident, error)


# --- places -----------------------------------------------------------------------------------------------------------


Place = tuple[str, str]
"""A running response: its id and its owner."""


def _places(turn: StoredTurn | None) -> list[Place]:
    return [] if turn is None else [(ident, owner) for ident, owner in turn.extra[MARK]["places"]]


def _holding(account: str, places: Sequence[Place]) -> StoredTurn:
    now = time.time()
    held: Mapping[str, Any] = {"places": [list(place) for place in places]}
    return StoredTurn(id=MARK, owner=account, status="kept", created=now, expires=now + 86_400.0, extra={MARK: held})


def _with_place(turn: StoredTurn | None, account: str, most: int, mine: Place) -> StoredTurn | None:
    """Returns the account with one more place; None if no place is free."""
    places = _places(turn)
    if mine in places:
        return turn
    return None if len(places) >= most else _holding(account, [*places, mine])


def _without_ended(
    turn: StoredTurn | None, alive: Sequence[Place] | set[Place], checked: Sequence[Place]
) -> StoredTurn | None:
    """Returns the account without those places in `checked` that are not in `alive`; None if there is no account."""
    if turn is None:
        return None
    return _holding(turn.owner, [place for place in _places(turn) if place in alive or place not in checked])
