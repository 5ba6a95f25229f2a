"""Servers that refuse a part of a request which it can do without (`proxy.backends.concessions`): the same server is
asked again, at once, and it is remembered.

Rules:

1. A refusal is believed when the same request is taken without what it named.
2. What it teaches counts for later requests of the same owner for the same model only: a server's message may repeat
   what a client wrote (R33.6).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ..backends.concessions import NONE, Concessions, conceded
from ..errors import GatewayError
from ..model import ModelRequest

if TYPE_CHECKING:
    from .attempts import Relaxing
    from .pool import WeightedEndpoint

MOST_REMEMBERED: Final = 1024
"""Owners and models that are remembered for a server."""
MOST_TIMES: Final = 6
"""Retries of one request at one server, each with less."""


class Remembered:
    """Concessions to one server, by owner and model."""

    def __init__(self) -> None:
        self.known: dict[tuple[str, str], Concessions] = {}

    def find(self, owner: str, model: str) -> Concessions:
        """Concessions for requests of this owner for this model; `NONE` if there are none."""
        return self.known.get((owner, model), NONE)

    def keep(self, owner: str, model: str, concessions: Concessions) -> None:
        """It is so from now on."""
        if concessions == NONE:
            return
        self.known.pop((owner, model), None)
        if len(self.known) >= MOST_REMEMBERED:
            del self.known[next(iter(self.known))]
        self.known[owner, model] = concessions


class Conceding:
    """Concessions of one request of `owner` to each server that it asks."""

    def __init__(self, owner: str) -> None:
        self.sent: dict[WeightedEndpoint, ModelRequest] = {}
        """The request that each server was sent last."""
        self.given_up: dict[WeightedEndpoint, Concessions] = {}
        """Concessions that this request has already made, by server."""
        self._owner = owner
        self._times: dict[WeightedEndpoint, int] = {}

    def of(self, member: WeightedEndpoint, request: ModelRequest) -> Concessions:
        """Concessions with which `member` is sent `request`."""
        known = self.given_up.get(member)
        return member.endpoint.concessions.find(self._owner, request.model) if known is None else known

    def is_careful(self, member: WeightedEndpoint) -> bool:
        """Whether the beginning of its answer may say that it refuses: only a status does."""
        return False

    def relaxes(self, member: WeightedEndpoint, fault: GatewayError) -> bool:
        """Whether `member`, which failed with `fault`, is to be asked again with less."""
        sent = self.sent.get(member)
        times = self._times.get(member, 0)
        if sent is None or times >= MOST_TIMES:
            return False
        further = conceded(self.of(member, sent), fault, sent)
        if further is None:
            return False
        self.given_up[member] = further
        self._times[member] = times + 1
        return True

    def accepted(self, member: WeightedEndpoint) -> None:
        """The answer of `member` has begun."""
        given_up = self.given_up.get(member)
        if given_up is not None:
            member.endpoint.concessions.keep(self._owner, self.sent[member].model, given_up.lasting)


class AllOf:
    """Several things that servers need not take, the most specific first."""

    def __init__(self, *several: Relaxing | None) -> None:
        self._several = tuple(one for one in several if one is not None)

    def is_careful(self, member: WeightedEndpoint) -> bool:
        """See `Relaxing`."""
        return any(one.is_careful(member) for one in self._several)

    def relaxes(self, member: WeightedEndpoint, fault: GatewayError) -> bool:
        """See `Relaxing`."""
        return any(one.relaxes(member, fault) for one in self._several)

    def accepted(self, member: WeightedEndpoint) -> None:
        """See `Relaxing`."""
        for one in self._several:
            one.accepted(member)
