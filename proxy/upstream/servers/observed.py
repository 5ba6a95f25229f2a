"""An answer of a model server whose bytes are also reported to an observer."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping

from ...errors import BackendFault
from ...record import BackendObserver
from ..client.connections import UpstreamAnswer


class ObservedAnswer:
    """Wraps an answer and reports each read to `observer`."""

    def __init__(self, answer: UpstreamAnswer, observer: BackendObserver) -> None:
        self._answer = answer
        self._observer = observer
        self._sink: Callable[[bytes], None]

    @property
    def status(self) -> int:
        """HTTP status, 200 or above."""
        return self._answer.status

    @property
    def content_type(self) -> str:
        """Media type in lower case, without parameters; empty if the server names none."""
        return self._answer.content_type

    @property
    def headers(self) -> Mapping[str, str]:
        """The header fields; names are case-insensitive."""
        return self._answer.headers

    @property
    def queued_s(self) -> float:
        """Seconds that the request waited for a free connection."""
        return self._answer.queued_s

    @property
    def ended(self) -> bool:
        """True if the answer has ended or failed."""
        return self._answer.ended

    async def reads(self) -> AsyncGenerator[bytes, None]:
        """Yields the body as it arrives."""
        try:
            async for data in self._answer.reads():
                self._observer.received(data)
                yield data
        except BackendFault as error:
            self._observer.failed(error)
            raise

    async def read(self, limit: int) -> bytes:
        """Returns the whole body."""
        try:
            body = await self._answer.read(limit)
        except BackendFault as error:
            self._observer.failed(error)
            raise
        self._observer.received(body)
        return body

    async def pump(self, sink: Callable[[bytes], None]) -> None:
        """Passes each read of a streamed answer to `sink`."""
        self._sink = sink
        try:
            await self._answer.pump(self._both)
        except BackendFault as error:
            self._observer.failed(error)
            raise

    def redirect(self, sink: Callable[[bytes], None]) -> None:
        """Replaces the sink of `pump` for all following reads."""
        self._sink = sink

    def pause(self) -> None:
        """Stops reading (back-pressure)."""
        self._answer.pause()

    def resume(self) -> None:
        """Continues reading."""
        self._answer.resume()

    async def close(self, *, linger_s: float = 0.0) -> None:
        """Keeps the connection for reuse if the answer has ended, or ends within `linger_s`; else closes it."""
        await self._answer.close(linger_s=linger_s)

    def _both(self, data: bytes) -> None:
        self._observer.received(data)
        self._sink(data)
