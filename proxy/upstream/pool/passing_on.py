"""Asking a server for what passes as it is."""

from __future__ import annotations

from toolwire.errors import ClientFault, GatewayError
from toolwire.model import ModelRequest
from toolwire.protocols.shared.passed import PassedProtocol
from toolwire.record import BackendObserver
from toolwire.upstream.pool.pool import WeightedEndpoint
from toolwire.upstream.servers.base import EventSource


async def open_passed(
    passed: PassedProtocol,
    member: WeightedEndpoint,
    request: ModelRequest,
    body: bytes | None,
    request_id: str,
    observer: BackendObserver | None,
) -> EventSource:
    """Ask a server at the path of `passed`, whatever else it speaks: a `toolwire.upstream.pool.attempts.Opening`.
    Nobody looks on."""
    pass_on = getattr(member.endpoint.backend, "pass_on", None)
    if pass_on is None or body is None:
        raise _not_there(passed)
    try:
        source: EventSource = await pass_on(passed, request, body, request_id=request_id)
    except GatewayError as error:
        if error.upstream_status in (404, 405) and error.code != "model_not_found":
            raise _not_there(passed) from error
        raise
    return source


def _not_there(passed: PassedProtocol) -> ClientFault:
    return ClientFault(f"The server of this model has nothing at {passed.path}.", code="not_found")
