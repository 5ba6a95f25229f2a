"""Secrets out of what is kept or logged: stars in their place, as many as there were bytes.

What is covered: words that are known to be secret, what looks like a key, and what an operator's patterns match. For data that
operators look at; the middleware `redact` keeps things from models and clients.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any, Final

from .config import GatewayConfig

LEAST: Final = 8
"""A shorter word is not taken for a secret: it would be found in every text."""

_LOOKS_SECRET: Final = (
    rb"\b(?:sk|pk|rk|tw|xai|gsk|hf|gh[oprsu]|github_pat|glpat|xox[abeoprs])[-_][A-Za-z0-9_\-]{16,}",
    rb"\bA[KS]IA[A-Z0-9]{16}\b",
    rb"\bAIza[A-Za-z0-9_\-]{35}",
    rb"\b(?i:bearer) +[A-Za-z0-9._~+/\-]{12,}",
    rb"\beyJ[A-Za-z0-9_\-]{10,}\.[A-Za-z0-9_\-]{10,}\.[A-Za-z0-9_\-]+",
)


class Covering:
    """Covers these words, and what matches these patterns or looks like a key. Raises `re.error` for a bad pattern."""

    def __init__(self, words: Iterable[str] = (), patterns: Iterable[str] = ()) -> None:
        literal = [re.escape(word).encode() for word in words if len(word) >= LEAST]
        parts = [*literal, *(pattern.encode() for pattern in patterns), *_LOOKS_SECRET]
        self._pattern = re.compile(b"|".join(b"(?:%b)" % part for part in parts))

    def data(self, data: bytes, key: bytes = b"") -> bytes:
        """The same with stars, of the same length. `key` is one more word."""
        data = self._pattern.sub(lambda found: b"*" * len(found[0]), data)
        return data.replace(key, b"*" * len(key)) if len(key) >= LEAST else data

    def text(self, text: str, key: bytes = b"") -> str:
        """As `data`."""
        return self.data(text.encode(errors="surrogatepass"), key).decode(errors="surrogatepass")

    def value(self, value: Any, key: bytes = b"") -> Any:
        """A value of JSON with every text in it covered."""
        match value:
            case str():
                return self.text(value, key)
            case dict():
                return {self.text(str(name), key): self.value(item, key) for name, item in value.items()}
            case list() | tuple():
                return [self.value(item, key) for item in value]
            case _:
                return value


def known_secrets(config: GatewayConfig) -> Iterator[str]:
    """The words of a configuration that nobody else may know."""
    for key in config.auth.keys:
        if not key.key.startswith("sha256:"):
            yield key.key
    for backend in config.backends.values():
        yield backend.api_key or ""
        yield from backend.headers.values()
