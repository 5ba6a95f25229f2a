"""Numbers for repeated tool call ids (R28.6). Many model servers restart their ids in every turn. Clients need ids that
are unique within a conversation; the server needs the ids that it wrote."""

from __future__ import annotations

import re
from collections.abc import Container
from itertools import count
from typing import Final

_REPEATED: Final = re.compile(r"(.+)--(?:[2-9]|[1-9]\d+)", re.DOTALL)


def numbered(call_id: str, taken: Container[str]) -> str:
    """Returns `call_id` with the lowest suffix (`--2`, `--3`, ...) that makes it differ from every id in `taken`."""
    return next(candidate for number in count(2) if (candidate := f"{call_id}--{number}") not in taken)


def as_written(call_id: str) -> str:
    """Returns the id as the server wrote it, without the suffix. The inverse of `numbered`."""
    match = _REPEATED.fullmatch(call_id)
    return call_id if match is None else match[1]
