"""Request bodies: from bytes to a JSON object, without stopping the event loop.

The parser holds the interpreter lock from its first byte to its last, so what it may be given at once is bounded:

1. A body that may hold more than `limits.json_values` has its structure counted first, slice by slice, with other
   requests served in between. It is never parsed beyond that, nor is a large one beyond `limits.json_depth`; of others
   the parser's own limit of nesting is enough, and the value tells.
2. In a large body the long strings (images, files) are lifted out, read slice by slice and put back. What remains is
   charged one value per 80 bytes, so that a megabyte of short strings is as dear as it is to parse.

Duplicate keys: the last one wins. NUL in strings is fine. Lone surrogates, invalid UTF-8, NaN and Infinity are errors.
Measured numbers: docs/adr/0003.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from itertools import accumulate
from secrets import token_hex
from sys import getsizeof
from typing import Any, Final

import orjson

from ..config import LimitsConfig
from ..errors import ClientFault, quote
from ..formats.toolset import TOOLS_KEY, KnownTools
from ..support.offload import OFFLOAD_BYTES

SLICE_BYTES: Final = 256 * 1024
"""Counted, or read as part of a string, at once: less than 10 ms whatever the bytes are."""
LARGE_BYTES: Final = 2 * 1024 * 1024
"""A body beyond this has its long strings lifted; below, the parser needs less than 5 ms for its bytes."""
LONG_STRING_BYTES: Final = 64 * 1024
WIDEST_STRING_BYTES: Final = 48 * 1024 * 1024
"""Of one string in memory: putting it together cannot be done in slices."""
BYTES_PER_VALUE: Final = 80

_BRACKETS: Final = b"[]{}"
_NOT_BRACKETS: Final = bytes(set(range(256)) - set(_BRACKETS))
_STEPS: Final = bytes.maketrans(_BRACKETS, b"\x01\xff\x01\xff")
"""Brackets as signed steps of nesting."""
_SECOND_HALVES: Final = (rb"\udc", rb"\udd", rb"\ude", rb"\udf")
_HINT: Final = "Send one JSON object in UTF-8."


async def read_json(body: bytes, limits: LimitsConfig, known: KnownTools | None = None) -> dict[str, Any]:
    """The JSON object that `body` holds; its `tools` are a `KnownList` if `known` is given and knows or learns them.
    Raises `ClientFault` `invalid_json`."""
    if len(body) > LARGE_BYTES:
        value = await _read_large(body, limits)
    else:
        if known is not None and TOOLS_KEY not in body:
            known = None
        value = None if known is None else _read_known(body, limits, known)
        if value is None:
            large = len(body) > OFFLOAD_BYTES
            value = await asyncio.to_thread(_read_small, body, limits) if large else _read_small(body, limits)
            if known is not None and isinstance(value, dict):
                known.learn(body, value)
    if not isinstance(value, dict):
        raise ClientFault(
            f"The body must be a JSON object, not {_kind(value)}.",
            code="invalid_json",
            hint='Send something like {"model": "...", "messages": [...]}.',
        )
    return value


def _read_small(body: bytes, limits: LimitsConfig) -> Any:
    """The value of a body of up to `LARGE_BYTES`. Raises `ClientFault`."""
    openers = body.count(b"[") + body.count(b"{")
    # No value is shorter than a byte, so that in most bodies there is nothing more to count.
    if len(body) >= limits.json_values and openers + body.count(b",") >= limits.json_values:
        _count(body, limits)
    deep = openers > limits.json_depth
    try:
        value = _parse(body)
    except ClientFault:
        if deep:  # The parser has a limit of its own; ours has better words.
            _count(body, limits)
        raise
    if deep and _is_deep(value, limits.json_depth):
        _count(body, limits)
    return value


def _count(body: bytes, limits: LimitsConfig) -> None:
    """Raise `ClientFault` for a body that passes a limit."""
    for _ in Structure(limits).count(body):
        pass


def _read_known(body: bytes, limits: LimitsConfig, known: KnownTools) -> dict[str, Any] | None:
    """The body, if it holds a list of tools that was read before; None if the rest of it has to be looked at
    closely."""
    found = known.cut(body)
    if found is None:
        return None
    tools, rest = found
    openers = rest.count(b"[") + rest.count(b"{")
    if tools.values + len(rest) >= limits.json_values <= tools.values + openers + rest.count(b","):
        return None
    try:
        value = orjson.loads(rest)
    except orjson.JSONDecodeError:
        return None
    if not known.put_back(value, tools) or (openers > limits.json_depth and _is_deep(value, limits.json_depth)):
        return None
    found_value: dict[str, Any] = value
    return found_value


def _is_deep(value: Any, most: int) -> bool:
    """Whether `value` is nested more than `most` levels deep."""
    level = [value] if isinstance(value, (dict, list)) else []
    for _ in range(most):
        level = [
            item
            for node in level
            for item in (node.values() if isinstance(node, dict) else node)
            if isinstance(item, (dict, list))
        ]
        if not level:
            return False
    return True


class Structure:
    """Counts values and nesting of a JSON text that comes in slices, none of which ends inside an escape.

    Values are counted from above: one for each comma and each opening bracket outside strings. `long_strings` are the
    bounds of the strings of at least `LONG_STRING_BYTES`, without their quotes.
    """

    def __init__(self, limits: LimitsConfig) -> None:
        self._limits = limits
        self.values = 1
        self.strings = 0
        self.depth = 0
        self.read = 0
        self.long_strings: list[tuple[int, int]] = []
        self._opened: int | None = None
        """Where the string starts that the last slice left open."""

    def count(self, body: bytes) -> Iterator[None]:
        """Feed all of `body`, with a pause after each slice. Raises as `feed`."""
        for start, end in _cuts(body, 0, len(body)):
            self.feed(body[start:end])
            yield

    def feed(self, text: bytes) -> None:
        """Count `text`. Raises `ClientFault` as soon as a limit is passed."""
        # Escapes are masked by as many bytes, so that each quote that is left is a string's edge and stands where it
        # stood.
        masked = text.replace(rb"\\", b"__").replace(rb"\"", b"__") if b"\\" in text else text
        pieces = masked.split(b'"')
        first = 0 if self._opened is not None else 1  # the first piece that is inside a string
        self._note_long(text, pieces, first)
        outside = b"".join(pieces[1 - first :: 2])
        brackets = outside.translate(None, _NOT_BRACKETS)
        self.strings += len(pieces) // 2
        self.add(outside.count(b",") + brackets.count(b"[") + brackets.count(b"{"))
        if brackets:
            levels = list(accumulate(memoryview(brackets.translate(_STEPS)).cast("b"), initial=self.depth))
            if max(levels) > self._limits.json_depth:
                raise ClientFault(
                    f"The body is nested more than {self._limits.json_depth} levels deep.",
                    code="invalid_json",
                    hint="Flatten it, or raise `limits.json_depth`.",
                )
            self.depth = levels[-1]
        self.read += len(text)

    def add(self, values: int) -> None:
        """Count so many values more. Raises `ClientFault`."""
        self.values += values
        if self.values > self._limits.json_values or self.strings > 2 * self._limits.json_values:
            raise ClientFault(
                f"The body holds more than {self._limits.json_values} JSON values, or as much text in short strings.",
                code="invalid_json",
                hint="Send less at once, or raise `limits.json_values`.",
            )

    def _note_long(self, text: bytes, pieces: list[bytes], first: int) -> None:
        several = len(pieces) > 1
        if self._opened is not None and several:
            self._note(self._opened, self.read + len(pieces[0]))
        if several and max(map(len, pieces)) >= LONG_STRING_BYTES:
            start = self.read
            for index, piece in enumerate(pieces[:-1]):
                if index and index % 2 == first:
                    self._note(start, start + len(piece))
                start += len(piece) + 1
        if several:
            ends_inside = (len(pieces) - 1) % 2 == first
            self._opened = self.read + len(text) - len(pieces[-1]) if ends_inside else None

    def _note(self, start: int, end: int) -> None:
        if end - start >= LONG_STRING_BYTES:
            self.long_strings.append((start, end))


def _parse(text: bytes, offset: int | None = 0) -> Any:
    """The value of `text`, which stands at `offset` of the body; None if it does not stand there as it is."""
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise _malformed(text, offset, error) from None


# --- large bodies ---------------------------------------------------------------------------------------------------


async def _read_large(body: bytes, limits: LimitsConfig) -> Any:
    structure = Structure(limits)
    for _ in structure.count(body):
        await asyncio.sleep(0)
    spans = structure.long_strings
    lifted = sum(end - start for start, end in spans)
    structure.add((len(body) - lifted) // BYTES_PER_VALUE)
    mark = token_hex(16)  # Not to be guessed, so no text of the client can look like a lifted string.
    strings: dict[str, str] = {}
    rest: list[bytes] = []
    done = 0
    for start, end in spans:
        if body[end + 1 : end + 256].lstrip()[:1] == b":":
            raise ClientFault(f"The body has a key of {end - start} bytes.", code="invalid_json", hint="Shorten it.")
        name = f"{mark}{len(strings)}"
        strings[name] = await _read_string(body, start, end)
        rest += body[done:start], name.encode()
        done = end
    rest.append(body[done:])
    # In a thread others get their turn between the copy, the parser, and what describes an error in megabytes.
    return await asyncio.to_thread(lambda: _put_back(_parse(b"".join(rest), None if spans else 0), mark, strings))


async def _read_string(body: bytes, start: int, end: int) -> str:
    """The string whose text is `body[start:end]`."""
    parts: list[str] = []
    width = 0
    for first, last in _cuts(body, start, end):
        part = _parse(b'"%b"' % body[first:last], first - 1)
        parts.append(part)
        width = max(width, getsizeof(part) // len(part))
        if width * (end - start) > WIDEST_STRING_BYTES and width * sum(map(len, parts)) > WIDEST_STRING_BYTES:
            # One character outside Latin-1 makes every character of a Python string two or four bytes wide.
            raise ClientFault(
                f"The body has a string of {end - start} bytes with characters that make it too large in memory.",
                code="invalid_json",
                hint="Send files as base64.",
            )
        await asyncio.sleep(0)
    return "".join(parts)


def _put_back(value: Any, mark: str, strings: dict[str, str]) -> Any:
    """`value` with the lifted strings in their places."""
    holder = [value]
    stack: list[Any] = [holder]
    missing = len(strings)
    while stack and missing:
        node = stack.pop()
        for key, item in node.items() if isinstance(node, dict) else enumerate(node):
            if isinstance(item, str):
                if item.startswith(mark):
                    node[key] = strings[item]
                    missing -= 1
            elif isinstance(item, (dict, list)):
                stack.append(item)
    return holder[0]


def _cuts(body: bytes, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Bounds of slices that make up `body[start:end]`, cut between characters and between escapes."""
    while end - start > SLICE_BYTES:
        cut = start + SLICE_BYTES
        # In JSON a good place is at most twelve bytes ahead; where none is, the parser will say what is wrong.
        while cut < min(end, start + SLICE_BYTES + 12) and _splits(body, start, cut):
            cut += 1
        yield start, cut
        start = cut
    yield start, end


