"""Call ids of Messages, and signatures of reasoning. Pure functions without state.

Rules:

1. `wire_id` is injective: two calls never get the same id. Its results contain only characters that Anthropic's servers
   accept.
2. Ids from a Messages server stay unchanged. An id from a client shows what it was before (`read_id`), unless it is a
   digest.
"""

from __future__ import annotations

import re
from base64 import b64encode, urlsafe_b64decode, urlsafe_b64encode
from hashlib import blake2b
from typing import Final
from uuid import uuid4

MOST_CHARS: Final = 200
"""Maximum length of an id. Longer ones are digested, because clients must be able to send them back (R2.7)."""

_OURS: Final = re.compile(r"call_([0-9a-f]{32})")
_OURS_ON_WIRE: Final = re.compile(r"toolu_([0-9a-f]{32})")
_SAFE: Final = re.compile(r"[a-zA-Z0-9_-]+")
_PREFIX: Final = "toolu_"
_MARK: Final = "toolu_-"
"""Prefix that no server uses. After it comes a safe id unchanged, or `-e` and the encoded bytes of any id, or `-d` and
a digest."""

_SIGNED: Final = b64encode(b"toolwire\x01").decode()
"""Prefix of the gateway's own signatures: nine bytes, so that it ends at a base64 character."""


def message_id(answer_id: str) -> str:
    """Returns the id of an answer: the server's if it has this protocol's form, otherwise a new one."""
    return answer_id if answer_id.startswith("msg_") and _SAFE.fullmatch(answer_id) else f"msg_{uuid4().hex}"


def wire_id(call_id: str) -> str:
    """Returns the id under which clients get a call."""
    if (own := _OURS.fullmatch(call_id)) is not None:
        return _PREFIX + own[1]
    foreign = call_id.startswith(_PREFIX) and len(call_id) > len(_PREFIX)
    if foreign and not call_id.startswith(_MARK) and _OURS_ON_WIRE.fullmatch(call_id) is None and _fits(call_id):
        return call_id
    return _MARK + call_id if _fits(call_id) and not call_id.startswith("-") else _encoded(call_id)


def read_id(call_id: str) -> str:
    """Returns the id that a call had before `wire_id`, so that the server that made it gets it back (R28.6); the id
    itself if that is unknown (digests) or it is the gateway's own."""
    written = call_id.removeprefix(_MARK)
    if written == call_id or not written or written.startswith("-d"):
        return call_id
    if not written.startswith("-e"):
        return written if not written.startswith("-") else call_id
    raw = written[len("-e") :].encode()
    try:
        decoded = urlsafe_b64decode(raw + b"=" * (-len(raw) % 4)).decode("utf-8", "surrogatepass")
    except ValueError:
        return call_id
    return decoded if decoded and wire_id(decoded) == call_id else call_id


def gateway_call_id(call_id: str) -> str:
    """Returns the gateway's own call id if `call_id` is its form in this protocol; otherwise `call_id`."""
    shown = _OURS_ON_WIRE.fullmatch(call_id)
    return call_id if shown is None else f"call_{shown[1]}"


def server_id(call_id: str) -> str:
    """Returns the id of a call for a server: unchanged if it has only accepted characters. Different calls get
    different ids."""
    return call_id if _fits(call_id) and not call_id.startswith(f"{_MARK}-") else _encoded(call_id)


def _fits(call_id: str) -> bool:
    return len(call_id) <= MOST_CHARS and _SAFE.fullmatch(call_id) is not None


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
    """Signature of reasoning that comes in pieces; it depends only on the whole text. The pieces contain whole
    characters only."""

    def __init__(self) -> None:
        self._digest = blake2b(digest_size=24)

    def take(self, text: str) -> None:
        """Adds a piece."""
        self._digest.update(text.encode())

    @property
    def signature(self) -> str:
        """The signature of all pieces so far."""
        return _SIGNED + b64encode(self._digest.digest()).decode()


def signature_of(text: str) -> str:
    """Returns the gateway's signature of a reasoning text."""
    signing = Signing()
    signing.take(text)
    return signing.signature


def is_own_signature(signature: object) -> bool:
    """True if the gateway made a signature. Servers do not accept those."""
    return isinstance(signature, str) and signature.startswith(_SIGNED)
