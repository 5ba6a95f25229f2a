"""The servers of a route: their state, and the choice of the next one for a request (R10.6).

Rules:

1. The state of a server (failures, requested pauses, load) is stored once per application, in its `UpstreamServer`,
   which routes share. Worker processes do not share it.
2. All servers of a route speak one protocol. The chain relies on the features that all of them have; each request is
   adapted to the server that gets it.
3. A single server is used whatever its state, because its own error says more than ours would. The exception is a
   configured breaker.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import fields, replace
from operator import is_
from typing import Any, Final, NamedTuple, TypeVar

from ...config import BackendConfig, EndpointConfig, RouteConfig
from ...errors import BackendFault, GatewayError, Unavailable, quote
from ...protocols.base import ServerSide
from ...support.conversion import ConfigError
from ..servers.base import Backend, Capabilities
from ..servers.identity import MOST_NAMES, NAME_CHARS, Identity
from ..servers.presets import AUTO, GRAMMAR_CONSTRAINTS, SCHEMA_CONSTRAINTS, TAG_CONSTRAINTS
from ..servers.private_data import NOTHING, PrivateData
from ..servers.upstream_errors import hidden
from .balancing import Balance, LeastBusy, Rotation, Sticky
from .breaker import Breaker
from .lessons import Lessons
from .model_names import ModelNames
from .template_probing import TemplateProbes
from .verdicts import Cause, Mode, Verdict, Verdicts

T = TypeVar("T")

LOG: Final = logging.getLogger("toolwire.endpoints")

FAILURES: Final = 5
"""Failures in a row that open the breaker of one of several servers, unless configured."""

LONGEST_REST_S: Final = 300.0
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
        self.templates = TemplateProbes()
        """Results of template probes; shared by all servers of an application."""
        self.first_look: asyncio.Event | None = None
        """Set after the first query of its identity; None if the identity is not queried."""
        self.doubt = asyncio.Event()
        """Set when its identity should be queried again."""
        self._model_names = ModelNames(self._ask_models, clock)
        self._clock = clock
        self._rests_until = -math.inf
        self._report: Callable[[bool, str], None] | None = None

    @property
    def available(self) -> bool:
        """True if it may be used now."""
        return self.healthy and self._clock() >= self._rests_until and self.breaker.allows

    @property
    def wait_s(self) -> float:
        """Estimated seconds until it may be used again."""
        return max(self.breaker.wait_s, self._rests_until - self._clock(), 0.0)

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
            fault: GatewayError = BackendFault(f"It did not say {what} within {PATIENCE_S:g} s.")
        except GatewayError as error:
            fault = hidden(error, private=self.private)
        except Exception:  # a plug-in's
            LOG.exception("backend %r cannot say %s", self.name, what)
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
        """Stores the identity. None: unknown. A changed identity discards lessons and model names."""
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

    def rest(self, seconds: float) -> None:
        """Stops using the server for `seconds`, as it has requested."""
        self._rests_until = max(self._rests_until, self._clock() + min(seconds, LONGEST_REST_S))

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
            self.breaker.left(probe)
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


class WeightedServer:
    """A server as a member of a route. `passes_bodies`: the unchanged body of a client with the same protocol is sent
    as it is, because neither the protocol nor the configuration changes bodies."""

    __slots__ = ("endpoint", "name", "passes_bodies", "upstream_model", "weight")

    def __init__(self, endpoint: UpstreamServer, weight: float = 1.0, upstream_model: str | None = None) -> None:
        self.endpoint = endpoint
        self.name = endpoint.name
        self.weight = weight
        self.upstream_model = upstream_model
        config, wire = endpoint.config, endpoint.backend.protocol
        own = wire is not None and type(wire).own_body is not ServerSide.own_body
        self.passes_bodies = not own and config.max_tokens_field is None and config.default_max_tokens is None

    @property
    def busy(self) -> int:
        """Number of the server's running answers."""
        return self.endpoint.busy

    def name_of(self, model: str, configured: str | None) -> str:
        """Returns the model name to send for a client's `model`; `configured` is the route's name for it."""
        name = self.upstream_model or configured
        if name is None and self.endpoint.rename is not None:
            name = self.endpoint.rename(model)
        return model if name is None else name


