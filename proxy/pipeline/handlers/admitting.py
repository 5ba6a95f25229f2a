"""Admission of requests for the gateway's own data, such as the inspector's, under the same limits as requests for a
model.

`Delivery` does the same for requests for a model, but releases their places before their answers are complete.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

from aiohttp import web

from ...config import GatewayConfig
from ...errors import ClientFault
from ...ingress.bodies import parse_mended
from ...ingress.budget import BODY_BUDGET, BodyShare
from ...ingress.liveness import LIVENESS, LivenessMonitor
from ...ingress.receiving import read_body
from ...ratelimit.admission import ADMISSION
from ...ratelimit.slots import Slot
from ...store.base import StoreUnavailable
from ..conversations.stored import store_fault
from ..exchange.response_head import SLICE_BYTES
from ..sending.delivery import API_KEY, CLIENTS, OWNER

CONFIG: Final = web.AppKey("toolwire.config", GatewayConfig)
"""The configuration of an application."""


class AdmittedRequest:
    """A request that holds a share of the body budget and, if concurrent requests are limited, a place among them."""

    def __init__(self, request: web.Request, share: BodyShare, slot: Slot | None, monitor: LivenessMonitor) -> None:
        self.monitor = monitor
        self._request = request
        self._share = share
        self._slot = slot

    async def body(self, limit: int, seconds: float | None, option: str = "limits.body_bytes") -> bytes:
        """Returns the body. See `toolwire.ingress.receiving.read_body`."""
        body = await read_body(self._request, limit, seconds, self._share, option)
        if self._slot is not None:
            self._slot.arrived()
        return body

    async def json(self) -> dict[str, Any]:
        """Returns the JSON object in the body, an empty one without a body. Raises `ClientFault`."""
        request, config = self._request, self._request.app[CONFIG]
        raw = await self.body(config.limits.body_bytes, config.server.body_s)
        if raw and request.content_type != "application/json":
            raise ClientFault(
                f"The body must be application/json, not {request.content_type[:100]}.", code="unsupported_media_type"
            )
        if not raw:
            return {}
        _, value, halves = await parse_mended(raw, config.limits)
        if halves is not None and config.defaults.requests.validation == "strict":
            raise halves
        return value

    def hold(self, size: int) -> None:
        """Counts bytes that are read for the request until it is answered. Raises as `send`."""
        self._share.take(size)

    async def send(self, response: web.Response) -> web.Response:
        """Sends an answer. Its bytes count in the body budget until the client has taken them, so that slow clients
        cannot make the gateway buffer any number of answers. Raises `Unavailable` if the budget has no room for it."""
        body = response.body
        if isinstance(body, bytes):
            self._share.take(len(body))
        await response.prepare(self._request)
        if isinstance(body, bytes) and len(body) > SLICE_BYTES and self._request.method != "HEAD":
            for at in range(0, len(body), SLICE_BYTES):  # aiohttp writes all of a body at once
                await self._request.writer.write(body[at : at + SLICE_BYTES])
            await web.StreamResponse.write_eof(response)
        else:
            await response.write_eof()
        return response


@asynccontextmanager
async def admit(request: web.Request, *, limited: bool = True, counted: bool = False) -> AsyncIterator[AdmittedRequest]:
    """Admits a request until the context is left. It takes a share of the body budget. `limited`: it also counts
    against `in_flight` and the `concurrent` of its key. `counted`: it also counts against the requests per minute of
    its key. A client that disconnects cancels the work in the context. Errors of the response store in the context
    become `Unavailable`.

    Raises `ClientFault` `rate_limit_exceeded`, `Unavailable` `overloaded` or `store_unavailable`.
    """
    app = request.app
    monitor = app[LIVENESS].begin(request)
    share = BodyShare(app[BODY_BUDGET], request[OWNER])
    slot: Slot | None = None
    try:
        if limited and (admission := app.get(ADMISSION)) is not None:
            client = app[CLIENTS].of(request.path, request.headers)
            arriving = None if request.content.is_eof() else monitor
            slot = await admission.enter(request.get(API_KEY), client, arriving, counted=counted)
        yield AdmittedRequest(request, share, slot, monitor)
    except asyncio.CancelledError:
        reason = monitor.stop_reason()
        if reason is None or request.writer.output_size:
            raise
        raise reason from None
    except StoreUnavailable as error:
        raise store_fault(error) from error
    finally:
        monitor.end()
        share.release()
        if slot is not None:
            slot.abandon()


class ConcurrencyLimit:
    """Limits the concurrent requests of each owner to `most`. `what` names them in the error."""

    def __init__(self, most: int, what: str) -> None:
        self._most = most
        self._what = what
        self._taken: dict[str, int] = {}

    @asynccontextmanager
    async def take(self, owner: str) -> AsyncIterator[None]:
        """Takes a place until the context is left. Raises `ClientFault` `rate_limit_exceeded` if no place is free."""
        taken = self._taken.get(owner, 0)
        if taken >= self._most:
            raise ClientFault(
                f"{self._most} {self._what} are served at once for one API key, which is the limit. Please try again "
                "when another one has ended.",
                code="rate_limit_exceeded",
                headers={"Retry-After": "1"},
            )
        self._taken[owner] = taken + 1
        try:
            yield
        finally:
            left = self._taken.pop(owner) - 1
            if left:
                self._taken[owner] = left
