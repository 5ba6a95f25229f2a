"""The servers of a route: which of them may be asked, and which is asked next (R10.6).

Rules:

1. What is known of a server (does it fail, is it to be spared, how busy is it) is known once per application, in its `Target`:
   routes share it. It is not shared between workers.
2. All servers of a route speak one protocol. What the chain may count on is the most careful common set of what they take; what
   is sent is made fit for the one that gets it.
3. With one server there is nothing to choose, and what is known of it changes nothing: its own error says more than ours would.
   Only if its configuration asks for a breaker it is left alone as well.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, Final

from ..backends.base import Backend, Capabilities
from ..backends.presets import GRAMMAR_CONSTRAINTS, SCHEMA_CONSTRAINTS, TAG_CONSTRAINTS
from ..backends.private import NOTHING, Private
from ..backends.refusals import hidden
from ..config import BackendConfig, RouteConfig, TargetConfig
from ..conversion import ConfigError
from ..errors import BackendFault, GatewayError, Unavailable, quote
from .balancing import Balance, LeastBusy, Rotation, Sticky
from .breaker import Breaker
from .enforcing import Enforcing

LOG: Final = logging.getLogger("toolwire.targets")

FAILURES: Final = 5
"""A server that is one of several is left alone after so many failures in a row, if its configuration says nothing else."""

LONGEST_REST_S: Final = 300.0
"""No server is spared for longer, whatever its `Retry-After` says."""


PATIENCE_S: Final = 2.5
"""For a server to say which models it has: more than the two seconds that backends allow themselves."""


class Target:
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
        self.private: Private = getattr(backend, "private", NOTHING)
        """What no client may see."""
        failures = config.breaker.failures
        self.guarded = failures is not None
        """Left alone after failures even if there is no other."""
        self.breaker = Breaker(FAILURES if failures is None else failures, config.breaker.open_s, clock)
        self.enforcing = Enforcing(clock)
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

    async def models(self) -> list[str]:
        """The model names that it knows. Raises `BackendFault`, which names it, if it cannot say."""
        try:
            async with asyncio.timeout(PATIENCE_S):  # `wait_for` of Python 3.11 may lose a cancellation
                return await self.backend.models()
        except TimeoutError:
            fault: GatewayError = BackendFault(f"It did not say which models it has within {PATIENCE_S:g} s.")
        except GatewayError as error:
            fault = hidden(error, private=self.private)
        except Exception:  # a plug-in's
            LOG.exception("backend %r cannot say which models it has", self.name)
            fault = BackendFault("It failed.")
        raise BackendFault(f"Backend {quote(self.name)}: {fault.message}", code=fault.code, status=502)

    def rest(self, seconds: float) -> None:
        """It asked to be spared for so long."""
        self._rests_until = max(self._rests_until, self._clock() + min(seconds, LONGEST_REST_S))

    def watch(self, report: Callable[[bool, str], None]) -> None:
        """Tell `report` from now on, with the name, when it goes down or comes up: by a health check or by the breaker."""
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
        return self.breaker.enter()

    def succeeded(self, probe: bool) -> None:
        """It did what it was asked."""
        if self.breaker.untroubled:
            return
        before = self.breaker.state
        self.breaker.succeeded(probe)
        if before != "closed" and self.breaker.state == "closed":
            LOG.info("backend %r works again", self.name)
            self._tell()

    def failed(self, probe: bool) -> None:
        """It failed."""
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

    def leave(self, probe: bool) -> None:
        """That request is over, and its answer with it, whatever became of it."""
        self.busy -= 1
        self.breaker.left(probe)

    def _tell(self) -> None:
        if self._report is not None:
            self._report(self.healthy and self.breaker.state == "closed", self.name)


def is_failure(error: GatewayError) -> bool:
    """Whether an error is the server's failing (no connection, time-out, 408, 5xx, nonsense) and not a refusal (other 4xx)."""
    status = error.upstream_status
    return isinstance(error, BackendFault) and (status is None or status == 408 or status >= 500)


class Member:
    """A target as one of several in a route."""

    __slots__ = ("name", "target", "upstream_model", "weight")

    def __init__(self, target: Target, weight: float = 1.0, upstream_model: str | None = None) -> None:
        self.target = target
        self.name = target.name
        self.weight = weight
        self.upstream_model = upstream_model

    @property
    def busy(self) -> int:
        """See `Target.busy`."""
        return self.target.busy


