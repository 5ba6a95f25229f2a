"""One request, asked again until a server answers whose answers are bytes: they may pass unread.

The rules are those of `toolwire.upstream.pool.attempts`. What says nothing of an answer, and so may come from another
server just as well, the protocol says; what a server refuses after it has accepted stands in the first bytes.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from functools import partial
from operator import methodcaller
from typing import Final

from toolwire.upstream.client.connections import disconnected
from toolwire.upstream.pool.attempts import Attempts
from toolwire.upstream.pool.beginning import Beginning
from toolwire.upstream.pool.enforcing import refusal_in_band
from toolwire.upstream.pool.noticing import notice
from toolwire.upstream.pool.pool import WeightedEndpoint
from toolwire.upstream.servers.base import WireSource
from toolwire.upstream.servers.upstream_errors import cleaned

_BODY: Final = methodcaller("body")


async def _first_part(source: WireSource) -> tuple[bytes, AsyncGenerator[bytes, None]]:
    parts = source.body_in_parts()
    return await anext(parts, b""), parts


class WireAttempts(Attempts, WireSource):
    """See `Attempts`. The servers of `pool` speak a protocol."""

    _source: WireSource

    async def pump(self, sink: Callable[[bytes], None]) -> None:
        """See `WireSource.pump`. What says nothing of an answer is kept until something does (rule 1)."""
        await self._answer(lambda source: self._pump(source, sink))

    def redirect(self, sink: Callable[[bytes], None]) -> None:
        """See `WireSource.redirect`."""
        self._source.redirect(sink)

    def pause(self) -> None:
        """See `WireSource.pause`."""
        self._source.pause()

    def resume(self) -> None:
        """See `WireSource.resume`."""
        self._source.resume()

    async def body(self) -> bytes:
        """See `WireSource.body`."""
        return await self._answer(_BODY)

    async def body_in_parts(self) -> AsyncGenerator[bytes, None]:
        """See `WireSource.body_in_parts`. Another server may be asked until the first part is there."""
        first, parts = await self._answer(_first_part)
        async with aclosing(parts):
            yield first
            async for data in parts:
                yield data

    def _opened(self, member: WeightedEndpoint) -> None:
        self.note = self._source.note = partial(notice, self._record, member, self._request_id)

    async def _pump(self, source: WireSource, sink: Callable[[bytes], None]) -> None:
        beginning = Beginning(self.protocol.is_empty_frame)

        def begin(data: bytes) -> None:
            if said := beginning.feed(data):
                self._look(said)
                self._begin()
                source.redirect(sink)
                sink(said)

        await source.pump(begin)
        if not beginning.over:
            said = beginning.finish()
            self._look(said or beginning.held)
            if not said:
                raise disconnected()
            self._begin()
            sink(said)

    def _look(self, data: bytes) -> None:
        """The first bytes of a stream. Raises the error if a server refuses in them what it had accepted."""
        if self._relaxation is not None and (refused := refusal_in_band(data, self.protocol)) is not None:
            raise cleaned(refused, private=self.private)
