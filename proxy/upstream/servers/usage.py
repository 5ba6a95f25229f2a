"""Token counts for backends that give none (R11.3 to R11.5).

Rules:

1. No network, ever: tiktoken is used only if its encoding file is already in its cache with the right hash; else a
   token is taken to be four bytes of UTF-8. (Measured against o200k_base: English 4.6 bytes a token, Markdown 3.7,
   Python 4.4, JSON 4.0, Japanese 3.8, Russian 5.5.)
2. The event loop is never held: short texts are counted where they are, longer ones in a thread and in pieces, because
   a count of 8 KiB took at worst 3 ms (one endless word) and usually 0.6 ms.
3. Never raises: what goes wrong makes the count an estimate of the cruder kind.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import orjson

from toolwire.known.past import fold
from toolwire.model import (
    Image,
    Message,
    ModelRequest,
    Part,
    Reasoning,
    Refusal,
    Text,
    ToolResult,
    ToolSpec,
    ToolUse,
    Usage,
    are_plain,
)
from toolwire.support.offload import is_large, is_slow, offload

LOG: Final = logging.getLogger("toolwire.usage")

INLINE_CHARS: Final = 8 * 1024
"""Texts up to this length are counted on the event loop."""

PIECE_CHARS: Final = 32 * 1024
"""Longer texts are counted in pieces, so that a thread never holds the interpreter for long."""

BYTES_PER_TOKEN: Final = 4
MESSAGE_TOKENS: Final = 3
"""Markers around a message, and once more for the answer's start: OpenAI's published rule for chat prompts."""
IMAGE_TOKENS: Final = 85
"""OpenAI's price of an image at low detail."""

_FILES: Final = {
    name: (f"https://openaipublic.blob.core.windows.net/encodings/{file}.tiktoken", digest)
    for name, file, digest in (
        ("o200k_base", "o200k_base", "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d"),
        ("o200k_harmony", "o200k_base", "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d"),
        ("cl100k_base", "cl100k_base", "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7"),
        ("p50k_base", "p50k_base", "94b5ca7dff4d00767bc256fdd1b27e5b17361d7b8a5f968547f9f23eb70d2069"),
        ("r50k_base", "r50k_base", "306cd27f03c1a714eca7108e03d66b7dc042abe8c258b44c199a7ed9838dd930"),
    )
}
"""Encoding -> the address under which tiktoken caches its file, and the file's SHA-256."""


def cached_file(encoding: str) -> Path | None:
    """Where tiktoken has this encoding's file, if it is there and whole; tiktoken would fetch it otherwise."""
    known = _FILES.get(encoding)
    if known is None:
        return None
    folder = os.environ.get("TIKTOKEN_CACHE_DIR", os.environ.get("DATA_GYM_CACHE_DIR"))
    if folder == "":
        return None  # caching is off
    if folder is None:
        folder = os.path.join(tempfile.gettempdir(), "data-gym-cache")
    url, digest = known
    path = Path(folder) / hashlib.sha1(url.encode(), usedforsecurity=False).hexdigest()
    try:
        whole = hashlib.sha256(path.read_bytes()).hexdigest() == digest
    except OSError:
        return None
    return path if whole else None


class _Counted(NamedTuple):
    """The size of the texts of messages (`Estimator._size`), and how many images they hold."""

    size: int
    images: int


_NOTHING: Final = _Counted(0, 0)