class ServerPool:
    """The servers of one route: `members` share the requests; `fallback` servers are used after them, in order.

    `protocol` is common to all. `private` combines the private data of all servers with the given one. The constructor
    raises `ValueError` for different protocols.
    """

    def __init__(
        self,
        members: Sequence[WeightedServer],
        fallback: Sequence[WeightedServer] = (),
        balance: Balance[WeightedServer] | None = None,
        private: PrivateData = NOTHING,
    ) -> None:
        every = (*members, *fallback)
        backends = [member.endpoint.backend for member in every]
        protocols = {backend.protocol.name if backend.protocol else "in-process": backend.name for backend in backends}
        if len(protocols) > 1:
            spoken = ", ".join(f"{name!r} speaks {protocol}" for protocol, name in protocols.items())
            raise ValueError(f"the servers of a route must speak one protocol: {spoken}")
        self.members = tuple(members)
        self.fallback = tuple(fallback)
        self.name = members[0].name
        self.protocol = backends[0].protocol
        self.every = every
        self._takes: tuple[Capabilities, ...] = ()
        self._common: Capabilities
        self.unsettled = [member.endpoint for member in every]
        """Servers whose identity may not have been queried yet."""
        self.private = PrivateData.together((*(member.endpoint.private for member in every), private))
        self.sole = every[0] if len(every) == 1 and not every[0].endpoint.guarded else None
        """The only server, which is used whatever its state; None if there are several."""
        self._balance = balance or Rotation()

    @classmethod
    def of(cls, backend: Backend) -> ServerPool:
        """Returns a pool of one server with default configuration."""
        return cls([WeightedServer(UpstreamServer(backend.name, backend, BackendConfig()))])

    @property
    def capabilities(self) -> Capabilities:
        """The capabilities common to all servers, as far as known now."""
        if len(self.every) == 1:
            return self.every[0].endpoint.backend.capabilities
        takes = tuple(member.endpoint.backend.capabilities for member in self.every)
        if len(takes) != len(self._takes) or not all(map(is_, takes, self._takes)):
            self._common = common(takes)
            self._takes = takes
        return self._common

    @property
    def identity(self) -> Identity | None:
        """The identity of the first member that has one."""
        for member in self.members:
            if member.endpoint.identity is not None:
                return member.endpoint.identity
        return None

    async def settle(self) -> None:
        """Waits until the identity of each server was queried once, or the query has timed out (docs/adr/0021)."""
        for endpoint in self.unsettled:
            if endpoint.first_look is not None:
                await endpoint.first_look.wait()
        self.unsettled = []

    def listed(self) -> list[str] | None:
        """Returns the names of the models that the members serve; None if the identity of one is unknown."""
        known = [member.endpoint.identity for member in self.members]
        if any(identity is None for identity in known):
            return None
        return list(dict.fromkeys(served.name for identity in known if identity for served in identity.models))

    def left(self, attempts: int, tried: Sequence[WeightedServer]) -> bool:
        """True if a member may be tried once more."""
        return sum(member in self.members for member in tried) < attempts

    def pick(self, attempts: int, tried: Sequence[WeightedServer] = (), key: bytes = b"") -> WeightedServer | None:
        """Returns the server for the next attempt, after `tried`; None if none is left or available.

        Members are used at most `attempts` times, those not tried yet first; then each fallback once. `key`: see
        `Sticky`.
        """
        if self.sole is not None:
            return self.sole if len(tried) < attempts else None
        if self.left(attempts, tried):
            free = [member for member in self.members if member.endpoint.available]
            fresh = [member for member in free if member not in tried]
            fresh = fresh or [member for member in free if member is not tried[-1]] or free
            if len(fresh) == 1:
                return fresh[0]
            if fresh:
                return self._balance(fresh, key)
        for member in self.fallback:
            if member not in tried and member.endpoint.available:
                return member
        return None

    def unavailable(self) -> Unavailable:
        """Returns the error for the case that no server may be used."""
        wait_s = min(member.endpoint.wait_s for member in (*self.members, *self.fallback))
        return Unavailable(
            "None of the servers for this model can be asked now.",
            code="no_backend_available",
            wait_s=wait_s if wait_s > 0 else None,
        )

    async def models(self) -> list[str]:
        """Returns the names of the members' models; if no member can be asked, those of the fallbacks. Raises the first
        error if none can."""
        faults: list[GatewayError] = []
        for several in (self.members, self.fallback):
            asked = [member.endpoint.models() for member in several]
            answers = await asyncio.gather(*asked, return_exceptions=True)
            faults += [answer for answer in answers if isinstance(answer, GatewayError)]
            known = [names for names in answers if not isinstance(names, BaseException)]
            if known:
                return list(dict.fromkeys(name for names in known for name in names))
        raise faults[0]


