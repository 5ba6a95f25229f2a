"""Large requests to a server's other paths are written in threads and sent in pieces."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.backends import usage
from proxy.backends.sessions import PIECE_BYTES, BodyInPieces
from proxy.backends.usage import _text_pieces


class Writer:
    """Keeps what is written."""

    def __init__(self) -> None:
        self.written: list[bytes] = []

    async def write(self, data: bytes) -> None:
        self.written.append(data)


@pytest.mark.parametrize("size", [0, 1, PIECE_BYTES, PIECE_BYTES + 1, 5 * PIECE_BYTES + 7])
async def test_no_piece_is_large(size: int) -> None:
    body = bytes(index % 251 for index in range(size))
    payload, writer = BodyInPieces(body), Writer()
    await payload.write_with_length(writer, size)  # type: ignore[arg-type]  # all that is used of one
    assert b"".join(writer.written) == body
    assert all(len(piece) <= PIECE_BYTES for piece in writer.written)
    assert payload.size == size


def test_a_body_can_be_shown() -> None:
    assert json.loads(BodyInPieces(b'{"a":"\xc3\xa4"}').decode()) == {"a": "ä"}


@given(st.lists(st.sampled_from(["", "a", "bc d", "long " * 5, "x" * 40, " " * 17, "y" * 8])))
def test_texts_are_counted_in_pieces(texts: list[str]) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(usage, "PIECE_CHARS", 8)
        found = list(_text_pieces(texts))
    assert "".join(found) == "\n".join(texts)
    assert all(len(piece) <= 8 for piece in found)


def test_a_long_text_is_not_joined_with_others(monkeypatch: pytest.MonkeyPatch) -> None:
    cut: list[int] = []
    pieces = usage.pieces

    def watched(text: str) -> object:
        cut.append(len(text))
        return pieces(text)

    monkeypatch.setattr(usage, "pieces", watched)
    long = "word " * 100_000
    assert "".join(_text_pieces(["user", long, "assistant"])) == f"user\n{long}\nassistant"
    assert [size for size in cut if size > 2 * usage.PIECE_CHARS] == [len(long)]  # the text itself, and no copy of it
