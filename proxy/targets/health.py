"""Asking servers whether they are up: regularly, or once for `/ready` (R10.6, R17.4, R18.2)."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Mapping
from typing import Final

from .targets import Target

LOG: Final = logging.getLogger("toolwire.health")

LIMIT_S: Final = 2.0
"""A server that does not answer for so long is down."""

Report = Callable[[bool, str], None]
"""Is told whether a server is up, and its name."""


class Health:
    """The health of the servers of an application. Inside `async with` those that want it are asked regularly."""

    def __init__(self, targets: Mapping[str, Target], report: Report) -> None:
        self._targets = targets
        self._report = report
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Health:
        for target in self._targets.values():
            target.watch(self._report)
            if target.config.health_check_s:
                self._tasks.append(asyncio.create_task(self._regularly(target, target.config.health_check_s)))
        return self

    async def __aexit__(self, *exc: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()

    async def states(self) -> dict[str, bool]:
        """Which can be reached. Those that are asked regularly are not asked again."""
        known = self._targets.values()
        up = await asyncio.gather(*(self._look(target) for target in known))
        return {target.name: ok for target, ok in zip(known, up, strict=True)}

    async def _look(self, target: Target) -> bool:
        if target.config.health_check_s and target.checked:
            return target.healthy
        ok = await _answers(target)
        self._report(ok, target.name)
        return ok

    async def _regularly(self, target: Target, every_s: float) -> None:
        while True:
            target.found(await _answers(target))
            await asyncio.sleep(every_s * random.uniform(0.9, 1.1))  # not all workers at the same moment


async def _answers(target: Target) -> bool:
    try:
        async with asyncio.timeout(LIMIT_S):  # `wait_for` of Python 3.11 may lose a cancellation
            return await target.backend.ready()
    except TimeoutError:
        return False
    except Exception:  # a plug-in's; a server that cannot be asked is not up
        LOG.exception("backend %r cannot be checked", target.name)
        return False
