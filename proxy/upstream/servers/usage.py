"""Counts tokens for backends that report no usage (R11.3 to R11.5).

Rules:

1. No network access: tiktoken is used only if its encoding file is already cached with the right hash. Otherwise a
   token is estimated as four bytes of UTF-8. (Measured against o200k_base: English 4.6 bytes per token, Markdown 3.7,
   Python 4.4, JSON 4.0, Japanese 3.8, Russian 5.5.)
2. The event loop is not blocked: short texts are counted directly, longer ones in a thread and in pieces. 8 KiB take
   0.6 ms, at worst 3 ms (one endless word).
3. Nothing is raised: after an error the estimate from bytes is used.
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

from ...known.kinds import kinds_of
from ...known.past import fold_items, make_once
from ...model import (
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
)
from ...support.offload import is_large, offload

LOG: Final = logging.getLogger("toolwire.usage")

INLINE_CHARS: Final = 8 * 1024
"""A text up to this length is counted on the event loop."""

PIECE_CHARS: Final = 32 * 1024
"""A longer text is counted in pieces, so that a thread does not hold the interpreter lock for long."""

BYTES_PER_TOKEN: Final = 4
MESSAGE_TOKENS: Final = 3
"""Tokens of the markers around a message, and once more for the start of the answer: OpenAI's published rule."""
IMAGE_TOKENS: Final = 85
"""OpenAI's price of an image at low detail, in tokens."""

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
"""Maps an encoding to the URL under which tiktoken caches its file, and the file's SHA-256."""


def cached_file(encoding: str) -> Path | None:
    """Returns the path of the encoding's file in tiktoken's cache, or None if it is missing or damaged (tiktoken would
    download it)."""
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
    """The size of the texts of messages (as `Estimator._size` returns it), and the number of their images."""

    size: int
    images: int


_NOTHING: Final = _Counted(0, 0)

COUNTED_ONE_BY_ONE: Final = 16 * 1024
"""The messages of a request with at least this many bytes are counted one by one, because most of them may have been
counted for the previous request of the conversation. Whether they were must not change the sum."""


