"""Parses how long a model server asks clients to wait, and passes that on in clean headers.

`Retry-After` (RFC 9110, 10.2.3): seconds in digits, or a date in one of the three forms of HTTP. `retry-after-ms`,
which OpenAI's and Azure's servers send and SDKs prefer: milliseconds in digits, optionally with a fraction. Other
values are ignored, and waits are limited to `LONGEST_S`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import format_datetime, parsedate_to_datetime
from typing import Final

from ...errors import retry_after

LONGEST_S: Final = 86_400
"""Upper limit for a wait; a longer one is shortened to it."""

_MILLISECONDS: Final = re.compile(r"0*([0-9]{1,12})(?:\.([0-9]+))?|[0-9]+(?:\.[0-9]+)?")
_SECONDS: Final = re.compile(r"0*([0-9]{1,9})|[0-9]+")
_TIME: Final = r"[0-9]{2}:[0-9]{2}:[0-9]{2}"
_DATE: Final = re.compile(
    rf"[A-Z][a-z]{{2}}, [0-9]{{2}} [A-Z][a-z]{{2}} [0-9]{{4}} {_TIME} GMT"
    rf"|[A-Z][a-z]{{5,8}}, [0-9]{{2}}-[A-Z][a-z]{{2}}-[0-9]{{2}} {_TIME} GMT"
    rf"|[A-Z][a-z]{{2}} [A-Z][a-z]{{2}} [ 0-9][0-9] {_TIME} [0-9]{{4}}"
)


def wait_s(headers: Mapping[str, str]) -> float | None:
    """Returns the wait in seconds, from `retry-after-ms` if that is valid, else from `Retry-After`; None if neither
    is."""
    exact = retry_after_ms(headers.get("retry-after-ms"))
    return retry_after_s(headers.get("Retry-After")) if exact is None else exact / 1000


def as_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """Returns the headers to send to a client. `Retry-After` is added in whole seconds if only `retry-after-ms` was
    sent."""
    seconds = as_header(headers.get("Retry-After"))
    exact = retry_after_ms(headers.get("retry-after-ms"))
    if exact is None:
        return {} if seconds is None else {"Retry-After": seconds}
    return {
        **retry_after(exact / 1000),
        "retry-after-ms": str(exact),
        **({} if seconds is None else {"Retry-After": seconds}),
    }


def retry_after_ms(value: str | None) -> int | None:
    """Returns the value of `retry-after-ms` in whole milliseconds, rounded up; None if it is invalid."""
    match = None if value is None else _MILLISECONDS.fullmatch(value.strip(" \t"))
    if match is None:
        return None
    whole, fraction = match.groups(default="")
    if not whole:
        return LONGEST_S * 1000
    return min(int(whole) + bool(fraction.strip("0")), LONGEST_S * 1000)


def retry_after_s(value: str | None) -> float | None:
    """Returns the wait in seconds from the value of `Retry-After`; None if it is invalid."""
    if value is None:
        return None
    value = value.strip(" \t")
    if seconds := _SECONDS.fullmatch(value):
        return float(min(int(seconds[1]), LONGEST_S) if seconds[1] else LONGEST_S)
    when = _date(value)
    return None if when is None else min(max(0.0, (when - datetime.now(UTC)).total_seconds()), LONGEST_S)


def as_header(value: str | None) -> str | None:
    """Returns a clean value of `Retry-After` for a client; None if it is invalid."""
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
