"""One background response: its stored state, its events, its lease and its places (rules 2 to 5 of
`toolwire.pipeline.sending.background`)."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final, Literal

from ...config import BackgroundConfig
from ...errors import Cancelled, ClientFault, Defect, GatewayError
from ...ingress.liveness import LivenessMonitor
from ...protocols.shared.turn import StoredTurn
from ...protocols.streams import WriteOptions
from ...protocols.turn_form import TurnForm
from ...store.base import StoreUnavailable
from ...support.offload import offload
from .background_events import MARK, EventLog, is_running, lease_id
from .stored import Conversations

LOG: Final = logging.getLogger("toolwire.background")

FLUSH_S: Final = 0.05
"""Seconds between two writes of new events to the store."""
AWAY_S: Final = 1.0
"""Seconds between two attempts to reach a store that is unavailable."""
RENEWALS: Final = 4
"""Number of renewals of a lease within its lifetime (`background.lease_s`)."""


class BackgroundRun:
    """One background response. `turn` is its stored state, None until it is queued; `begun` is set at that moment.
    `monitor` can stop it."""

    def __init__(self, config: BackgroundConfig, conversations: Conversations) -> None:
        self.turn: StoredTurn | None = None
        self.begun = asyncio.Event()
        self.monitor: LivenessMonitor | None = None
        self._config = config
        self._conversations = conversations
        self._log = EventLog(conversations, config.event_bytes)
        self.write = self._log.add
        """Stores frames of the answer."""
        self._upkeep: asyncio.Task[None] | None = None
        self._places: list[str] = []
        self._over = False

    def stop(self, reason: GatewayError) -> None:
        """Ends the response with this error."""
        if self.monitor is not None:
            self.monitor.stop(reason)

    # --- start ------------------------------------------------------------------------------------------------------

    async def queue(self, turn: StoredTurn, form: TurnForm, options: WriteOptions, *, large: bool) -> StoredTurn:
        """Stores `turn` as queued and starts renewing its lease. Returns the stored turn. `large`: write it in a
        thread.

        Raises `ClientFault` `rate_limit_exceeded` if too many responses are running, and `StoreUnavailable`.
        """
        ident, owner, config = turn.id, turn.owner, self._config
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
        await self._conversations.change(turn.id, turn.owner, lambda now: turn if is_running(now) else None)

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
        expires = now + self._config.lease_s
        lease = StoredTurn(id=lease_id(ident), owner=owner, status="kept", created=now, expires=expires)
        await self._conversations.put(lease)

    async def _keep_up(self, ident: str, owner: str) -> None:
        """Writes events and renews the lease until the response is over."""
        pause = self._config.lease_s / RENEWALS
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

    async def finish(self, failure: GatewayError | None) -> None:
        """Stores the end of the response if it has none yet: as failed, or as cancelled if it was stopped. `failure`:
        the error with which its exchange ended."""
        turn = self.turn
        if turn is None:
            return
        self._conversations.ended(turn)
        if self._upkeep is not None:
            self._over = True
            self._log.news.set()
            await asyncio.wait({self._upkeep})
        cancelled = isinstance(failure, Cancelled)
        status: Literal["failed", "cancelled"] = "cancelled" if cancelled else "failed"
        error = None if cancelled else failure or Defect("The answer was broken off.")
        try:
            await self._log.flush()
            await self._conversations.change(
                turn.id,
                turn.owner,
                lambda now: self._form.ended(now, status, error) if now and is_running(now) else None,
            )
        except StoreUnavailable as away:
            LOG.error("response %s: its end could not be stored: %s", turn.id, away)
        await self._leave(turn.id, turn.owner)

    async def _leave(self, ident: str, owner: str) -> None:
        """Releases the places and the lease of the response."""
        try:
            for account in self._places:
                await self._conversations.change(MARK, account, lambda turn: _without_ended(turn, (), [(ident, owner)]))
            await self._conversations.delete(lease_id(ident), owner)
        except StoreUnavailable as error:
            LOG.warning("response %s: its lease could not be released: %s", ident, error)


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