class Estimator:
    """Counts tokens in one encoding. Loads nothing before the first count."""

    def __init__(self, encoding: str = "o200k_base") -> None:
        self.encoding = encoding
        self.exact = False
        """The encoding's own tokenizer is in use; known after the first count."""
        self._count: Callable[[str], int] | None = None
        self._loading = asyncio.Lock()

    @property
    def tokenizer(self) -> str:
        """With what is counted: the encoding, or `bytes`. Known after the first count."""
        return self.encoding if self.exact else "bytes"

    async def count(self, text: str) -> int:
        """Tokens in `text`."""
        if not text:
            return 0
        if self._count is None:
            async with self._loading:
                if self._count is None:
                    self._count = await asyncio.to_thread(self._load)
        if len(text) <= INLINE_CHARS:
            return self._safely(text)
        return await offload(True, self._in_pieces, text)

    async def count_request(self, request: ModelRequest) -> int:
        """Tokens of the prompt that `request` amounts to: every text as it is sent, and the markers around messages."""
        if is_large(request):
            await self.count(" ")  # loads what counts
            return await offload(is_slow(request), self._count_large, request)
        return _fixed(request) + await self.count("\n".join(request_texts(request)))

    def _count_large(self, request: ModelRequest) -> int:
        key = "tokens", self.tokenizer
        messages = fold(request.past, key, request.messages, _NOTHING, self._count_more)[1]
        fixed = MESSAGE_TOKENS * (len(request.messages) + 1) + IMAGE_TOKENS * messages.images
        size = messages.size + self._size(_tool_texts(request.tools))
        return fixed + (size if self.exact else -(-size // BYTES_PER_TOKEN))

    def _count_more(self, before: _Counted, messages: Sequence[Message], start: int, made: list[None]) -> _Counted:
        images = sum(_images(message.parts) for message in messages)
        size = sum(self._size(_message_texts(message)) for message in messages)
        return _Counted(before.size + size, before.images + images)

    def _size(self, texts: Iterable[str]) -> int:
        """Tokens of these lines; their bytes, where a token is taken to be some of them."""
        measure = self._safely if self.exact else _bytes_in
        return sum(map(measure, _text_pieces((*texts, ""))))

    def _load(self) -> Callable[[str], int]:
        if cached_file(self.encoding) is not None:
            try:
                import tiktoken

                encode = tiktoken.get_encoding(self.encoding).encode_ordinary
            except Exception as error:  # rule 3: whatever a library's loader may raise
                LOG.warning("tiktoken cannot be used, tokens are estimated from bytes: %s", error)
            else:
                self.exact = True
                return lambda text: len(encode(text))
        return count_bytes

    def _safely(self, text: str) -> int:
        assert self._count is not None
        try:
            return self._count(text)
        except Exception as error:  # rule 3
            LOG.warning("tokens are estimated from bytes: %s", error)
            return count_bytes(text)

    def _in_pieces(self, text: str) -> int:
        return sum(map(self._safely, pieces(text)))


def count_bytes(text: str) -> int:
    """The crude estimate of rule 1."""
    return -(-_bytes_in(text) // BYTES_PER_TOKEN)


def _bytes_in(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def by_bytes(read: Usage | None, size: int, written: int) -> Usage:
    """The crude estimate for an answer that the server was not left to count: of a request of `size` bytes, unless it
    said at the beginning what it `read`, and so many bytes `written`."""
    prompt = read.input_tokens if read is not None else max(1, size // BYTES_PER_TOKEN)
    return Usage(prompt, max(1, written // BYTES_PER_TOKEN), estimated=True, tokenizer="bytes")


def pieces(text: str) -> Iterator[str]:
    """`text` in pieces of about `PIECE_CHARS`, cut before a space, where encodings begin a new token anyway."""
    start = 0
    while start < len(text):
        end = start + PIECE_CHARS
        if end < len(text):
            space = text.rfind(" ", start + PIECE_CHARS // 2, end)
            end = space if space > 0 else end
        yield text[start:end]
        start = end


def _text_pieces(texts: Iterable[str]) -> Iterator[str]:
    """The texts, a line each, in pieces of about `PIECE_CHARS`: short ones together, long ones cut."""
    held: list[str] = []
    size = 0
    for text in texts:
        rest = pieces(text)
        held.append(next(rest, ""))
        size += len(held[-1]) + 1
        more = next(rest, None)
        if more is None and size <= PIECE_CHARS:
            continue
        yield from pieces("\n".join(held))
        held, size = [""], 0  # the line end that belongs between the pieces
        if more is not None:
            yield more
            yield from rest
    yield from pieces("\n".join(held))


def _fixed(request: ModelRequest) -> int:
    """Tokens for what is no text."""
    images = 0
    if not are_plain(request.messages):
        images = sum(_images(message.parts) for message in request.messages)
    return MESSAGE_TOKENS * (len(request.messages) + 1) + IMAGE_TOKENS * images


def request_texts(request: ModelRequest) -> Iterator[str]:
    """Every text of a request that the model gets to read."""
    for message in request.messages:
        yield from _message_texts(message)
    yield from _tool_texts(request.tools)


def _message_texts(message: Message) -> Iterator[str]:
    yield message.role
    if message.name:
        yield message.name
    for part in message.parts:
        if type(part) is Text:  # nearly always
            yield part.text
        else:
            yield from _texts((part,))


def _tool_texts(tools: Iterable[ToolSpec]) -> Iterator[str]:
    for tool in tools:
        yield orjson.dumps(
            {"name": tool.name, "description": tool.description, "parameters": _plain(tool.parameters)}
        ).decode()


def _plain(value: Any) -> Any:
    return dict(value) if value is not None else None


def _texts(parts: Iterable[Part]) -> Iterator[str]:
    for part in parts:
        match part:
            case Text() | Refusal() | Reasoning():
                yield part.text
            case ToolUse():
                yield part.name
                yield part.arguments
            case ToolResult():
                yield from _texts(part.parts)
            case _:
                pass


def _images(parts: Iterable[Part]) -> int:
    return sum(
        1 if isinstance(part, Image) else _images(part.parts) if isinstance(part, ToolResult) else 0 for part in parts
    )


def added(first: Usage | None, second: Usage | None) -> Usage | None:
    """The counts of two requests together; None says that nothing is known of one."""
    if first is None or second is None:
        return first or second
    return Usage(
        first.input_tokens + second.input_tokens,
        first.output_tokens + second.output_tokens,
        first.cached_tokens + second.cached_tokens,
        first.cache_write_tokens + second.cache_write_tokens,
        first.reasoning_tokens + second.reasoning_tokens,
        first.estimated or second.estimated,
        tokenizer=first.tokenizer or second.tokenizer,
        missing=first.missing or second.missing,
    )
