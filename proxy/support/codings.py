"""Content codings of request bodies (RFC 9110, 8.4): what is compressed comes out piece by piece, within bounds.

Rules of this module:

1. One step takes `STEP_BYTES` of the compressed body and gives about `PIECE_BYTES` of the real one, whatever the bytes
   are: a few kilobytes may hold a thousand tables that cost time and give nothing, or a megabyte of blanks.
2. One coding: `gzip` (also called `x-gzip`), `deflate` (in zlib's wrapping, or bare, as some clients send it), `zstd`,
   and `br` if its library is installed. `identity` is none. Other names, and several codings on top of each other,
   are refused.
3. A body that is cut off, or has anything behind its end, is broken. Members of gzip and frames of zstd may follow one
   another, as their formats say, but not more than `MEMBERS`.
"""

from __future__ import annotations

import sys
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from importlib import import_module
from typing import Any, Final, Protocol

STEP_BYTES: Final = 16 * 1024
"""With `PIECE_BYTES` less than 2 ms of work: the costliest is 450 tables of Huffman codes and not a byte of text."""
PIECE_BYTES: Final = 128 * 1024
MEMBERS: Final = 1024
ZSTD_WINDOW_LOG: Final = 23
"""8 MiB, which RFC 9659 allows a sender of this coding; a frame could ask for gigabytes."""

_GZIP: Final = 16 + zlib.MAX_WBITS


class Member(Protocol):
    """One compressed unit: all of a body, or a part of it that is whole in itself."""

    ended: bool
    """Its last byte has come, and all of it was given out."""
    full: bool
    """There is more to give without further bytes."""
    rest: bytes
    """What is left of the last bytes: not looked at yet, or behind the end."""

    def step(self, data: bytes) -> bytes:
        """Take bytes, give a piece. Raises whatever the library raises for what is broken."""


class ZlibMember:
    """gzip or deflate."""

    def __init__(self, window: int) -> None:
        self._inner = zlib.decompressobj(window)
        self.ended = self.full = False
        self.rest = b""

    def step(self, data: bytes) -> bytes:
        """See `Member`."""
        piece = self._inner.decompress(data, PIECE_BYTES)
        self.ended = self._inner.eof
        self.full = len(piece) >= PIECE_BYTES and not self.ended
        self.rest = self._inner.unused_data if self.ended else self._inner.unconsumed_tail
        return piece


class ZstdMember:
    """A frame of zstd."""

    def __init__(self, library: Any) -> None:
        window = {library.DecompressionParameter.window_log_max: ZSTD_WINDOW_LOG}
        self._inner = library.ZstdDecompressor(options=window)
        self.ended = self.full = False
        self.rest = b""

    def step(self, data: bytes) -> bytes:
        """See `Member`."""
        piece: bytes = self._inner.decompress(data, PIECE_BYTES)
        self.ended = self._inner.eof
        self.full = not (self.ended or self._inner.needs_input)
        self.rest = self._inner.unused_data if self.ended else b""
        return piece


class BrotliMember:
    """All of a brotli stream: what is behind its end is an error of the library's."""

    rest = b""

    def __init__(self, library: Any) -> None:
        inner = library.Decompressor()
        # Two packages share the interface, but for a name.
        self._take: Callable[..., bytes] = inner.process if hasattr(inner, "process") else inner.decompress
        self._inner = inner
        self.ended = self.full = False

    def step(self, data: bytes) -> bytes:
        """See `Member`."""
        piece = self._take(data, output_buffer_limit=PIECE_BYTES)
        self.ended = self._inner.is_finished()
        self.full = bool(piece) and not self.ended  # it says of itself that it can take more while it still has some
        return piece


class Decoder:
    """A body in one of the codings of `supported`. Raises `ValueError` for what is broken."""

    def __init__(self, coding: str) -> None:
        self._coding = coding
        self._make: Callable[[], Member] | None = None if coding == "deflate" else supported()[coding]
        self._member: Member | None = None
        self._members = 0

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Take the next bytes, cut anywhere, and give what they bring, one step at a time; a piece may be empty."""
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
        """The body is over. One without a byte is none."""
        if self._member is not None and not self._member.ended:
            raise ValueError(f"its {self._coding} is cut off")

    def _begun(self, data: bytes) -> Member:
        """The member that `data` belongs to."""
        if self._member is not None and not self._member.ended:
            return self._member
        if self._make is None:
            # "deflate" means zlib's wrapping, but some leave it out; its first byte tells.
            self._make = partial(ZlibMember, zlib.MAX_WBITS if data[0] & 0x0F == 8 else -zlib.MAX_WBITS)
        elif self._member is not None and self._coding not in ("gzip", "zstd"):
            raise ValueError(f"its {self._coding} goes on behind the end")
        self._members += 1
        if self._members > MEMBERS:
            raise ValueError(f"its {self._coding} has more than {MEMBERS} parts")
        self._member = self._make()
        return self._member


def supported() -> Mapping[str, Callable[[], Member]]:
    """The codings that can be read here, by name."""
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
    """The coding that the `Content-Encoding` header fields name; None for none. Raises `ValueError`."""
    names = [name.strip().lower() for field in fields for name in field.split(",")]
    named = ["gzip" if name == "x-gzip" else name for name in names if name not in ("", "identity")]
    if len(named) > 1:
        raise ValueError("the body has several content encodings; one is taken")
    if named and named[0] not in supported():
        raise ValueError(f"the content encoding {named[0][:50]!r} is not known here")
    return named[0] if named else None


def _library(*names: str) -> Any:
    """The first of these that is installed. Imported on use: most clients compress nothing."""
    for name in names:
        try:
            return import_module(name)
        except ImportError:
            pass
    return None
