"""The frames between the gateway and a worker, in both directions: a length of four bytes, then JSON."""

from __future__ import annotations

import json
import struct
from typing import Any, Final

MAX_BYTES: Final = 1024 * 1024
"""Maximum size of a frame from a worker. The gateway's own frames have no limit."""

HEAD: Final = struct.Struct("!I")


class BadFrame(ValueError):
    """Bytes that are not a frame of a JSON object."""


def encode_frame(value: Any) -> bytes:
    """Returns a value as a frame."""
    text = json.dumps(value).encode("ascii")
    return HEAD.pack(len(text)) + text


def decode_frame(text: bytes) -> dict[str, Any]:
    """Returns the object in the body of a frame. Raises `BadFrame`."""
    try:
        value = json.loads(text.decode("ascii"))
    except (ValueError, RecursionError) as error:
        raise BadFrame(str(error)) from None
    if not isinstance(value, dict):
        raise BadFrame("no object")
    return value