class Targets:
    """The servers of one route: `members` share the requests, `fallback` are asked after them, in order.

    `capabilities` and `protocol` are those of all together, `private` is what no client may see of them, or of whatever else is given.
    Raises `ValueError` if they do not go together.
    """

    def __init__(
        self,
        members: Sequence[Member],
        fallback: Sequence[Member] = (),
        balance: Balance[Member] | None = None,
        private: Private = NOTHING,
    ) -> None:
        every = (*members, *fallback)
        backends = [member.target.backend for member in every]
        protocols = {backend.protocol.name if backend.protocol else "in-process": backend.name for backend in backends}
        if len(protocols) > 1:
            spoken = ", ".join(f"{name!r} speaks {protocol}" for protocol, name in protocols.items())
            raise ValueError(f"the servers of a route must speak one protocol: {spoken}")
        self.members = tuple(members)
        self.fallback = tuple(fallback)
        self.name = members[0].name
        self.protocol = backends[0].protocol
        self.capabilities = backends[0].capabilities if len(every) == 1 else common(b.capabilities for b in backends)
        self.private = Private.together((*(member.target.private for member in every), private))
        self.sole = every[0] if len(every) == 1 and not every[0].target.guarded else None
        """The only one, which is asked whatever is known of it."""
        self._balance = balance or Rotation()

    @classmethod
    def of(cls, backend: Backend) -> Targets:
        """One server that nothing was configured for."""
        return cls([Member(Target(backend.name, backend, BackendConfig()))])

    def left(self, attempts: int, tried: Sequence[Member]) -> bool:
        """Whether a member may be tried once more."""
        return sum(member in self.members for member in tried) < attempts

    def pick(self, attempts: int, tried: Sequence[Member] = (), key: bytes = b"") -> Member | None:
        """Who is asked next, after `tried`: at most `attempts` times one of the members, one not tried before if there is any,
        then each fallback once. None if nobody is left, or nobody left may be asked now. `key`: see `Sticky`."""
        if self.sole is not None:
            return self.sole if len(tried) < attempts else None
        if self.left(attempts, tried):
            free = [member for member in self.members if member.target.available]
            fresh = [member for member in free if member not in tried]
            fresh = fresh or [member for member in free if member is not tried[-1]] or free
            if len(fresh) == 1:
                return fresh[0]
            if fresh:
                return self._balance(fresh, key)
        for member in self.fallback:
            if member not in tried and member.target.available:
                return member
        return None

    def unavailable(self) -> Unavailable:
        """The error when none of them may be asked."""
        wait_s = min(member.target.wait_s for member in (*self.members, *self.fallback))
        return Unavailable(
            "None of the servers for this model can be asked now.",
            code="no_backend_available",
            retry_after_s=max(1, math.ceil(wait_s)),
        )

    async def models(self) -> list[str]:
        """The model names that the members know; if none of them can say, those of the fallback. Raises what the first one raised if
        nobody can."""
        faults: list[GatewayError] = []
        for several in (self.members, self.fallback):
            asked = [member.target.models() for member in several]
            answers = await asyncio.gather(*asked, return_exceptions=True)
            faults += [answer for answer in answers if isinstance(answer, GatewayError)]
            known = [names for names in answers if not isinstance(names, BaseException)]
            if known:
                return list(dict.fromkeys(name for names in known for name in names))
        raise faults[0]


def targets_of(route: RouteConfig, known: Mapping[str, Target]) -> Targets:
    """The servers of a configured route. Raises `ConfigError` if they do not go together."""

    def member(entry: TargetConfig) -> Member:
        return Member(known[entry.backend], entry.weight, entry.upstream_model)

    members = [member(entry) for entry in route.backends or (TargetConfig(backend=route.backend),)]
    rules: dict[str, Callable[[], Balance[Member]]] = {
        "weighted": Rotation,
        "round_robin": lambda: Rotation(even=True),
        "least_busy": LeastBusy,
        "sticky": Sticky,
    }
    try:
        private = Private.together(target.private for target in known.values())
        return Targets(members, [member(entry) for entry in route.fallback], rules[route.balance](), private)
    except ValueError as error:
        raise ConfigError(str(error)) from error


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
    careful["merge_roles"] = any(one.merge_roles for one in every)
    careful["images_unknown"] = all(one.images or one.images_unknown for one in every) and not careful["images"]
    careful["drop_images"] = all(one.images or one.drop_images for one in every) and not careful["images"]
    # A grammar, a schema, or a structural tag is written in each server's own words; but it has to be one of them for all.
    kinds = {one.constrain for one in every}
    together = any(kinds <= group for group in (GRAMMAR_CONSTRAINTS, SCHEMA_CONSTRAINTS, TAG_CONSTRAINTS))
    return replace(first, **careful, constrain=first.constrain if together else "none")
