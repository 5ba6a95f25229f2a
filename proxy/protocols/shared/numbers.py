"""Validation of numbers from a model server, before anything is sized or counted by them.

Rules:

1. A value that is not a number (absent, null, text, true) counts as missing; the caller then uses the position in the
   list. An index in quotes is a number.
2. A number that is out of range for its field is a fault of the server. It is never clamped, because then the client
   could get parts of another answer.
3. No limit here depends on earlier values of the server.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal

from ...errors import BackendFault, quote
from ...events import MAX_CHOICES as MAX_CHOICES
from ...model import EMPTY, Extra, Usage

MAX_CALLS: Final = 1024
"""Maximum number of calls in one answer of a server with native tools. For calls in text the limit is
`limits.calls_per_response`."""
MAX_PARTS: Final = 4096
"""Maximum number of items in a response, and of parts in an item."""

MAX_TOKENS: Final = 100_000_000
"""Maximum token count; no model reads or writes more for one request."""

_INDEX_DIGITS: Final = 18
"""Digits of an index in quotes that are read at most; a longer text is no number."""

_EXACT: Final = 2**53
"""Larger JSON numbers are not exact (RFC 8259, 6)."""


def choices_of(n: int) -> int:
    """Returns the maximum number of choices in the answer to a request for `n`."""
    return min(max(n, 1), MAX_CHOICES)


def index_of(value: Any, most: int, what: str) -> int | None:
    """Returns `value` as an index below `most`; None if it is missing (rule 1). `what` names the indexed thing in the
    message: "an answer". Raises `BackendFault` `upstream_invalid_response` for any other number."""
    if type(value) is int:
        if 0 <= value < most:
            return value
    elif type(value) is str and value.isdecimal() and len(value) <= _INDEX_DIGITS:
        return index_of(int(value), most, what)
    elif type(value) is not float:
        return None
    elif value.is_integer() and 0 <= value < most:
        return int(value)
    raise BackendFault(
        f"The model server's answer has {what} with the index {quote(value)}: expected a whole number from 0 to {most - 1}.",
        code="upstream_invalid_response",
    )


def too_many(what: str, most: int) -> BackendFault:
    """Returns the fault of an answer with more than `most` of something."""
    return BackendFault(f"The model server's answer has more than {most} {what}.", code="upstream_invalid_response")


def rest_of_counts(value: Mapping[str, Any], known: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns the fields of a `usage` object that are not modelled, in its own shape. `known` has a mapping where
    counts are nested. Nulls count as absent."""
    rest: dict[str, Any] = {}
    for key, item in value.items():
        inside = known.get(key)
        if isinstance(inside, Mapping) and isinstance(item, Mapping):
            item = rest_of_counts(item, inside) or None
        elif key in known:
            continue
        if item is not None:
            rest[key] = item
    return rest or EMPTY


def with_rest(written: dict[str, Any], rest: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a `usage` object with the fields that `rest_of_counts` returned added."""
    for key, item in rest.items():
        known = written.get(key)
        if isinstance(known, dict) and isinstance(item, Mapping):
            written[key] = {**item, **known}
        elif known is None:
            written[key] = item
    return written


def add_counts(counts: dict[str, Any], usage: Mapping[str, Any]) -> None:
    """Adds the counts of a further `usage` object of one answer to those before it, which they replace, unless they are
    null or 0: some servers count nothing in their last frame."""
    counts.update((key, count) for key, count in usage.items() if count or (count is not None and key not in counts))


def usage_of(
    prompt: Any, answer: Any, *, cached: Any = None, stored: Any = None, reasoning: Any = None, extra: Extra = EMPTY
) -> Usage | None:
    """Returns the token counts of one answer. One of prompt and answer may be `missing`, further counts are 0 then.
    Returns None if both are missing, or 0 (a server that does not count), or a count is impossible, so that no limit is
    charged. `cached` and `stored` are part of the count of the `prompt`, `reasoning` of the count of the `answer`."""
    if type(prompt) not in (int, float):
        missing: Literal["input", "output"] | None = "input"
    else:
        missing = None if type(answer) in (int, float) else "output"
    if missing == "input" and type(answer) not in (int, float):
        return None
    counts: list[int] = []
    for value in (prompt, answer, cached, stored, reasoning):
        if type(value) not in (int, float):
            counts.append(0)
        elif 0 <= value <= MAX_TOKENS:
            counts.append(int(value))
        else:  # also NaN
            return None
    if missing is None and not (counts[0] or counts[1]):
        return None
    return Usage(counts[0], counts[1], counts[2], counts[3], counts[4], extra=extra, missing=missing)


def whole_number(value: Any) -> int:
    """Returns `value` as a whole number, such as Unix seconds; 0 if it is not a valid number."""
    return int(value) if type(value) in (int, float) and 0 <= value <= _EXACT else 0
