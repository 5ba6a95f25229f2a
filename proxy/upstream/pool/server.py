"""One model server and its state: failures, requested pauses, load, identity.

Rule: the state is stored once per application, in an `UpstreamServer`, which routes share. Worker processes do not
share it.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple, TypeVar

from ...config import BackendConfig
from ...errors import BackendFault, GatewayError, quote
from ..servers.base import Backend
from ..servers.identity import MOST_NAMES, NAME_CHARS, Identity
from ..servers.private_data import NOTHING, PrivateData
from ..servers.upstream_errors import hide_private
from .breaker import Breaker
from .lessons import Lessons
from .model_names import ModelNames
from .verdicts import Cause, Mode, Verdict, Verdicts

T = TypeVar("T")

LOG: Final = logging.getLogger("toolwire.endpoints")

FAILURES: Final = 5
"""Failures in a row that open the breaker of one of several servers, unless configured."""

LONGEST_PAUSE_S: Final = 300.0
"""Upper limit for the pause that a server requests with `Retry-After`."""


PATIENCE_S: Final = 2.5
"""Time limit for a query about models or identity: more than the two seconds of the backends' own limits."""


class Rename(NamedTuple):
    """Replaces model names that are not in `known` by `name`."""

    name: str
    known: frozenset[str]

    def __call__(self, model: str) -> str:
        """Returns the name to send for `model`."""
        return model if model in self.known else self.name