def _splits(body: bytes, start: int, cut: int) -> bool:
    """Whether a cut before `body[cut]` would be inside a character, an escape, or a pair of surrogate escapes. A cut at
    `start` is known not to be."""
    if 0x80 <= body[cut] < 0xC0 or body[cut : cut + 4].lower() in _SECOND_HALVES:
        return True
    window = body[max(start, cut - 6) : cut]
    slash = window.rfind(b"\\")
    if slash < 0:
        return False
    at = cut - len(window) + slash
    run = body[start : at + 1]
    if (len(run) - len(run.rstrip(b"\\"))) % 2 == 0:
        return False  # The backslash itself is escaped.
    return cut - at < (6 if body[at + 1 : at + 2] == b"u" else 2)


# --- what was wrong -------------------------------------------------------------------------------------------------


def _malformed(text: bytes, offset: int | None, error: orjson.JSONDecodeError) -> ClientFault:
    """What is wrong with `text`, and where in the body."""
    if not text.strip():
        return ClientFault("The body is empty.", code="invalid_json", hint=_HINT)
    what = error.msg.removesuffix(f": line {error.lineno} column {error.colno} (char {error.pos})")
    where = (
        f", at line {error.lineno}, column {error.colno}" if offset == 0 else f", near byte {offset}" if offset else ""
    )
    hint = _HINT
    if what.startswith("str is not valid UTF-8"):
        try:
            text.decode()
        except UnicodeDecodeError as wrong:
            what, where = f"byte {text[wrong.start]:#04x} is not UTF-8", f", at byte {(offset or 0) + wrong.start}"
    elif "surrogate" in what:
        hint = "A \\u escape for one half of a surrogate pair needs the other half."
    return ClientFault(f"The body is not valid JSON: {what}{where}.", code="invalid_json", hint=hint)


def _kind(value: object) -> str:
    kinds = {list: "an array", str: "a string", bool: "a boolean", int: "a number", float: "a number"}
    return "null" if value is None else f"{kinds[type(value)]} such as {quote(value)}"
