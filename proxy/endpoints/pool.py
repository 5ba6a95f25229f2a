"""The servers of a route: which of them may be asked, and which is asked next (R10.6).

Rules:

1. What is known of a server (does it fail, is it to be spared, how busy is it) is known once per application, in its
   `Endpoint`: routes share it. It is not shared between workers.
2. All servers of a route speak one protocol. What the chain may count on is the most careful common set of what they
   take; what is sent is made fit for the one that gets it.
3. With one server there is nothing to choose, and what is known of it changes nothing: its own error says more than
   ours would. Only if its configuration asks for a breaker it is left alone as well.
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

from ..backends.base import Backend, Capabilities
from ..backends.identity import MOST_NAMES, NAME_CHARS, Identity
from ..backends.presets import AUTO, GRAMMAR_CONSTRAINTS, SCHEMA_CONSTRAINTS, TAG_CONSTRAINTS
from ..backends.private_data import NOTHING, PrivateData
from ..backends.upstream_errors import hidden
from ..config import BackendConfig, EndpointConfig, RouteConfig
from ..errors import BackendFault, GatewayError, Unavailable, quote
from ..protocols.base import ServerSide
from ..support.conversion import ConfigError
from .balancing import Balance, LeastBusy, Rotation, Sticky
from .breaker import Breaker
from .lessons import Lessons
from .model_names import ModelNames
from .template_probing import TemplateProbes
from .verdicts import Cause, Mode, Verdict, Verdicts

T = TypeVar("T")

LOG: Final = logging.getLogger("toolwire.endpoints")

FAILURES: Final = 5
"""A server that is one of several is left alone after so many failures in a row, if its configuration says nothing
else."""

LONGEST_REST_S: Final = 300.0
"""No server is spared for longer, whatever its `Retry-After` says."""


PATIENCE_S: Final = 2.5
"""For a server to say which models it has: more than the two seconds that backends allow themselves."""


class Rename(NamedTuple):
    """`name` is asked for in place of what is not among `known`."""

    name: str
    known: frozenset[str]

    def __call__(self, model: str) -> str:
        """The name that is asked for."""
        return model if model in self.known else self.name


class Endpoint:
    """One server and what is known of it. One per backend of an application."""

    def __init__(
        self, name: str, backend: Backend, config: BackendConfig, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.name = name
        self.backend = backend
        self.config = config
        self.busy = 0
        """Requests that it works on: open answers, and those not accepted yet."""
        self.healthy = True
        """What the last health check said; before any it is taken to be."""
        self.checked = False
        """There was a health check."""
        self.private: PrivateData = getattr(backend, "private", NOTHING)
        """What no client may see."""
        failures = config.breaker.failures
        self.guarded = failures is not None
        """Left alone after failures even if there is no other."""
        self.breaker = Breaker(FAILURES if failures is None else failures, config.breaker.open_s, clock)
        self.lessons = Lessons(config.verdict_s, clock)
        """What it has refused of requests."""
        self.unknown_ends: set[str] = set()
        """Words with which answers of the server ended, and which nobody knows; each was said in the log."""
        self.identity: Identity | None = None
        """What it says it is; None: it has not been asked, or not answered."""
        self.listed: frozenset[str] = frozenset()
        """The models that it has said it has."""
        self.rename: Rename | None = None
        """The name that it is asked for in place of those that it does not know."""
        self.verdicts = Verdicts()
        """Who does tools for its models; an application's endpoints share them."""
        self.templates = TemplateProbes()
        """Whether the chat templates of its models teach tools; likewise."""
        self.first_look: asyncio.Event | None = None
        """Set when the server was asked for the first time what it is; None: nobody asks."""
        self.doubt = asyncio.Event()
        """Set when it should be asked again."""
        self._model_names = ModelNames(self._ask_models, clock)
        self._clock = clock
        self._rests_until = -math.inf
        self._report: Callable[[bool, str], None] | None = None

    @property
    def available(self) -> bool:
        """Whether it may be asked now."""
        return self.healthy and self._clock() >= self._rests_until and self.breaker.allows

    @property
    def wait_s(self) -> float:
        """How long until it may be asked again, as far as can be told."""
        return max(self.breaker.wait_s, self._rests_until - self._clock(), 0.0)

    def verdict(self, model: str) -> Verdict | None:
        """Who does tools for a model that is asked for by this name, as far as it is known."""
        return self.verdicts.find(self.name, model, self.server)

    def judge(self, model: str, mode: Mode, cause: Cause) -> None:
        """It is known from now on, for `verdict_s`."""
        self.verdicts.keep(self.name, model, mode, cause, self.config.verdict_s, self.server)

    @property
    def server(self) -> str | None:
        """What it says it is, in a word to compare; None if it says nothing."""
        said = self.identity
        return None if said is None or said.engine is None else f"{said.engine} {said.version}"

    async def models(self) -> list[str]:
        """The model names that it knows, as it has said lately. Raises `BackendFault`, which names it, if it cannot
        say."""
        return await self._model_names.get()

    async def _ask_models(self) -> list[str]:
        names = await self._said(self.backend.models(), "which models it has")
        if self.identity is None:
            self.listed = frozenset(name for name in names[:MOST_NAMES] if len(name) <= NAME_CHARS)
        return names

    async def _said(self, answer: Awaitable[T], what: str) -> T:
        """What it answers. Raises `BackendFault`, which names it, if it cannot say `what`."""
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
    def asks(self) -> bool:
        """Whether the server is asked what it is."""
        return self.config.identify_s != 0 and hasattr(self.backend, "identify")

    async def identify(self) -> Identity:
        """What the server says it is. Raises `BackendFault`, which names it, if it does not say."""
        identify: Callable[[], Awaitable[Identity]] = self.backend.identify  # type: ignore[attr-defined]  # see `asks`
        return await self._said(identify(), "what it is")

    def learn(self, said: Identity | None) -> None:
        """The server says so. None: nothing is known of it."""
        if said == self.identity:
            return
        if self.identity is not None:
            self.lessons = Lessons(self.config.verdict_s, self._clock)  # what one server refuses another may take
            self._model_names.forget()
        self.identity = said
        self.listed = frozenset(() if said is None else (served.name for served in said.models))
        self.rename = None
        if said is not None and not said.any_name and said.sole is not None:
            self.rename = Rename(said.sole.name, frozenset(served.name for served in said.models))
        self.backend.learn(said)  # type: ignore[attr-defined]  # see `asks`

    def rest(self, seconds: float) -> None:
        """It asked to be spared for so long."""
        self._rests_until = max(self._rests_until, self._clock() + min(seconds, LONGEST_REST_S))

    def watch(self, report: Callable[[bool, str], None]) -> None:
        """Tell `report` from now on, with the name, when it goes down or comes up: by a health check or by the
        breaker."""
        self._report = report

    def found(self, healthy: bool) -> None:
        """A health check said so."""
        if healthy != self.healthy or not self.checked:
            LOG.log(
                logging.INFO if healthy else logging.WARNING, "backend %r is %s", self.name, "up" if healthy else "down"
            )
        self.healthy, self.checked = healthy, True
        self._tell()

    def enter(self) -> bool:
        """A request goes to it. Gives whether it is the breaker's probe, which the other methods want to know."""
        self.busy += 1
        if self.identity is None and self.first_look is not None:
            self.doubt.set()
        return not self.breaker.untroubled and self.breaker.enter()

    def succeeded(self, probe: bool) -> None:
        """It did what it was asked."""
        before = self.breaker.state
        self.breaker.succeeded(probe)
        if before != "closed" and self.breaker.state == "closed":
            LOG.info("backend %r works again", self.name)
            self._tell()

    def failed(self, probe: bool) -> None:
        """It failed."""
        self.doubt.set()
        before = self.breaker.state
        self.breaker.failed(probe)
        if before != "open" and self.breaker.state == "open":
            LOG.warning(
                "backend %r failed %s: left alone for %g s",
                self.name,
                "again" if probe else "too often",
                self.config.breaker.open_s,
            )
            self._tell()

    def leave(self, probe: bool, *, worked: bool = False) -> None:
        """That request is over, and its answer with it, whatever became of it; `worked`: it did what it was asked."""
        self.busy -= 1
        if probe:
            self.breaker.left(probe)
        elif worked and not self.breaker.untroubled:
            self.succeeded(probe)

    def _tell(self) -> None:
        if self._report is not None:
            self._report(self.healthy and self.breaker.state == "closed", self.name)


