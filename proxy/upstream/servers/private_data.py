"""Private data of the gateway and its model servers, and how it is kept from clients (R10.8).

Rules:

1. **Addresses** of servers are removed from errors. In a model's text they are ordinary words and stay.
2. **Secrets** sent to a server (keys, tokens) never reach a client. In an error they are hidden. Any other answer that
   contains one ends there with an error: a server that repeats a secret echoes its request, and more of it may follow.
   Redaction would not be enough, because the same characters may also appear in token probabilities or byte lists, and
   it would hide a fault that the operator must know.
3. A secret is recognised in plain form and in the encodings in which requests and logs quote it (`forms`). One end of
   it, of at least half its length and at least `LEAST_PART` characters, counts as the whole. Shorter parts are ignored
   on purpose: otherwise a client who can make the server repeat text could guess a secret letter by letter.
4. A value shorter than `LEAST`, or one that examples and servers without keys use (`PLACEHOLDERS`), is no secret. In an
   error it is hidden where it stands as a word.

Nothing here does I/O.
"""

from __future__ import annotations

import base64
import binascii
import json
import logging
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final
from urllib.parse import quote, quote_plus

from yarl import URL

from ...config import BackendConfig
from ...errors import BackendFault
from ...support.escapes import replace_words, views

LOG: Final = logging.getLogger("toolwire.backends")

LEAST: Final = 8
"""A shorter value is no secret."""

LEAST_PART: Final = 12
"""Minimum length of the part of a secret that counts as the whole; half of the secret if that is more."""

HIDDEN: Final = "[hidden]"
ADDRESS: Final = "[address]"

PLACEHOLDERS: Final = frozenset(
    [
        "changeme",
        "dummy-key",
        "lm-studio",
        "lmstudio",
        "no-key-needed",
        "no-key-required",
        "not-needed",
        "not-required",
        "notneeded",
        "placeholder",
        "sk-dummy",
        "sk-no-key-required",
        "sk-placeholder",
        "token-abc123",
        "your-api-key",
        "your_api_key",
    ]
)
"""Values that are no secrets, in lower case."""

_SECRET_NAME: Final = re.compile(r"auth|key|token|secret|cookie|credential|passw|signature|session", re.IGNORECASE)
_LOOKS_RANDOM: Final = re.compile(r"(?![0-9]{4}-[0-9]{2})(?=.*[0-9])(?=.*[A-Za-z])[\w.~+/=-]{20,}", re.ASCII)
"""A header value that is probably a secret, although the header's name does not suggest it."""
_SCHEMES: Final = frozenset({"apikey", "basic", "bearer", "digest", "negotiate", "token"})
_SEPARATORS: Final = re.compile(r"[\s;,=]+")
_STAND_IN: Final = "\ue000"  # one private-use character, which no pattern treats as a word border
_PORT_AND_PATH: Final = r"(?::\d{1,5})?(?:/[^\s\"'<>)\]]*)?"


@dataclass(frozen=True, slots=True)
class PrivateData:
    """`hosts` of servers, `secrets` that are sent to them, and `words` that are hidden in errors only."""

    hosts: tuple[str, ...] = ()
    secrets: tuple[str, ...] = ()
    words: tuple[str, ...] = ()

    @classmethod
    def together(cls, several: Iterable[PrivateData]) -> PrivateData:
        """Returns the union of several."""
        every = tuple(several)
        return cls(
            tuple(dict.fromkeys(host for each in every for host in each.hosts)),
            tuple(dict.fromkeys(secret for each in every for secret in each.secrets)),
            tuple(dict.fromkeys(word for each in every for word in each.words)),
        )

    @property
    def parts(self) -> tuple[bytes, ...]:
        """The byte strings whose presence shows a secret."""
        return _parts(self.secrets)

    def occurs_in(self, data: bytes) -> bool:
        """True if `data` contains a secret, also with JSON or URL escapes."""
        parts = self.parts
        if not parts:
            return False
        return any(part in view.text for view in views(data) for part in parts)

    def hide(self, text: str) -> str:
        """Returns an error text with secrets and words replaced by a mark, which `show` turns into `HIDDEN`. Secrets
        are also found inside words."""
        for secret in self.secrets:
            for form in forms(secret):
                size = part_size(form)
                text = _without(text, form, form[:size])
                text = _without(text, form, form[-size:])
        if self.secrets:
            text = replace_words(text, self.parts, _STAND_IN)
        for word in self.words:
            text = re.sub(rf"(?<!\w){re.escape(word)}(?!\w)", _STAND_IN, text)
        return text

    def hide_hosts(self, text: str) -> str:
        """Returns an error text with hosts, their ports and paths replaced by `ADDRESS`."""
        for host in self.hosts:
            name = re.escape(host)
            place = rf"(?:\[{name}\]|(?<![\w.-]){name}(?![\w-]))"
            text = re.sub(f"{place}{_PORT_AND_PATH}", ADDRESS, text, flags=re.IGNORECASE)
        return text

    def show(self, text: str) -> str:
        """Replaces the marks of `hide` by `HIDDEN`. Called last."""
        return text.replace(_STAND_IN, HIDDEN)


