"""The servers of a route, and the choice of the next one for a request (R10.6).

Rules:

1. All servers of a route speak one protocol. The chain relies on the features that all of them have; each request is
   adapted to the server that gets it.
2. A single server is used whatever its state, because its own error says more than ours would. The exception is a
   configured breaker.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from operator import is_
from typing import Any

from ...config import BackendConfig, EndpointConfig, RouteConfig
from ...errors import GatewayError, Unavailable
from ...protocols.base import ServerSide
from ...support.conversion import ConfigError
from ..servers.base import Backend, Capabilities
from ..servers.identity import Identity
from ..servers.presets import AUTO, GRAMMAR_CONSTRAINTS, SCHEMA_CONSTRAINTS, TAG_CONSTRAINTS
from ..servers.private_data import NOTHING, PrivateData
from .balancing import Balance, LeastBusy, Rotation, Sticky
from .server import UpstreamServer
from .template_probing import TemplateProbes


class WeightedServer:
    """A server as a member of a route. `relays_bodies`: the unchanged body of a client with the same protocol is sent
    as it is, because neither the protocol nor the configuration changes bodies."""

    __slots__ = ("endpoint", "name", "relays_bodies", "upstream_model", "weight")

    def __init__(self, endpoint: UpstreamServer, weight: float = 1.0, upstream_model: str | None = None) -> None:
        self.endpoint = endpoint
        self.name = endpoint.name
        self.weight = weight
        self.upstream_model = upstream_model
        config, wire = endpoint.config, endpoint.backend.protocol
        own = wire is not None and type(wire).own_body is not ServerSide.own_body
        self.relays_bodies = not own and config.max_tokens_field is None and config.default_max_tokens is None

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
        templates: TemplateProbes | None = None,
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
        self.templates = templates or TemplateProbes()
        """Probes of the chat templates of models."""
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

    def has_attempts(self, attempts: int, tried: Sequence[WeightedServer]) -> bool:
        """True if members of the route were tried fewer than `attempts` times in total."""
        return sum(member in self.members for member in tried) < attempts

    def pick(self, attempts: int, tried: Sequence[WeightedServer] = (), key: bytes = b"") -> WeightedServer | None:
        """Returns the server for the next attempt, after `tried`; None if none is left or available.

        Members are used at most `attempts` times, those not tried yet first; then each fallback once. `key`: see
        `Sticky`.
        """
        if self.sole is not None:
            return self.sole if len(tried) < attempts else None
        if self.has_attempts(attempts, tried):
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
            "None of the servers for this model is available now.",
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


def pool_of(
    route: RouteConfig, known: Mapping[str, UpstreamServer], templates: TemplateProbes | None = None
) -> ServerPool:
    """Returns the pool of a configured route. Raises `ConfigError` for servers with different protocols."""

    def member(entry: EndpointConfig) -> WeightedServer:
        return WeightedServer(known[entry.backend], entry.weight, entry.upstream_model)

    members = [member(entry) for entry in route.members]
    rules: dict[str, Callable[[], Balance[WeightedServer]]] = {
        "weighted": Rotation,
        "round_robin": lambda: Rotation(even=True),
        "least_busy": LeastBusy,
        "sticky": Sticky,
    }
    try:
        private = PrivateData.together(endpoint.private for endpoint in known.values())
        fallback = [member(entry) for entry in route.fallback]
        endpoints = ServerPool(members, fallback, rules[route.balance](), private, templates)
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
    """Returns the capabilities that all of `takes` have in common: for each field the most restrictive value."""
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
