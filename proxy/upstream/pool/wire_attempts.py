"""Attempts of one request at servers whose answers are bytes, which may be forwarded unread.

The rules are those of `toolwire.upstream.pool.attempts`. The protocol decides which frames have no content. A refusal
after status 200 is found in the first bytes.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from functools import partial
from operator import methodcaller
from typing import Final

from ...errors import quote
from ...protocols.shared.noise import LEFT_OUT, UNKNOWN_END
from ...record import AccessRecord
from ..client.connections import disconnected
from ..servers.base import WireSource
from ..servers.upstream_errors import clean_error
from .attempts import Attempts
from .constraint_retries import refusal_in_band
from .first_content import FirstContentBuffer
from .server_pool import WeightedServer

LOG: Final = logging.getLogger("toolwire.backends")
MAX_WORDS: Final = 64
"""Maximum number of unknown finish reasons per server that are remembered, and therefore logged."""

_BODY: Final = methodcaller("body")


async def _first_part(source: WireSource) -> tuple[bytes, AsyncGenerator[bytes, None]]:
    parts = source.body_in_parts()
    return await anext(parts, b""), parts


class WireAttempts(Attempts, WireSource):
    """See `Attempts`. The servers of `pool` speak a wire protocol."""

    _source: WireSource

    async def pump(self, sink: Callable[[bytes], None]) -> None:
        """See `WireSource.pump`. Frames without content are held back until there is content (rule 1)."""
        await self._answer(lambda source: self._pump(source, sink))

    def redirect(self, sink: Callable[[bytes], None]) -> None:
        self._source.redirect(sink)

    def pause(self) -> None:
        self._source.pause()

    def resume(self) -> None:
        self._source.resume()

    async def body(self) -> bytes:
        return await self._answer(_BODY)

    async def body_in_parts(self) -> AsyncGenerator[bytes, None]:
        """See `WireSource.body_in_parts`. Retries are possible until the first part has arrived."""
        first, parts = await self._answer(_first_part)
        async with aclosing(parts):
            yield first
            async for data in parts:
                yield data

    def _opened(self, member: WeightedServer) -> None:
        self.note = self._source.note = partial(report_oddity, self._record, member, self._request_id)
        self.converts = self._source.converts

    async def _pump(self, source: WireSource, sink: Callable[[bytes], None]) -> None:
        beginning = FirstContentBuffer(self.protocol.is_empty_frame)

        def begin(data: bytes) -> None:
            if content := beginning.feed(data):
                self._look(content)
                self._begin()
                source.redirect(sink)
                sink(content)

        await source.pump(begin)
        if not beginning.over:
            content = beginning.finish()
            self._look(content or beginning.held)
            if not content:
                raise disconnected()
            self._begin()
            sink(content)

    def _look(self, data: bytes) -> None:
        """Checks the first bytes of a stream. Raises the error if the server refuses the request in them."""
        if self._relaxation is not None and (refused := refusal_in_band(data, self.protocol)) is not None:
            raise clean_error(refused, private=self.private)


def report_oddity(record: AccessRecord, member: WeightedServer, request_id: str, what: str, detail: str) -> None:
    """Counts the oddity `what` (see `toolwire.protocols.shared.noise.Note`) (R29.1, R29.3). Logs an unknown
    finish reason once per server."""
    record.count(what)
    if what == LEFT_OUT:
        record.label(what, detail)
    if what != UNKNOWN_END:
        return
    known = member.endpoint.unknown_ends
    if detail in known or len(known) >= MAX_WORDS:
        return
    known.add(detail)
    LOG.warning(
        "request %s: backend %r ended its answer with the unknown finish reason %s; incomplete calls of such answers are dropped",
        request_id,
        member.name,
        quote(detail),
    )
