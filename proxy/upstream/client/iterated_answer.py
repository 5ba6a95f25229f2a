"""Base of the answers that do not come from an HTTP connection of `wire_client`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable

from .connections import too_large


class IteratedAnswer:
    """An `UpstreamAnswer` whose subclass implements `reads`; the other ways of reading use it."""

    def __init__(self) -> None:
        self._sink: Callable[[bytes], None]
        self._flows = asyncio.Event()
        self._flows.set()

    def reads(self) -> AsyncGenerator[bytes, None]:
        raise NotImplementedError

    async def read(self, limit: int) -> bytes:
        parts: list[bytes] = []
        size = 0
        async for data in self.reads():
            size += len(data)
            if size > limit:
                raise too_large(limit)
            parts.append(data)
        return b"".join(parts)

    async def pump(self, sink: Callable[[bytes], None]) -> None:
        self._sink = sink
        async for data in self.reads():
            self._sink(data)
            await self._flows.wait()

    def redirect(self, sink: Callable[[bytes], None]) -> None:
        self._sink = sink

    def pause(self) -> None:
        self._flows.clear()

    def resume(self) -> None:
        self._flows.set()
