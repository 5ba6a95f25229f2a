"""Limits on use (R17.9): an exchange is booked before anything is done for it, and corrected when it ends. Its place
among the requests at the same time it has since before its body was read (`toolwire.ratelimit.slots`); it is given back
here, before the last event goes out.

The gateway puts this middleware first in every chain as soon as anything is limited, so that no chain goes without; a
chain that names it has it where it says.

What counts: each request for a model's answer whose body could be read and whose route is known, however it ends.
Tokens are those that the backend reports, else an estimate. Whoever goes away has used the prompt and what was written
so far; a request that was refused before the model wrote anything has used none.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from aiohttp import web

from toolwire.errors import GatewayError, ModelFault
from toolwire.events import Delta, Event, Fault, Finish
from toolwire.pipeline.chain.middleware import ChainPlace, Handler, Middleware
from toolwire.pipeline.chain.reply import Reply
from toolwire.pipeline.exchange.exchange import EXCHANGE, Exchange
from toolwire.pipeline.exchange.heads import ADDED_HEADERS
from toolwire.ratelimit.admission import ADMISSION, SLOT, Admission
from toolwire.ratelimit.base import Bound, changes, gives_back
from toolwire.ratelimit.slots import Slot
from toolwire.upstream.servers.usage import BYTES_PER_TOKEN


class RateLimit(Middleware):
    """Holds requests against the application's limits. Without any it does nothing."""

    proxied_requests = "runs"

    def __init__(self, options: object = None, *, name: str | None = None) -> None:
        super().__init__(options, name=name)
        self._admission: Admission | None = None

    @classmethod
    def idle(cls, place: ChainPlace) -> bool:
        """See `Middleware.idle`."""
        return not place.limited

    async def start(self, app: web.Application) -> None:
        self._admission = app.get(ADMISSION)

    async def __call__(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        exchange = request[EXCHANGE]
        admission = self._admission
        bounds = () if admission is None else admission.bounds(exchange.key, exchange.route.config)
        slot = request.get(SLOT)
        if admission is None or not (bounds or slot):
            return await handler(request)
        booking = Booking(admission, bounds, slot, exchange)
        if bounds:
            request[ADDED_HEADERS] = {**request.get(ADDED_HEADERS, {}), **await booking.make()}
        if slot is None and not gives_back(bounds):
            return await handler(request)
        try:
            response = await handler(request)
        except GatewayError as error:
            await booking.end(booking.so_far() if isinstance(error, ModelFault) else 0)
            raise
        except BaseException:
            booking.abandon()
            raise
        if isinstance(response, Reply) and not exchange.only_counted:
            booking.follow(response)
        else:
            await booking.end(0)  # another middleware answered, or nobody was asked
        return response


class Booking:
    """The share of the limits that one exchange holds: `bounds`, and its `slot`."""

    def __init__(self, admission: Admission, bounds: Sequence[Bound], slot: Slot | None, exchange: Exchange) -> None:
        self._admission = admission
        self._bounds = bounds
        self._slot = slot
        self._model = exchange.received.model
        self._protocol = exchange.protocol
        origin = exchange.received.origin
        self._prompt, self._expected = admission.estimate(exchange.received, origin.size if origin else 0)
        self._at_end = exchange.at_end
        self._lease = os.urandom(16).hex()
        self._bytes = 0
        self._open = True

    async def make(self) -> Mapping[str, str]:
        """Book; the headers of the answer. Raises the `GatewayError` of a refusal."""
        return await self._admission.book(
            self._bounds, self._prompt + self._expected, self._lease, self._model, self._protocol
        )

    def follow(self, reply: Reply) -> None:
        """Declare on the reply: it is settled before its last event goes out, so whoever has seen that can ask again at
        once."""
        reply.watch(self._see)
        reply.finish(self._settle, changes=False)
        self._at_end(self.abandon)

    def so_far(self) -> int:
        """Tokens used if it ended now."""
        return self._prompt - (-self._bytes // BYTES_PER_TOKEN)

    async def end(self, used: int) -> None:
        """Give back what was not used, or book what was used beyond. Only the first call counts."""
        if self._open:
            self._open = False
            booked = self._prompt + self._expected
            if gives_back(self._bounds):
                await self._admission.ledger.settle(changes(self._bounds, booked, used), self._lease)
            if self._slot is not None:
                await self._slot.end()

    def abandon(self) -> None:
        """The exchange is over, and nobody waits any more: the client went away, unless it has been settled."""
        if self._open:
            self._admission.later(self.end(self.so_far()))

    def _see(self, event: Event) -> None:
        if isinstance(event, Delta):
            text = event.text
            self._bytes += len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))

    async def _settle(self, last: Event) -> None:
        await self.end(self._used(last))

    def _used(self, last: Event) -> int:
        if isinstance(last, Finish) and last.usage is not None and last.usage.missing is None:
            return last.usage.total_tokens
        if isinstance(last, Fault) and not self._bytes and not isinstance(last.error, ModelFault):
            return 0
        return self.so_far()
