"""Retries without a constraint that a server refuses. The constraint is then not sent to that server for a while.

An old llama.cpp reads less of the grammar notation than a new one, and every server has a size limit. A call that is
not enforced is better than no answer, unless the route says otherwise (`decoding.constrain: required`).

Rules:

1. A refusal is believed if the same request is accepted without the constraint. An error of the request itself is not
   learned.
2. A refusal becomes a lesson (`toolwire.upstream.pool.lessons`). That a server accepts constraints applies to all
   owners.
3. A server that refused a constraint, and never accepted any, gets none where the lesson applies.
4. Lessons go to the server that got the request, as it was known at that time.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from ...errors import ClientFault, GatewayError
from ...events import Fault, Start
from ...formats.engine.longjson import compact
from ...model import Constraint
from ...protocols.base import ServerSide
from ..servers.refusals import says
from .lessons import Lessons

if TYPE_CHECKING:
    from ...record import AccessRecord
    from .server_pool import WeightedServer

LOG: Final = logging.getLogger("toolwire.constrain")

_STATUSES: Final = frozenset({400, 413, 422, 501})
"""Statuses with which a server refuses a request as invalid."""


def allows(lessons: Lessons, constraint: Constraint, owner: str, model: str) -> bool:
    """True if a server with these lessons may get this constraint with a request of `owner`."""
    if not lessons:
        return True
    if not lessons.takes_constraints and lessons.knows(owner, model, "constraints"):
        return False
    return not lessons.knows(owner, model, "constraint", constraint_key(constraint))


def constraint_key(constraint: Constraint) -> int:
    """Returns a hash of a constraint, as the value of a lesson."""
    return hash((constraint.gbnf, compact(constraint.tags)))


class ConstraintRetries:
    """The constraint of one request of `owner`, and the servers that get the request without it. Implements
    `RetryWithLess`."""

    def __init__(self, constraint: Constraint, owner: str, record: AccessRecord, request_id: str) -> None:
        self._constraint = constraint
        self._owner = owner
        self._asked: dict[WeightedServer, tuple[Lessons, str]] = {}
        """The lessons of each server at the time of the request, and the model's name."""
        self._record = record
        self._id = request_id
        self._without: set[WeightedServer] = set()
        self._said: dict[WeightedServer, str] = {}

    def applies(self, member: WeightedServer, model: str) -> bool:
        """True if `member` gets the request for `model` with the constraint."""
        constraint, lessons = self._constraint, member.endpoint.lessons
        self._asked[member] = lessons, model
        if member in self._without:
            return False
        if not constraint.binding and not allows(lessons, constraint, self._owner, model):
            self._without.add(member)
            self._count(member)
            return False
        return True

    def should_retry(self, member: WeightedServer, fault: GatewayError) -> bool:
        """See `RetryWithLess`. Raises `ClientFault` `unsupported_parameter` if the server refused the constraint and
        the route requires it."""
        names_it = says("grammar", fault.message)
        if member in self._without or fault.code == "context_length_exceeded":
            return False
        if not names_it and says("no_tools", fault.message):  # it would refuse the request without the constraint too
            return False
        if fault.upstream_status not in _STATUSES and not (names_it and fault.upstream_status in (None, 500)):
            return False
        if self._constraint.binding:
            if not names_it:
                return False
            raise ClientFault(
                f"The model server refused the grammar with which this route enforces `tool_choice`: {fault.message}",
                code="unsupported_parameter",
                param="tool_choice",
                hint="Use `auto`, or set `decoding.constrain: auto` for the route.",
            ) from fault
        self._without.add(member)
        self._said[member] = fault.message
        self._count(member)
        return True

    def accepted(self, member: WeightedServer) -> None:
        """See `RetryWithLess`. The refusal becomes a lesson."""
        lessons, model = self._asked[member]
        if member not in self._without:
            lessons.takes_constraints = True
        elif member in self._said:
            lessons.learn(self._owner, model, "constraint", constraint_key(self._constraint))
            if not lessons.takes_constraints:
                lessons.learn(self._owner, model, "constraints")
            LOG.warning(
                "request %s: backend %r refuses the constraint on calls; the request was sent again without it, and later ones for %g s are sent without it too: %s",
                self._id,
                member.name,
                lessons.seconds,
                self._said.pop(member),
            )

    def _count(self, member: WeightedServer) -> None:
        self._record.count("unconstrained")
        self._record.label("unconstrained", member.name)


def refusal_in_band(data: bytes, protocol: ServerSide) -> GatewayError | None:
    """Returns the error at the beginning of a stream with status 200, as vLLM and SGLang report a grammar that they
    cannot read; None if the stream begins otherwise."""
    if data.find(b"error") < 0:
        return None
    events = protocol.reader(frame_bytes=len(data)).feed(data)
    first = next((event for event in events if not isinstance(event, Start)), None)
    return first.error if isinstance(first, Fault) else None
