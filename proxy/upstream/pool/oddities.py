"""Counts and logs oddities in the answers of servers (R29.1, R29.3)."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from ...errors import quote
from ...protocols.shared.noise import LEFT_OUT, UNKNOWN_END

if TYPE_CHECKING:
    from ...record import AccessRecord
    from .server_pool import WeightedServer

LOG: Final = logging.getLogger("toolwire.backends")
MAX_WORDS: Final = 64
"""Maximum number of unknown finish reasons per server that are remembered, and therefore logged."""


def report_oddity(record: AccessRecord, member: WeightedServer, request_id: str, what: str, detail: str) -> None:
    """Counts the oddity `what` (see `toolwire.protocols.shared.noise.Note`). Logs an unknown finish reason once per
    server."""
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
        "request %s: backend %r ended its answer with the unknown finish reason %s; incomplete calls of such answers are dropped",
        request_id,
        member.name,
        quote(detail),
    )
