"""Sends a request body unchanged to a path that the gateway does not translate (R24.3)."""

from __future__ import annotations

from ...errors import ClientFault, GatewayError
from ...model import ModelRequest
from ...protocols.passed.protocol import PassedProtocol
from ...record import BackendObserver
from ..servers.base import EventSource
from .server_pool import WeightedServer


async def open_unchanged(
    passed: PassedProtocol,
    member: WeightedServer,
    request: ModelRequest,
    body: bytes | None,
    request_id: str,
    observer: BackendObserver | None,
) -> EventSource:
    """Sends `body` to the path of `passed`, whatever the server's own protocol is, and returns its source. A
    `toolwire.upstream.pool.attempts.Opening`. Raises `GatewayError`."""
    pass_on = getattr(member.endpoint.backend, "pass_on", None)
    if pass_on is None or body is None:
        raise _not_there(passed)
    try:
        source: EventSource = await pass_on(passed, request, body, request_id=request_id, observer=observer)
    except GatewayError as error:
        if error.upstream_status in (404, 405) and error.code != "model_not_found":
            raise _not_there(passed) from error
        raise
    return source


def _not_there(passed: PassedProtocol) -> ClientFault:
    return ClientFault(f"The server of this model has nothing at {passed.path}.", code="not_found")
