"""Secrets out of what is kept or logged: stars in their place, as many as there were bytes.

Covered are words that are known to be secret, texts that look like a key, and matches of an operator's patterns. They
are found as they stand and behind escapes (`toolwire.support.escapes`). For data that operators look at; the middleware
`redact` keeps things from models and clients.

Every search is linear, and looks at a piece of bounded length at once (`toolwire.support.pieces`).
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Iterator
from typing import Any, Final

from toolwire.config import GatewayConfig
from toolwire.extras.mcp.secrets import secrets_of
from toolwire.support.escapes import views
from toolwire.support.linear import linear
from toolwire.support.pieces import matches, places_of
from toolwire.upstream.servers.private_data import forms, private_of

LEAST: Final = 8
"""A shorter word is not taken for a secret: it would be found in every text."""

_KEY: Final = re.compile(rb"(?:sk|pk|rk|tw|xai|gsk|hf|gh[oprsu]|github_pat|glpat|xox[abeoprs])[-_][A-Za-z0-9_\-]{16,}+")
"""A key if it has a digit. A word with hyphens has none."""
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
"""One after the other, most of them beginning with letters: that is several times as fast as all in one. None asks
for the edge of a word: in JSON the letter of an escaped line end may stand before."""

_WEB_TOKEN: Final = re.compile(
    rb"eyJ(?:[A-Za-z0-9_\-]{10,}+(\.[A-Za-z0-9_\-]{10,}+\.[A-Za-z0-9_\-]++)?+|[A-Za-z0-9_\-]*+)"
)
"""A JSON web token, if the group has matched. Else a run of characters in which none begins: it is read as a whole, so
that no `eyJ` in it is tried as well."""

_BASIC: Final = re.compile(rb"[Bb][Aa][Ss][Ii][Cc] ++([A-Za-z0-9+/_\-]{8,}+)={0,2}+")
"""Perhaps user and password (RFC 7617)."""

_REST: Final = re.compile(rb"[A-Za-z0-9._~+/=\-]*+")
_WORD: Final = re.compile(rb"[A-Za-z0-9_\-]*+")
"""The run of characters to whose end a very long match is covered."""

Place = tuple[int, int]


class Redaction:
    """Covers these words, and what matches these patterns or looks like a key. `patterns` are RE2's, whose searches are
    linear. Raises `ValueError` for one that cannot be used."""

    def __init__(self, words: Iterable[str] = (), patterns: Iterable[str] = ()) -> None:
        self._words = tuple(word.encode() for word in words if len(word) >= LEAST)
        self._patterns = (*map(linear, patterns), *_LOOKS_SECRET)

    def data(self, data: bytes, *keys: bytes) -> bytes:
        """The same with stars, of the same length. `keys` are more words."""
        covered: bytearray | None = None
        for view in views(data):
            for place in self._places(view.text, keys):
                begin, end = view.origin(*place)
                if covered is None:
                    covered = bytearray(data)
                covered[begin:end] = b"*" * (end - begin)
        return data if covered is None else bytes(covered)

    def _places(self, text: bytes, keys: tuple[bytes, ...]) -> Iterator[Place]:
        """Where secrets stand. They may overlap."""
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


def _names_a_user(encoded: bytes) -> bool:
    """Whether this is the base64 of `user:password`."""
    plain = encoded.translate(bytes.maketrans(b"-_", b"+/")) + b"=" * (-len(encoded) % 4)
    try:
        said = base64.b64decode(plain).decode()
    except ValueError:  # no base64, or no text
        return False
    return ":" in said and said.isprintable()


def words_of(secrets: Iterable[str]) -> tuple[bytes, ...]:
    """The words by which secrets of a request are found: each in every form
    (`toolwire.upstream.servers.private_data.forms`)."""
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
    for server in config.tools.mcp:
        yield from (form for secret in secrets_of(server) for form in forms(secret))
