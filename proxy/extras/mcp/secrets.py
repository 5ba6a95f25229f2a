"""What of a server's configuration is a secret: neither the log nor a model gets to see it, whoever says it.

All headers are; of the environment what its name says to be one, since a folder or a language there is what results are
about."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final
from urllib.parse import urlsplit

from toolwire.config import McpServerConfig

MIN_CHARS: Final = 6
"""Shorter ones would be found in every other word."""

_SAYS: Final = re.compile(r"key|token|secret|passw|credential|auth|cookie|session", re.IGNORECASE)


def secrets_of(config: McpServerConfig) -> tuple[str, ...]:
    """The texts to hide, longer ones first."""
    found = {text for text in _texts(config) if len(text) >= MIN_CHARS}
    return tuple(sorted(found, key=len, reverse=True))


def _texts(config: McpServerConfig) -> Iterator[str]:
    for value in config.headers.values():
        bare = value.strip()  # who says why a value with blanks around it is bad may write those in another way
        yield bare
        yield bare.rpartition(" ")[2]  # behind `Bearer`
    yield from (value for name, value in config.env.items() if _SAYS.search(name))
    if config.url is not None:
        url = urlsplit(config.url)
        yield url.query
        yield from (piece.partition("=")[2] for piece in url.query.split("&"))
        yield url.password or ""
