"""Waiting in tests: one limit for all of them, and one way to wait for what no event announces, such as the end of a
process."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

GUARD_S: Final = 120.0
"""The limit of every wait: only a test that hangs reaches it, on a machine ten times slower too, and it takes no more
of the time of the whole run than that."""
PROGRAM_S: Final = 300.0
"""The same for programs that take seconds of CPU time themselves: clients, compilers, browsers, installers."""


async def until(holds: Callable[[], Any], every_s: float = 0.01) -> Any:
    """Wait until `holds` returns something true, and return that. It may be a coroutine function."""
    async with asyncio.timeout(GUARD_S):
        while True:
            found = holds()
            if inspect.isawaitable(found):
                found = await found
            if found:
                return found
            await asyncio.sleep(every_s)


def runs(pid: int | str) -> bool:
    """Whether a process is there, and no zombie."""
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False
