"""Sends a request body unchanged to a path that the gateway does not translate (R24.3)."""

from __future__ import annotations

from ...errors import ClientFault, GatewayError
from ...model import ModelRequest
from ...protocols.proxied.protocol import ProxiedProtocol
from ...record import BackendObserver
from ..servers.base import EventSource
from .server_pool import WeightedServer


async def open_proxied(
    proxied: ProxiedProtocol,
    member: WeightedServer,
    request: ModelRequest,
    body: bytes | None,
    request_id: str,
    observer: BackendObserver | None,
) -> EventSource:
    """Sends `body` to the path of `proxied`, whatever the server's own protocol is, and returns its source. A
    `toolwire.upstream.pool.attempts.Opening`. Raises `GatewayError`."""
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
