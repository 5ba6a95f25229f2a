"""Signed, compressed values that clients store for the gateway (opaque to them), bound to a context.

Rules:

1. A value is `base64url(MARK + signature + zlib(payload))`. The last byte of `MARK` is the version.
2. The signature is an HMAC-SHA256 over the context and the compressed payload, with a key derived from the secret. The
   context is not part of the value: the reader has to know it.
3. A value is not encrypted, so the payload must not contain anything that the client may not read.
4. The signature is checked before the payload is decompressed, and at most `PAYLOAD_BYTES` are decompressed.
"""

from __future__ import annotations

import hmac
import os
import zlib
from base64 import urlsafe_b64decode, urlsafe_b64encode
from hashlib import sha256
from pathlib import Path
from secrets import token_bytes, token_hex
from typing import Any, Final

PAYLOAD_BYTES: Final = 1024 * 1024
"""Larger payloads are not sealed."""
VALUE_CHARS: Final = PAYLOAD_BYTES // 3 * 4 + 4096
"""Longer values are not opened."""
MARK: Final = b"toolwire\x02"
"""Nine bytes, a multiple of three, so that the mark ends at a character of base64."""
BEGINNING: Final = urlsafe_b64encode(MARK).decode()
"""The first characters of every sealed value."""
_SIGNATURE_BYTES: Final = 16
_SECRET_BYTES: Final = 32
_DEPTH: Final = 6


class BrokenSeal(ValueError):
    """A value was changed, or was sealed with another secret or context."""


class Seals:
    """Seals payloads and opens sealed values, with one secret."""

    def __init__(self, secret: bytes) -> None:
        self._key = hmac.digest(secret, b"toolwire: opaque values", sha256)

    def seal(self, payload: bytes, *context: str) -> str | None:
        """Returns the sealed value of `payload`, or None if the payload is too large."""
        if len(payload) > PAYLOAD_BYTES:
            return None
        packed = zlib.compress(payload)
        return urlsafe_b64encode(MARK + self._signature(packed, context) + packed).decode()

    def open(self, value: str, *contexts: tuple[str, ...]) -> tuple[bytes, tuple[str, ...]]:
        """Returns the payload of `value`, and the one of `contexts` that it was sealed with. Raises `BrokenSeal`."""
        if not is_sealed(value) or len(value) > VALUE_CHARS:
            raise BrokenSeal
        try:
            raw = urlsafe_b64decode(value.encode("ascii"))
        except ValueError as error:
            raise BrokenSeal from error
        signature, packed = raw[len(MARK) : len(MARK) + _SIGNATURE_BYTES], raw[len(MARK) + _SIGNATURE_BYTES :]
        for context in contexts:
            if hmac.compare_digest(self._signature(packed, context), signature):
                return _unpacked(packed), context
        raise BrokenSeal

    def _signature(self, packed: bytes, context: tuple[str, ...]) -> bytes:
        signing = hmac.new(self._key, digestmod=sha256)
        for word in context:
            raw = word.encode("utf-8", "surrogatepass")
            signing.update(b"%d:%b" % (len(raw), raw))
        signing.update(b"|")
        signing.update(packed)
        return signing.digest()[:_SIGNATURE_BYTES]


def _unpacked(packed: bytes) -> bytes:
    unpacking = zlib.decompressobj()
    try:
        payload = unpacking.decompress(packed, PAYLOAD_BYTES)
    except zlib.error as error:
        raise BrokenSeal from error
    if not unpacking.eof:
        raise BrokenSeal
    return payload


def is_sealed(value: object) -> bool:
    """True if `value` looks like a sealed value. The signature is not checked."""
    return isinstance(value, str) and value.startswith(BEGINNING)


def sealed_in(value: Any, depth: int = _DEPTH) -> list[str]:
    """Returns the sealed values found anywhere in a JSON value, in order."""
    if isinstance(value, str):
        return [value] if is_sealed(value) else []
    if depth and isinstance(value, dict):
        return [found for item in value.values() for found in sealed_in(item, depth - 1)]
    if depth and isinstance(value, list | tuple):
        return [found for item in value for found in sealed_in(item, depth - 1)]
    return []


def shared_secret(folder: Path | None) -> bytes:
    """Returns a new random secret. With a `folder` shared by several workers, all get the secret of the first
    worker."""
    made = token_bytes(_SECRET_BYTES)
    if folder is None:
        return made
    path = folder / "seal.key"
    if not path.exists():  # a worker that replaces another one must be able to start on a full disk
        own = folder / f"seal.{token_hex(8)}"
        try:
            with open(os.open(own, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                file.write(made)
            os.link(own, path)  # atomic: fails if another worker was first, and its file is complete
        except FileExistsError:
            pass
        finally:
            own.unlink(missing_ok=True)
    return path.read_bytes()