def is_failure(error: GatewayError) -> bool:
    """Whether an error is the server's failing (no connection, time-out, 408, 5xx, nonsense) and not a refusal (other
    4xx)."""
    status = error.upstream_status
    return isinstance(error, BackendFault) and (status is None or status == 408 or status >= 500)


class WeightedEndpoint:
    """A endpoint as one of several in a route. `passes_bodies`: the body of a client of its own protocol, which nobody
    has changed, goes to it as it is: neither the protocol nor its configuration has anything to say to it."""

    __slots__ = ("endpoint", "name", "passes_bodies", "upstream_model", "weight")

    def __init__(self, endpoint: Endpoint, weight: float = 1.0, upstream_model: str | None = None) -> None:
        self.endpoint = endpoint
        self.name = endpoint.name
        self.weight = weight
        self.upstream_model = upstream_model
        config, wire = endpoint.config, endpoint.backend.protocol
        own = wire is not None and type(wire).own_body is not ServerSide.own_body
        self.passes_bodies = not own and config.max_tokens_field is None and config.default_max_tokens is None

    @property
    def busy(self) -> int:
        """See `Endpoint.busy`."""
        return self.endpoint.busy

    def name_of(self, model: str, configured: str | None) -> str:
        """What it is asked for, for a client's `model`; `configured` is the name that the route has for it."""
        name = self.upstream_model or configured
        if name is None and self.endpoint.rename is not None:
            name = self.endpoint.rename(model)
        return model if name is None else name


