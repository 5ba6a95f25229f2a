"""The bytes between the gateway and a worker: a length of four bytes, then JSON, in both directions."""

from __future__ import annotations

import json
import struct
from typing import Any, Final

MAX_BYTES: Final = 1024 * 1024
"""Of a frame that a worker sends. The gateway's own are as large as they have to be."""

HEAD: Final = struct.Struct("!I")


class BadFrame(ValueError):
    """Bytes that are no frame, or a frame that says nothing."""


def packed(value: Any) -> bytes:
    """A frame."""
    text = json.dumps(value).encode("ascii")
    return HEAD.pack(len(text)) + text


def unpacked(text: bytes) -> dict[str, Any]:
    """What a frame says. Raises `BadFrame`."""
    try:
        value = json.loads(text.decode("ascii"))
    except (ValueError, RecursionError) as error:
        raise BadFrame(str(error)) from None
    if not isinstance(value, dict):
        raise BadFrame("no object")
    return value
