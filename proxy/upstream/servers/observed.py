"""An answer whose bytes somebody looks at."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping

from toolwire.errors import BackendFault
from toolwire.record import BackendObserver
from toolwire.upstream.client.connections import Answer


class ObservedAnswer:
    """The same answer; `observer` gets each read as well."""

    def __init__(self, answer: Answer, observer: BackendObserver) -> None:
        self._answer = answer
        self._observer = observer
        self._sink: Callable[[bytes], None]

    @property
    def status(self) -> int:
        """See `Answer`."""
        return self._answer.status

    @property
    def content_type(self) -> str:
        """See `Answer`."""
        return self._answer.content_type

    @property
    def headers(self) -> Mapping[str, str]:
        """See `Answer`."""
        return self._answer.headers

    @property
    def queued_s(self) -> float:
        """See `Answer`."""
        return self._answer.queued_s

    @property
    def ended(self) -> bool:
        """See `Answer`."""
        return self._answer.ended

    async def reads(self) -> AsyncGenerator[bytes, None]:
        """See `Answer`."""
        try:
            async for data in self._answer.reads():
                self._observer.received(data)
                yield data
        except BackendFault as error:
            self._observer.failed(error)
            raise

    async def read(self, limit: int) -> bytes:
        """See `Answer`."""
        try:
            body = await self._answer.read(limit)
        except BackendFault as error:
            self._observer.failed(error)
            raise
        self._observer.received(body)
        return body

    async def pump(self, sink: Callable[[bytes], None]) -> None:
        """See `Answer`."""
        self._sink = sink
        try:
            await self._answer.pump(self._both)
        except BackendFault as error:
            self._observer.failed(error)
            raise

    def redirect(self, sink: Callable[[bytes], None]) -> None:
        """See `Answer`."""
        self._sink = sink

    def pause(self) -> None:
        """See `Answer`."""
        self._answer.pause()

    def resume(self) -> None:
        """See `Answer`."""
        self._answer.resume()

    async def close(self, *, linger_s: float = 0.0) -> None:
        """See `Answer`."""
        await self._answer.close(linger_s=linger_s)

    def _both(self, data: bytes) -> None:
        self._observer.received(data)
        self._sink(data)
