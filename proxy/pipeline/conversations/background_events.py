"""Stored events and leases of background responses. A lease shows that a worker is still running the response. The
rules are in `background`."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Final

from aiohttp import web

from ...errors import GatewayError
from ...ingress.liveness import LivenessMonitor
from ...protocols.shared.turn import RUNNING, StoredTurn
from ...protocols.streams import KEEPALIVE
from ...protocols.turn_form import TurnForm
from ...store.base import StoreUnavailable
from .stored import Conversations

LOG: Final = logging.getLogger("toolwire.background")

MARK: Final = "background"
"""The key in a turn's `extra` that marks a background response."""
EVENTS: Final = "events"
CHUNK_BYTES: Final = 32 * 1024
"""Bytes of events in one entry of the store; the entry is rewritten while it grows."""
LOOK_S: Final = 0.1
"""Seconds between two checks of the store for new events of a response."""


def lease_id(ident: str) -> str:
    """Returns the id of the store's entry for the lease of a response."""
    return f"lease_{ident}"


def is_running(turn: StoredTurn | None) -> bool:
    """Returns True if the turn exists and its response is not over."""
    return turn is not None and turn.status in RUNNING


class EventLog:
    """Writes the events of one response to the store, at most `most` bytes of them. `news` is set while events are
    unwritten. `turn` is the stored turn of the response."""

    turn: StoredTurn

    def __init__(self, conversations: Conversations, most: int) -> None:
        self.news = asyncio.Event()
        self._conversations = conversations
        self._room = most
        self._rest = b""
        self._waiting: list[tuple[int, list[str]]] = []  # number and frames of chunks that are full
        self._chunk: list[str] = []
        self._size = self._number = 0
        self._writing = asyncio.Lock()

    def add(self, data: bytes) -> None:
        """Takes the next bytes of the stream and collects their events."""
        *frames, self._rest = (self._rest + data).split(b"\n\n")
        for frame in frames:
            if frame.startswith(b":"):
                continue
            self._room -= len(frame)
            if self._room < 0:
                return
            if not frame.startswith(b"event:") and self._chunk:  # such as `data: [DONE]` after the last event
                self._chunk[-1] += "\n\n" + frame.decode()
                continue
            if self._size >= CHUNK_BYTES:
                self._waiting.append((self._number, self._chunk))
                self._chunk, self._size = [], 0
                self._number += 1
            self._chunk.append(frame.decode())
            self._size += len(frame)
            self.news.set()

    async def flush(self) -> None:
        """Writes the unwritten events. Raises `StoreUnavailable`; the events stay unwritten then."""
        async with self._writing:
            if not self.news.is_set():
                return
            self.news.clear()
            try:
                while self._waiting:
                    await self._write(*self._waiting[0])
                    del self._waiting[0]
                await self._write(self._number, self._chunk[:])
            except BaseException:
                self.news.set()
                raise

    async def _write(self, number: int, frames: Sequence[str]) -> None:
        turn = self.turn
        entry = StoredTurn(
            id=events_id(turn.id, number),
            owner=turn.owner,
            ancestors=(turn.id,),
            status="kept",
            created=turn.created,
            expires=turn.expires,
            extra={EVENTS: {"frames": list(frames)}},
        )
        await self._conversations.put(entry)


def events_id(ident: str, number: int) -> str:
    """Returns the id of the store's entry number `number` with events of a response."""
    return f"{EVENTS}_{ident}_{number}"


class EventReplay:
    """Sends the events of a background response after event number `after`, as they are stored. After `silence_s`
    without events it sends a keep-alive frame."""

    def __init__(
        self, conversations: Conversations, silence_s: float, turn: StoredTurn, form: TurnForm, after: int
    ) -> None:
        self._conversations = conversations
        self._silence_s = silence_s
        self._turn = turn
        self._form = form
        self._after = after
        self._number = self._chunk = self._at = 0  # of the next event, of its entry, and its position there
        self._over = self._stopped = False

    async def exists(self) -> bool:
        """Returns whether events were stored."""
        return MARK in self._turn.extra and await self._entry(0) is not None

    async def send(self, request: web.Request, monitor: LivenessMonitor) -> web.StreamResponse:
        """Sends all events. Returns when the response is over, or its client has disconnected."""
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream; charset=utf-8"})
        response.headers["Cache-Control"] = "no-cache"
        response.headers["X-Accel-Buffering"] = "no"
        await response.prepare(request)
        monitor.attend(lambda: None, lambda _: self._stop())
        sent = asyncio.get_running_loop().time()
        while not self._over and not self._stopped:
            try:
                data = await self._next()
            except StoreUnavailable as error:  # the client may reconnect with `starting_after`
                LOG.warning("response %s: its events cannot be read: %s", self._turn.id, error)
                break
            now = asyncio.get_running_loop().time()
            if data:
                await response.write(data)
                sent = now
            elif not self._over:
                if now - sent >= self._silence_s:
                    await response.write(KEEPALIVE)
                    sent = now
                await asyncio.sleep(LOOK_S)
        await response.write_eof()
        return response

    def _stop(self) -> None:
        self._stopped = True

    async def _next(self) -> bytes:
        """Returns the frames of new events. Adds the last frame if the response ended without one."""
        turn = self._turn
        alive = await self._conversations.present([(lease_id(turn.id), turn.owner)])  # first: rule 4
        data = await self._come()
        if data or self._over or alive:
            return data
        self._over = True
        now = await self._conversations.get(turn.id, turn.owner)
        if now is None:
            return b""
        ended = await current_turn(self._conversations, now, self._form)
        return self._form.last_frame(ended, self._number) if self._number > self._after else b""

    async def _come(self) -> bytes:
        shown: list[str] = []
        while (frames := await self._entry(self._chunk)) is not None:
            for frame in frames[self._at :]:
                if self._number > self._after:
                    shown.append(f"{frame}\n\n")
                self._number += 1
                self._over = self._over or self._form.is_last_frame(frame)
            self._at = len(frames)
            if await self._entry(self._chunk + 1) is None:
                break
            self._chunk, self._at = self._chunk + 1, 0
        return "".join(shown).encode()

    async def _entry(self, number: int) -> Sequence[str] | None:
        entry = await self._conversations.get(events_id(self._turn.id, number), self._turn.owner)
        if entry is None:
            return None
        frames: Sequence[str] = entry.extra[EVENTS]["frames"]
        return frames


async def current_turn(conversations: Conversations, turn: StoredTurn, form: TurnForm) -> StoredTurn:
    """Returns the turn as it is now. A response without a worker is first stored as failed (rule 2). Raises
    `StoreUnavailable`."""
    if not is_running(turn) or MARK not in turn.extra:
        return turn
    if await conversations.present([(lease_id(turn.id), turn.owner)]):
        return turn
    error = GatewayError(
        "The gateway process that made this response has ended before it was complete. Send the request again.",
        code="response_lost",
    )
    failed = await conversations.change(
        turn.id, turn.owner, lambda now: form.ended(now, "failed", error) if now and is_running(now) else None
    )
    return failed or await conversations.get(turn.id, turn.owner) or turn


async def forget_events(conversations: Conversations, turn: StoredTurn) -> None:
    """Deletes the events of a response. Raises `StoreUnavailable`."""
    number = 0
    while MARK in turn.extra and await conversations.delete(events_id(turn.id, number), turn.owner):
        number += 1