class EndpointPool:
    """The servers of one route: `members` share the requests, `fallback` are asked after them, in order.

    `protocol` is that of all together, `private` is what no client may see of them, or of whatever else is given.
    Raises `ValueError` if they do not go together.
    """

    def __init__(
        self,
        members: Sequence[WeightedEndpoint],
        fallback: Sequence[WeightedEndpoint] = (),
        balance: Balance[WeightedEndpoint] | None = None,
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
        """Servers that may still be asked for the first time what they are."""
        self.private = PrivateData.together((*(member.endpoint.private for member in every), private))
        self.sole = every[0] if len(every) == 1 and not every[0].endpoint.guarded else None
        """The only one, which is asked whatever is known of it."""
        self._balance = balance or Rotation()

    @classmethod
    def of(cls, backend: Backend) -> EndpointPool:
        """One server that nothing was configured for."""
        return cls([WeightedEndpoint(Endpoint(backend.name, backend, BackendConfig()))])

    @property
    def capabilities(self) -> Capabilities:
        """What all of them take, as far as it is known now."""
        if len(self.every) == 1:
            return self.every[0].endpoint.backend.capabilities
        takes = tuple(member.endpoint.backend.capabilities for member in self.every)
        if len(takes) != len(self._takes) or not all(map(is_, takes, self._takes)):
            self._common = common(takes)
            self._takes = takes
        return self._common

    @property
    def identity(self) -> Identity | None:
        """What the first member says it is that has said anything."""
        for member in self.members:
            if member.endpoint.identity is not None:
                return member.endpoint.identity
        return None

    async def settle(self) -> None:
        """Wait until each has been asked once what it is, or has had its time for an answer (docs/adr/0021)."""
        for endpoint in self.unsettled:
            if endpoint.first_look is not None:
                await endpoint.first_look.wait()
        self.unsettled = []

    def listed(self) -> list[str] | None:
        """The names of the models that the members serve; None if one of them has not said."""
        known = [member.endpoint.identity for member in self.members]
        if any(identity is None for identity in known):
            return None
        return list(dict.fromkeys(served.name for identity in known if identity for served in identity.models))

    def left(self, attempts: int, tried: Sequence[WeightedEndpoint]) -> bool:
        """Whether a member may be tried once more."""
        return sum(member in self.members for member in tried) < attempts

    def pick(self, attempts: int, tried: Sequence[WeightedEndpoint] = (), key: bytes = b"") -> WeightedEndpoint | None:
        """Who is asked next, after `tried`: at most `attempts` times one of the members, one not tried before if there
        is any, then each fallback once. None if nobody is left, or nobody left may be asked now. `key`: see
        `Sticky`."""
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
        """The error when none of them may be asked."""
        wait_s = min(member.endpoint.wait_s for member in (*self.members, *self.fallback))
        return Unavailable(
            "None of the servers for this model can be asked now.",
            code="no_backend_available",
            wait_s=wait_s if wait_s > 0 else None,
        )

    async def models(self) -> list[str]:
        """The model names that the members know; if none of them can say, those of the fallback. Raises what the first
        one raised if nobody can."""
        faults: list[GatewayError] = []
        for several in (self.members, self.fallback):
            asked = [member.endpoint.models() for member in several]
            answers = await asyncio.gather(*asked, return_exceptions=True)
            faults += [answer for answer in answers if isinstance(answer, GatewayError)]
            known = [names for names in answers if not isinstance(names, BaseException)]
            if known:
                return list(dict.fromkeys(name for names in known for name in names))
        raise faults[0]


def pool_of(route: RouteConfig, known: Mapping[str, Endpoint]) -> EndpointPool:
    """The servers of a configured route. Raises `ConfigError` if they do not go together."""

    def member(entry: EndpointConfig) -> WeightedEndpoint:
        return WeightedEndpoint(known[entry.backend], entry.weight, entry.upstream_model)

    members = [member(entry) for entry in route.backends or (EndpointConfig(backend=route.backend),)]
    rules: dict[str, Callable[[], Balance[WeightedEndpoint]]] = {
        "weighted": Rotation,
        "round_robin": lambda: Rotation(even=True),
        "least_busy": LeastBusy,
        "sticky": Sticky,
    }
    try:
        private = PrivateData.together(endpoint.private for endpoint in known.values())
        endpoints = EndpointPool(members, [member(entry) for entry in route.fallback], rules[route.balance](), private)
    except ValueError as error:
        raise ConfigError(str(error)) from error
    # Of those that the configuration says everything of there is nothing to wait for.
    told = {
        m.endpoint
        for m in endpoints.every
        if m.endpoint.config.preset != AUTO and (m.upstream_model or route.upstream_model)
    }
    endpoints.unsettled = [endpoint for endpoint in endpoints.unsettled if endpoint not in told]
    return endpoints


def common(takes: Any) -> Capabilities:
    """What can be counted on with any of these: the most careful of each."""
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
    # A grammar, a schema, or a structural tag is written in each server's own words; but it has to be one of them for
    # all.
    kinds = {one.constrain for one in every}
    together = any(kinds <= group for group in (GRAMMAR_CONSTRAINTS, SCHEMA_CONSTRAINTS, TAG_CONSTRAINTS))
    return replace(first, **careful, constrain=first.constrain if together else "none")
