"""Constraints that a server refuses: the request is asked again without, and the server is not bothered with that
constraint for a while.

An old llama.cpp reads less of the notation than a new one, and every server has a size at which it gives up. A call
that nobody enforces is better than no answer, unless the route says otherwise (`decoding.constrain: required`).

Rules:

1. A refusal is believed when the same request is taken without the constraint. What is wrong with a request in any case
   is not learned.
2. What it teaches is a lesson (`proxy.endpoints.lessons`). That a server takes constraints counts for all.
3. A server that refused a constraint, and never took any, gets none where the lesson counts.
4. What a request learns it learns of the server that it was sent to, as it was known then.
"""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING, Final

from ..backends.upstream_errors import says_no_tools
from ..errors import ClientFault, GatewayError
from ..events import Fault, Start
from ..formats.longjson import compact
from ..model import Constraint
from ..protocols.base import ServerSide
from .lessons import Lessons

if TYPE_CHECKING:
    from ..record import AccessRecord
    from .pool import WeightedEndpoint

LOG: Final = logging.getLogger("toolwire.constrain")

_STATUSES: Final = frozenset({400, 413, 422, 501})
"""With these a server refuses a request as it is."""
_SAYS_SO: Final = re.compile(r"grammar|ebnf|structur|guided|json.?schema|constrain", re.IGNORECASE)
_FIELD: Final = b"error:"
"""How a stream of llama.cpp begins, until 2025, in which it refuses what it had accepted: a field that nobody reads."""


def allows(lessons: Lessons, constraint: Constraint, owner: str, model: str) -> bool:
    """Whether a server with these lessons may be asked with this constraint for a request of `owner`."""
    if not lessons:
        return True
    if not lessons.takes_constraints and lessons.knows(owner, model, "constraints"):
        return False
    return not lessons.knows(owner, model, "constraint", constraint_key(constraint))


def constraint_key(constraint: Constraint) -> int:
    """A constraint as the value of a lesson."""
    return hash((constraint.gbnf, compact(constraint.tags)))


class Relaxation:
    """The constraint of one request of `owner`, and the servers that are asked without it."""

    def __init__(self, constraint: Constraint, owner: str, record: AccessRecord, request_id: str) -> None:
        self._constraint = constraint
        self._owner = owner
        self._asked: dict[WeightedEndpoint, tuple[Lessons, str]] = {}
        """The lessons of each server when it was asked, and the name of the model."""
        self._record = record
        self._id = request_id
        self._without: set[WeightedEndpoint] = set()
        self._said: dict[WeightedEndpoint, str] = {}

    def applies(self, member: WeightedEndpoint, model: str) -> bool:
        """Whether `member` is asked for `model` with the constraint."""
        constraint, lessons = self._constraint, member.endpoint.lessons
        self._asked[member] = lessons, model
        if member in self._without:
            return False
        if not constraint.binding and not allows(lessons, constraint, self._owner, model):
            self._without.add(member)
            self._count(member)
            return False
        return True

    def relaxes(self, member: WeightedEndpoint, fault: GatewayError) -> bool:
        """Whether `member`, which failed with `fault`, is to be asked again without the constraint.

        Raises `ClientFault` `unsupported_parameter` if the constraint is what it refused, and nothing else will do.
        """
        said = _SAYS_SO.search(fault.message) is not None
        if member in self._without or fault.code == "context_length_exceeded":
            return False
        if not said and says_no_tools(fault):  # without the constraint it would say the same
            return False
        if fault.upstream_status not in _STATUSES and not (said and fault.upstream_status in (None, 500)):
            return False
        if self._constraint.binding:
            if not said:
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

    def accepted(self, member: WeightedEndpoint) -> None:
        """The answer of `member` has begun."""
        lessons, model = self._asked[member]
        if member not in self._without:
            lessons.takes_constraints = True
        elif member in self._said:
            lessons.learn(self._owner, model, "constraint", constraint_key(self._constraint))
            if not lessons.takes_constraints:
                lessons.learn(self._owner, model, "constraints")
            LOG.warning(
                "request %s: backend %r refuses the constraint on calls, and was asked without it; it is not sent this one for %g s: %s",
                self._id,
                member.name,
                lessons.seconds,
                self._said.pop(member),
            )

    def _count(self, member: WeightedEndpoint) -> None:
        self._record.count("unconstrained")
        self._record.label("unconstrained", member.name)


def refusal_in_band(data: bytes, protocol: ServerSide) -> GatewayError | None:
    """The error with which a stream begins that was accepted, as vLLM and SGLang say it of a grammar that they cannot
    read; None if it begins otherwise."""
    if data.startswith(_FIELD):
        data = b"event: error\ndata:%b\n\n" % data.split(b"\n", 1)[0].removeprefix(_FIELD)
    if data.find(b"error") < 0:
        return None
    events = protocol.reader(frame_bytes=len(data)).feed(data)
    first = next((event for event in events if not isinstance(event, Start)), None)
    return first.error if isinstance(first, Fault) else None