class UpstreamServer:
    """One server and its state. There is one object per backend of an application."""

    def __init__(
        self, name: str, backend: Backend, config: BackendConfig, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.name = name
        self.backend = backend
        self.config = config
        self.busy = 0
        """Number of its open requests, including those that it has not accepted yet."""
        self.healthy = True
        """The result of the last health check; True before the first one."""
        self.checked = False
        """True after the first health check."""
        self.private: PrivateData = getattr(backend, "private", NOTHING)
        """Data that must not reach clients."""
        failures = config.breaker.failures
        self.guarded = failures is not None
        """True if a breaker is configured, which then also applies to a single server."""
        self.breaker = Breaker(FAILURES if failures is None else failures, config.breaker.open_s, clock)
        self.lessons = Lessons(config.verdict_s, clock)
        """The parts of requests that it has refused."""
        self.unknown_ends: set[str] = set()
        """Unknown finish reasons of the server, each logged once."""
        self.identity: Identity | None = None
        """The identity that the server reports; None before its first answer."""
        self.listed: frozenset[str] = frozenset()
        """The models that it has listed."""
        self.rename: Rename | None = None
        """Replaces model names that the server does not know; None if names are sent unchanged."""
        self.verdicts = Verdicts()
        """Whether the server or the gateway handles tools, by model; shared by all servers of an application."""
        self.first_look: asyncio.Event | None = None
        """Set after the first query of its identity; None if the identity is not queried."""
        self.doubt = asyncio.Event()
        """Set when its identity should be queried again."""
        self._model_names = ModelNames(self._ask_models, clock)
        self._clock = clock
        self._paused_until = -math.inf
        self._report: Callable[[bool, str], None] | None = None

    @property
    def available(self) -> bool:
        """True if requests may be sent to the server now: it is healthy, its breaker allows it, and no pause is
        pending."""
        return self.healthy and self._clock() >= self._paused_until and self.breaker.allows

    @property
    def wait_s(self) -> float:
        """Estimated seconds until requests may be sent to the server again."""
        return max(self.breaker.wait_s, self._paused_until - self._clock(), 0.0)

    def verdict(self, model: str) -> Verdict | None:
        """Returns the verdict on tools for a model of this name, or None."""
        return self.verdicts.find(self.name, model, self.server)

    def store_verdict(self, model: str, mode: Mode, cause: Cause) -> None:
        """Stores a verdict on tools for `verdict_s`."""
        self.verdicts.keep(self.name, model, mode, cause, self.config.verdict_s, self.server)

    @property
    def server(self) -> str | None:
        """Engine and version as one text, for comparison; None if unknown."""
        identity = self.identity
        return None if identity is None or identity.engine is None else f"{identity.engine} {identity.version}"

    async def models(self) -> list[str]:
        """Returns the names of its models, cached for a short time. Raises `BackendFault`, which names the server, if
        it cannot be asked."""
        return await self._model_names.get()

    async def _ask_models(self) -> list[str]:
        names = await self._queried(self.backend.models(), "which models it has")
        if self.identity is None:
            self.listed = frozenset(name for name in names[:MOST_NAMES] if len(name) <= NAME_CHARS)
        return names

    async def _queried(self, answer: Awaitable[T], what: str) -> T:
        """Awaits the answer to a query. Raises `BackendFault`, which names the server and `what` was queried."""
        try:
            async with asyncio.timeout(PATIENCE_S):  # `wait_for` of Python 3.11 may lose a cancellation
                return await answer
        except TimeoutError:
            fault: GatewayError = BackendFault(f"It did not report {what} within {PATIENCE_S:g} s.")
        except GatewayError as error:
            fault = hide_private(error, private=self.private)
        except Exception:  # a plug-in's
            LOG.exception("backend %r cannot report %s", self.name, what)
            fault = BackendFault("It failed.")
        status = 508 if fault.code == "backend_loop" else 502
        raise BackendFault(
            f"Backend {quote(self.name)}: {fault.message}",
            code=fault.code,
            status=status,
            upstream_status=fault.upstream_status,
        )

    @property
    def reports_identity(self) -> bool:
        """True if the server's identity is queried."""
        return self.config.identify_s != 0 and hasattr(self.backend, "identify")

    async def identify(self) -> Identity:
        """Returns the identity that the server reports. Raises `BackendFault`, which names the server."""
        identify: Callable[[], Awaitable[Identity]] = self.backend.identify  # type: ignore[attr-defined]  # see `reports_identity`
        return await self._queried(identify(), "what it is")

    def learn(self, identity: Identity | None) -> None:
        """Stores the identity that the server reported; None: unknown. A changed identity discards lessons and model
        names."""
        if identity == self.identity:
            return
        if self.identity is not None:
            self.lessons = Lessons(
                self.config.verdict_s, self._clock
            )  # another server may accept what this one refused
            self._model_names.forget()
        self.identity = identity
        self.listed = frozenset(() if identity is None else (served.name for served in identity.models))
        self.rename = None
        if identity is not None and not identity.any_name and identity.sole is not None:
            self.rename = Rename(identity.sole.name, frozenset(served.name for served in identity.models))
        self.backend.learn(identity)  # type: ignore[attr-defined]  # see `reports_identity`

    def pause(self, seconds: float) -> None:
        """Stops using the server for `seconds`, as it has requested."""
        self._paused_until = max(self._paused_until, self._clock() + min(seconds, LONGEST_PAUSE_S))

    def watch(self, report: Callable[[bool, str], None]) -> None:
        """Calls `report` with the state and the name whenever the server goes down or comes up, by a health check or by
        the breaker."""
        self._report = report

    def set_health(self, healthy: bool) -> None:
        """Stores the result of a health check."""
        if healthy != self.healthy or not self.checked:
            LOG.log(
                logging.INFO if healthy else logging.WARNING, "backend %r is %s", self.name, "up" if healthy else "down"
            )
        self.healthy, self.checked = healthy, True
        self._report_state()

    def enter(self) -> bool:
        """Called when a request is sent. Returns True if it is the breaker's probe; pass that to the other methods."""
        self.busy += 1
        if self.identity is None and self.first_look is not None:
            self.doubt.set()
        return not self.breaker.untroubled and self.breaker.enter()

    def succeeded(self, probe: bool) -> None:
        """Called when a request succeeded."""
        before = self.breaker.state
        self.breaker.succeeded(probe)
        if before != "closed" and self.breaker.state == "closed":
            LOG.info("backend %r works again", self.name)
            self._report_state()

    def failed(self, probe: bool) -> None:
        """Called when a request failed."""
        self.doubt.set()
        before = self.breaker.state
        self.breaker.failed(probe)
        if before != "open" and self.breaker.state == "open":
            LOG.warning(
                "backend %r failed %s: it is not used for %g s",
                self.name,
                "again" if probe else "too often",
                self.config.breaker.open_s,
            )
            self._report_state()

    def leave(self, probe: bool, *, worked: bool = False) -> None:
        """Called when a request and its answer are over. `worked`: it succeeded."""
        self.busy -= 1
        if probe:
            self.breaker.ended(probe)
        elif worked and not self.breaker.untroubled:
            self.succeeded(probe)

    def _report_state(self) -> None:
        if self._report is not None:
            self._report(self.healthy and self.breaker.state == "closed", self.name)


def is_failure(error: GatewayError) -> bool:
    """True if the server is at fault (no connection, timeout, 408, 5xx, invalid data); False for a refusal (other
    4xx)."""
    status = error.upstream_status
    return isinstance(error, BackendFault) and (status is None or status == 408 or status >= 500)
