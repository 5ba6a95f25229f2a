"""The name under which a model knows a tool of an MCP server, and which tools are let through.

Servers may call a tool anything; models and their servers take letters, digits, `_` and `-`, at most 64. A name that
fits stays. Another one is spelled with `_` for what does not fit and gets a mark that is made of the whole name, so
that two names stay two. The server is always asked for the tool by its own name.
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
    """The name for models, of at most `most` characters."""
    whole = prefix + name
    if _FITS.fullmatch(whole) and len(whole) <= most:
        return whole
    mark = blake2b(name.encode("utf-8", "surrogatepass"), digest_size=4).hexdigest()
    spelled = _OTHER.sub("_", whole)[: most - len(mark) - 1]
    return f"{spelled}_{mark}"


def is_allowed(name: str, allow: Iterable[str], deny: Iterable[str]) -> bool:
    """Whether a tool is offered, by the server's own name for it."""
    return any(fnmatchcase(name, one) for one in allow) and not any(fnmatchcase(name, one) for one in deny)