NOTHING: Final = PrivateData()


def secret_fault() -> BackendFault:
    """Logs that an answer contains a secret, and returns the error that ends it."""
    LOG.error(
        "a model server's answer contains its API key, or another secret of `backends`: the answer was ended there"
    )
    return BackendFault(
        "The model server's answer contains a secret of the gateway and was ended there.",
        code="upstream_invalid_response",
    )


def private_of(config: BackendConfig) -> PrivateData:
    """Returns the private data of a configured server."""
    try:
        url = URL(config.url or "")
    except ValueError:  # requests to this server report the bad URL
        url = URL()
    userinfo = "" if url.user is None else f"{url.user}:{url.password or ''}"
    credentials = dict.fromkeys(_credentials(config.api_key, config.headers, userinfo))
    secrets = tuple(word for word in credentials if len(word) >= LEAST and word.lower() not in PLACEHOLDERS)
    words = [word for word in credentials if word not in secrets and len(word) >= 3]
    words += [value for value in config.headers.values() if len(value) >= LEAST]
    return PrivateData(
        hosts=tuple(dict.fromkeys(host for host in (url.host, url.raw_host) if host and host != "localhost")),
        secrets=secrets,
        words=tuple(dict.fromkeys(words)),
    )


def _credentials(api_key: str | None, headers: Mapping[str, str], userinfo: str) -> Iterator[str]:
    if api_key:
        yield api_key
    if userinfo:
        yield userinfo.rpartition(":")[2]
        yield base64.b64encode(userinfo.encode()).decode()
    for name, value in headers.items():
        if not _SECRET_NAME.search(name) and not _LOOKS_RANDOM.fullmatch(value):
            continue
        words = [word for word in _SEPARATORS.split(value) if len(word) >= LEAST and word.lower() not in _SCHEMES]
        yield from words or ([] if " " in value else [value])
        if value[:6].lower() == "basic ":
            try:
                yield base64.b64decode(value[6:].strip(), validate=True).decode().partition(":")[2]
            except (binascii.Error, UnicodeDecodeError):
                pass  # not valid base64 after all


# --- forms of a secret ----------------------------------------------------------------------------------------------


def part_size(form: str) -> int:
    """Returns how many characters at either end of a form count as all of it (rule 3)."""
    return min(len(form), max(LEAST_PART, -(-len(form) // 2)))


@lru_cache(maxsize=256)
def forms(secret: str) -> tuple[str, ...]:
    """Returns the spellings of a secret: plain, in a URL, in JSON, in hexadecimal, and inside of base64 text."""
    raw = secret.encode()
    candidates = [
        secret,
        quote(secret, safe=""),
        quote_plus(secret),
        json.dumps(secret)[1:-1],
        json.dumps(secret, ensure_ascii=False)[1:-1],
    ]
    candidates += [raw.hex(), raw.hex().upper(), *_in_base64(raw)]
    return tuple(dict.fromkeys(form for form in candidates if len(form) >= LEAST))


def _in_base64(raw: bytes) -> Iterator[str]:
    """Yields the base64 characters that depend on `raw` alone, for each of its three alignments."""
    for before in range(3):
        size = before + len(raw)
        first, last = -(-8 * before // 6), 8 * size // 6
        for encode in (base64.b64encode, base64.urlsafe_b64encode):
            yield encode(bytes(before) + raw + bytes(3))[first:last].decode()


@lru_cache(maxsize=256)
def _parts(secrets: tuple[str, ...]) -> tuple[bytes, ...]:
    parts: dict[bytes, None] = {}
    for secret in secrets:
        for form in forms(secret):
            size = part_size(form)
            parts.update({form[:size].encode(): None, form[-size:].encode(): None})
    return tuple(parts)


def _without(text: str, form: str, part: str) -> str:
    """Replaces in `text` every `part`, which is one end of `form`, together with adjacent characters that continue
    `form`."""
    at = text.find(part)
    while at >= 0:
        start, end = at, at + len(part)
        if form.startswith(part):
            while end < len(text) and form.startswith(text[at : end + 1]):
                end += 1
        else:
            while start and form.endswith(text[start - 1 : end]):
                start -= 1
        text = text[:start] + _STAND_IN + text[end:]
        at = text.find(part, start)
    return text
