"""Retries at the same server without a part of the request that it refused (`toolwire.upstream.servers.concessions`).

Rules:

1. A refusal is believed if the same request is accepted without the part that it named.
2. It becomes a lesson (`toolwire.upstream.pool.lessons`) for that owner: a server's message may repeat text of a
   client.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING, Final

from ...errors import GatewayError
from ...model import ModelRequest
from ..servers.concessions import (
    CIRCUMSTANCES,
    FIELDS,
    NONE,
    ROLE_RULES,
    Concessions,
    circumstances,
    learn_concession,
)
from .lessons import Kind, Lessons

if TYPE_CHECKING:
    from .attempts import RetryWithLess
    from .server_pool import WeightedServer

MOST_TIMES: Final = 6
"""Maximum number of retries of one request at one server, each with less."""


def find_concessions(lessons: Lessons, owner: str, request: ModelRequest) -> Concessions:
    """Returns the concessions for a request of this owner, from the lessons."""
    if not lessons:
        return NONE
    model = request.model
    efforts = lessons.values(owner, model, "effort")
    fields = (str(value).split() for value in lessons.values(owner, model, "sampling"))
    concessions = Concessions(
        no_images=lessons.knows(owner, model, "images"),
        no_files=lessons.knows(owner, model, "files"),
        short_names=lessons.knows(owner, model, "long_names"),
        word_choice=lessons.knows(owner, model, "choice_objects"),
        roles=frozenset(rule for rule in ROLE_RULES if lessons.knows(owner, model, "roles", rule)),
        most_tokens=min(
            (one for one in lessons.values(owner, model, "max_tokens") if isinstance(one, int)), default=None
        ),
        efforts=tuple(str(efforts[-1]).split()) if efforts else (),
        without=frozenset(name for name, *beside in fields if all(CIRCUMSTANCES[other](request) for other in beside)),
    )
    return NONE if concessions == NONE else concessions


def _lessons(given_up: Concessions) -> set[tuple[Kind, Hashable]]:
    """Returns the concessions that also apply to other requests, as lessons."""
    flags: dict[Kind, bool] = {
        "images": given_up.no_images and not given_up.media_once,
        "files": given_up.no_files and not given_up.media_once,
        "long_names": given_up.short_names,
        "choice_objects": given_up.word_choice,
    }
    out: set[tuple[Kind, Hashable]] = {(kind, None) for kind, holds in flags.items() if holds}
    if given_up.most_tokens is not None:
        out.add(("max_tokens", given_up.most_tokens))
    if given_up.efforts:
        out.add(("effort", " ".join(given_up.efforts)))
    out |= {("roles", rule) for rule in given_up.roles}
    return out | {("sampling", name) for name in given_up.without if not FIELDS[name].once}


class ConcessionRetries:
    """Concessions of one request of `owner`, for each server that it is sent to."""

    def __init__(self, owner: str) -> None:
        self.sent: dict[WeightedServer, ModelRequest] = {}
        """The last request that each server was sent."""
        self.given_up: dict[WeightedServer, Concessions] = {}
        """The concessions with which each server was sent the request last."""
        self.keeps_shape = False
        """True if no further field is given up whose answer has to be changed (`Field.shapes`)."""
        self._owner = owner
        self._lessons: dict[WeightedServer, Lessons] = {}
        """The lessons of each server when it first refused a part of the request."""
        self._taught: dict[WeightedServer, set[tuple[Kind, Hashable]]] = {}
        self._times: dict[WeightedServer, int] = {}

    def of(self, member: WeightedServer, request: ModelRequest) -> Concessions:
        """Returns the concessions with which `member` is sent `request`."""
        if member not in self.given_up:
            self.given_up[member] = find_concessions(member.endpoint.lessons, self._owner, request)
        return self.given_up[member]

    def should_retry(self, member: WeightedServer, fault: GatewayError) -> bool:
        """True if `member`, which failed with `fault`, gets the request again with less."""
        sent = self.sent.get(member)
        times = self._times.get(member, 0)
        if sent is None or times >= MOST_TIMES:
            return False
        before = self.given_up.get(member, NONE)  # not what others have taught it since
        self._lessons.setdefault(member, member.endpoint.lessons)
        further = learn_concession(before, fault, sent)
        if further is None:
            return False
        if self.keeps_shape and any(FIELDS[name].shapes for name in further.without - before.without):
            return False
        taught = self._taught.setdefault(member, set())
        for kind, value in _lessons(further) - _lessons(before):
            beside = circumstances(str(value), fault, sent) if kind == "sampling" else ()
            taught.add((kind, " ".join((str(value), *beside)) if beside else value))
        self.given_up[member] = further
        self._times[member] = times + 1
        return True

    def accepted(self, member: WeightedServer) -> None:
        """See `RetryWithLess`. The concessions become lessons."""
        for kind, value in self._taught.pop(member, ()):
            self._lessons[member].learn(self._owner, self.sent[member].model, kind, value)


class CombinedRetries:
    """Several `RetryWithLess`, the most specific first."""

    def __init__(self, *several: RetryWithLess) -> None:
        self._several = several

    def should_retry(self, member: WeightedServer, fault: GatewayError) -> bool:
        """True if `member`, which failed with `fault`, gets the request again with less."""
        return any(one.should_retry(member, fault) for one in self._several)

    def accepted(self, member: WeightedServer) -> None:
        """Called when the answer of `member` has begun."""
        for one in self._several:
            one.accepted(member)
