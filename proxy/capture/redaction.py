"""Secrets out of what is kept or logged: stars in their place, as many as there were bytes.

What is covered: words that are known to be secret, what looks like a key, and what an operator's patterns match. For
data that operators look at; the middleware `redact` keeps things from models and clients.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any, Final

from ..backends.private import forms, private_of
from ..config import GatewayConfig

LEAST: Final = 8
"""A shorter word is not taken for a secret: it would be found in every text."""

_LOOKS_SECRET: Final = tuple(
    re.compile(pattern)
    for pattern in (
        rb"(?:sk|pk|rk|tw|xai|gsk|hf|gh[oprsu]|github_pat|glpat|xox[abeoprs])[-_]"
        rb"(?=[A-Za-z_\-]{0,64}[0-9])[A-Za-z0-9_\-]{16,}",
        rb"AKIA[A-Z0-9]{16}",
        rb"ASIA[A-Z0-9]{16}",
        rb"AIza[A-Za-z0-9_\-]{35}",
        rb"[Bb][Ee][Aa][Rr][Ee][Rr] +[A-Za-z0-9._~+/\-]{12,}",
        rb"eyJ[A-Za-z0-9_\-]{10,}\.[A-Za-z0-9_\-]{10,}\.[A-Za-z0-9_\-]+",
    )
)
"""One after the other, most of them beginning with letters: that is several times as fast as all in one. None asks
for the edge of a word: in JSON the letter of an escaped line end may stand before. A key has a digit, a word with
hyphens none."""


class Redaction:
    """Covers these words, and what matches these patterns or looks like a key. Raises `re.error` for a bad pattern."""

    def __init__(self, words: Iterable[str] = (), patterns: Iterable[str] = ()) -> None:
        self._words = [word.encode() for word in words if len(word) >= LEAST]
        self._patterns = (*(re.compile(pattern.encode()) for pattern in patterns), *_LOOKS_SECRET)

    def data(self, data: bytes, *keys: bytes) -> bytes:
        """The same with stars, of the same length. `keys` are more words."""
        for word in (*self._words, *keys):
            if len(word) >= LEAST:
                data = data.replace(word, b"*" * len(word))
        for pattern in self._patterns:
            data = pattern.sub(_stars, data)
        return data

    def text(self, text: str, *keys: bytes) -> str:
        """As `data`."""
        return self.data(text.encode(errors="surrogatepass"), *keys).decode(errors="surrogatepass")

    def value(self, value: Any, *keys: bytes) -> Any:
        """A value of JSON with every text in it covered."""
        match value:
            case str():
                return self.text(value, *keys)
            case dict():
                return {self.text(str(name), *keys): self.value(item, *keys) for name, item in value.items()}
            case list() | tuple():
                return [self.value(item, *keys) for item in value]
            case _:
                return value


def _stars(found: re.Match[bytes]) -> bytes:
    return b"*" * len(found[0])


def words_of(secrets: Iterable[str]) -> tuple[bytes, ...]:
    """The words by which secrets of a request are found: each in every form (`proxy.backends.private.forms`)."""
    return tuple(form.encode() for secret in secrets for form in forms(secret))


def known_secrets(config: GatewayConfig) -> Iterator[str]:
    """The words of a configuration that nobody else may know."""
    for key in config.auth.keys:
        if not key.key.startswith("sha256:"):
            yield key.key
    for backend in config.backends.values():
        private = private_of(backend)
        yield from (form for secret in private.secrets for form in forms(secret))
        yield from private.words
