"""An answer of a model server whose bytes are also reported to an observer."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable

from ...errors import BackendFault
from ...record import BackendObserver
from ..client.connections import UpstreamAnswer


class ObservedAnswer:
    """Wraps an answer and reports each read to `observer`. Implements `UpstreamAnswer`."""

    def __init__(self, answer: UpstreamAnswer, observer: BackendObserver) -> None:
        self._answer = answer
        self._observer = observer
        self._sink: Callable[[bytes], None]
        self.status = answer.status
        self.content_type = answer.content_type
        self.headers = answer.headers
        self.queued_s = answer.queued_s

    @property
    def ended(self) -> bool:
        return self._answer.ended

    async def reads(self) -> AsyncGenerator[bytes, None]:
        try:
            async for data in self._answer.reads():
                self._observer.received(data)
                yield data
        except BackendFault as error:
            self._observer.failed(error)
            raise

    async def read(self, limit: int) -> bytes:
        try:
            body = await self._answer.read(limit)
        except BackendFault as error:
            self._observer.failed(error)
            raise
        self._observer.received(body)
        return body

    async def pump(self, sink: Callable[[bytes], None]) -> None:
        self._sink = sink
        try:
            await self._answer.pump(self._both)
        except BackendFault as error:
            self._observer.failed(error)
            raise

    def redirect(self, sink: Callable[[bytes], None]) -> None:
        self._sink = sink

    def pause(self) -> None:
        self._answer.pause()

    def resume(self) -> None:
        self._answer.resume()

    async def close(self, *, linger_s: float = 0.0) -> None:
        await self._answer.close(linger_s=linger_s)

    def _both(self, data: bytes) -> None:
        self._observer.received(data)
        self._sink(data)
