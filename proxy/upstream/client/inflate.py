"""Compressed answers, of servers that compress although they are asked not to."""

from __future__ import annotations

import zlib
from typing import Any, Final

INFLATED_BYTES: Final = 128
"""So many may come out of each byte of a read, on average, and `SPARED_BYTES` besides; more is taken for an attack."""

SPARED_BYTES: Final = 64 * 1024

_GZIP: Final = 16 + zlib.MAX_WBITS


class Inflater:
    """A body with this `Content-Encoding` (lower case). Raises `ValueError` if the encoding is not known, or the body
    is broken, cut off, or swells beyond what `INFLATED_BYTES` allows in one read."""

    def __init__(self, encoding: str) -> None:
        if encoding not in ("gzip", "x-gzip", "deflate"):
            raise ValueError(f"unknown content encoding: {encoding!r}")
        self._gzip = encoding != "deflate"
        self._member: Any = None  # zlib does not name the type

    def feed(self, data: bytes) -> bytes:
        """Take the next bytes, cut anywhere, and give what can be known of the body."""
        out: list[bytes] = []
        room = SPARED_BYTES + INFLATED_BYTES * len(data)
        while data:
            if self._member is None:
                self._member = zlib.decompressobj(self._window(data))
            elif self._member.eof:
                if not self._gzip or not data.startswith(b"\x1f"):
                    break  # padding after the end
                self._member = zlib.decompressobj(_GZIP)
            try:
                piece = self._member.decompress(data, room + 1)
            except zlib.error as error:
                raise ValueError(str(error)) from None
            room -= len(piece)
            if room < 0:
                raise ValueError("the body swells too much")
            out.append(piece)
            data = self._member.unused_data if self._member.eof else self._member.unconsumed_tail
        return b"".join(out)

    def finish(self) -> None:
        """The body is over."""
        if self._member is not None and not self._member.eof:
            raise ValueError("the body is cut off")

    def _window(self, data: bytes) -> int:
        if self._gzip:
            return _GZIP
        # "deflate" means zlib's wrapping, but some servers leave it out; its first byte tells.
        return zlib.MAX_WBITS if data[0] & 0x0F == 8 else -zlib.MAX_WBITS
