"""What belongs to the gateway and its model servers alone, and how it is kept from clients (R10.8).

Rules:

1. An **address** of a server stands in no error. In a model's text it is a word like any other.
2. A **secret**, with which a server is asked, stands in nothing that a client gets. In an error it is hidden. Any other
   answer that holds one ends there with an error: a server that repeats it echoes the head of its request, and who
   knows what follows. Redaction it would need every other place where the same characters stand (probabilities of
   tokens, bytes), and would hide a fault that the operator has to know.
3. It is found as it is and in the encodings in which requests and logs quote it (`forms`). So much of either end counts
   as the whole: half, and at least `LEAST_PART` characters. Less says nothing, on purpose: whoever can make a server
   say what he likes could otherwise find out a secret letter by letter.
4. What is shorter than `LEAST`, or what examples and servers without keys use in place of one (`PLACEHOLDERS`), is no
   secret. In an error it is hidden where it stands as a word.

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

from toolwire.config import BackendConfig
from toolwire.errors import BackendFault
from toolwire.support.escapes import views, without

LOG: Final = logging.getLogger("toolwire.backends")

LEAST: Final = 8
"""A shorter word is no secret."""

LEAST_PART: Final = 12
"""So many characters of one end of a secret, or half of it if that is more, are as good as all."""

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
"""In lower case."""

_SECRET_NAME: Final = re.compile(r"auth|key|token|secret|cookie|credential|passw|signature|session", re.IGNORECASE)
_LOOKS_RANDOM: Final = re.compile(r"(?![0-9]{4}-[0-9]{2})(?=.*[0-9])(?=.*[A-Za-z])[\w.~+/=-]{20,}", re.ASCII)
"""What no name gives away."""
_SCHEMES: Final = frozenset({"apikey", "basic", "bearer", "digest", "negotiate", "token"})
_SEPARATORS: Final = re.compile(r"[\s;,=]+")
_STAND_IN: Final = "\ue000"  # one character, which no pattern takes for a border
_PORT_AND_PATH: Final = r"(?::\d{1,5})?(?:/[^\s\"'<>)\]]*)?"


@dataclass(frozen=True, slots=True)
class Private:
    """`hosts` of servers, `secrets` with which they are asked, and `words` that are hidden in errors only."""

    hosts: tuple[str, ...] = ()
    secrets: tuple[str, ...] = ()
    words: tuple[str, ...] = ()

    @classmethod
    def together(cls, several: Iterable[Private]) -> Private:
        """What belongs to any of them."""
        every = tuple(several)
        return cls(
            tuple(dict.fromkeys(host for one in every for host in one.hosts)),
            tuple(dict.fromkeys(secret for one in every for secret in one.secrets)),
            tuple(dict.fromkeys(word for one in every for word in one.words)),
        )

    @property
    def parts(self) -> tuple[bytes, ...]:
        """The byte strings by which a secret is recognised."""
        return _parts(self.secrets)

    def stands_in(self, data: bytes) -> bool:
        """Whether a secret stands in these bytes: of JSON, however its strings are escaped, or of anything else."""
        parts = self.parts
        if not parts:
            return False
        return any(part in view.text for view in views(data) for part in parts)

    def hide(self, text: str) -> str:
        """An error's text with `HIDDEN` in the place of secrets and words. They may stand next to anything."""
        for secret in self.secrets:
            for form in forms(secret):
                size = part_size(form)
                text = _without(text, form, form[:size])
                text = _without(text, form, form[-size:])
        if self.secrets:
            text = without(text, self.parts, _STAND_IN)
        for word in self.words:
            text = re.sub(rf"(?<!\w){re.escape(word)}(?!\w)", _STAND_IN, text)
        return text

    def hide_hosts(self, text: str) -> str:
        """An error's text with `ADDRESS` in the place of hosts, their ports and what follows."""
        for host in self.hosts:
            name = re.escape(host)
            place = rf"(?:\[{name}\]|(?<![\w.-]){name}(?![\w-]))"
            text = re.sub(f"{place}{_PORT_AND_PATH}", ADDRESS, text, flags=re.IGNORECASE)
        return text

    def show(self, text: str) -> str:
        """After `hide` and everything else."""
        return text.replace(_STAND_IN, HIDDEN)


NOTHING: Final = Private()


def withheld() -> BackendFault:
    """The fault of an answer that holds a secret; the log has it, too."""
    LOG.error(
        "a model server's answer holds the key with which it is asked, or another secret of `backends`: it was withheld"
    )
    return BackendFault(
        "The model server's answer holds a secret of the gateway, and is withheld from there on.",
        code="upstream_invalid_response",
    )


def private_of(config: BackendConfig) -> Private:
    """What is private about the server that is configured so."""
    try:
        url = URL(config.url or "")
    except ValueError:  # whoever asks that server will say what is wrong
        url = URL()
    userinfo = "" if url.user is None else f"{url.user}:{url.password or ''}"
    found = dict.fromkeys(_credentials(config.api_key, config.headers, userinfo))
    secrets = tuple(word for word in found if len(word) >= LEAST and word.lower() not in PLACEHOLDERS)
    words = [word for word in found if word not in secrets and len(word) >= 3]
    words += [value for value in config.headers.values() if len(value) >= LEAST]
    return Private(
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
                pass  # not what it says


# --- how a secret looks ---------------------------------------------------------------------------------------------


def part_size(form: str) -> int:
    """How much of either end of a form counts as all of it (rule 3)."""
    return min(len(form), max(LEAST_PART, -(-len(form) // 2)))


@lru_cache(maxsize=256)
def forms(secret: str) -> tuple[str, ...]:
    """A secret as it is, in a URL, in JSON, in hexadecimal digits, and inside something in base64."""
    raw = secret.encode()
    found = [
        secret,
        quote(secret, safe=""),
        quote_plus(secret),
        json.dumps(secret)[1:-1],
        json.dumps(secret, ensure_ascii=False)[1:-1],
    ]
    found += [raw.hex(), raw.hex().upper(), *_in_base64(raw)]
    return tuple(dict.fromkeys(form for form in found if len(form) >= LEAST))


def _in_base64(raw: bytes) -> Iterator[str]:
    """The characters that depend on nothing else, for each place at which it may stand in three bytes."""
    for before in range(3):
        size = before + len(raw)
        first, last = -(-8 * before // 6), 8 * size // 6
        for encode in (base64.b64encode, base64.urlsafe_b64encode):
            yield encode(bytes(before) + raw + bytes(3))[first:last].decode()


@lru_cache(maxsize=256)
def _parts(secrets: tuple[str, ...]) -> tuple[bytes, ...]:
    found: dict[bytes, None] = {}
    for secret in secrets:
        for form in forms(secret):
            size = part_size(form)
            found.update({form[:size].encode(): None, form[-size:].encode(): None})
    return tuple(found)


def _without(text: str, form: str, part: str) -> str:
    """`text` without `part`, an end of `form`, and what stands beside it and belongs to it."""
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
