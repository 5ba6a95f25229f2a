"""Call ids: shortened for servers that limit their length, and numbered where a server repeats them. Pure functions
without state."""

from __future__ import annotations

import re
from base64 import b32encode
from collections.abc import Container
from hashlib import blake2b
from itertools import count
from typing import Final


def at_most(chars: int, call_id: str) -> str:
    """Returns the call id itself, or a digest of it if it is longer than `chars` (which is at least 37). A call and its
    result get the same id, different calls different ids (R24.2a)."""
    if len(call_id) <= chars:
        return call_id
    return f"call_{blake2b(call_id.encode('utf-8', 'surrogatepass'), digest_size=16).hexdigest()}"


_SHORT: Final = re.compile(r"[a-zA-Z0-9]{9}")


def in_nine_signs(call_id: str) -> str:
    """Returns a digest of the call id of exactly 9 letters and digits, or the id itself if it has this form."""
    if _SHORT.fullmatch(call_id) is not None:
        return call_id
    return b32encode(blake2b(call_id.encode("utf-8", "surrogatepass"), digest_size=6).digest()).decode()[:9]


_REPEATED: Final = re.compile(r"(.+)--(?:[2-9]|[1-9]\d+)", re.DOTALL)


def numbered(call_id: str, taken: Container[str]) -> str:
    """Returns `call_id` with the lowest suffix (`--2`, `--3`, ...) that makes it differ from every id in `taken`."""
    return next(candidate for number in count(2) if (candidate := f"{call_id}--{number}") not in taken)


def as_written(call_id: str) -> str:
    """Returns the id as the server wrote it, without the suffix. The inverse of `numbered`."""
    match = _REPEATED.fullmatch(call_id)
    return call_id if match is None else match[1]
