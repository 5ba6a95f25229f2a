"""Rate limits (R17.9): usage is booked before a request is processed, and corrected at its end. Its slot among the
simultaneous requests is taken before its body is read (`toolwire.ratelimit.slots`) and released here, before the last
event is sent.

If any limit is set, the gateway puts this middleware first in every chain; a chain that names it keeps it where it is.

Every request for a model's answer counts if its body could be read and its route is known, however it ends. Tokens are
those that the backend reports, else an estimate. A client that disconnects has used the prompt and the text so far; a
request that was refused before the model wrote anything has used none.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from aiohttp import web

from toolwire.errors import GatewayError, ModelFault
from toolwire.events import Delta, Event, Fault, Finish
from toolwire.pipeline.answers.reply import Reply
from toolwire.pipeline.chain.middleware import ChainPlace, Handler, Middleware
from toolwire.pipeline.exchange.request_state import EXCHANGE, Exchange
from toolwire.pipeline.exchange.response_head import ADDED_HEADERS
from toolwire.ratelimit.admission import ADMISSION, SLOT, Admission
from toolwire.ratelimit.base import Bound, changes, gives_back
from toolwire.ratelimit.slots import Slot
from toolwire.upstream.servers.usage import BYTES_PER_TOKEN


class RateLimit(Middleware):
    """Checks requests against the application's limits. Does nothing if there are none."""

    proxied_requests = "runs"

    def __init__(self, options: object = None, *, name: str | None = None) -> None:
        super().__init__(options, name=name)
        self._admission: Admission | None = None

    @classmethod
    def idle(cls, place: ChainPlace) -> bool:
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
        booking = BookedUsage(admission, bounds, slot, exchange)
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
            await booking.end(0)  # another middleware answered, or no server was called
        return response


class BookedUsage:
    """The usage that one exchange has booked: `bounds`, and its `slot`."""

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
        """Books the expected usage and returns the headers for the answer. Raises the `GatewayError` of a refusal."""
        return await self._admission.book(
            self._bounds, self._prompt + self._expected, self._lease, self._model, self._protocol
        )

    def follow(self, reply: Reply) -> None:
        """Declares on the reply: usage is corrected before the last event is sent, so that the client can send its next
        request at once."""
        reply.watch(self._see)
        reply.finish(self._settle, changes=False)
        self._at_end(self.abandon)

    def so_far(self) -> int:
        """Returns the tokens used if the exchange ended now."""
        return self._prompt - (-self._bytes // BYTES_PER_TOKEN)

    async def end(self, used: int) -> None:
        """Corrects the booking to the tokens really used. Only the first call counts."""
        if self._open:
            self._open = False
            booked = self._prompt + self._expected
            if gives_back(self._bounds):
                await self._admission.ledger.settle(changes(self._bounds, booked, used), self._lease)
            if self._slot is not None:
                await self._slot.end()

    def abandon(self) -> None:
        """Corrects the booking if that has not been done, because the client disconnected."""
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
