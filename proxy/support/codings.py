"""Decompresses request bodies (RFC 9110, 8.4) piece by piece, within bounds.

Rules of this module:

1. One step takes `STEP_BYTES` of compressed data and returns about `PIECE_BYTES` of output, for any input. A few
   kilobytes of input may hold a thousand Huffman tables without output, or a megabyte of blanks.
2. Supported codings are `gzip` (also called `x-gzip`), `deflate` (with or without the zlib header, since some clients
   leave it out), `zstd`, and `br` if its library is installed. `identity` means no coding. Other names and several
   codings on top of each other are refused.
3. A body that is truncated or followed by other data is malformed. Up to `MEMBERS` gzip members or zstd frames may
   follow each other, as their formats allow.
"""

from __future__ import annotations

import sys
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from importlib import import_module
from typing import Any, Final, Protocol

STEP_BYTES: Final = 16 * 1024
"""Together with `PIECE_BYTES` this bounds a step to less than 2 ms. The costliest input is 450 Huffman tables without
output."""
PIECE_BYTES: Final = 128 * 1024
MEMBERS: Final = 1024
ZSTD_WINDOW_LOG: Final = 23
"""8 MiB, the window size that RFC 9659 allows. A frame could ask for gigabytes."""

_GZIP: Final = 16 + zlib.MAX_WBITS


class Member(Protocol):
    """One compressed unit: the whole body, a gzip member or a zstd frame."""

    ended: bool
    """True after its last byte was read and all output was returned."""
    full: bool
    """True if there is more output without further input."""
    rest: bytes
    """Input that was not processed: pending, or after the end."""

    def step(self, data: bytes) -> bytes:
        """Decompresses `data` and returns a piece of output. Raises the library's own exception for malformed data."""


class ZlibMember:
    """A gzip or deflate member."""

    def __init__(self, window: int) -> None:
        self._inner = zlib.decompressobj(window)
        self.ended = self.full = False
        self.rest = b""

    def step(self, data: bytes) -> bytes:
        """Decompresses `data` and returns a piece of output."""
        piece = self._inner.decompress(data, PIECE_BYTES)
        self.ended = self._inner.eof
        self.full = len(piece) >= PIECE_BYTES and not self.ended
        self.rest = self._inner.unused_data if self.ended else self._inner.unconsumed_tail
        return piece


class ZstdMember:
    """A zstd frame."""

    def __init__(self, library: Any) -> None:
        window = {library.DecompressionParameter.window_log_max: ZSTD_WINDOW_LOG}
        self._inner = library.ZstdDecompressor(options=window)
        self.ended = self.full = False
        self.rest = b""

    def step(self, data: bytes) -> bytes:
        """Decompresses `data` and returns a piece of output."""
        piece: bytes = self._inner.decompress(data, PIECE_BYTES)
        self.ended = self._inner.eof
        self.full = not (self.ended or self._inner.needs_input)
        self.rest = self._inner.unused_data if self.ended else b""
        return piece


class BrotliMember:
    """A whole brotli stream. Its library raises an error for data after the end."""

    rest = b""

    def __init__(self, library: Any) -> None:
        inner = library.Decompressor()
        # The two packages differ in the name of this method only.
        self._take: Callable[..., bytes] = inner.process if hasattr(inner, "process") else inner.decompress
        self._inner = inner
        self.ended = self.full = False

    def step(self, data: bytes) -> bytes:
        """Decompresses `data` and returns a piece of output."""
        piece = self._take(data, output_buffer_limit=PIECE_BYTES)
        self.ended = self._inner.is_finished()
        self.full = bool(piece) and not self.ended  # it claims to need input while it still has output
        return piece


class Decoder:
    """Decompresses one body. `coding` is a key of `supported()`. Methods raise `ValueError` for malformed data."""

    def __init__(self, coding: str) -> None:
        self._coding = coding
        self._make: Callable[[], Member] | None = None if coding == "deflate" else supported()[coding]
        self._member: Member | None = None
        self._members = 0

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Decompresses `data`, which may be cut anywhere, and yields one piece per step. A piece may be empty."""
        for start in range(0, len(data), STEP_BYTES):
            rest = data[start : start + STEP_BYTES]
            full = False
            while rest or full:
                member = self._begun(rest)
                try:
                    piece = member.step(rest)
                except Exception as error:  # each library has errors of its own
                    raise ValueError(f"it is not {self._coding}: {error}") from None
                rest, full = member.rest, member.full
                yield piece

    def finish(self) -> None:
        """Ends the body. Raises `ValueError` if it is truncated. An empty body is allowed."""
        if self._member is not None and not self._member.ended:
            raise ValueError(f"its {self._coding} is cut off")

    def _begun(self, data: bytes) -> Member:
        """Returns the member that `data` belongs to; begins a new one after the previous has ended."""
        if self._member is not None and not self._member.ended:
            return self._member
        if self._make is None:
            # "deflate" means zlib's wrapping, but some leave it out; its first byte tells.
            self._make = partial(ZlibMember, zlib.MAX_WBITS if data[0] & 0x0F == 8 else -zlib.MAX_WBITS)
        elif self._member is not None and self._coding not in ("gzip", "zstd"):
            raise ValueError(f"its {self._coding} continues after its end")
        self._members += 1
        if self._members > MEMBERS:
            raise ValueError(f"its {self._coding} has more than {MEMBERS} parts")
        self._member = self._make()
        return self._member


def supported() -> Mapping[str, Callable[[], Member]]:
    """Returns the supported codings: name to a function that makes a `Member`."""
    codings: dict[str, Callable[[], Member]] = {
        "gzip": partial(ZlibMember, _GZIP),
        "deflate": partial(ZlibMember, zlib.MAX_WBITS),
    }
    if (brotli := _library("brotlicffi", "brotli")) is not None:
        codings["br"] = partial(BrotliMember, brotli)
    zstd = _library("compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd")
    if zstd is not None:
        codings["zstd"] = partial(ZstdMember, zstd)
    return codings


def coding_of(fields: Iterable[str]) -> str | None:
    """Returns the coding that the `Content-Encoding` fields name, or None. Raises `ValueError` for an unknown or a
    second one."""
    names = [name.strip().lower() for field in fields for name in field.split(",")]
    named = ["gzip" if name == "x-gzip" else name for name in names if name not in ("", "identity")]
    if len(named) > 1:
        raise ValueError("the body has several content encodings; only one is supported")
    if named and named[0] not in supported():
        raise ValueError(f"the content encoding {named[0][:50]!r} is not supported")
    return named[0] if named else None


def _library(*names: str) -> Any:
    """Returns the first installed of these packages, or None. Imported on use, because most clients send uncompressed
    bodies."""
    for name in names:
        try:
            return import_module(name)
        except ImportError:
            pass
    return None
