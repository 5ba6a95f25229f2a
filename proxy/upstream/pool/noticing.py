"""What is odd about the answers of servers, counted and said (R29.1, R29.3)."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from toolwire.errors import quote
from toolwire.protocols.shared.noise import LEFT_OUT, UNKNOWN_END

if TYPE_CHECKING:
    from toolwire.record import AccessRecord
    from toolwire.upstream.pool.pool import WeightedEndpoint

LOG: Final = logging.getLogger("toolwire.backends")
MAX_WORDS: Final = 64
"""Words of a server that are remembered, and so said in the log."""


def notice(record: AccessRecord, member: WeightedEndpoint, request_id: str, what: str, detail: str) -> None:
    """Count `what` (see `toolwire.protocols.shared.noise.Note`). A word that is not known is said once."""
    record.count(what)
    if what == LEFT_OUT:
        record.label(what, detail)
    if what != UNKNOWN_END:
        return
    known = member.endpoint.unknown_ends
    if detail in known or len(known) >= MAX_WORDS:
        return
    known.add(detail)
    LOG.warning(
        "request %s: backend %r ended its answer with %s, a word that is not known; under it, calls that are not whole are dropped",
        request_id,
        member.name,
        quote(detail),
    )
