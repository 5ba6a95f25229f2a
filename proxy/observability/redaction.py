"""Replaces secrets by stars in data that is stored or logged; the length stays the same.

Replaced are known secret words, texts that look like keys, and matches of an operator's patterns, also if they are
escaped (`toolwire.support.escapes`). This is for data that operators look at; the middleware `redact` hides texts from
models and clients.

Every search is linear and looks at pieces of limited length (`toolwire.support.escapes`).
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Iterator
from typing import Any, Final

from ..config import GatewayConfig
from ..configuration.mcp_secrets import secrets_of
from ..support.escapes import matches, places_of, views
from ..support.linear import linear
from ..upstream.servers.private_data import forms, private_of

LEAST: Final = 8
"""Shorter words are not treated as secrets, because they would match in ordinary texts."""

_KEY: Final = re.compile(rb"(?:sk|pk|rk|tw|xai|gsk|hf|gh[oprsu]|github_pat|glpat|xox[abeoprs])[-_][A-Za-z0-9_\-]{16,}+")
"""A key, if it contains a digit; words with hyphens contain none."""
_DIGIT: Final = re.compile(rb"[0-9]")

_LOOKS_SECRET: Final = tuple(
    re.compile(pattern)
    for pattern in (
        rb"AKIA[A-Z0-9]{16}",
        rb"ASIA[A-Z0-9]{16}",
        rb"AIza[A-Za-z0-9_\-]{35}",
        rb"[Bb][Ee][Aa][Rr][Ee][Rr] ++[A-Za-z0-9._~+/\-]{12,}+",
    )
)
"""Separate patterns that mostly begin with letters are several times as fast as one combined pattern. None requires a
word boundary: in JSON, the letter of an escaped line end may come before the key."""

_WEB_TOKEN: Final = re.compile(
    rb"eyJ(?:[A-Za-z0-9_\-]{10,}+(\.[A-Za-z0-9_\-]{10,}+\.[A-Za-z0-9_\-]++)?+|[A-Za-z0-9_\-]*+)"
)
"""A JSON web token if the group matched. Otherwise a run of characters without a token, matched as a whole so that no
`eyJ` inside of it is tried again."""

_BASIC: Final = re.compile(rb"[Bb][Aa][Ss][Ii][Cc] ++([A-Za-z0-9+/_\-]{8,}+)={0,2}+")
"""A possible user and password (RFC 7617)."""

_REST: Final = re.compile(rb"[A-Za-z0-9._~+/=\-]*+")
_WORD: Final = re.compile(rb"[A-Za-z0-9_\-]*+")
"""A very long match is extended to the end of this run of characters."""

Place = tuple[int, int]


class Redaction:
    """Replaces these words, matches of these patterns, and texts that look like keys. `patterns` are in RE2's syntax,
    whose searches are linear. Raises `ValueError` for a pattern that cannot be used."""

    def __init__(self, words: Iterable[str] = (), patterns: Iterable[str] = ()) -> None:
        self._words = tuple(word.encode() for word in words if len(word) >= LEAST)
        self._patterns = (*map(linear, patterns), *_LOOKS_SECRET)

    def data(self, data: bytes, *keys: bytes) -> bytes:
        """Returns the data with secrets replaced by stars, of the same length. `keys` are additional words."""
        covered: bytearray | None = None
        for view in views(data):
            for place in self._places(view.text, keys):
                begin, end = view.origin(*place)
                if covered is None:
                    covered = bytearray(data)
                covered[begin:end] = b"*" * (end - begin)
        return data if covered is None else bytes(covered)

    def _places(self, text: bytes, keys: tuple[bytes, ...]) -> Iterator[Place]:
        """Yields begin and end of each secret; they may overlap."""
        for word in (*self._words, *keys):
            if len(word) >= LEAST:
                yield from places_of(word, text)
        for pattern in self._patterns:
            yield from ((found.start(), end) for found, end in matches(pattern, text, _REST))
        for found, end in matches(_KEY, text, _REST):
            if _DIGIT.search(found[0]):
                yield found.start(), end
        for found, end in matches(_WEB_TOKEN, text, _WORD):
            if found[1] is not None:
                yield found.start(), end
        for found, end in matches(_BASIC, text, _REST):
            if _names_a_user(found[1]):
                yield found.start(), end

    def text(self, text: str, *keys: bytes) -> str:
        """Returns the text with secrets replaced. See `data`."""
        return self.data(text.encode(errors="surrogatepass"), *keys).decode(errors="surrogatepass")

    def value(self, value: Any, *keys: bytes) -> Any:
        """Returns a JSON value with secrets replaced in every text, also in member names."""
        match value:
            case str():
                return self.text(value, *keys)
            case dict():
                return {self.text(str(name), *keys): self.value(item, *keys) for name, item in value.items()}
            case list() | tuple():
                return [self.value(item, *keys) for item in value]
            case _:
                return value


def _names_a_user(encoded: bytes) -> bool:
    """Returns True if this is the base64 of `user:password`."""
    plain = encoded.translate(bytes.maketrans(b"-_", b"+/")) + b"=" * (-len(encoded) % 4)
    try:
        decoded = base64.b64decode(plain).decode()
    except ValueError:  # not base64, or not text
        return False
    return ":" in decoded and decoded.isprintable()


def words_of(secrets: Iterable[str]) -> tuple[bytes, ...]:
    """Returns the words for secrets of a request, each in every encoding
    (`toolwire.upstream.servers.private_data.forms`)."""
    return tuple(form.encode() for secret in secrets for form in forms(secret))


def known_secrets(config: GatewayConfig) -> Iterator[str]:
    """Yields the secret words of a configuration."""
    for key in config.auth.keys:
        if not (word := key.key.strip()).startswith("sha256:"):
            yield word
    for backend in config.backends.values():
        private = private_of(backend)
        yield from (form for secret in private.secrets for form in forms(secret))
        yield from private.words
    for server in config.tools.mcp:
        yield from (form for secret in secrets_of(server) for form in forms(secret))
