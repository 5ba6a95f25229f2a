"""Servers that refuse a part of a request which it can do without (`proxy.backends.concessions`): the same server is
asked again, at once, and it is remembered.

Rules:

1. A refusal is believed when the same request is taken without what it named.
2. What it teaches is a lesson (`proxy.endpoints.lessons`): a server's message may repeat what a client wrote.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING, Final

from ..backends.concessions import NONE, ROLE_RULES, Concessions, conceded
from ..errors import GatewayError
from ..model import ModelRequest
from .lessons import Kind, Lessons

if TYPE_CHECKING:
    from .attempts import Relaxing
    from .pool import WeightedEndpoint

MOST_TIMES: Final = 6
"""Retries of one request at one server, each with less."""


def find_concessions(lessons: Lessons, owner: str, model: str) -> Concessions:
    """Concessions with which requests of this owner are sent."""
    if not lessons:
        return NONE
    efforts = lessons.values(owner, model, "effort")
    fields = lessons.values(owner, model, "sampling")
    found = Concessions(
        no_images=lessons.knows(owner, model, "images"),
        no_files=lessons.knows(owner, model, "files"),
        short_names=lessons.knows(owner, model, "long_names"),
        roles=frozenset(rule for rule in ROLE_RULES if lessons.knows(owner, model, "roles", rule)),
        most_tokens=min(
            (one for one in lessons.values(owner, model, "max_tokens") if isinstance(one, int)), default=None
        ),
        efforts=tuple(str(efforts[-1]).split()) if efforts else (),
        without=frozenset(map(str, fields)),
    )
    return NONE if found == NONE else found


def _lessons(given_up: Concessions) -> set[tuple[Kind, Hashable]]:
    """The parts of concessions that hold for other requests too, as lessons."""
    told: dict[Kind, bool] = {
        "images": given_up.no_images,
        "files": given_up.no_files,
        "long_names": given_up.short_names,
    }
    out: set[tuple[Kind, Hashable]] = {(kind, None) for kind, holds in told.items() if holds}
    if given_up.most_tokens is not None:
        out.add(("max_tokens", given_up.most_tokens))
    if given_up.efforts:
        out.add(("effort", " ".join(given_up.efforts)))
    out |= {("roles", rule) for rule in given_up.roles}
    return out | {("sampling", field) for field in given_up.without}


class Conceding:
    """Concessions of one request of `owner` to each server that it asks."""

    def __init__(self, owner: str) -> None:
        self.sent: dict[WeightedEndpoint, ModelRequest] = {}
        """The request that each server was sent last."""
        self.given_up: dict[WeightedEndpoint, Concessions] = {}
        """Concessions that this request has already made, by server."""
        self._owner = owner
        self._lessons: dict[WeightedEndpoint, Lessons] = {}
        """The lessons of each server, as they were when it was asked."""
        self._taught: dict[WeightedEndpoint, set[tuple[Kind, Hashable]]] = {}
        self._times: dict[WeightedEndpoint, int] = {}

    def of(self, member: WeightedEndpoint, request: ModelRequest) -> Concessions:
        """Concessions with which `member` is sent `request`."""
        known = self.given_up.get(member)
        if known is not None:
            return known
        self._lessons[member] = member.endpoint.lessons
        return find_concessions(member.endpoint.lessons, self._owner, request.model)

    def relaxes(self, member: WeightedEndpoint, fault: GatewayError) -> bool:
        """Whether `member`, which failed with `fault`, is to be asked again with less."""
        sent = self.sent.get(member)
        times = self._times.get(member, 0)
        if sent is None or times >= MOST_TIMES:
            return False
        before = self.of(member, sent)
        further = conceded(before, fault, sent)
        if further is None:
            return False
        self._taught.setdefault(member, set()).update(_lessons(further) - _lessons(before))
        self.given_up[member] = further
        self._times[member] = times + 1
        return True

    def accepted(self, member: WeightedEndpoint) -> None:
        """The answer of `member` has begun."""
        for kind, value in self._taught.pop(member, ()):
            self._lessons[member].learn(self._owner, self.sent[member].model, kind, value)


class AllOf:
    """Several things that servers need not take, the most specific first."""

    def __init__(self, *several: Relaxing | None) -> None:
        self._several = tuple(one for one in several if one is not None)

    def relaxes(self, member: WeightedEndpoint, fault: GatewayError) -> bool:
        """See `Relaxing`."""
        return any(one.relaxes(member, fault) for one in self._several)

    def accepted(self, member: WeightedEndpoint) -> None:
        """See `Relaxing`."""
        for one in self._several:
            one.accepted(member)
