"""How long a model server asks to be left alone: only what its headers may say is heeded and handed on.

`Retry-After` (RFC 9110, 10.2.3): seconds in digits, or a date in one of the three forms of HTTP. `retry-after-ms`, as
OpenAI's and Azure's servers send it and SDKs prefer it: milliseconds in digits, perhaps with a fraction. Anything else,
and a wait beyond `LONGEST_S`, is not taken at its word.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import format_datetime, parsedate_to_datetime
from typing import Final

from toolwire.errors import retry_after

LONGEST_S: Final = 86_400
"""A server that asks for more is heeded, and quoted, with so much."""

_MILLISECONDS: Final = re.compile(r"0*([0-9]{1,12})(?:\.([0-9]+))?|[0-9]+(?:\.[0-9]+)?")
_SECONDS: Final = re.compile(r"0*([0-9]{1,9})|[0-9]+")
_TIME: Final = r"[0-9]{2}:[0-9]{2}:[0-9]{2}"
_DATE: Final = re.compile(
    rf"[A-Z][a-z]{{2}}, [0-9]{{2}} [A-Z][a-z]{{2}} [0-9]{{4}} {_TIME} GMT"
    rf"|[A-Z][a-z]{{5,8}}, [0-9]{{2}}-[A-Z][a-z]{{2}}-[0-9]{{2}} {_TIME} GMT"
    rf"|[A-Z][a-z]{{2}} [A-Z][a-z]{{2}} [ 0-9][0-9] {_TIME} [0-9]{{4}}"
)


def wait_s(headers: Mapping[str, str]) -> float | None:
    """How long from now, by the more exact of the two; None if neither says anything that can be read."""
    exact = retry_after_ms(headers.get("retry-after-ms"))
    return retry_after_s(headers.get("Retry-After")) if exact is None else exact / 1000


def as_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """What a client may be told of them. Who reads only `Retry-After` is told the same in whole seconds."""
    told = as_header(headers.get("Retry-After"))
    exact = retry_after_ms(headers.get("retry-after-ms"))
    if exact is None:
        return {} if told is None else {"Retry-After": told}
    return {
        **retry_after(exact / 1000),
        "retry-after-ms": str(exact),
        **({} if told is None else {"Retry-After": told}),
    }


def retry_after_ms(value: str | None) -> int | None:
    """Milliseconds, rounded up; None if it says nothing that can be read."""
    said = None if value is None else _MILLISECONDS.fullmatch(value.strip(" \t"))
    if said is None:
        return None
    whole, fraction = said.groups(default="")
    if not whole:
        return LONGEST_S * 1000
    return min(int(whole) + bool(fraction.strip("0")), LONGEST_S * 1000)


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
