"""Token estimates: no network, no stall, no failure (R11.3 to R11.5)."""

from __future__ import annotations

import asyncio
import hashlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import toolwire.upstream.servers.usage as usage
from tests.waiting import GUARD_S
from toolwire.model import Image, Message, ModelRequest, Text, ToolResult, ToolSpec, ToolUse
from toolwire.upstream.servers.usage import Estimator, _text_pieces, cached_file, count_bytes, request_texts


@pytest.fixture
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize(("text", "tokens"), [("", 0), ("a", 1), ("abcd", 1), ("abcde", 2), ("日本", 2), ("\ud800", 1)])
async def test_without_the_file_bytes_are_counted(empty_cache: Path, text: str, tokens: int) -> None:
    estimator = Estimator()
    assert await estimator.count(text) == tokens
    assert not estimator.exact


@pytest.mark.parametrize("encoding", ["o200k_base", "no_such_encoding"])
def test_no_file_no_network(empty_cache: Path, encoding: str) -> None:
    assert cached_file(encoding) is None


def test_a_damaged_file_is_not_used(empty_cache: Path) -> None:
    """tiktoken would delete it and fetch it anew."""
    url = "https://openaipublic.blob.core.windows.net/encodings/o200k_base.tiktoken"
    path = empty_cache / hashlib.sha1(url.encode()).hexdigest()
    path.write_bytes(b"damaged")
    assert cached_file("o200k_base") is None
    assert path.exists()


def test_the_place_of_the_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", "")
    assert cached_file("o200k_base") is None
    monkeypatch.delenv("TIKTOKEN_CACHE_DIR")
    monkeypatch.setenv("DATA_GYM_CACHE_DIR", str(tmp_path))
    content = b"whole"
    monkeypatch.setitem(usage._FILES, "o200k_base", ("address", hashlib.sha256(content).hexdigest()))
    path = tmp_path / hashlib.sha1(b"address").hexdigest()
    path.write_bytes(content)
    assert cached_file("o200k_base") == path


async def test_a_tokenizer_that_fails_is_replaced(empty_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    estimator = Estimator()

    def failing(text: str) -> int:
        raise RuntimeError("no")

    monkeypatch.setattr(estimator, "_load", lambda: failing)
    assert await estimator.count("abcd") == 1
    assert await estimator.count("abcd" * 10_000) == 10_000


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


async def test_long_texts_leave_the_loop_alone(empty_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While a long text is counted, the loop runs on: the count waits for something that only the loop can do."""
    loop = asyncio.get_running_loop()
    estimator = Estimator()

    def waiting(text: str) -> int:
        return asyncio.run_coroutine_threadsafe(asyncio.sleep(0, len(text)), loop).result(timeout=GUARD_S)

    monkeypatch.setattr(estimator, "_load", lambda: waiting)
    assert await estimator.count("x" * 100_000) == 100_000


async def test_a_request_is_counted_as_it_is_sent(empty_cache: Path) -> None:
    request = ModelRequest(
        "m",
        (
            Message("system", (Text("be good"),)),
            Message("user", (Text("hi"), Image("data:x")), name="ann"),
            Message("assistant", (ToolUse("c", "look", '{"x":1}'),)),
            Message("tool", (ToolResult("c", (Text("seen"), Image("u"))),)),
        ),
        tools=(ToolSpec("look", "looks", {"type": "object"}),),
    )
    texts = list(request_texts(request))
    assert texts[:-1] == ["system", "be good", "user", "ann", "hi", "assistant", "look", '{"x":1}', "tool", "seen"]
    assert '"look"' in texts[-1]
    fixed = usage.MESSAGE_TOKENS * 5 + usage.IMAGE_TOKENS * 2
    assert await Estimator().count_request(request) == fixed + count_bytes("\n".join(texts))


needs_encoding = pytest.mark.skipif(cached_file("o200k_base") is None, reason="tiktoken has no cached encoding file")


@needs_encoding
async def test_with_the_file_counts_are_tiktokens() -> None:
    tiktoken = pytest.importorskip("tiktoken")
    encoding = tiktoken.get_encoding("o200k_base")
    prose = (Path(__file__).parents[2] / "proxy" / "model.py").read_text()
    estimator = Estimator()
    for text in ("hello world", prose, prose * 20):
        exact = len(encoding.encode_ordinary(text))
        assert abs(await estimator.count(text) - exact) <= exact * 0.001  # cuts between pieces may cost a token
    assert estimator.exact
    assert await estimator.count("<|endoftext|>") > 1  # a client's text is never a control token
    assert await estimator.count("\ud800") > 0
