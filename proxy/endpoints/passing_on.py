"""One request that passes as it is, asked again until a server answers: the rules are those of
`proxy.endpoints.attempts`."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any

from ..backends.base import EventSource
from ..errors import ClientFault, GatewayError
from ..model import ModelRequest
from ..protocols.passed import PassedProtocol
from .pool import WeightedEndpoint
from .wire_attempts import WireAttempts


class PassedAttempts(WireAttempts):
    """See `WireAttempts`. What is asked for stands at the path of `passed`, whatever else the servers speak."""

    def __init__(self, passed: PassedProtocol, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self.protocol = self._passed = passed

    def _open(self, member: WeightedEndpoint, request: ModelRequest, body: bytes | None) -> Awaitable[EventSource]:
        pass_on = getattr(member.endpoint.backend, "pass_on", None)
        if pass_on is None or body is None:
            raise _not_there(self._passed)
        return self._there(pass_on(self._passed, request, body, request_id=self._request_id))

    async def _there(self, opening: Awaitable[EventSource]) -> EventSource:
        try:
            return await opening
        except GatewayError as error:
            if error.upstream_status in (404, 405) and error.code != "model_not_found":
                raise _not_there(self._passed) from error
            raise


def _not_there(passed: PassedProtocol) -> ClientFault:
    return ClientFault(f"The server of this model has nothing at {passed.path}.", code="not_found")
