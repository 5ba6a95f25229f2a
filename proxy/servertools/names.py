"""Names of MCP tools for models, and the filter of tools by name.

MCP allows any name; models and their servers accept letters, digits, `_` and `-`, at most 64 characters. A name that
fits stays unchanged. Another one gets `_` for each other character and a suffix with a hash of the whole name, so that
different names stay different. The server is always called with its own name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from fnmatch import fnmatchcase
from hashlib import blake2b
from typing import Final

MAX_CHARS: Final = 64

_FITS: Final = re.compile(rf"[a-zA-Z0-9_-]{{1,{MAX_CHARS}}}")
_OTHER: Final = re.compile(r"[^a-zA-Z0-9_-]+")


def offered_name(name: str, prefix: str = "", most: int = MAX_CHARS) -> str:
    """Returns the name for models, of at most `most` characters."""
    whole = prefix + name
    if _FITS.fullmatch(whole) and len(whole) <= most:
        return whole
    mark = blake2b(name.encode("utf-8", "surrogatepass"), digest_size=4).hexdigest()
    spelled = _OTHER.sub("_", whole)[: most - len(mark) - 1]
    return f"{spelled}_{mark}"


def is_allowed(name: str, allow: Iterable[str], deny: Iterable[str]) -> bool:
    """Returns True if the server's name for a tool matches a pattern of `allow` and none of `deny`."""
    return any(fnmatchcase(name, one) for one in allow) and not any(fnmatchcase(name, one) for one in deny)
