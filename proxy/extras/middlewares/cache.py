"""Answers that are known already.

Rules:

1. Exact: an answer is given again only for the same request of the same owner on the same route. Equal are requests
   that mean the same to the model: `stream` and `include_usage` do not count, nor how the JSON was spelled.
2. Only what is deterministic by the client's own wish (`temperature: 0`), unless the configuration says `when: always`.
3. Only whole answers are kept: no faults, nothing that was cut off or filtered, nothing with per-token data.
4. A streamed answer serves a whole one and the other way round. It has the usage of the answer that was really given,
   and a new id and time.
5. Equal requests at the same time each ask the model: one that waited for another would depend on that client staying.

`Cache-Control` of a request is heeded: `no-cache` asks the model, `no-store` also keeps nothing. Answers say
`x-cache: hit` or `miss`, or nothing if the cache had no part in them.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, ClassVar, Final, Literal

import orjson
from aiohttp import web

from toolwire.events import Close, Delta, Event, Finish, Start
from toolwire.model import ModelRequest
from toolwire.pipeline.chain.middleware import Handler, Middleware
from toolwire.pipeline.chain.reply import Reply
from toolwire.pipeline.exchange.caches import CACHES
from toolwire.pipeline.exchange.exchange import EXCHANGE, Exchange
from toolwire.record import AccessField
from toolwire.stream_grammar import normalise
from toolwire.support.cache import Cache as AnswerCache
from toolwire.support.cache import CacheBudget, weight_of

EVENT_BYTES: Final = 300
"""Weight of an event beside its content, in bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheOptions:
    """Bounds of an answer: bytes, seconds. `limits.cache_bytes` bounds all of them together. `when`: only requests with
    `temperature: 0`, or all."""

    answer_bytes: int = 1024 * 1024
    max_age_s: float = 300.0
    when: Literal["deterministic", "always"] = "deterministic"

    def __post_init__(self) -> None:
        if min(self.answer_bytes, self.max_age_s) <= 0:
            raise ValueError("every bound must be above 0; leave the middleware out to keep nothing")


@dataclass(frozen=True, slots=True)
class _Kept:
    """A whole answer: its `Start` has no id yet. `until` is on the monotonic clock."""

    start: Start
    events: list[Event]
    until: float

    def serves(self, request: ModelRequest) -> bool:
        """It has the token counts, or this client does not get to see any."""
        last = self.events[-1]
        counted = isinstance(last, Finish) and last.usage is not None
        return counted or (request.stream and not request.include_usage)


class Cache(Middleware):
    """Gives known answers again, and remembers new ones."""

    proxied_requests = "stands_aside"
    Options: ClassVar[type] = CacheOptions
    access_fields: ClassVar[tuple[AccessField, ...]] = (
        AccessField("cache", "What the middleware `cache` had: `hit` or `miss`."),
    )

    def __init__(self, options: Any = None, *, name: str | None = None) -> None:
        super().__init__(options, name=name)
        self._kept: AnswerCache[_Kept] = CacheBudget().cache("answers")

    async def start(self, app: web.Application) -> None:
        """See `Middleware.start`."""
        self._kept = app[CACHES].cache("answers")

    async def __call__(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """See `Middleware.__call__`."""
        exchange = request[EXCHANGE]
        wishes = request.headers.get("Cache-Control", "")
        if not self._may_serve(exchange) or "no-store" in wishes:
            return await handler(request)
        asked = exchange.request
        key = key_of(exchange)
        kept = None if "no-cache" in wishes else self._kept.get(key)
        if kept is not None and kept.until > time.monotonic() and kept.serves(asked):
            exchange.record.note("cache", "hit")
            start = Start("", kept.start.model, exchange.created, kept.start.extra, kept.start.usage)
            known = Reply.of([start, *kept.events])
            known.headers["x-cache"] = "hit"
            return known
        response = await handler(request)
        if isinstance(response, Reply):
            exchange.record.note("cache", "miss")
            response.headers["x-cache"] = "miss"
            response.watch(_Keeping(self, key).see)
        return response

    def _may_serve(self, exchange: Exchange) -> bool:
        # Without `conversation` outside, earlier turns would be in neither the request nor the key.
        whole = exchange.protocol.whole_history or exchange.conversation is not None
        return whole and (self.options.when == "always" or exchange.request.sampling.temperature == 0)

    def keep(self, key: bytes, start: Start, events: list[Event], weight: int) -> None:
        """Remember a whole answer."""
        self._kept.put(key, _Kept(start, events, time.monotonic() + self.options.max_age_s), weight)


class _Keeping:
    """Follows one answer and keeps it once it is whole."""

    def __init__(self, cache: Cache, key: bytes) -> None:
        self._cache = cache
        self._key = key
        self._events: list[Event] = []
        self._weight = 0
        self._fit = True

    def see(self, event: Event) -> None:
        """Take the next event."""
        if not self._fit:
            return
        self._events.append(event)
        self._weight += EVENT_BYTES + weight_of(*[getattr(event, slot) for slot in event.__slots__])
        match event:
            case Delta():
                self._fit = not event.extra or "logprobs" not in event.extra
            case Close():
                self._fit = event.status == "complete"
            case Finish():
                self._fit = not {"length", "content_filter"} & {event.reason, *event.others}
        if self._weight > self._cache.options.answer_bytes:
            self._fit = False
        if not self._fit:
            self._events.clear()
        elif isinstance(event, Finish):
            start, *rest = normalise(self._events)
            if isinstance(start, Start):
                self._cache.keep(self._key, start, rest, self._weight)


def key_of(exchange: Exchange) -> bytes:
    """What an answer depends on: who asked, where, in which protocol, and what."""
    request = exchange.request
    sampling = replace(
        request.sampling, temperature=_number(request.sampling.temperature), top_p=_number(request.sampling.top_p)
    )
    request = replace(request, sampling=sampling, stream=False, include_usage=False, origin=None)
    asked = [exchange.owner, exchange.protocol.name, exchange.route.config.model, request]
    return hashlib.sha256(orjson.dumps(asked, default=_plain, option=_OPTIONS)).digest()


def _number(value: float | None) -> float | None:
    return None if value is None else float(value)  # JSON has 0 and 0.0


_OPTIONS: Final = orjson.OPT_PASSTHROUGH_DATACLASS | orjson.OPT_PASSTHROUGH_SUBCLASS


def _plain(value: Any) -> Any:
    """A value of the model as JSON. Classes with equal fields stay apart."""
    if is_dataclass(value):
        return [type(value).__name__, *(getattr(value, f.name) for f in fields(value))]
    if isinstance(value, Mapping):
        return dict(value)
    return list(value)
