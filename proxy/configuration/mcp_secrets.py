"""The secrets in a server's configuration, which are hidden in the log and from models.

All header values are secrets. Environment variables are secrets if their name suggests it: others, such as a folder or
a language, are often part of results.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final
from urllib.parse import urlsplit

from ..config import McpServerConfig

MIN_CHARS: Final = 6
"""Shorter texts are not hidden, because they would match inside of ordinary words."""

_SAYS: Final = re.compile(r"key|token|secret|passw|credential|auth|cookie|session", re.IGNORECASE)


def secrets_of(config: McpServerConfig) -> tuple[str, ...]:
    """Returns the texts to hide, longest first."""
    texts = {text for text in _texts(config) if len(text) >= MIN_CHARS}
    return tuple(sorted(texts, key=len, reverse=True))


def _texts(config: McpServerConfig) -> Iterator[str]:
    for value in config.headers.values():
        bare = value.strip()  # an error message may quote the value without its surrounding blanks
        yield bare
        yield bare.rpartition(" ")[2]  # without `Bearer`
    yield from (value for name, value in config.env.items() if _SAYS.search(name))
    if config.url is not None:
        url = urlsplit(config.url)
        yield url.query
        yield from (piece.partition("=")[2] for piece in url.query.split("&"))
        yield url.password or ""