class Estimator:
    """Counts tokens in one encoding. Loads the tokenizer at the first count."""

    def __init__(self, encoding: str = "o200k_base") -> None:
        self.encoding = encoding
        self.exact = False
        """True if the encoding's own tokenizer is used. Set by the first count."""
        self._count: Callable[[str], int] | None = None
        self._loading = asyncio.Lock()

    @property
    def tokenizer(self) -> str:
        """The name of the tokenizer in use: the encoding, or `bytes`. Valid after the first count."""
        return self.encoding if self.exact else "bytes"

    async def count(self, text: str) -> int:
        """Returns the number of tokens in `text`."""
        if not text:
            return 0
        if self._count is None:
            async with self._loading:
                if self._count is None:
                    self._count = await asyncio.to_thread(self._load)
        if len(text) <= INLINE_CHARS:
            return self._count_safely(text)
        return await offload(True, self._in_pieces, text)

    async def count_request(self, request: ModelRequest) -> int:
        """Returns the number of tokens in the prompt of `request`: all texts, images, and the markers around
        messages."""
        if request.size >= COUNTED_ONE_BY_ONE or is_large(request):
            await self.count(" ")  # loads the tokenizer
            return await offload(is_large(request, reused=True), self._count_large, request)
        return _fixed_tokens(request) + await self.count("\n".join(request_texts(request)))

    def _count_large(self, request: ModelRequest) -> int:
        key = "tokens", self.tokenizer
        messages = fold_items(request.past, key, request.messages, _NOTHING, self._count_more)[1]
        fixed = MESSAGE_TOKENS * (len(request.messages) + 1) + IMAGE_TOKENS * messages.images
        tools = request.tools
        size = messages.size + make_once(request.past, (*key, "tools"), tools, lambda: self._size(_tool_texts(tools)))
        return fixed + (size if self.exact else -(-size // BYTES_PER_TOKEN))

    def _count_more(self, before: _Counted, messages: Sequence[Message], start: int, made: list[None]) -> _Counted:
        images = sum(_images(message.parts) for message in messages)
        size = sum(self._size(_message_texts(message)) for message in messages)
        return _Counted(before.size + size, before.images + images)

    def _size(self, texts: Iterable[str]) -> int:
        """Returns the number of tokens in these lines; the number of bytes if tokens are estimated from bytes."""
        measure = self._count_safely if self.exact else _bytes_in
        return sum(map(measure, _text_pieces((*texts, ""))))

    def _load(self) -> Callable[[str], int]:
        if cached_file(self.encoding) is not None:
            try:
                import tiktoken

                encode = tiktoken.get_encoding(self.encoding).encode_ordinary
            except Exception as error:  # rule 3: the loader may raise anything
                LOG.warning("tiktoken cannot be used, tokens are estimated from bytes: %s", error)
            else:
                self.exact = True
                return lambda text: len(encode(text))
        return count_bytes

    def _count_safely(self, text: str) -> int:
        assert self._count is not None
        try:
            return self._count(text)
        except Exception as error:  # rule 3
            LOG.warning("tokens are estimated from bytes: %s", error)
            return count_bytes(text)

    def _in_pieces(self, text: str) -> int:
        return sum(map(self._count_safely, pieces(text)))


def count_bytes(text: str) -> int:
    """Estimates the number of tokens from the number of bytes (rule 1)."""
    return -(-_bytes_in(text) // BYTES_PER_TOKEN)


def _bytes_in(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def by_bytes(read: Usage | None, size: int, written: int) -> Usage:
    """Returns estimated usage for an answer that ended before the server reported its own. The prompt tokens are those
    in `read` if the server reported them at the start, else estimated from the request's `size` in bytes. `written` is
    the answer's size in bytes."""
    prompt = read.input_tokens if read is not None else max(1, size // BYTES_PER_TOKEN)
    return Usage(prompt, max(1, written // BYTES_PER_TOKEN), estimated=True, tokenizer="bytes")


def pieces(text: str) -> Iterator[str]:
    """Yields `text` in pieces of about `PIECE_CHARS`, cut before a space, where encodings begin a new token anyway."""
    start = 0
    while start < len(text):
        end = start + PIECE_CHARS
        if end < len(text):
            space = text.rfind(" ", start + PIECE_CHARS // 2, end)
            end = space if space > 0 else end
        yield text[start:end]
        start = end


def _text_pieces(texts: Iterable[str]) -> Iterator[str]:
    """Yields the texts, joined by line ends, in pieces of about `PIECE_CHARS`: short texts together, long ones cut."""
    held: list[str] = []
    size = 0
    for text in texts:
        rest = iter((text,)) if len(text) <= PIECE_CHARS else pieces(text)
        held.append(next(rest))
        size += len(held[-1]) + 1
        more = next(rest, None)
        if more is None and size <= PIECE_CHARS:
            continue
        yield from pieces("\n".join(held))
        held, size = [""], 0  # so the next join begins with a line end
        if more is not None:
            yield more
            yield from rest
    yield from pieces("\n".join(held))


def _fixed_tokens(request: ModelRequest) -> int:
    """Returns the tokens of images and of the markers around messages."""
    images = 0
    if Image in kinds_of(request.messages):
        images = sum(_images(message.parts) for message in request.messages)
    return MESSAGE_TOKENS * (len(request.messages) + 1) + IMAGE_TOKENS * images


def request_texts(request: ModelRequest) -> Iterator[str]:
    """Yields every text of a request that is part of the model's prompt."""
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


def add_usage(first: Usage | None, second: Usage | None) -> Usage | None:
    """Returns the sum of the usage of two requests. None means unknown; then the other one is returned."""
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
