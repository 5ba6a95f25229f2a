"""The seals of a route: they open sealed reasoning in requests, and seal that of answers
(`toolwire.pipeline.transforms.sealing`, docs/adr/0054)."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Final

from ...config import BackendConfig, RouteConfig
from ...model import ModelRequest, replace
from ...protocols.shared.opaque_reasoning import SealedContent, open_sealed_texts
from ...record import AccessRecord
from ...support.seals import BrokenSeal, Seals
from ...upstream.pool.server import UpstreamServer
from ...upstream.pool.server_pool import ServerPool

LOG: Final = logging.getLogger("toolwire")

DROPPED: Final = "reasoning_dropped"
"""The counter of texts that could not be opened or sealed."""


def server_name(name: str, config: BackendConfig) -> str:
    """Returns the name of a server in sealed and stored data. It changes with the server's address."""
    return sha256("\0".join((name, config.kind, config.url or "")).encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class RouteSeals:
    """Seals of one route. `route` is its name, `servers` are the servers of its requests, `several` the protocols that
    more than one server of the gateway speaks."""

    seals: Seals
    route: str
    servers: tuple[str, ...]
    several: frozenset[str]
    servers_seal: bool = False
    """True if the servers return reasoning as opaque fields if a client asks for them."""

    def open_request(self, request: ModelRequest, owner: str, record: AccessRecord, ident: str) -> ModelRequest:
        """Returns the request with its sealed texts replaced by their contents. Texts that cannot be opened are left
        out and counted."""
        contexts = tuple((owner, self.route, server) for server in ("", *self.servers))

        def open_sealed(value: str) -> tuple[SealedContent, str] | None:
            try:
                payload, context = self.seals.open(value, *contexts)
            except BrokenSeal:
                return None
            return SealedContent.load(payload), context[2]

        messages, dropped = open_sealed_texts(request.messages, open_sealed, request.past, contexts)
        if dropped:
            record.count("reasoning_dropped", dropped)
            LOG.warning(
                "request %s: %s: %d opaque reasoning value(s) were not made here for this key and route, and are left out",
                ident,
                DROPPED,
                dropped,
            )
        return request if messages is request.messages else replace(request, messages=messages)

    def seal(self, carried: SealedContent, owner: str, server: str) -> str | None:
        """Returns the sealed text; None if it would be too large."""
        return self.seals.seal(carried.dump(), owner, self.route, server)


def seals_of_route(
    route: RouteConfig, pool: ServerPool, endpoints: Mapping[str, UpstreamServer], seals: Seals
) -> RouteSeals:
    """Returns the seals of a route. `endpoints` are all servers of the gateway."""
    spoken = Counter(wire.name for one in endpoints.values() if (wire := one.backend.protocol) is not None)
    members = [member.endpoint for member in pool.every]
    return RouteSeals(
        seals,
        route.model,
        tuple(server_name(one.name, one.config) for one in members),
        frozenset(name for name, count in spoken.items() if count > 1),
        all(one.backend.capabilities.reasoning_history == "none" for one in members),
    )
