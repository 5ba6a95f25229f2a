"""Attempts of one request: it is sent to servers of the route until one answers (R10.5).

Rules:

1. A request is retried only while no part of an answer has arrived: after a refused connection, a temporary error
   status, or a connection that closes before a stream has content or before a whole answer is complete. A role without
   text is no content, and keep-alive comments of the gateway do not count. An error frame or invalid data inside an
   answer is final.
2. A timeout while connecting counts as a failed connection. A later timeout is final: the server may still be working.
3. Another server is tried at once. The same one is tried after a pause: as long as its `Retry-After`, or a random time
   up to a bound that doubles with each attempt (full jitter).
4. A server counts as busy from the start of the attempt until the answer is closed, however it ends.
5. `timeouts.total_s` covers all attempts together.
6. A server that refuses the constraint on calls, the form of `tool_choice`, or another part that can be left out gets
   the request again without that part, at once; see `constraint_retries` and `concession_retries`.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, aclosing
from typing import Any, Final, Protocol, TypeVar

from ...config import RetryConfig
from ...errors import GatewayError
from ...events import Event, Fault, Finish, Start
from ...model import ModelReply, ModelRequest
from ...protocols.base import ServerSide
from ...record import AccessRecord, BackendObserver, observe_call
from ...support.offload import is_long, offload
from ..client.connections import disconnected, timed_out
from ..servers.base import EventSource
from ..servers.leak_detection import check_reply, leak_detector
from ..servers.retry_after import wait_s
from ..servers.upstream_errors import hide_private
from .server import is_failure
from .server_pool import ServerPool, WeightedServer

LOG: Final = logging.getLogger("toolwire.retry")
T = TypeVar("T")

Prepare = Callable[[WeightedServer], tuple[ModelRequest, bytes | None]]
"""Returns the request for a server, and its wire form if that is known: see `Backend.open`."""

Opening = Callable[[WeightedServer, ModelRequest, bytes | None, str, BackendObserver | None], Awaitable[EventSource]]
"""Sends one request to a server. Arguments: the server, request and body prepared for it, the request's id, and the
observer. See `Backend.open`."""


def opened(
    member: WeightedServer,
    request: ModelRequest,
    body: bytes | None,
    request_id: str,
    observer: BackendObserver | None,
) -> Awaitable[EventSource]:
    """The usual `Opening`: sends a model request with `Backend.open`."""
    return member.endpoint.backend.open(request, request_id=request_id, body=body, observer=observer)


class RetryWithLess(Protocol):
    """Decides whether a request is sent again to the same server without a part that it refused."""

    def should_retry(self, member: WeightedServer, fault: GatewayError) -> bool:
        """True if `member`, which failed with `fault`, gets the request again with less."""

    def accepted(self, member: WeightedServer) -> None:
        """Called when the answer of `member` has begun."""


class Attempts(EventSource):
    """The answer to one request, by any server of a route. After `open` it is a source, and must be closed. For servers
    whose answers are bytes see `toolwire.upstream.pool.wire_attempts`.

    `pool`: the servers of the route. `retry`: the configured limits. `prepare` returns the request for a server;
    `large`: `prepare` runs in a thread. `record` and `request_id` belong to the exchange. `key` keeps requests on one
    server, see `toolwire.upstream.pool.balancing.Sticky`. `relaxation`: which parts may be left out after a refusal.
    `opening` sends the request (default: as a model request), and `protocol` is the form of the answer (default: that
    of the pool).
    """

    # Initial state, in the class so that creating an object is cheap.
    _deadline: float | None = None
    _asked: WeightedServer | None = None
    _observer: BackendObserver | None = None
    _probe = False
    _began = False
    _failed = False
    _paused_s = 0.0
    queued_s = 0.0
    """Seconds that the request waited for a free connection."""
    protocol: ServerSide
    """The protocol of the answer, if it comes as bytes."""
    asked: tuple[str, ModelRequest] | None = None
    """The name of the last server, and the request that it was sent."""

    def __init__(
        self,
        pool: ServerPool,
        retry: RetryConfig,
        prepare: Prepare,
        *,
        record: AccessRecord,
        request_id: str,
        large: bool = False,
        key: bytes = b"",
        relaxation: RetryWithLess | None = None,
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
        self._tried: list[WeightedServer] = []
        self._source: EventSource

    async def open(self) -> None:
        """Waits until a server accepts the request. Raises `Unavailable` if no server may be used, else the last
        server's error."""
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
        """See `EventSource.batches`. If the backend fails, the last event is a `Fault`; nothing is raised."""
        first_events: list[Event] = []
        try:
            async with aclosing(
                await self._answer(lambda source: self._until_content(source, first_events))
            ) as batches:
                yield first_events
                while (batch := await self._answer(lambda _: anext(batches, None))) is not None:
                    yield batch
        except GatewayError as error:
            yield [Fault(error)] if self._began else [*first_events, Fault(error)]

    async def reply(self) -> ModelReply:
        return await self._answer(self._reply)

    async def close(self) -> None:
        if self._asked is None:
            return
        try:
            await self._source.close()
        finally:
            self._release()

    def observe(self, event: Event) -> None:
        """Reports an event of the answer to the observer, if there is one."""
        if self._observer is not None:
            self._observer.event(event)

    # --- attempts ---------------------------------------------------------------------------------------------------

    async def _answer(self, read: Callable[[Any], Awaitable[T]]) -> T:
        """Returns the result of `read(source)`. If it fails before any part of an answer has arrived, retries with the
        next source. Raises the last error."""
        while True:
            try:
                work = read(self._source)
                result = await (work if self._deadline is None else self._limited(work, self._deadline))
            except GatewayError as error:
                fault = error
            else:
                if not self._began:
                    self._begin()
                return result
            await self._retry_answer(fault)

    async def _reply(self, source: EventSource) -> ModelReply:
        answer = await source.reply()
        if not self.private.secrets:
            return answer
        return await offload(is_long(answer), check_reply, self.private, answer)

    async def _until_content(self, source: EventSource, first_events: list[Event]) -> AsyncGenerator[list[Event], None]:
        """Returns the events of the source; collects those up to the first content in `first_events`."""
        first_events.clear()
        async with AsyncExitStack() as stack:
            batches = await stack.enter_async_context(aclosing(self._events(source)))
            async for batch in batches:
                first_events += batch
                if not all(isinstance(event, Start) for event in batch):
                    break
            self._begin()
            stack.pop_all()
            return batches

    async def _events(self, source: EventSource) -> AsyncGenerator[list[Event], None]:
        """Yields the events of the source up to `Finish`. Raises its error, and `BackendFault` if a secret is found."""
        detector = leak_detector(self.private)
        batches = source.batches()
        try:
            async for batch in batches:
                if detector is not None:
                    batch = detector.events(batch)
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

    def _retries_with_less(self, fault: GatewayError) -> bool:
        """True if the same server gets the request again with less. That attempt is then not counted."""
        if self._relaxation is None or not self._relaxation.should_retry(self._tried[-1], fault):
            return False
        self._tried.pop()
        return True

    async def _ask(self, member: WeightedServer) -> None:
        """Sends the request to `member`, and to the next server if it does not accept."""
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
                    self._release()
                    raise
                fault = hide_private(error, private=self.private)
                self._fail(fault)
            self._release()
            if not self._retries_with_less(fault):
                member = await self._next(fault)

    async def _retry_answer(self, fault: GatewayError) -> None:
        """Begins another attempt after the answer failed with `fault`. Raises `fault`, without private data, if it
        cannot be retried."""
        fault = hide_private(fault, private=self.private)
        if self._began:
            self._blame(fault)
            raise fault
        self._fail(fault)
        member = self._tried[-1]
        try:
            await self._source.close()
        finally:
            self._release()
        await self._ask(member if self._retries_with_less(fault) else await self._next(fault))

    async def _next(self, fault: GatewayError) -> WeightedServer:
        """Returns the server for the next attempt, after the necessary pause. Raises `fault` if there is none."""
        if not fault.transient:
            if fault.code == "upstream_auth" and (len(self._pool.members) > 1 or len(self._tried) > 1):
                fault.headers.pop("x-should-retry", None)  # the client's next attempt may go to another server
            raise fault
        member = self._pick()
        pause = 0.0
        if member is None or member in self._tried:
            retry_after_s = wait_s(fault.headers)
            if member is None and (
                retry_after_s is None or not self._pool.has_attempts(self._retry.attempts, self._tried)
            ):
                raise fault
            if retry_after_s is not None and retry_after_s > self._retry.retry_after_max_s:
                raise fault
            pause = self._backoff() if retry_after_s is None else retry_after_s
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

    def _pick(self) -> WeightedServer | None:
        return self._pool.pick(self._retry.attempts, self._tried, self._key)

    def _backoff(self) -> float:
        retry = self._retry
        return random.uniform(0.0, min(retry.backoff_max_s, retry.backoff_s * 2.0 ** (len(self._tried) - 1)))

    def _note(self, fault: GatewayError, member: WeightedServer, pause: float) -> None:
        record = self._record
        record.count("retries")
        record.label("retries", fault.code)
        record.note("attempts", len(self._tried) + 1)
        if self._paused_s:
            record.note("retry_wait_ms", round(self._paused_s * 1000, 2))
        LOG.warning(
            "request %s: attempt %d failed at %r: %s: %s; next attempt after %.2f s at %r",
            self._request_id,
            len(self._tried),
            self._tried[-1].name,
            fault.code,
            fault.message,
            pause,
            member.name,
        )

    async def _limited(self, work: Awaitable[T], deadline: float) -> T:
        """Awaits `work` within the remaining total time. For a first attempt the server's own limits are enough."""
        try:
            async with asyncio.timeout(deadline - time.monotonic()) as limit:
                return await work
        except TimeoutError:
            if not limit.expired():
                raise
            raise timed_out("total", deadline - self._started) from None

    def _opened(self, member: WeightedServer) -> None:
        """Called when `member` has accepted the request."""

    # --- reports to the server ---------------------------------------------------------------------------------------

    def _begin(self) -> None:
        """Called when content of the answer has arrived: the server works."""
        if not self._began:
            self._began = True
            if self._relaxation is not None:
                self._relaxation.accepted(self._tried[-1])
            if self._probe:
                self._probe = False
                self._tried[-1].endpoint.succeeded(probe=True)

    def _fail(self, fault: GatewayError) -> None:
        """Records that an attempt failed with `fault`."""
        member = self._tried[-1]
        self._record.backend_failed(fault, member.name)
        self._blame(fault)
        if fault.code == "model_not_found":
            member.endpoint.doubt.set()  # it may serve another model by now
        retry_after_s = wait_s(fault.headers)
        if retry_after_s is not None:
            member.endpoint.pause(retry_after_s)

    def _blame(self, fault: GatewayError) -> None:
        """Reports the failure to the breaker if the server is at fault."""
        if is_failure(fault):
            self._failed = True
            self._tried[-1].endpoint.failed(self._probe)
            self._probe = False

    def _release(self) -> None:
        member, self._asked = self._asked, None
        worked, self._failed = self._began and not self._failed, False
        if member is not None:
            member.endpoint.leave(self._probe, worked=worked)
            if self._observer is not None:
                self._observer.closed()
