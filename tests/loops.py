"""The event loop of tests."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, Final

from tests.waiting import until

CLOSING_S: Final = 10.0
"""Time for connections to close: that of a machine that pauses."""


class LoopOfTests(asyncio.SelectorEventLoop):
    """Ends after its connections. A transport closes its socket a few turns of the loop after `close`, or when it hears
    of the end of its peer; where the loop has ended by then, the socket stays open, and whichever test runs when it is
    collected would fail. A connection that nobody closes is still told so, as a ResourceWarning."""

    _transports: Any
    """asyncio's own: its transports by descriptor."""

    def close(self) -> None:
        """Closes the loop when all sockets of its transports are closed, or after `CLOSING_S`."""
        if not self.is_closed() and self._open():
            self.run_until_complete(self._all_closed())
        super().close()

    def _open(self) -> Iterable[object]:
        return [one for one in self._transports.values() if one.get_extra_info("socket").fileno() >= 0]

    async def _all_closed(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSING_S):
                await until(lambda: not self._open(), every_s=0.001)
