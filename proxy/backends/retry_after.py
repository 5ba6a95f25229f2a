"""`Retry-After` of a model server: only what it may be is heeded and handed on (RFC 9110, 10.2.3): seconds in digits,
or a date in one of the three forms of HTTP. Anything else, and a wait beyond `LONGEST_S`, is not taken at its word."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from email.utils import format_datetime, parsedate_to_datetime
from typing import Final

LONGEST_S: Final = 86_400
"""A server that asks for more is heeded, and quoted, with so much."""

_SECONDS: Final = re.compile(r"0*([0-9]{1,9})|[0-9]+")
_TIME: Final = r"[0-9]{2}:[0-9]{2}:[0-9]{2}"
_DATE: Final = re.compile(
    rf"[A-Z][a-z]{{2}}, [0-9]{{2}} [A-Z][a-z]{{2}} [0-9]{{4}} {_TIME} GMT"
    rf"|[A-Z][a-z]{{5,8}}, [0-9]{{2}}-[A-Z][a-z]{{2}}-[0-9]{{2}} {_TIME} GMT"
    rf"|[A-Z][a-z]{{2}} [A-Z][a-z]{{2}} [ 0-9][0-9] {_TIME} [0-9]{{4}}"
)


def retry_after_s(value: str | None) -> float | None:
    """How long from now; None if it says nothing that can be read."""
    if value is None:
        return None
    value = value.strip(" \t")
    if seconds := _SECONDS.fullmatch(value):
        return float(min(int(seconds[1]), LONGEST_S) if seconds[1] else LONGEST_S)
    when = _date(value)
    return None if when is None else min(max(0.0, (when - datetime.now(UTC)).total_seconds()), LONGEST_S)


def as_header(value: str | None) -> str | None:
    """What a client may be told; None if that is nothing."""
    seconds = retry_after_s(value)
    if value is None or seconds is None:
        return None
    when = _date(value.strip(" \t"))
    return f"{seconds:.0f}" if when is None or seconds == LONGEST_S else format_datetime(when, usegmt=True)


def _date(value: str) -> datetime | None:
    if not _DATE.fullmatch(value):
        return None
    try:
        return parsedate_to_datetime(value).replace(tzinfo=UTC)
    except ValueError:  # the 99th of November
        return None
