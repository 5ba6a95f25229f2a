"""Asking servers whether they are up: regularly, once for `/ready`, and at the start (R10.6, R17.4, R18.2)."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Mapping
from typing import Final

from aiohttp import web
from yarl import URL

from ..errors import GatewayError, quote
from .targets import Target

LOG: Final = logging.getLogger("toolwire.health")

LIMIT_S: Final = 2.0
"""A server that does not answer for so long is down."""

FRESH_S: Final = 1.0
"""What was found out is an answer to whoever asks within so long: `/ready` needs no key, and must not be a way to flood servers."""

Report = Callable[[bool, str], None]
"""Is told whether a server is up, and its name."""


class Health:
    """The health of the servers of an application. Inside `async with` those that want it are asked regularly."""

    def __init__(self, targets: Mapping[str, Target], report: Report) -> None:
        self._targets = targets
        self._report = report
        self._tasks: list[asyncio.Task[None]] = []
        self._asking: asyncio.Task[dict[str, bool]] | None = None
        self._asked_at = 0.0

    async def __aenter__(self) -> Health:
        for target in self._targets.values():
            target.watch(self._report)
            if target.config.health_check_s:
                self._tasks.append(asyncio.create_task(self._regularly(target, target.config.health_check_s)))
        return self

    async def __aexit__(self, *exc: object) -> None:
        tasks = [*self._tasks, *([] if self._asking is None else [self._asking])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._tasks.clear()

    async def states(self) -> dict[str, bool]:
        """Which can be reached. Those that are asked regularly are not asked again, others once in `FRESH_S` and not while an answer is
        awaited, however many want to know."""
        unknown = [target for target in self._targets.values() if not (target.config.health_check_s and target.checked)]
        now = asyncio.get_running_loop().time()
        if unknown and (self._asking is None or (self._asking.done() and now - self._asked_at >= FRESH_S)):
            self._asked_at = now
            self._asking = asyncio.create_task(self._ask(unknown))
        # One who goes does not spoil it for the others.
        found = {} if self._asking is None else await asyncio.shield(self._asking)
        known = {target.name: target.healthy for target in self._targets.values() if target not in unknown}
        return {name: known[name] if name in known else found[name] for name in self._targets}

    async def look(self) -> None:
        """Ask each once, and log what is wrong with those that are no good: a dead or wrong address is easier to see now than in the
        first request's error."""
        await asyncio.gather(*map(_look_at, self._targets.values()))

    async def _ask(self, targets: list[Target]) -> dict[str, bool]:
        answers = await asyncio.gather(*map(_answers, targets))
        for target, up in zip(targets, answers, strict=True):
            self._report(up, target.name)
        return {target.name: up for target, up in zip(targets, answers, strict=True)}

    async def _regularly(self, target: Target, every_s: float) -> None:
        while True:
            target.found(await _answers(target))
            await asyncio.sleep(every_s * random.uniform(0.9, 1.1))  # not all workers at the same moment


async def _look_at(target: Target) -> None:
    if target.config.health_path is not None:
        fault = (
            None if await _answers(target) else f"Backend {quote(target.name)} does not answer on its `health_path`."
        )
    else:
        try:
            await target.models()
            fault = None
        except GatewayError as error:
            fault = error.message
    if fault is not None:
        LOG.warning("%s%s Requests for it fail until that changes.", fault, _place(target))


def _place(target: Target) -> str:
    """Where it is, for the log."""
    try:
        url = URL(target.config.url or "").with_user(None).with_query(None)
    except ValueError:
        return ""
    return f" It is asked at {url}." if url.host else ""


async def _answers(target: Target) -> bool:
    try:
        async with asyncio.timeout(LIMIT_S):  # `wait_for` of Python 3.11 may lose a cancellation
            return await target.backend.ready()
    except TimeoutError:
        return False
    except Exception:  # a plug-in's; a server that cannot be asked is not up
        LOG.exception("backend %r cannot be checked", target.name)
        return False


HEALTH: Final = web.AppKey("toolwire.health", Health)
"""The health of an application's servers."""
