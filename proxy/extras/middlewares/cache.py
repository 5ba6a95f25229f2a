"""Repeats answers that are already known.

Rules:

1. Exact: an answer is repeated only for the same request of the same owner on the same route. Requests are the same if
   they mean the same to the model: `stream`, `include_usage` and the formatting of the JSON do not matter.
2. Only requests that the client made deterministic (`temperature: 0`) are cached, unless the configuration says `when:
   always`.
3. Only complete answers are stored: no errors, no truncated or filtered answers, none with per-token data.
4. A streamed answer can be repeated as a whole one and the reverse. It has the usage of the original answer, and a new
   id and time.
5. Simultaneous equal requests each call the model: a request that waited for another one would depend on that client's
   connection.

The request header `Cache-Control` is obeyed: `no-cache` calls the model, `no-store` also stores nothing. Answers have
the header `x-cache: hit` or `miss`, or none if the cache was not involved.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, ClassVar, Final, Literal

import orjson
from aiohttp import web

from ...events import Close, Delta, Event, Finish, Start
from ...model import ModelRequest
from ...pipeline.answers.reply import Reply
from ...pipeline.chain.middleware import Handler, Middleware
from ...pipeline.exchange.caches import CACHES
from ...pipeline.exchange.request_state import EXCHANGE, Exchange
from ...record import AccessField
from ...stream_grammar import normalise
from ...support.cache import BudgetedCache as AnswerCache
from ...support.cache import CacheBudget, weight_of

EVENT_BYTES: Final = 300
"""The estimated size of an event without its content, in bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheOptions:
    """Options of the cache: the largest answer in bytes and its age in seconds. `limits.cache_bytes` limits all answers
    together. `when`: cache only requests with `temperature: 0`, or all."""

    answer_bytes: int = 1024 * 1024
    max_age_s: float = 300.0
    when: Literal["deterministic", "always"] = "deterministic"

    def __post_init__(self) -> None:
        if min(self.answer_bytes, self.max_age_s) <= 0:
            raise ValueError("every bound must be above 0; remove the middleware to store nothing")


@dataclass(frozen=True, slots=True)
class _CachedAnswer:
    """A complete answer; its `Start` has no id yet. `until` is a time on the monotonic clock."""

    start: Start
    events: list[Event]
    until: float

    def serves(self, request: ModelRequest) -> bool:
        """Returns True if the answer has token counts, or this client does not get any."""
        last = self.events[-1]
        counted = isinstance(last, Finish) and last.usage is not None
        return counted or (request.stream and not request.include_usage)


class Cache(Middleware):
    """Repeats known answers and stores new ones."""

    proxied_requests = "stands_aside"
    Options: ClassVar[type] = CacheOptions
    access_fields: ClassVar[tuple[AccessField, ...]] = (AccessField("cache", "`hit` or `miss`."),)

    def __init__(self, options: Any = None, *, name: str | None = None) -> None:
        super().__init__(options, name=name)
        self._answers: AnswerCache[_CachedAnswer] = CacheBudget().cache("answers")

    async def start(self, app: web.Application) -> None:
        self._answers = app[CACHES].cache("answers")

    async def __call__(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        exchange = request[EXCHANGE]
        wishes = request.headers.get("Cache-Control", "")
        if not self._may_serve(exchange) or "no-store" in wishes:
            return await handler(request)
        asked = exchange.request
        key = key_of(exchange)
        cached = None if "no-cache" in wishes else self._answers.get(key)
        if cached is not None and cached.until > time.monotonic() and cached.serves(asked):
            exchange.record.note("cache", "hit")
            start = Start("", cached.start.model, exchange.created, cached.start.extra, cached.start.usage)
            known = Reply.of([start, *cached.events])
            known.headers["x-cache"] = "hit"
            return known
        response = await handler(request)
        if isinstance(response, Reply):
            exchange.record.note("cache", "miss")
            response.headers["x-cache"] = "miss"
            response.watch(_Recording(self, key).see)
        return response

    def _may_serve(self, exchange: Exchange) -> bool:
        # Without `conversation` further out, earlier turns would be in neither the request nor the key.
        whole = exchange.protocol.whole_history or exchange.conversation is not None
        return whole and (self.options.when == "always" or exchange.request.sampling.temperature == 0)

    def store(self, key: bytes, start: Start, events: list[Event], weight: int) -> None:
        """Stores a complete answer."""
        self._answers.put(key, _CachedAnswer(start, events, time.monotonic() + self.options.max_age_s), weight)


class _Recording:
    """Records one answer and stores it when it is complete."""

    def __init__(self, cache: Cache, key: bytes) -> None:
        self._cache = cache
        self._key = key
        self._events: list[Event] = []
        self._weight = 0
        self._fit = True

    def see(self, event: Event) -> None:
        """Records the next event."""
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
                self._cache.store(self._key, start, rest, self._weight)


def key_of(exchange: Exchange) -> bytes:
    """Returns the cache key of an answer: owner, protocol, route and request."""
    request = exchange.request
    sampling = replace(
        request.sampling, temperature=_number(request.sampling.temperature), top_p=_number(request.sampling.top_p)
    )
    request = replace(request, sampling=sampling, stream=False, include_usage=False, origin=None)
    asked = [exchange.owner, exchange.protocol.name, exchange.route.config.model, request]
    return hashlib.sha256(orjson.dumps(asked, default=_plain, option=_OPTIONS)).digest()


def _number(value: float | None) -> float | None:
    return None if value is None else float(value)  # JSON distinguishes 0 and 0.0


_OPTIONS: Final = orjson.OPT_PASSTHROUGH_DATACLASS | orjson.OPT_PASSTHROUGH_SUBCLASS


def _plain(value: Any) -> Any:
    """Returns a value of the model as JSON. Includes the class name, so that classes with equal fields differ."""
    if is_dataclass(value):
        return [type(value).__name__, *(getattr(value, f.name) for f in fields(value))]
    if isinstance(value, Mapping):
        return dict(value)
    return list(value)
