"""Content codings of request bodies: whatever is sent comes out as it was, in small steps, and what is broken is
refused."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable
from importlib.util import find_spec
from itertools import islice, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cases import every
from toolwire.support.codings import MEMBERS, PIECE_BYTES, STEP_BYTES, Decoder, coding_of, supported


def bare(data: bytes) -> bytes:
    """deflate without zlib's wrapping."""
    pressed = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return pressed.compress(data) + pressed.flush()


def brotli(data: bytes) -> bytes:
    return bytes(pytest.importorskip("brotli").compress(data))


def zstd(data: bytes) -> bytes:
    return bytes(pytest.importorskip("backports.zstd").compress(data))


HERE = supported()
WRITERS: dict[str, tuple[str, Callable[[bytes], bytes]]] = {
    "gzip": ("gzip", gzip.compress),
    "zlib": ("deflate", zlib.compress),
    "bare deflate": ("deflate", bare),
    **({"brotli": ("br", brotli)} if "br" in HERE else {}),
    **({"zstd": ("zstd", zstd)} if "zstd" in HERE else {}),
}
TEXT = b'{"model":"m","messages":[]}' * 40


def decoded(coding: str, *pieces: bytes) -> bytes:
    decoder = Decoder(coding)
    out = b"".join(piece for data in pieces for piece in decoder.feed(data))
    decoder.finish()
    return out


def test_what_is_here() -> None:
    assert {"gzip", "deflate"} <= set(HERE) <= {"gzip", "deflate", "br", "zstd"}
    assert ("br" in HERE) == bool(find_spec("brotli") or find_spec("brotlicffi"))


@pytest.mark.parametrize("name", WRITERS)
@given(data=st.binary(max_size=2000), cuts=st.lists(st.integers(0, 3000), max_size=6))
def test_law_any_body_in_any_pieces(name: str, data: bytes, cuts: list[int]) -> None:
    coding, write = WRITERS[name]
    wire = write(data)
    edges = [0, *sorted(min(cut, len(wire)) for cut in cuts), len(wire)]
    assert decoded(coding, *(wire[a:b] for a, b in pairwise(edges))) == data


@every("name", WRITERS)
def test_one_that_is_cut_off_anywhere_is_broken(name: str) -> None:
    """Also if only the trailer is missing, which holds the length and the checksum of gzip."""
    coding, write = WRITERS[name]
    wire = write(TEXT)
    for length in range(1, len(wire)):
        with pytest.raises(ValueError):
            decoded(coding, wire[:length])


@every("name", WRITERS)
@every("apart", [False, True])
def test_nothing_may_follow_the_end(name: str, apart: bool) -> None:
    coding, write = WRITERS[name]
    for garbage in (b"x", b"\0\0\0\0", b"{}", write(TEXT) if name not in ("gzip", "zstd") else b"\1\2\3\4\5"):
        with pytest.raises(ValueError):
            decoded(coding, *((write(TEXT), garbage) if apart else (write(TEXT) + garbage,)))


@every("name", [name for name in WRITERS if name in ("gzip", "zstd")])
def test_members_and_frames_may_follow_one_another(name: str) -> None:
    coding, write = WRITERS[name]
    parts = [TEXT, b"", b"and more"]
    assert decoded(coding, b"".join(map(write, parts))) == b"".join(parts)
    assert decoded(coding, *map(write, parts)) == b"".join(parts)
    assert decoded(coding, write(b"") * MEMBERS) == b""
    with pytest.raises(ValueError, match="parts"):
        decoded(coding, write(b"") * (MEMBERS + 1))


@every("name", WRITERS)
def test_garbage(name: str) -> None:
    with pytest.raises(ValueError):
        decoded(WRITERS[name][0], b"\xff\xfe not compressed at all \xff" * 10)


def test_no_bytes_are_no_body() -> None:
    for coding in HERE:
        assert decoded(coding) == b""
        assert decoded(coding, b"") == b""


@every("name", WRITERS)
def test_a_bomb_comes_out_in_pieces_as_they_are_wanted(name: str) -> None:
    coding, write = WRITERS[name]
    wire = write(bytes(8 * 1024 * 1024))
    pieces = list(islice(Decoder(coding).feed(wire), 20))
    assert len(pieces) == 20
    assert max(map(len, pieces)) <= 4 * PIECE_BYTES  # brotli takes the bound for advice
    assert sum(map(len, pieces)) < 100 * PIECE_BYTES


def test_bytes_that_only_cost_time_are_taken_in_steps() -> None:
    """Empty blocks: a megabyte of them takes long and gives nothing."""
    wire = b"\x00\x00\x00\xff\xff" * 200_000 + b"\x01\x00\x00\xff\xff"
    steps = list(Decoder("deflate").feed(b"\x78\x9c" + wire))
    assert len(steps) >= len(wire) // STEP_BYTES
    assert not any(steps)


@pytest.mark.skipif("zstd" not in HERE, reason="backports.zstd is not installed")
def test_a_frame_that_wants_a_large_window_is_refused() -> None:
    library = pytest.importorskip("backports.zstd")
    writer = library.ZstdCompressor(options={library.CompressionParameter.window_log: 27})
    with pytest.raises(ValueError, match="memory"):
        decoded("zstd", writer.compress(TEXT) + writer.flush())


@every(
    ("fields", "coding"),
    [
        *((fields, None) for fields in ([""], ["identity"])),
        *((fields, "gzip") for fields in (["gzip"], ["GZip"], ["x-gzip"], ["identity, gzip"], ["identity", "gzip"])),
        ([" deflate "], "deflate"),
    ],
)
def test_what_the_header_names(fields: list[str], coding: str | None) -> None:
    assert coding_of(fields) == coding


@every("fields", [["gzip, gzip"], ["gzip", "gzip"], ["gzip, deflate"], ["compress"], ["foo"], ["gzip;q=1"], ["g zip"]])
def test_what_it_may_not_name(fields: list[str]) -> None:
    with pytest.raises(ValueError):
        coding_of(fields)
