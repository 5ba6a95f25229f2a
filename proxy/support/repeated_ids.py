"""Ids of calls that a server gives out again in a conversation (R28.6): many begin to count anew in every turn. A
client needs ids that occur once, and the server its own form."""

from __future__ import annotations

import re
from collections.abc import Container
from itertools import count
from typing import Final

_REPEATED: Final = re.compile(r"(.+)--(?:[2-9]|[1-9]\d+)", re.DOTALL)


def numbered(call_id: str, taken: Container[str]) -> str:
    """The id with the lowest number behind it with which it is not `taken`."""
    return next(one for number in count(2) if (one := f"{call_id}--{number}") not in taken)


def as_written(call_id: str) -> str:
    """The id as the server wrote it, the inverse of `numbered`."""
    found = _REPEATED.fullmatch(call_id)
    return call_id if found is None else found[1]
