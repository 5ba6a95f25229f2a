"""One request, asked again until a server answers (R10.5).

Rules:

1. Asked again is only while nothing of an answer has come: a refused connection, a status that says "later", a
   connection that is cut before a stream has said anything or before the last byte of a whole answer. A role without
   text says nothing, and signs of life that the gateway itself wrote do not count. What the server says inside an
   answer, an error frame or nonsense, is its answer.
2. A time-out while connecting is a failed connection. One that comes later is final: the server may still be at work.
3. Another server is asked at once. The same one is given time: as long as its `Retry-After` says, or a random pause up
   to a bound that doubles each time (full jitter).
4. A server counts as busy from the moment it is asked until the answer is closed, however that comes about.
5. `timeouts.total_s` is for all tries together.
6. A server that refuses the constraint on calls, or the form in which a tool is demanded, is asked again without it, at
   once; see `proxy.endpoints.enforcing` and `proxy.endpoints.choices`.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, aclosing
from typing import Any, Final, Protocol, TypeVar

from ..backends.base import EventSource
from ..backends.connections import disconnected, timed_out
from ..backends.leak_detection import check_reply, leak_detector
from ..backends.retry_after import wait_s
from ..backends.upstream_errors import hidden
from ..config import RetryConfig
from ..errors import GatewayError
from ..events import Event, Fault, Finish, Start
from ..model import ModelReply, ModelRequest
from ..protocols.base import ServerSide
from ..record import AccessRecord, BackendObserver, observe_call
from ..support.offload import is_long, offload
from .pool import EndpointPool, WeightedEndpoint, is_failure

LOG: Final = logging.getLogger("toolwire.retry")
T = TypeVar("T")

Prepare = Callable[[WeightedEndpoint], tuple[ModelRequest, bytes | None]]
"""The request as a server gets it, and its wire form if that is known: see `Backend.open`."""

Opening = Callable[[WeightedEndpoint, ModelRequest, bytes | None, str, BackendObserver | None], Awaitable[EventSource]]
"""Asks a server, once: what was prepared for it, the request's id, and who looks on. See `Backend.open`."""


def opened(
    member: WeightedEndpoint,
    request: ModelRequest,
    body: bytes | None,
    request_id: str,
    observer: BackendObserver | None,
) -> Awaitable[EventSource]:
    """Ask a server for what a model answers."""
    return member.endpoint.backend.open(request, request_id=request_id, body=body, observer=observer)


class Relaxing(Protocol):
    """What a server need not take of a request: without it the same one is asked again."""

    def relaxes(self, member: WeightedEndpoint, fault: GatewayError) -> bool:
        """Whether `member`, which failed with `fault`, is to be asked again with less."""

    def accepted(self, member: WeightedEndpoint) -> None:
        """The answer of `member` has begun."""


