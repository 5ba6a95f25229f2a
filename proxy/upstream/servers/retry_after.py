"""Parses how long a model server asks clients to wait, and passes that on in clean headers.

`Retry-After` (RFC 9110, 10.2.3): seconds in digits, or a date in one of the three forms of HTTP. `retry-after-ms`,
which OpenAI's and Azure's servers send and SDKs prefer: milliseconds in digits, optionally with a fraction. Other
values are ignored. Without a valid one the wait is read from the message, where Gemini has it: `Please retry in
34.07s`, `try again in 6m0s`. Waits are limited to `LONGEST_S`.
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
_NAMED: Final = re.compile(
    r"\b(?:retry|try again) (?:in|after) (?=[0-9])(?:([0-9]{1,4}) ?h(?:ours?)? ?)?(?:([0-9]{1,4}) ?m(?:in(?:ute)?s?)?(?![a-z]) ?)?"
    r"(?:([0-9]{1,6}(?:\.[0-9]{1,12})?) ?(ms|milliseconds?|s|secs?|seconds?)(?![a-z]))?",
    re.IGNORECASE,
)
"""Matches a wait in a message: hours, minutes, a number and its unit, of which some may be missing."""
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


def as_headers(headers: Mapping[str, str], message: str = "") -> dict[str, str]:
    """Returns the headers to send to a client, read from the server's headers or its message. `Retry-After` is added in
    whole seconds if only `retry-after-ms` was sent."""
    seconds = as_header(headers.get("Retry-After"))
    exact = retry_after_ms(headers.get("retry-after-ms"))
    if exact is None:
        named = named_wait_s(message)
        return {"Retry-After": seconds} if seconds is not None else {} if named is None else retry_after(named)
    return {
        **retry_after(exact / 1000),
        "retry-after-ms": str(exact),
        **({} if seconds is None else {"Retry-After": seconds}),
    }


def named_wait_s(message: str) -> float | None:
    """Returns the wait in seconds that a message names; None if it names none."""
    match = _NAMED.search(message)
    if match is None or not any(match.groups()):
        return None
    hours, minutes, number, unit = match.groups(default="0")
    rest = float(number) / (1000 if unit.lower().startswith("m") else 1)
    return min(int(hours) * 3600 + int(minutes) * 60 + rest, LONGEST_S)


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
