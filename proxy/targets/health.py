"""Asking servers whether they are up: regularly, and once for `/ready` (R10.6, R17.4, R18.2). And what they are: at the start, again
when that may have changed, and then the log says so (R23.6, R24.1, docs/adr/0021)."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Mapping
from typing import Final

from aiohttp import web
from yarl import URL

from ..backends.identity import Identity
from ..errors import GatewayError, quote
from .targets import Target

LOG: Final = logging.getLogger("toolwire.health")

LIMIT_S: Final = 2.0
"""A server that does not answer for so long is down."""

FRESH_S: Final = 1.0
"""What was found out is an answer to whoever asks within so long: `/ready` needs no key, and must not be a way to flood servers."""

AGAIN_S: Final = (0.5, 1.0, 2.0, 5.0)
"""Pauses after which a server that does not answer is asked what it is; the last one for good."""

LEAST_S: Final = 1.0
"""However much is doubted, it is not asked more often."""

Report = Callable[[bool, str], None]
"""Is told whether a server is up, and its name."""


Introduce = Callable[[Target], str]
"""Says in one line what a server is and what that means for the routes."""


class Health:
    """The health of the servers of an application. Inside `async with` those that want it are asked regularly whether they are up, and those
    that can say it what they are. `introduce` gives the line about one that has answered. `before` is the health of the application whose
    place this one takes: what is known stays known."""

    def __init__(
        self,
        targets: Mapping[str, Target],
        report: Report,
        introduce: Introduce = lambda target: f"Backend {quote(target.name)} answers.",
        before: Health | None = None,
    ) -> None:
        self.speaks = True
        """Log what servers say they are. Of several workers one is enough."""
        self._targets = targets
        self._report = report
        self._introduce = introduce
        for name, target in targets.items():
            known = None if before is None else before._targets.get(name)
            if target.asks and known is not None and known.config == target.config and known.identity is not None:
                target.learn(known.identity)
        self._tasks: list[asyncio.Task[None]] = []
        self._asking: asyncio.Task[dict[str, bool]] | None = None
        self._asked_at = 0.0

    async def __aenter__(self) -> Health:
        for target in self._targets.values():
            target.watch(self._report)
            if target.config.health_check_s:
                self._tasks.append(asyncio.create_task(self._regularly(target, target.config.health_check_s)))
            if target.asks:
                if target.identity is None:
                    target.first_look = asyncio.Event()
                self._tasks.append(asyncio.create_task(self._follow(target)))
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
        """Ask each that cannot say what it is once for its models, and log what is wrong with those that are no good."""
        dumb = [target for target in self._targets.values() if target.config.identify_s != 0 and not target.asks]
        await asyncio.gather(*map(_look_at, dumb))

    async def _ask(self, targets: list[Target]) -> dict[str, bool]:
        answers = await asyncio.gather(*map(_answers, targets))
        for target, up in zip(targets, answers, strict=True):
            self._report(up, target.name)
        return {target.name: up for target, up in zip(targets, answers, strict=True)}

    async def _follow(self, target: Target) -> None:
        try:
            await self._learn(target)
        except Exception:
            LOG.exception("backend %r is not asked any more what it is", target.name)
        finally:
            if target.first_look is not None:
                target.first_look.set()

    async def _learn(self, target: Target) -> None:
        """Learn what the server is, and log it: now, when that changes, when it does not answer any more, and when it does again."""
        loop = asyncio.get_running_loop()
        up: bool | None = None
        failed = 0
        told: set[str] = set()
        while True:
            target.doubt.clear()
            asked_at = loop.time()
            said = await _identify(target)
            if isinstance(said, Identity):
                failed = 0
                told.clear()
                if not up or said != target.identity:
                    up = True
                    target.learn(said)
                    self._log(logging.INFO, self._introduce(target))
            else:
                failed += 1
                if not (up and failed == 1) and said not in told:  # one that has much to do may miss one
                    up = False
                    told.add(said)
                    self._log(logging.WARNING, _complaint(target, said))
            if target.first_look is not None:
                target.first_look.set()
            pause = AGAIN_S[min(failed, len(AGAIN_S)) - 1] if failed else target.config.identify_s
            try:
                async with asyncio.timeout(pause):
                    await target.doubt.wait()
            except TimeoutError:
                continue
            await asyncio.sleep(max(0.0, LEAST_S - (loop.time() - asked_at)))

    def _log(self, level: int, line: str) -> None:
        if self.speaks:
            LOG.log(level, "%s", "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in line))

    async def _regularly(self, target: Target, every_s: float) -> None:
        while True:
            target.found(await _answers(target))
            await asyncio.sleep(every_s * random.uniform(0.9, 1.1))  # not all workers at the same moment


async def _identify(target: Target) -> Identity | str:
    """What a server says it is, or what is wrong with it."""
    try:
        return await target.identify()
    except GatewayError as error:
        if target.config.health_path is None:
            return error.message
    if await _answers(target):
        return Identity()
    return f"Backend {quote(target.name)} does not answer on its `health_path`."


async def _look_at(target: Target) -> None:
    try:
        await target.models()
    except GatewayError as error:
        LOG.warning("%s", _complaint(target, error.message))


def _complaint(target: Target, fault: str) -> str:
    return f"{fault}{_place(target)} Requests for it fail until that changes."


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
