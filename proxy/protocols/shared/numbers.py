"""Numbers that a model server sends, before anything is sized or counted by them.

Rules:

1. What is no number (absent, null, text, true) says nothing; whoever asked goes by the place in the list then.
2. A number that cannot be what its field means is a fault of the server. It is never cut to what would fit: then the
   client would get somebody else's answer.
3. No bound here depends on what a server said before.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal

from toolwire.errors import BackendFault, quote
from toolwire.events import MAX_CHOICES
from toolwire.model import EMPTY, Extra, Usage

__all__ = [
    "MAX_CALLS",
    "MAX_CHOICES",
    "MAX_PARTS",
    "choices_of",
    "index_of",
    "rest_of_counts",
    "too_many",
    "usage_of",
    "whole_number",
    "with_rest",
]

MAX_CALLS: Final = 1024
"""Calls in one answer of a server that does tools itself. What a model wrote as text has
`limits.calls_per_response`."""
MAX_PARTS: Final = 4096
"""Items of a response, and parts of an item."""

MAX_TOKENS: Final = 100_000_000
"""No model reads or writes so many for one request."""

_EXACT: Final = 2**53
"""Beyond, numbers of JSON are not whole ones any more (RFC 8259, 6)."""


def choices_of(n: int) -> int:
    """How many choices an answer may have to a request for `n`."""
    return min(max(n, 1), MAX_CHOICES)


def index_of(value: Any, most: int, what: str) -> int | None:
    """`value` as an index below `most`; None if it says nothing (rule 1). `what` it is the index of is for the message:
    "an answer". Raises `BackendFault` `upstream_invalid_response` for any other number."""
    if type(value) is int:
        if 0 <= value < most:
            return value
    elif type(value) is not float:
        return None
    elif value.is_integer() and 0 <= value < most:
        return int(value)
    raise BackendFault(
        f"The model server's answer has {what} with the index {quote(value)}: expected a whole number from 0 to {most - 1}.",
        code="upstream_invalid_response",
    )


def too_many(what: str, most: int) -> BackendFault:
    """The fault of an answer that has more of something than it may."""
    return BackendFault(f"The model server's answer has more than {most} {what}.", code="upstream_invalid_response")


def rest_of_counts(value: Mapping[str, Any], known: Mapping[str, Any]) -> Mapping[str, Any]:
    """What of a `usage` object is not modelled, in its own shape; `known` has a mapping where there are counts inside.
    Nulls are absent."""
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
    """A `usage` object with what `rest_of_counts` has kept."""
    for key, item in rest.items():
        known = written.get(key)
        if isinstance(known, dict) and isinstance(item, Mapping):
            written[key] = {**item, **known}
        elif known is None:
            written[key] = item
    return written


def usage_of(
    given: Any, written: Any, *, cached: Any = None, stored: Any = None, thought: Any = None, extra: Extra = EMPTY
) -> Usage | None:
    """The token counts of one answer; of prompt and answer, one may be `missing`, further ones are 0 then. None if both
    are, or if one of them cannot be: then nobody has counted, and nobody's limit is charged with it. `cached` and
    `stored` are part of `given`, the prompt; `thought` is part of `written`."""
    if type(given) not in (int, float):
        missing: Literal["input", "output"] | None = "input"
    else:
        missing = None if type(written) in (int, float) else "output"
    if missing == "input" and type(written) not in (int, float):
        return None
    counts: list[int] = []
    for value in (given, written, cached, stored, thought):
        if type(value) not in (int, float):
            counts.append(0)
        elif 0 <= value <= MAX_TOKENS:
            counts.append(int(value))
        else:  # as is NaN
            return None
    return Usage(counts[0], counts[1], counts[2], counts[3], counts[4], extra=extra, missing=missing)


def whole_number(value: Any) -> int:
    """`value` as seconds since 1970 or the like; 0 if it is no such number."""
    return int(value) if type(value) in (int, float) and 0 <= value <= _EXACT else 0
