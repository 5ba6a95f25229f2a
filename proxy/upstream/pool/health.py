"""Asking servers whether they are up: regularly, and once for `/ready` (R10.6, R17.4, R18.2). And what they are: at the
start, again when that may have changed, and then the log says so (R23.6, R24.1, docs/adr/0021)."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Mapping
from typing import Final

from aiohttp import web
from yarl import URL

from toolwire.errors import GatewayError, quote
from toolwire.support.legible import visible
from toolwire.upstream.pool.pool import Endpoint
from toolwire.upstream.servers.identity import Identity

LOG: Final = logging.getLogger("toolwire.health")

LIMIT_S: Final = 2.0
"""A server that does not answer for so long is down."""

FRESH_S: Final = 1.0
"""What was found out is an answer to whoever asks within so long: `/ready` needs no key, and must not be a way to flood
servers."""

AGAIN_S: Final = (0.5, 1.0, 2.0, 5.0)
"""Pauses after which a server that does not answer is asked what it is; the last one for good."""

LEAST_S: Final = 1.0
"""However much is doubted, it is not asked more often."""

Report = Callable[[bool, str], None]
"""Is told whether a server is up, and its name."""


Introduce = Callable[[Endpoint], str]
"""Says in one line what a server is and what that means for the routes."""


Begin = Callable[[Endpoint], None]
"""Begins to find out what a server does not say of itself."""


class Health:
    """The health of the servers of an application. Inside `async with` those that want it are asked regularly whether
    they are up, and those that can say it what they are. `introduce` gives the line about one that has answered, and
    `probe` begins what has to be found out about it by asking. `before` is the health of the application whose place
    this one takes: what is known stays known."""

    def __init__(
        self,
        endpoints: Mapping[str, Endpoint],
        report: Report,
        introduce: Introduce = lambda endpoint: f"Backend {quote(endpoint.name)} answers.",
        before: Health | None = None,
        *,
        probe: Begin = lambda endpoint: None,
    ) -> None:
        self.speaks = True
        """Log what servers say they are, and probe them. Of several workers one is enough."""
        self._pool = endpoints
        self._report = report
        self._introduce = introduce
        self._probe = probe
        for name, endpoint in endpoints.items():
            known = None if before is None else before._pool.get(name)
            if endpoint.asks and known is not None and known.config == endpoint.config and known.identity is not None:
                endpoint.learn(known.identity)
        self._tasks: list[asyncio.Task[None]] = []
        self._asking: asyncio.Task[dict[str, bool]] | None = None
        self._asked_at = 0.0

    async def __aenter__(self) -> Health:
        for endpoint in self._pool.values():
            endpoint.watch(self._report)
            if endpoint.config.health_check_s:
                self._tasks.append(asyncio.create_task(self._regularly(endpoint, endpoint.config.health_check_s)))
            if endpoint.asks:
                if endpoint.identity is None:
                    endpoint.first_look = asyncio.Event()
                self._tasks.append(asyncio.create_task(self._follow(endpoint)))
        return self

    async def __aexit__(self, *exc: object) -> None:
        tasks = [*self._tasks, *([] if self._asking is None else [self._asking])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._tasks.clear()

    async def states(self) -> dict[str, bool]:
        """Which can be reached. Those that are asked regularly are not asked again, others once in `FRESH_S` and not
        while an answer is awaited, however many want to know."""
        unknown = [
            endpoint for endpoint in self._pool.values() if not (endpoint.config.health_check_s and endpoint.checked)
        ]
        now = asyncio.get_running_loop().time()
        if unknown and (self._asking is None or (self._asking.done() and now - self._asked_at >= FRESH_S)):
            self._asked_at = now
            self._asking = asyncio.create_task(self._ask(unknown))
        # One who goes does not spoil it for the others.
        found = {} if self._asking is None else await asyncio.shield(self._asking)
        known = {endpoint.name: endpoint.healthy for endpoint in self._pool.values() if endpoint not in unknown}
        return {name: known[name] if name in known else found[name] for name in self._pool}

    def refused(self) -> dict[str, dict[str, dict[str, str]]]:
        """By server and model: what requests are sent without, as it was refused (`toolwire.upstream.pool.lessons`)."""
        return {endpoint.name: shown for endpoint in self._pool.values() if (shown := endpoint.lessons.shown())}

    async def look(self) -> None:
        """Ask each that cannot say what it is once for its models, and log what is wrong with those that are no
        good."""
        dumb = [endpoint for endpoint in self._pool.values() if endpoint.config.identify_s != 0 and not endpoint.asks]
        await asyncio.gather(*map(_look_at, dumb))

    async def _ask(self, endpoints: list[Endpoint]) -> dict[str, bool]:
        answers = await asyncio.gather(*map(_answers, endpoints))
        for endpoint, up in zip(endpoints, answers, strict=True):
            self._report(up, endpoint.name)
        return {endpoint.name: up for endpoint, up in zip(endpoints, answers, strict=True)}

    async def _follow(self, endpoint: Endpoint) -> None:
        try:
            await self._learn(endpoint)
        except Exception:
            LOG.exception("backend %r is not asked any more what it is", endpoint.name)
        finally:
            if endpoint.first_look is not None:
                endpoint.first_look.set()

    async def _learn(self, endpoint: Endpoint) -> None:
        """Learn what the server is, and log it: now, when that changes, when it does not answer any more, and when it
        does again."""
        loop = asyncio.get_running_loop()
        up: bool | None = None
        failed = 0
        told: set[str] = set()
        while True:
            endpoint.doubt.clear()
            asked_at = loop.time()
            said = await _identify(endpoint)
            if isinstance(said, Identity):
                failed = 0
                told.clear()
                if not up or said != endpoint.identity:
                    up = True
                    endpoint.learn(said)
                    self._log(logging.INFO, self._introduce(endpoint))
                    if self.speaks:
                        self._probe(endpoint)
            else:
                failed += 1
                if not (up and failed == 1) and said not in told:  # one that has much to do may miss one
                    up = False
                    told.add(said)
                    self._log(logging.WARNING, _complaint(endpoint, said))
            if endpoint.first_look is not None:
                endpoint.first_look.set()
            pause = AGAIN_S[min(failed, len(AGAIN_S)) - 1] if failed else endpoint.config.identify_s
            try:
                async with asyncio.timeout(pause):
                    await endpoint.doubt.wait()
            except TimeoutError:
                continue
            await asyncio.sleep(max(0.0, LEAST_S - (loop.time() - asked_at)))

    def _log(self, level: int, line: str) -> None:
        if self.speaks:
            LOG.log(level, "%s", visible(line))

    async def _regularly(self, endpoint: Endpoint, every_s: float) -> None:
        while True:
            endpoint.found(await _answers(endpoint))
            await asyncio.sleep(every_s * random.uniform(0.9, 1.1))  # not all workers at the same moment


async def _identify(endpoint: Endpoint) -> Identity | str:
    """What a server says it is, or what is wrong with it."""
    try:
        return await endpoint.identify()
    except GatewayError as error:
        if endpoint.config.health_path is None:
            return error.message
    if await _answers(endpoint):
        return Identity()
    return f"Backend {quote(endpoint.name)} does not answer on its `health_path`."


async def _look_at(endpoint: Endpoint) -> None:
    try:
        await endpoint.models()
    except GatewayError as error:
        LOG.warning("%s", _complaint(endpoint, error.message))


def _complaint(endpoint: Endpoint, fault: str) -> str:
    return f"{fault}{_place(endpoint)} Requests for it fail until that changes."


def _place(endpoint: Endpoint) -> str:
    """Where it is, for the log."""
    try:
        url = URL(endpoint.config.url or "").with_user(None).with_query(None)
    except ValueError:
        return ""
    return f" It is asked at {url}." if url.host else ""


async def _answers(endpoint: Endpoint) -> bool:
    try:
        async with asyncio.timeout(LIMIT_S):  # `wait_for` of Python 3.11 may lose a cancellation
            return await endpoint.backend.ready()
    except TimeoutError:
        return False
    except Exception:  # a plug-in's; a server that cannot be asked is not up
        LOG.exception("backend %r cannot be checked", endpoint.name)
        return False


HEALTH: Final = web.AppKey("toolwire.health", Health)
"""The health of an application's servers."""