class Attempts(EventSource):
    """The answer to one request, by whichever server of a route gives one: a source, once `open` has returned. Must be
    closed then. Of servers whose answers are bytes: `proxy.endpoints.wire_attempts`.

    `pool` are those of the route, `retry` says how often they are tried, `prepare` gives each the request; `large`:
    that takes long enough for a thread of its own. `record` and `request_id` are those of the exchange. `key` keeps
    requests on one server, see `proxy.endpoints.balancing.Sticky`. `relaxation`: what a server need not enforce.
    `opening` asks each, `protocol` is the form of what comes then; default: the answer of a model, in that of the pool.
    """

    # How it is before the first try; so that this costs a request nothing.
    _deadline: float | None = None
    _asked: WeightedEndpoint | None = None
    _observer: BackendObserver | None = None
    _probe = False
    _began = False
    _failed = False
    _paused_s = 0.0
    queued_s = 0.0
    """How long the request waited because all connections were in use."""
    protocol: ServerSide
    """The form in which the answer comes, if it comes as bytes."""
    asked: tuple[str, ModelRequest] | None = None
    """The server that was asked last, and what it was sent."""

    def __init__(
        self,
        pool: EndpointPool,
        retry: RetryConfig,
        prepare: Prepare,
        *,
        record: AccessRecord,
        request_id: str,
        large: bool = False,
        key: bytes = b"",
        relaxation: Relaxing | None = None,
        opening: Opening = opened,
        protocol: ServerSide | None = None,
    ) -> None:
        self._pool = pool
        self._retry = retry
        self._record = record
        self._request_id = request_id
        self._prepare = prepare
        self._large = large
        self._key = key
        self._relaxation = relaxation
        self.private = pool.private
        self._opening = opening
        if (protocol := protocol or pool.protocol) is not None:
            self.protocol = protocol
        self._started = time.monotonic()
        self._tried: list[WeightedEndpoint] = []
        self._source: EventSource

    async def open(self) -> None:
        """Wait until a server accepts. Raises `Unavailable` if none may be asked, else the error of the last one."""
        record = self._record
        if record.prepared is None:
            record.prepared = self._started
        try:
            member = self._pool.pick(self._retry.attempts, self._tried, self._key)
            if member is None:
                raise self._pool.unavailable()
            await self._ask(member)
        finally:
            record.waited += time.monotonic() - self._started

    # --- as a source ------------------------------------------------------------------------------------------------

    async def batches(self) -> AsyncGenerator[list[Event], None]:
        """See `EventSource.batches`. Never raises for a backend that breaks: the last event is a `Fault` then."""
        said: list[Event] = []
        try:
            async with aclosing(await self._answer(lambda source: self._beginning(source, said))) as batches:
                yield said
                while (batch := await self._answer(lambda _: anext(batches, None))) is not None:
                    yield batch
        except GatewayError as error:
            yield [Fault(error)] if self._began else [*said, Fault(error)]

    async def reply(self) -> ModelReply:
        """See `EventSource.reply`."""
        return await self._answer(self._reply)

    async def close(self) -> None:
        """See `Source.close`."""
        if self._asked is None:
            return
        try:
            await self._source.close()
        finally:
            self._leave()

    def saw(self, event: Event) -> None:
        """An event of the answer, for whoever looks on."""
        if self._observer is not None:
            self._observer.event(event)

    # --- one try after the other ------------------------------------------------------------------------------------

    async def _answer(self, read: Callable[[Any], Awaitable[T]]) -> T:
        """What `read` makes of the source; of the next one, if it fails before anything of an answer has come. Raises
        the error of the last."""
        while True:
            try:
                work = read(self._source)
                given = await (work if self._deadline is None else self._limited(work, self._deadline))
            except GatewayError as error:
                fault = error
            else:
                if not self._began:
                    self._begin()
                return given
            await self._again(fault)

    async def _reply(self, source: EventSource) -> ModelReply:
        answer = await source.reply()
        if not self.private.secrets:
            return answer
        return await offload(is_long(answer), check_reply, self.private, answer)

    async def _beginning(self, source: EventSource, said: list[Event]) -> AsyncGenerator[list[Event], None]:
        """The events of the source, of which `said` has those up to the first that says something."""
        said.clear()
        async with AsyncExitStack() as stack:
            batches = await stack.enter_async_context(aclosing(self._events(source)))
            async for batch in batches:
                said += batch
                if not all(isinstance(event, Start) for event in batch):
                    break
            self._begin()
            stack.pop_all()
            return batches

    async def _events(self, source: EventSource) -> AsyncGenerator[list[Event], None]:
        """The events of the source up to `Finish`. Raises what it breaks off with, and `BackendFault` where a secret is
        found."""
        leaks = leak_detector(self.private)
        batches = source.batches()
        try:
            async for batch in batches:
                if leaks is not None:
                    batch = leaks.events(batch)
                last = batch[-1] if batch else None
                if isinstance(last, Fault):
                    if len(batch) > 1:
                        yield batch[:-1]
                    raise last.error
                yield batch
                if isinstance(last, Finish):
                    return
        finally:
            if isinstance(batches, AsyncGenerator):
                await batches.aclose()
        raise disconnected()

    def _relaxes(self, fault: GatewayError) -> bool:
        """Whether the same server is asked again with less. Then that try does not count."""
        if self._relaxation is None or not self._relaxation.relaxes(self._tried[-1], fault):
            return False
        self._tried.pop()
        return True

    async def _ask(self, member: WeightedEndpoint) -> None:
        """Ask `member`, and whoever is next if it does not accept."""
        while True:
            if self._large:
                request, body = await offload(True, self._prepare, member)
            else:
                request, body = self._prepare(member)
            if self._record.observers:
                self._observer = observe_call(self._record, member.endpoint.backend.name, request)
            self._asked, self.asked = member, (member.name, request)
            self._tried.append(member)
            self._probe = member.endpoint.enter()
            if self._pool.sole is None:
                self._record.note("backend", member.name)
            try:
                opening = self._opening(member, request, body, self._request_id, self._observer)
                self._source = await (opening if self._deadline is None else self._limited(opening, self._deadline))
                self._opened(member)
                if queued_s := getattr(self._source, "queued_s", 0.0):
                    self.queued_s += queued_s
                    self._record.queued += queued_s
                return
            except BaseException as error:
                if self._observer is not None:
                    self._observer.failed(error)
                if not isinstance(error, GatewayError):
                    self._leave()
                    raise
                fault = hidden(error, private=self.private)
                self._fail(fault)
            self._leave()
            if not self._relaxes(fault):
                member = await self._next(fault)

    async def _again(self, fault: GatewayError) -> None:
        """The answer broke off for `fault`: begin another one. Raises `fault`, as a client may see it, if that cannot
        be."""
        fault = hidden(fault, private=self.private)
        if self._began:
            self._blame(fault)
            raise fault
        self._fail(fault)
        member = self._tried[-1]
        try:
            await self._source.close()
        finally:
            self._leave()
        await self._ask(member if self._relaxes(fault) else await self._next(fault))

    async def _next(self, fault: GatewayError) -> WeightedEndpoint:
        """Who is to be asked after `fault`, when it is time. Raises `fault` if nobody is."""
        if not fault.transient:
            raise fault
        member = self._pick()
        pause = 0.0
        if member is None or member in self._tried:
            asked = wait_s(fault.headers)
            if member is None and (asked is None or not self._pool.left(self._retry.attempts, self._tried)):
                raise fault
            if asked is not None and asked > self._retry.retry_after_max_s:
                raise fault
            pause = self._backoff() if asked is None else asked
        timeout_s = self._tried[-1].endpoint.config.timeouts.total_s
        if timeout_s is not None:
            self._deadline = self._started + timeout_s
            if time.monotonic() + pause >= self._deadline:
                raise fault
        if pause:
            await asyncio.sleep(pause)
            self._paused_s += pause
            member = self._pick()
        if member is None:
            raise fault
        self._note(fault, member, pause)
        return member

    def _pick(self) -> WeightedEndpoint | None:
        return self._pool.pick(self._retry.attempts, self._tried, self._key)

    def _backoff(self) -> float:
        retry = self._retry
        return random.uniform(0.0, min(retry.backoff_max_s, retry.backoff_s * 2.0 ** (len(self._tried) - 1)))

    def _note(self, fault: GatewayError, member: WeightedEndpoint, pause: float) -> None:
        record = self._record
        record.count("retries")
        record.label("retries", fault.code)
        record.note("attempts", len(self._tried) + 1)
        if self._paused_s:
            record.note("retry_wait_ms", round(self._paused_s * 1000, 2))
        LOG.warning(
            "request %s: try %d failed at %r: %s: %s; next after %.2f s: %r",
            self._request_id,
            len(self._tried),
            self._tried[-1].name,
            fault.code,
            fault.message,
            pause,
            member.name,
        )

    async def _limited(self, work: Awaitable[T], deadline: float) -> T:
        """`work`, which may take as long as is left of the total. Of a first try the server's own limits are enough."""
        try:
            async with asyncio.timeout(deadline - time.monotonic()) as limit:
                return await work
        except TimeoutError:
            if not limit.expired():
                raise
            raise timed_out("total", deadline - self._started) from None

    def _opened(self, member: WeightedEndpoint) -> None:
        """`member` has accepted."""

    # --- what a server is told of ------------------------------------------------------------------------------------

    def _begin(self) -> None:
        """Something of the answer has come: it works."""
        if not self._began:
            self._began = True
            if self._relaxation is not None:
                self._relaxation.accepted(self._tried[-1])
            if self._probe:
                self._probe = False
                self._tried[-1].endpoint.succeeded(probe=True)

    def _fail(self, fault: GatewayError) -> None:
        """A try failed with `fault`."""
        member = self._tried[-1]
        self._record.backend_failed(fault, member.name)
        self._blame(fault)
        if fault.code == "model_not_found":
            member.endpoint.doubt.set()  # it may serve another one by now
        asked = wait_s(fault.headers)
        if asked is not None:
            member.endpoint.rest(asked)

    def _blame(self, fault: GatewayError) -> None:
        """Tell the breaker, if it is the server's failing."""
        if is_failure(fault):
            self._failed = True
            self._tried[-1].endpoint.failed(self._probe)
            self._probe = False

    def _leave(self) -> None:
        member, self._asked = self._asked, None
        worked, self._failed = self._began and not self._failed, False
        if member is not None:
            member.endpoint.leave(self._probe, worked=worked)
            if self._observer is not None:
                self._observer.closed()
