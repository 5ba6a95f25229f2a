"""Queries of the servers' health, regularly and for `/ready` (R10.6, R17.4, R18.2), and of their identity, at the start
and whenever it may have changed (R23.6, R24.1, docs/adr/0021). Changes are logged."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Mapping
from typing import Final

from aiohttp import web

from ...errors import GatewayError, quote
from ...support.legible import visible
from ...support.tasks import cancel_all
from ..servers.identity import Identity
from .server import UpstreamServer

LOG: Final = logging.getLogger("toolwire.health")

LIMIT_S: Final = 2.0
"""A server that does not answer within this time is down."""

FRESH_S: Final = 1.0
"""Time for which a health result answers further requests. `/ready` needs no key and must not be a way to flood
servers."""

AGAIN_S: Final = (0.5, 1.0, 2.0, 5.0)
"""Pauses between identity queries of a server that does not answer; the last one repeats."""

LEAST_S: Final = 1.0
"""Minimum interval between identity queries."""

Report = Callable[[bool, str], None]
"""Called with whether a server is up, and its name."""


Introduce = Callable[[UpstreamServer], str]
"""Returns a log line: the engine and models of a server, and the effect on the routes."""


Begin = Callable[[UpstreamServer], None]
"""Starts test requests for properties that a server does not report."""


class Health:
    """The health of the servers of an application. Inside `async with` the servers that are configured for it are
    checked regularly, and the identity of those that report one is queried.

    `introduce` returns the log line for a server that has answered, and `probe` begins its probes. `before` is the
    health of the replaced application (on a reload), whose identities are taken over.
    """

    def __init__(
        self,
        endpoints: Mapping[str, UpstreamServer],
        report: Report,
        introduce: Introduce = lambda endpoint: f"Backend {quote(endpoint.name)} answers.",
        before: Health | None = None,
        *,
        probe: Begin = lambda endpoint: None,
    ) -> None:
        self.logs_servers = True
        """True if this process logs identities and runs probes; one of several workers is enough."""
        self._pool = endpoints
        self._report = report
        self._introduce = introduce
        self._probe = probe
        for name, endpoint in endpoints.items():
            known = None if before is None else before._pool.get(name)
            if (
                endpoint.reports_identity
                and known is not None
                and known.config == endpoint.config
                and known.identity is not None
            ):
                endpoint.learn(known.identity)
        self._tasks: list[asyncio.Task[None]] = []
        self._asking: asyncio.Task[dict[str, bool]] | None = None
        self._asked_at = 0.0

    async def __aenter__(self) -> Health:
        for endpoint in self._pool.values():
            endpoint.watch(self._report)
            if endpoint.config.health_check_s:
                self._tasks.append(asyncio.create_task(self._regularly(endpoint, endpoint.config.health_check_s)))
            if endpoint.reports_identity:
                if endpoint.identity is None:
                    endpoint.first_look = asyncio.Event()
                self._tasks.append(asyncio.create_task(self._keep_identity(endpoint)))
        return self

    async def __aexit__(self, *exc: object) -> None:
        await cancel_all([*self._tasks, *([] if self._asking is None else [self._asking])])
        self._tasks.clear()

    async def states(self) -> dict[str, bool]:
        """Returns which servers can be reached. Those with regular checks are not queried again; others at most once in
        `FRESH_S`, and concurrent callers share one query."""
        unknown = [
            endpoint for endpoint in self._pool.values() if not (endpoint.config.health_check_s and endpoint.checked)
        ]
        now = asyncio.get_running_loop().time()
        if unknown and (self._asking is None or (self._asking.done() and now - self._asked_at >= FRESH_S)):
            self._asked_at = now
            self._asking = asyncio.create_task(self._ask(unknown))
        # A cancelled caller must not cancel the shared query.
        results = {} if self._asking is None else await asyncio.shield(self._asking)
        known = {endpoint.name: endpoint.healthy for endpoint in self._pool.values() if endpoint not in unknown}
        return {name: known[name] if name in known else results[name] for name in self._pool}

    def refused(self) -> dict[str, dict[str, dict[str, str]]]:
        """Returns by server and model the parts that requests are sent without (`toolwire.upstream.pool.lessons`)."""
        return {endpoint.name: shown for endpoint in self._pool.values() if (shown := endpoint.lessons.shown())}

    async def check_models(self) -> None:
        """Queries the models of each server that reports no identity, once, and logs the errors."""
        servers = [
            endpoint
            for endpoint in self._pool.values()
            if endpoint.config.identify_s != 0 and not endpoint.reports_identity
        ]
        await asyncio.gather(*map(_check_models, servers))

    async def _ask(self, endpoints: list[UpstreamServer]) -> dict[str, bool]:
        answers = await asyncio.gather(*map(_is_up, endpoints))
        for endpoint, up in zip(endpoints, answers, strict=True):
            self._report(up, endpoint.name)
        return {endpoint.name: up for endpoint, up in zip(endpoints, answers, strict=True)}

    async def _keep_identity(self, endpoint: UpstreamServer) -> None:
        try:
            await self._learn(endpoint)
        except Exception:
            LOG.exception("backend %r: its type and models are no longer queried", endpoint.name)
        finally:
            if endpoint.first_look is not None:
                endpoint.first_look.set()

    async def _learn(self, endpoint: UpstreamServer) -> None:
        """Queries the server's identity in a loop. Logs it at first, when it changes, when the server stops answering,
        and when it answers again."""
        loop = asyncio.get_running_loop()
        up: bool | None = None
        failed = 0
        logged: set[str] = set()
        while True:
            endpoint.doubt.clear()
            asked_at = loop.time()
            identity = await _identify(endpoint)
            if isinstance(identity, Identity):
                failed = 0
                logged.clear()
                if not up or identity != endpoint.identity:
                    up = True
                    endpoint.learn(identity)
                    self._log(logging.INFO, self._introduce(endpoint))
                    if self.logs_servers:
                        self._probe(endpoint)
            else:
                failed += 1
                if not (up and failed == 1) and identity not in logged:  # a busy server may miss one query
                    up = False
                    logged.add(identity)
                    self._log(logging.WARNING, _complaint(endpoint, identity))
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
        if self.logs_servers:
            LOG.log(level, "%s", visible(line))

    async def _regularly(self, endpoint: UpstreamServer, every_s: float) -> None:
        while True:
            endpoint.set_health(await _is_up(endpoint))
            await asyncio.sleep(every_s * random.uniform(0.9, 1.1))  # so that workers do not query at the same moment


async def _identify(endpoint: UpstreamServer) -> Identity | str:
    """Returns the server's identity, or a text about what is wrong with it."""
    try:
        return await endpoint.identify()
    except GatewayError as error:
        if endpoint.config.health_path is None:
            return error.message
    if await _is_up(endpoint):
        return Identity()
    return f"Backend {quote(endpoint.name)} does not answer on its `health_path`."


async def _check_models(endpoint: UpstreamServer) -> None:
    try:
        await endpoint.models()
    except GatewayError as error:
        LOG.warning("%s", _complaint(endpoint, error.message))


def _complaint(endpoint: UpstreamServer, fault: str) -> str:
    url = endpoint.config.public_url
    return f"{fault}{f' Its address is {url}.' if url else ''} Requests for it fail until that changes."


async def _is_up(endpoint: UpstreamServer) -> bool:
    try:
        async with asyncio.timeout(LIMIT_S):  # `wait_for` of Python 3.11 may lose a cancellation
            return await endpoint.backend.ready()
    except TimeoutError:
        return False
    except Exception:  # an error of a plug-in counts as down
        LOG.exception("backend %r cannot be checked", endpoint.name)
        return False


HEALTH: Final = web.AppKey("toolwire.health", Health)
"""Application key of the `Health` of its servers."""
