"""Applies the limits to requests, and reports them to clients.

A request is booked twice. Before its body is read it takes a `Slot` of the gateway and of its key (`Admission.enter`).
When the body has been parsed and the route is known, the middleware `rate_limit` books the other limits: requests and
tokens per minute, and the limits of the route. Source: R17.9, R33.5.
"""

from __future__ import annotations

import math
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from dataclasses import replace
from typing import Final, Literal

from aiohttp import web

from ..config import GatewayConfig, RateLimitConfig, RouteConfig
from ..errors import ClientFault, GatewayError, Unavailable, quote, retry_after
from ..ingress.auth import ApiKey
from ..ingress.liveness import LivenessMonitor
from ..model import Image, ModelRequest, Part, ToolResult
from ..protocols.base import Allowance, ClientSide
from ..protocols.shared.openai import duration
from ..support.tasks import BackgroundTasks
from ..upstream.servers.usage import BYTES_PER_TOKEN, IMAGE_TOKENS
from .base import WINDOW_S, Booking, Bound, Kind, Ledger, LedgerUnavailable, Scope, wait_s
from .slots import Arrivals, Slot

ANONYMOUS: Final = "anonymous"
"""Account of all clients together if no keys are configured."""

_SHOWN: Final[tuple[Literal["requests", "tokens"], ...]] = ("requests", "tokens")
_KINDS: Final[Mapping[Kind, str]] = {
    "requests": "requests per min (RPM)",
    "tokens": "tokens per min (TPM)",
    "concurrent": "concurrent requests",
}


