"""To the backend: the innermost middleware.

Sends the client's own bytes when nobody changed the request and the backend speaks the client's protocol (R1.6), else the
current request, made fit for the backend. Declares an estimate of the token counts where the backend may give none (R11.3).
"""

from __future__ import annotations

import time
from dataclasses import replace

import orjson
from aiohttp import web

from proxy.backends.adapt import adapt, fit_images
from proxy.backends.base import Backend, Capabilities
from proxy.errors import ClientFault, GatewayError, quote
from proxy.events import Delta, Event, Finish, Open
from proxy.exchange import EXCHANGE, Exchange
from proxy.middleware import Handler, Middleware
from proxy.model import ModelReply, ModelRequest, Usage
from proxy.observing import observe_call
from proxy.reply import Reply
from proxy.usage import Estimator


class Forwarding(Middleware):
    """Asks the route's backend. Must be the last of the chain: it never calls the next handler."""

    def __init__(self, options: object = None, *, name: str | None = None) -> None:
        super().__init__(options, name=name)
        self._estimators: dict[str, Estimator] = {}

    async def __call__(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        exchange = request[EXCHANGE]
        _refuse_lost_turns(exchange)
        backend = exchange.route.backend
        source_wanted = exchange.route.options.usage_source
        sent = self._renamed(exchange)
        body = None if source_wanted == "estimate" else self._own_bytes(exchange, sent)
        if body is None:
            sent = self._adapted(exchange, sent, backend.capabilities)
        reply = await _ask(exchange, backend, sent, body)
        if body is None and source_wanted != "backend":
            counter = Counter(
                self._estimator(exchange.route.options.encoding), sent, always=source_wanted == "estimate"
            )
            reply.watch(counter.see, unless=counter.has_nothing_to_do)
            reply.settle(counter.fill, unless=counter.has_nothing_to_do)
        return reply

    def _renamed(self, exchange: Exchange) -> ModelRequest:
        name = exchange.route.config.upstream_model
        if name is None or name == exchange.request.model:
            return exchange.request
        return replace(exchange.request, model=name)

    def _own_bytes(self, exchange: Exchange, sent: ModelRequest) -> bytes | None:
        """The client's body, at most with another model name, if that says all there is to say."""
        protocol = exchange.route.backend.protocol
        if not exchange.untouched or protocol is None or protocol.name != exchange.protocol.name:
            return None
        if sent is not exchange.received:
            return orjson.dumps({**exchange.body, "model": sent.model})
        origin = exchange.received.origin
        return origin.body if origin is not None else None

    def _adapted(self, exchange: Exchange, sent: ModelRequest, takes: Capabilities) -> ModelRequest:
        try:
            return adapt(sent, takes, forward_unknown=exchange.route.options.forward_unknown)
        except ClientFault:
            fit_images(exchange.received.messages, takes)  # says the same, with the index that the client knows
            raise

    def _estimator(self, encoding: str) -> Estimator:
        known = self._estimators.get(encoding)
        if known is None:
            known = self._estimators[encoding] = Estimator(encoding)
        return known


async def _ask(exchange: Exchange, backend: Backend, sent: ModelRequest, body: bytes | None) -> Reply:
    """One attempt: what `backend` answers. Raises `GatewayError`, which is counted as a failure of this backend."""
    record = exchange.record
    before = time.monotonic()
    record.asks(before)
    observer = observe_call(exchange, backend, sent)
    try:
        source = await backend.open(sent, request_id=exchange.id, body=body, observer=observer)
    except BaseException as error:
        if observer is not None:
            observer.failed(error)
            observer.closed()
        if isinstance(error, GatewayError):
            record.backend_failed(error, backend.name)
        raise
    finally:
        record.waited += time.monotonic() - before
    record.queued += source.queued_s
    reply = Reply(source, streamed=sent.stream)
    if observer is not None:
        if body is None:  # else nobody may want to read the answer, and then it passes unread
            reply.watch(observer.event)
        reply.at_end(observer.closed)
    return reply


def _refuse_lost_turns(exchange: Exchange) -> None:
    """A chain without `conversation` must not answer as if nothing had been said before (R12.2)."""
    previous = exchange.body.get("previous_response_id")
    if previous is not None and not exchange.resumed and not exchange.protocol.whole_history:
        raise ClientFault(
            f"Previous response with id {quote(previous)} not found: this route keeps no conversations.",
            code="previous_response_not_found",
            param="previous_response_id",
        )


class Counter:
    """Fills in the token counts of one answer: those of the text really sent and of the raw text really generated."""

    def __init__(self, estimator: Estimator, sent: ModelRequest, *, always: bool) -> None:
        self._estimator = estimator
        self._sent = sent
        self._always = always
        self._written: list[str] = []

    def has_nothing_to_do(self, reply: ModelReply) -> bool:
        """The backend has counted."""
        return reply.usage is not None and not self._always

    def see(self, event: Event) -> None:
        """Remember what was generated."""
        if isinstance(event, Delta):
            self._written.append(event.text)
        elif isinstance(event, Open) and event.name is not None:
            self._written.append(event.name)

    async def fill(self, last: Event) -> Event:
        """The same event; a `Finish` without usage gets an estimate."""
        if not isinstance(last, Finish) or not (self._always or last.usage is None):
            return last
        usage = Usage(
            await self._estimator.count_request(self._sent),
            await self._estimator.count("".join(self._written)),
            estimated=True,
        )
        return Finish(last.reason, usage, last.others, last.extra)
