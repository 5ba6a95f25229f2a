"""Decompresses answers of servers that compress although they are asked not to."""

from __future__ import annotations

import zlib
from typing import Any, Final

INFLATED_BYTES: Final = 128
"""Maximum output per byte of a read, on average, in addition to `SPARED_BYTES`. More is treated as an attack."""

SPARED_BYTES: Final = 64 * 1024

_GZIP: Final = 16 + zlib.MAX_WBITS


class Inflater:
    """Decompresses a body with this `Content-Encoding` (lower case). Raises `ValueError` for an unknown encoding, and
    for a body that is malformed, truncated, or expands beyond the limit within one read."""

    def __init__(self, encoding: str) -> None:
        if encoding not in ("gzip", "x-gzip", "deflate"):
            raise ValueError(f"unknown content encoding: {encoding!r}")
        self._gzip = encoding != "deflate"
        self._member: Any = None  # zlib does not name the type

    def feed(self, data: bytes) -> bytes:
        """Returns the output for the next bytes, which may be cut anywhere."""
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
                raise ValueError("the body grows too much when it is decompressed")
            out.append(piece)
            data = self._member.unused_data if self._member.eof else self._member.unconsumed_tail
        return b"".join(out)

    def finish(self) -> None:
        """Ends the body. Raises `ValueError` if it is truncated."""
        if self._member is not None and not self._member.eof:
            raise ValueError("the body is cut off")

    def _window(self, data: bytes) -> int:
        if self._gzip:
            return _GZIP
        # "deflate" means the zlib format, but some servers send no zlib header; the first byte tells.
        return zlib.MAX_WBITS if data[0] & 0x0F == 8 else -zlib.MAX_WBITS