class Admission:
    """The limits of one application. `refused` is called with the name of a limit that refused a request."""

    def __init__(self, config: GatewayConfig, ledger: Ledger, refused: Callable[[str], None]) -> None:
        self.ledger = ledger
        self._config = config.rate_limits
        self._refused = refused
        self._bounds: dict[tuple[str, str], tuple[Bound, ...]] = {}
        self._slots: dict[str, tuple[Bound, ...]] = {}
        self._arrivals = Arrivals()
        self._tasks = BackgroundTasks()

    async def running(self, app: web.Application) -> AsyncIterator[None]:
        """Opens the ledger; at the end of the application waits for its last bookings. The ledger may outlive the
        application."""
        await self.ledger.start()
        yield
        await self._tasks.idle()

    def later(self, work: Coroutine[None, None, None]) -> None:
        """Runs work in the background that no caller can wait for."""
        self._tasks.start(work)

    def slot_bounds(self, key: ApiKey | None) -> tuple[Bound, ...]:
        """Returns the limits on concurrent requests for this key, independent of the route."""
        owner = ANONYMOUS if key is None else key.owner
        known = self._slots.get(owner)
        if known is None:
            limit = effective_limit(key, self._config.per_key)
            known = self._slots[owner] = (
                # First, so that a key at its own limit gets that error, and no arriving request has to give way to it.
                *_bounds("key", f"key:{owner}", RateLimitConfig(concurrent=limit.concurrent)),
                *_bounds("gateway", "gateway", RateLimitConfig(concurrent=self._config.in_flight)),
            )
        return known

    def bounds(self, key: ApiKey | None, route: RouteConfig) -> tuple[Bound, ...]:
        """Returns the limits for this key on this route, except those of `slot_bounds`."""
        owner = ANONYMOUS if key is None else key.owner
        known = self._bounds.get((owner, route.model))
        if known is None:
            limit = replace(effective_limit(key, self._config.per_key), concurrent=None)
            known = self._bounds[owner, route.model] = (
                *_bounds("key", f"key:{owner}", limit),
                *_bounds("route", f"route:{route.model}", route.rate_limit),
                *_bounds("key_route", f"key:{owner}:route:{route.model}", route.rate_limit_per_key),
            )
        return known

    async def enter(
        self,
        key: ApiKey | None,
        protocol: ClientSide,
        arriving: LivenessMonitor | None = None,
        *,
        counted: bool = False,
    ) -> Slot | None:
        """Takes a slot among the concurrent requests; returns None if these are not limited. The caller must end the
        slot. Raises like `book`.

        `arriving`: the monitor of a request whose body has not arrived; call `Slot.arrived` then. `counted`: the
        request also counts for the key's requests per minute.

        If the gateway is full, the key with most arriving requests must give up its oldest one, provided that it keeps
        as many as this key has. So a key that sends its bodies slowly cannot occupy all of `in_flight`.
        """
        bounds = self.slot_bounds(key)
        owner = ANONYMOUS if key is None else key.owner
        if counted:
            limit = effective_limit(key, self._config.per_key)
            bounds += _bounds("key", f"key:{owner}", RateLimitConfig(requests_per_min=limit.requests_per_min))
        if not bounds:
            return None
        slot = Slot(bounds, owner, self.ledger, self.later, self._arrivals)
        try:
            await self.book(bounds, 0, slot.lease, "", protocol)
        except Unavailable as full:
            slower = None if full.code != "overloaded" else self._arrivals.longest(owner)
            if slower is None:
                raise
            await slower.give_way(full)
            await self.book(bounds, 0, slot.lease, "", protocol)
        slot.begin(arriving)
        return slot

    def estimate(self, request: ModelRequest, size: int) -> tuple[int, int]:
        """Returns estimated tokens of prompt and answer, for booking. `size`: bytes of the body."""
        links = [part.url for message in request.messages for part in _parts(message.parts) if isinstance(part, Image)]
        prompt = -(-max(0, size - sum(map(len, links))) // BYTES_PER_TOKEN) + IMAGE_TOKENS * len(links)
        most = request.sampling.max_tokens
        expected = self._config.expected_output_tokens
        return prompt, expected if most is None else min(most, expected)

    async def book(
        self, bounds: Sequence[Bound], tokens: int, lease: str, model: str, protocol: ClientSide
    ) -> Mapping[str, str]:
        """Books a request. Returns the headers for its answer, in the form of `protocol`. `model` is the requested
        name.

        Raises `ClientFault` `rate_limit_exceeded`, or `Unavailable` with the code `overloaded` or `store_unavailable`.
        """
        try:
            verdict = await self.ledger.book(bounds, tokens, lease)
        except LedgerUnavailable as error:
            raise Unavailable("The limits cannot be checked now.", code="store_unavailable") from error
        headers = protocol.write_limits(allowances(bounds, verdict), time.time())
        if verdict.granted:
            return headers
        waits = [wait_s(bound, used, tokens) for bound, used in zip(bounds, verdict.used, strict=True)]
        index = max(range(len(waits)), key=waits.__getitem__)
        bound = bounds[index]
        self._refused(f"{bound.scope}_{bound.kind}")
        raise _refusal(bound, verdict.used[index], tokens, waits[index], model, headers)


ADMISSION: Final = web.AppKey("toolwire.admission", Admission)
"""Application key of the `Admission`; absent if nothing is limited."""
SLOT: Final = web.RequestKey("toolwire.slot", Slot)
"""Request key of the `Slot`; absent if concurrent requests are not limited."""


def effective_limit(key: ApiKey | None, default: RateLimitConfig) -> RateLimitConfig:
    """Returns the limits of a key: its own, completed by the default."""
    if key is None:
        return default
    own = {
        name: value
        for name in ("requests_per_min", "tokens_per_min", "concurrent")
        if (value := getattr(key.limit, name)) is not None
    }
    return replace(default, **own)


def allowances(bounds: Sequence[Bound], verdict: Booking) -> list[Allowance]:
    """Returns the limit with the least left, one for requests and one for tokens."""
    lowest = []
    for kind in _SHOWN:
        rows = [
            (max(0, math.floor(bound.most - used + 1e-6)), bound.most, used)
            for bound, used in zip(bounds, verdict.used, strict=True)
            if bound.kind == kind
        ]
        if rows:
            left, most, used = min(rows)
            lowest.append(Allowance(kind, most, left, used * WINDOW_S / most))
    return lowest


def _bounds(scope: Scope, account: str, limit: RateLimitConfig) -> tuple[Bound, ...]:
    amounts: tuple[tuple[Kind, int | None], ...] = (
        ("requests", limit.requests_per_min),
        ("tokens", limit.tokens_per_min),
        ("concurrent", limit.concurrent),
    )
    return tuple(Bound(scope, kind, account, most) for kind, most in amounts if most)


def _parts(parts: Sequence[Part]) -> list[Part]:
    return [inner for part in parts for inner in ([*_parts(part.parts)] if isinstance(part, ToolResult) else [part])]


def _refusal(
    bound: Bound, used: float, tokens: int, wait: float, model: str, headers: Mapping[str, str]
) -> GatewayError:
    seconds = max(1, math.ceil(wait - 1e-6))
    if bound.scope == "gateway":
        fault: GatewayError = Unavailable(
            f"The gateway serves {bound.most} requests at once, which is its limit. Please try again in {seconds}s.",
            retry_after_s=seconds,
        )
        fault.headers |= headers
        return fault
    who = {"key": "this API key", "route": f"the model {quote(model)}"}.get(
        bound.scope, f"this API key on the model {quote(model)}"
    )
    if bound.account == f"key:{ANONYMOUS}":
        who = "clients without an API key"
    when = "when another one has ended" if bound.kind == "concurrent" else f"in {duration(wait)}"
    return ClientFault(
        f"Rate limit reached for {who} on {_KINDS[bound.kind]}: Limit {bound.most}, Used {math.ceil(used - 1e-6)}, "
        f"Requested {bound.cost(tokens)}. Please try again {when}.",
        code="rate_limit_exceeded",
        # The end of another request cannot be predicted.
        headers={**({"Retry-After": str(seconds)} if bound.kind == "concurrent" else retry_after(wait)), **headers},
    )
