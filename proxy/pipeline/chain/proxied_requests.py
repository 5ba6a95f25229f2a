"""Proxied requests: requests that are sent to a server unread (R24.3).

Middlewares with `proxied_requests = "runs"` run for them, such as limits and logs, and plain aiohttp middlewares. Those
of the default chain stand aside: they work on messages and tools, and these requests have none. Any other middleware
may exist to control the requests to models, and it would not see these. A chain with such a middleware refuses them,
unless the middleware allows them (`Middleware.proxied_requests`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import orjson
from aiohttp import web

from ...errors import ClientFault, GatewayError
from ...model import ModelRequest
from ...protocols.proxied.protocol import ProxiedProtocol
from ...protocols.shared.wire import dump_in_pieces
from ...record import BackendObserver
from ...support.offload import is_large
from ...upstream.pool.server_pool import WeightedServer
from ...upstream.pool.wire_attempts import WireAttempts
from ...upstream.servers.base import EventSource
from ..answers.renaming import Renaming
from ..answers.reply import Reply
from ..exchange.request_state import EXCHANGE, Exchange
from ..exchange.routing import Handler
from .middleware import Layer, compose


def proxied_chain(layers: Sequence[Layer], proxied: ProxiedProtocol) -> Handler:
    """Returns the chain of a route for requests at the path of `proxied`."""
    for layer in layers:
        if layer.proxied_requests == "forbids":
            return _forbidden(layer.name, proxied)

    async def forward(request: web.Request) -> web.StreamResponse:
        exchange = request[EXCHANGE]
        reply = await _forward(exchange, proxied)
        if exchange.note(reply):
            await exchange.end()
        return reply

    return compose([layer for layer in layers if layer.proxied_requests == "runs"], proxied, forward)


def _forbidden(name: str, proxied: ProxiedProtocol) -> Handler:
    async def refuse(request: web.Request) -> web.StreamResponse:
        raise ClientFault(
            f"Requests to {proxied.path} are refused for this model: `{name}` in the route's chain could not check them.",
            code="not_found",
        )

    return refuse


async def _forward(exchange: Exchange, proxied: ProxiedProtocol) -> Reply:
    route, asked, record = exchange.route, exchange.request, exchange.record

    sent = asked

    def prepare(member: WeightedServer) -> tuple[ModelRequest, bytes | None]:
        nonlocal sent
        name = member.name_of(asked.model, route.config.upstream_model)
        sent = asked if name == asked.model else replace(asked, model=name)
        return sent, _own_bytes(exchange, sent)

    source = WireAttempts(
        route.pool,
        route.options.retry,
        prepare,
        record=record,
        request_id=exchange.id,
        large=is_large(asked),
        opening=partial(_open, proxied),
        protocol=proxied,
    )
    await source.open()
    reply = Reply(source, streamed=asked.stream)
    if sent.model != exchange.received.model:
        reply.renaming = Renaming(exchange.received.model, proxied.model_in)
    return reply


def _own_bytes(exchange: Exchange, sent: ModelRequest) -> bytes:
    assert exchange.received.origin is not None
    if sent.model == exchange.received.model:
        return exchange.received.origin.body
    body = {**exchange.body, "model": sent.model}
    return dump_in_pieces(body) if is_large(sent) else orjson.dumps(body)


async def _open(
    proxied: ProxiedProtocol,
    member: WeightedServer,
    request: ModelRequest,
    body: bytes | None,
    request_id: str,
    observer: BackendObserver | None,
) -> EventSource:
    """Sends `body` unchanged to the path of `proxied`, whatever the server's own protocol is. An
    `toolwire.upstream.pool.attempts.Opening`."""
    send_proxied = getattr(member.endpoint.backend, "send_proxied", None)
    if send_proxied is None or body is None:
        raise _not_there(proxied)
    try:
        source: EventSource = await send_proxied(proxied, request, body, request_id=request_id, observer=observer)
    except GatewayError as error:
        if error.upstream_status in (404, 405) and error.code != "model_not_found":
            raise _not_there(proxied) from error
        raise
    return source


def _not_there(proxied: ProxiedProtocol) -> ClientFault:
    return ClientFault(f"The server of this model does not serve {proxied.path}.", code="not_found")
