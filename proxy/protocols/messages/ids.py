"""Ids of calls as Messages has them, and signatures of thoughts. Pure functions: nothing is remembered.

Rules:

1. `wire_id` is injective: two calls never get one id. Its image has only letters that Anthropic's servers take.
2. What a Messages server gave out stays as it is. What a client gives back says itself what it was (`read_id`), but
   for digests.
"""

from __future__ import annotations

import re
from base64 import b64encode, urlsafe_b64decode, urlsafe_b64encode
from hashlib import blake2b
from typing import Final
from uuid import uuid4

MOST_CHARS: Final = 200
"""Ids that would become longer are digested: clients have to be able to give them back (R2.7)."""

_OURS: Final = re.compile(r"call_([0-9a-f]{32})")
_OURS_ON_WIRE: Final = re.compile(r"toolu_([0-9a-f]{32})")
_SAFE: Final = re.compile(r"[a-zA-Z0-9_-]+")
_PREFIX: Final = "toolu_"
_MARK: Final = "toolu_-"
"""No server gives out an id that begins so. Behind it stands a safe id as it is, or `-e` and the bytes of any, or `-d`
and a digest."""

_SIGNED: Final = b64encode(b"toolwire\x01").decode()
"""The beginning of the gateway's own signatures: nine bytes, so that it ends where a letter does."""


def new_message_id() -> str:
    """A fresh id for an answer."""
    return f"msg_{uuid4().hex}"


def message_id(given: str) -> str:
    """The id of an answer: the server's if it has this protocol's form, else a new one."""
    return given if given.startswith("msg_") and _SAFE.fullmatch(given) else new_message_id()


def wire_id(call_id: str) -> str:
    """The id under which a client gets to know a call."""
    if (own := _OURS.fullmatch(call_id)) is not None:
        return _PREFIX + own[1]
    foreign = call_id.startswith(_PREFIX) and len(call_id) > len(_PREFIX)
    if foreign and not call_id.startswith(_MARK) and _OURS_ON_WIRE.fullmatch(call_id) is None and _fits(call_id):
        return call_id
    return _written_out(call_id)


def read_id(call_id: str) -> str:
    """The id that a call had before a client got to know it, if it can be told: the server that wrote it gets it back
    (R28.6). The gateway's own stay as clients have them."""
    written = call_id.removeprefix(_MARK)
    if written == call_id or not written or written.startswith("-d"):
        return call_id
    if not written.startswith("-e"):
        return written if not written.startswith("-") else call_id
    raw = written[len("-e") :].encode()
    try:
        found = urlsafe_b64decode(raw + b"=" * (-len(raw) % 4)).decode("utf-8", "surrogatepass")
    except ValueError:
        return call_id
    return found if found and wire_id(found) == call_id else call_id


def given_id(call_id: str) -> str:
    """The gateway's own id of a call, if a client's is what became of one."""
    shown = _OURS_ON_WIRE.fullmatch(call_id)
    return call_id if shown is None else f"call_{shown[1]}"


def server_id(call_id: str) -> str:
    """The id under which a server is told of a call: as it is, if it takes its letters. Injective too."""
    return call_id if _fits(call_id) and not call_id.startswith(f"{_MARK}-") else _encoded(call_id)


def _fits(call_id: str) -> bool:
    return len(call_id) <= MOST_CHARS and _SAFE.fullmatch(call_id) is not None


def _written_out(call_id: str) -> str:
    return _MARK + call_id if _fits(call_id) and not call_id.startswith("-") else _encoded(call_id)


def _encoded(call_id: str) -> str:
    raw = call_id.encode("utf-8", "surrogatepass")
    written = _base64(raw)
    return (
        f"{_MARK}-e{written}"
        if len(written) <= MOST_CHARS
        else f"{_MARK}-d{_base64(blake2b(raw, digest_size=32).digest())}"
    )


def _base64(raw: bytes) -> str:
    return urlsafe_b64encode(raw).rstrip(b"=").decode()


class Signing:
    """Signs a thought that comes in pieces: the same for the same text. Its text has whole characters only."""

    def __init__(self) -> None:
        self._digest = blake2b(digest_size=24)

    def take(self, text: str) -> None:
        """More of it."""
        self._digest.update(text.encode())

    @property
    def signature(self) -> str:
        """That of all that was taken."""
        return _SIGNED + b64encode(self._digest.digest()).decode()


def signature_of(text: str) -> str:
    """What the gateway signs a thought with."""
    signing = Signing()
    signing.take(text)
    return signing.signature


def is_own_signature(signature: object) -> bool:
    """Whether the gateway made a signature. No server takes those."""
    return isinstance(signature, str) and signature.startswith(_SIGNED)