def pool_of(route: RouteConfig, known: Mapping[str, UpstreamServer]) -> ServerPool:
    """Returns the pool of a configured route. Raises `ConfigError` for servers with different protocols."""

    def member(entry: EndpointConfig) -> WeightedServer:
        return WeightedServer(known[entry.backend], entry.weight, entry.upstream_model)

    members = [member(entry) for entry in route.backends or (EndpointConfig(backend=route.backend),)]
    rules: dict[str, Callable[[], Balance[WeightedServer]]] = {
        "weighted": Rotation,
        "round_robin": lambda: Rotation(even=True),
        "least_busy": LeastBusy,
        "sticky": Sticky,
    }
    try:
        private = PrivateData.together(endpoint.private for endpoint in known.values())
        endpoints = ServerPool(members, [member(entry) for entry in route.fallback], rules[route.balance](), private)
    except ValueError as error:
        raise ConfigError(str(error)) from error
    # Fully configured servers need not be waited for.
    configured = {
        m.endpoint
        for m in endpoints.every
        if m.endpoint.config.preset != AUTO and (m.upstream_model or route.upstream_model)
    }
    endpoints.unsettled = [endpoint for endpoint in endpoints.unsettled if endpoint not in configured]
    return endpoints


def common(takes: Any) -> Capabilities:
    """Returns the capabilities that can be relied on with any of these: for each the most restrictive value."""
    every: list[Capabilities] = list(takes)
    first = every[0]
    careful: dict[str, Any] = {}
    for field in fields(Capabilities):
        values = [getattr(one, field.name) for one in every]
        if isinstance(values[0], frozenset):
            careful[field.name] = frozenset.intersection(*values)
        elif isinstance(values[0], bool):
            careful[field.name] = all(values)
    late = {one.late_system for one in every}
    careful["late_system"] = False if False in late else None if None in late else True
    limits = [4 if one.stop_sequences is None else one.stop_sequences for one in every]
    careful["stop_sequences"] = None if all(one.stop_sequences is None for one in every) else min(limits)
    defaults = [one.default_max_tokens for one in every if one.default_max_tokens is not None]
    careful["default_max_tokens"] = min(defaults, default=None)
    careful["merge_roles"] = any(one.merge_roles for one in every)
    careful["images_unknown"] = all(one.images or one.images_unknown for one in every) and not careful["images"]
    careful["refuse_images"] = any(one.refuse_images for one in every)
    careful["files"] = False if any(one.files is False for one in every) else first.files
    # Servers have different forms of a grammar, a schema or a structural tag; but all must support the same kind.
    kinds = {one.constrain for one in every}
    together = any(kinds <= group for group in (GRAMMAR_CONSTRAINTS, SCHEMA_CONSTRAINTS, TAG_CONSTRAINTS))
    return replace(first, **careful, constrain=first.constrain if together else "none")
