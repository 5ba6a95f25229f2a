"""Background responses (R28.7): a request with `background: true` continues without its client.

Rules:

1. The exchange is the same as any other and runs in a task of its own. A `ResponseSink` takes the place of the
   client's connection and writes the frames to the store. All clients, also the first one, read the frames from the
   store (`EventReplay`), in any process.
2. A response is `queued` in the store before its client knows its id. The worker that makes it renews a *lease*, an
   entry that lives for `background.lease_s`. A response that is neither over nor leased has lost its worker. The first
   process that notices this stores it as failed (`current_turn`).
3. The result of a response never changes: a result that comes after the response was stored as failed is dropped.
4. The lease is released last, when all events are in the store. An event that is missing then was never written.
5. The number of running responses is also in the store, one entry for each key and one for all: the limits hold over
   all processes. A response without a lease takes no place.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import suppress
from typing import Any, Final

from aiohttp import web

from ...config import BackgroundConfig
from ...errors import ClientFault, GatewayError, Unavailable
from ...protocols.shared.turn import StoredTurn
from ...protocols.turn_form import TurnForm
from ..conversations.background_events import EventReplay
from ..conversations.background_run import BackgroundRun
from ..conversations.stored import Conversations
from ..exchange.request_state import Exchange
from .detached import ResponseSink, without_connection

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
        self._runs: dict[asyncio.Task[web.StreamResponse], BackgroundRun] = {}

    def replay(self, turn: StoredTurn, form: TurnForm, after: int = -1) -> EventReplay:
        """Returns a sender of the events of a response after number `after`."""
        return EventReplay(self.conversations, self._silence_s, turn, form, after)

    @property
    def number(self) -> int:
        """The number of responses that are running now."""
        return len(self._runs)

    async def begin(self, request: web.Request, exchange: Exchange, work: Work) -> web.StreamResponse | StoredTurn:
        """Runs `work` in a task of its own, with a request that has no connection. Returns the response's turn once it
        is stored as queued, or the answer if the work ended before that. Raises `ClientFault` if there is no store."""
        if not self.conversations.keeps:
            raise ClientFault(
                "Invalid 'background': this gateway does not store responses.",
                code="unsupported_parameter",
                param="background",
                hint="Leave it out. The operator sets `store.kind`.",
            )
        run = exchange.background = BackgroundRun(self.config, self.conversations)
        alone = without_connection(request, ResponseSink(run.write))
        task = asyncio.get_running_loop().create_task(self._carry_out(run, exchange, alone, work))
        request[DETACHED] = True
        self._runs[task] = run
        task.add_done_callback(self._ended)
        begun = asyncio.ensure_future(run.begun.wait())
        try:
            await asyncio.wait({task, begun}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            begun.cancel()
        return run.turn if run.turn is not None else task.result()

    async def idle(self) -> None:
        """Waits until no response is running."""
        while self._runs:
            await asyncio.wait(self._runs)

    async def running(self, app: web.Application) -> AsyncIterator[None]:
        """For `app.cleanup_ctx`: stops all running responses when the application ends."""
        yield
        for run in self._runs.values():
            run.stop(Unavailable("The gateway is stopping. Send the request again.", code="shutting_down"))
        with suppress(TimeoutError):
            async with asyncio.timeout(END_S):
                await self.idle()

    async def _carry_out(
        self, run: BackgroundRun, exchange: Exchange, request: web.Request, work: Work
    ) -> web.StreamResponse:
        """Does the work of a response, and stores an end of the response whatever happens."""
        seconds = self.config.max_s
        late = GatewayError(
            f"The response took longer than {seconds:g} s (`background.max_s`).", code="upstream_timeout"
        )
        timer = asyncio.get_running_loop().call_later(seconds, run.stop, late)
        try:
            return await work(request)
        finally:
            timer.cancel()
            await run.finish(exchange.failure)
            exchange.background = None  # breaks the reference cycle

    def _ended(self, task: asyncio.Task[web.StreamResponse]) -> None:
        del self._runs[task]
        if not task.cancelled():
            task.exception()  # marks the exception as retrieved, or asyncio would log it


DETACHED: Final = web.RequestKey("toolwire.detached", bool)
"""Marks a request whose exchange continues in the background and ends there."""
BACKGROUND: Final = web.AppKey("toolwire.background", Background)
