"""Parses JSON from clients and servers within bounds, without blocking the event loop.

A parser holds the interpreter lock from its first byte to its last, and builds all values before they can be counted.
`loads` therefore splits the work:

1. The values and the nesting of a text that is long, or may hold many values, are counted before it is parsed.
2. Such a text is cut into pieces of about `PIECE_BYTES`, each ending before a comma. A piece is parsed together with
   the brackets that are open around it, and its values are added to the arrays and objects that were built before.
3. A string longer than a piece is parsed in slices, which are joined.

A caller parses a text beyond `OFFLOAD_BYTES` in a thread; other threads can run between two pieces.

Law: for a valid text within the bounds and without duplicate keys, the value is the same as the parser's.
"""

from __future__ import annotations

import gc
import re
from collections.abc import Callable
from itertools import accumulate, islice
from secrets import token_hex
from sys import getsizeof
from typing import Any, Final, Literal, NamedTuple

import orjson

from .duplicate_keys import count_keys, duplicate_key
from .json_marks import CountMarks, json_marks

PIECE_BYTES: Final = 64 * 1024
"""Size of a piece, and of a slice of a string. The parser needs less than 5 ms for it."""
PIECE_VALUES: Final = 40_000
"""A text that may hold this many values is cut into pieces."""
LARGE_BYTES: Final = 2 * 1024 * 1024
"""A longer text is cut into pieces. The parser needs less than 5 ms for a shorter one."""
UNBROKEN_BYTES: Final = 1024 * 1024
"""Maximum size of a piece when there is no comma to cut at. A longer run without a comma is refused as malformed."""
WIDEST_STRING_BYTES: Final = 48 * 1024 * 1024
"""Maximum size of one string in memory. Joining its slices blocks the interpreter and cannot be split."""

_BLANKS: Final = b" \t\r\n"
_NO_BLANK: Final = re.compile(rb"[^ \t\r\n]")
_BRACKETS: Final = b"[]{}"
_NOT_BRACKETS: Final = bytes(set(range(256)) - set(_BRACKETS))
_STEPS: Final = bytes.maketrans(_BRACKETS, b"\x01\xff\x01\xff")
"""Maps opening brackets to +1 and closing ones to -1."""
_CLOSERS: Final = bytes.maketrans(b"[{", b"]}")
_SECOND_HALVES: Final = (rb"\udc", rb"\udd", rb"\ude", rb"\udf")

Parse = Callable[[bytes], Any]
"""A JSON parser. Raises `ValueError` for text that is not JSON."""


class JsonBounds(NamedTuple):
    """Limits for one text: the number of values, the nesting depth, and optionally the number of arrays and objects
    (`containers`). That number is limited because the garbage collector scans all containers at once."""

    values: int
    depth: int
    containers: int | None = None


class BoundExceeded(ValueError):
    """A text exceeds a bound. `kind` says which. `size` is the bound, or for `key` and `string` the size of the key or
    string."""

    def __init__(self, kind: Literal["values", "containers", "depth", "key", "string"], size: int) -> None:
        self.kind = kind
        self.size = size
        super().__init__(_EXCEEDED[kind].format(size))


_EXCEEDED: Final = {
    "values": "holds more than {} JSON values",
    "containers": "holds more than {} JSON arrays and objects",
    "depth": "is nested more than {} levels deep",
    "key": "has a key of {} bytes",
    "string": "has a string of {} bytes with characters that make it too large in memory",
}


class DuplicateKey(ValueError):
    """An object in a text has the same key twice."""

    def __init__(self, key: str) -> None:
        self.key = key
        super().__init__("has an object with the same key twice")


class MalformedJson(ValueError):
    """A text is not JSON. `reason` is the parser's; `where` is the position in words, empty if unknown."""

    def __init__(self, reason: str, where: str) -> None:
        self.reason = reason
        self.where = where
        super().__init__(reason + where)


def loads(text: bytes, bounds: JsonBounds, parse: Parse | None = None, count: CountMarks = json_marks) -> Any:
    """Returns the value of `text`, parsed by `parse` (default: orjson). Raises `BoundExceeded` or `MalformedJson`;
    `DuplicateKey` only for a text that was parsed in pieces. `count`: `json_marks`, or its compiled twin."""
    if len(text) > LARGE_BYTES:
        return _Pieces(text, bounds, parse or orjson.loads).value()
    openers, commas, _ = count(text)
    most = min(bounds.values, PIECE_VALUES)
    # A value needs at least one byte, so a short text cannot hold too many.
    if len(text) >= most and openers + commas >= most:
        return _Pieces(text, bounds, parse or orjson.loads).value()
    try:
        value = orjson.loads(text) if parse is None else parse(text)
    except ValueError as error:
        if openers > bounds.depth:  # the parser has a depth limit too; our message is clearer
            _check_depth(text, bounds)
        raise _malformed(text, 0, error) from None
    if openers > bounds.depth and is_deep(value, bounds.depth):
        raise BoundExceeded("depth", bounds.depth)
    return value


def is_json(text: str) -> bool:
    """True if `text` is JSON; its strings may hold half surrogate pairs. A text of more than `UNBROKEN_BYTES`
    characters is not parsed and gives False."""
    if len(text) > UNBROKEN_BYTES:
        return False
    try:
        loads(text.encode(errors="replace"), _OF_TEXT)
    except ValueError:
        return False
    return True


_OF_TEXT: Final = JsonBounds(100_000, 1_000)


def is_deep(value: Any, most: int) -> bool:
    """True if `value` is nested more than `most` levels deep."""
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
    return bool(level)


def count_values(value: Any) -> int:
    """Counts the JSON values in `value`, including itself."""
    number = 0
    todo = [value]
    while todo:
        item = todo.pop()
        number += 1
        if isinstance(item, dict):
            todo += item.values()
        elif isinstance(item, list):
            todo += item
    return number


class _Pieces:
    """Parses one text in pieces.

    `_at` is where the next piece begins, `_open` the brackets that are open there, and `_containers` the arrays and
    objects that these brackets opened.
    """

    def __init__(self, text: bytes, bounds: JsonBounds, parse: Parse) -> None:
        self._text = text
        self._bounds = bounds
        self._parse = parse
        self._mark = token_hex(16)  # random, so no string or key of the text can equal a placeholder
        self._at = 0
        self._open = b""
        self._containers: list[Any] = []
        self._root: Any = None

    def value(self) -> Any:
        """Returns the value of the whole text. Raises as `loads` does."""
        self._measure()
        collecting = gc.isenabled()
        gc.disable()  # it would scan all earlier pieces again and again
        try:
            while self._read_piece():
                pass
        finally:
            if collecting:
                gc.enable()
        return self._root

    def _measure(self) -> None:
        """Raises `BoundExceeded` if the text exceeds its bounds."""
        text, bounds = self._text, self._bounds
        at = containers = depth = 0
        values = 1
        inside = False
        while at < len(text):
            window = _window(text, at)
            pieces = _masked(window).split(b'"')
            outside = b"".join(pieces[inside::2])
            inside ^= len(pieces) % 2 == 0
            brackets = outside.translate(None, _NOT_BRACKETS)
            containers += brackets.count(b"[") + brackets.count(b"{")
            values += outside.count(b",")
            if values + containers > bounds.values:
                raise BoundExceeded("values", bounds.values)
            if bounds.containers is not None and containers > bounds.containers:
                raise BoundExceeded("containers", bounds.containers)
            depth = _depth(brackets, depth, bounds)
            at += len(window)

    def _read_piece(self) -> bool:
        """Parses one piece and merges it. Returns False after the last one."""
        start = self._at
        parts, strings, outside, last = self._next()
        body = b"".join(parts)
        if start and (first := body.lstrip(_BLANKS)[:1]) in (b"", b",", b"]", b"}"):
            reason = "trailing comma is not allowed" if first in (b"]", b"}") else "a value is missing behind a comma"
            raise MalformedJson(reason, f", near byte {start}")
        brackets = _unmatched(outside)
        closed = len(brackets) - len(brackets.lstrip(b"]}"))
        remaining = len(self._open) - closed
        opened = brackets[closed:]
        now_open = self._open[: max(remaining, 0)] + opened
        sound = remaining >= 0 and opened == opened.translate(None, b"]}")
        if not last:
            sound = sound and bool(now_open)
            if body.rstrip(_BLANKS)[-1:] in (b"", b"[", b"{", b":"):
                raise MalformedJson("a value is missing before a comma", f", near byte {self._at}")
        prefix = self._prefix()
        suffix = b"" if last or not sound else now_open[::-1].translate(_CLOSERS)
        text = b"%b%b%b" % (prefix, body, suffix)
        try:
            value = self._parse(text)
        except ValueError as error:
            raise _malformed(text, start - len(prefix) if start or strings else 0, error) from None
        if not sound:
            raise MalformedJson("brackets do not match", f", near byte {self._at}")
        marks = max(0, self._open[:-1].count(b"{"))
        if isinstance(value, (dict, list)) and count_keys(value) != outside.count(b":") + marks:
            raise DuplicateKey(duplicate_key(text) or "")
        if strings:
            value = _restore_strings(value, self._mark, strings)
        self._merge(value)
        if not last:
            self._descend(remaining, len(opened))
            self._open = now_open
            self._at += 1  # the comma
        return not last

    def _next(self) -> tuple[list[bytes], dict[str, str], bytes, bool]:
        """Cuts off the next piece.

        Returns its text, with placeholders for long strings; these strings by placeholder; its brackets and colons
        outside of strings; and True if it is the last piece.
        """
        text = self._text
        parts: list[bytes] = []
        strings: dict[str, str] = {}
        structure: list[bytes] = []
        at = self._at
        while True:
            if at - self._at > UNBROKEN_BYTES and sum(map(len, parts)) > UNBROKEN_BYTES:
                raise MalformedJson(f"no comma in {UNBROKEN_BYTES} bytes outside of strings", f", near byte {self._at}")
            window = _window(text, at)
            pieces = _masked(window).split(b'"')
            last = at + len(window) == len(text)
            comma = None if last else _last_comma(pieces)
            outside = b"".join(pieces[::2]) if comma is None else comma.outside
            structure.append(outside.translate(None, _NOT_STRUCTURE))
            if comma is not None:
                parts.append(window[: comma.at])
                at += comma.at
                break
            if len(pieces) % 2 or last:
                parts.append(window if window.strip(_BLANKS) else b" ")
                at += len(window)
            else:
                begin = at + len(window) - len(pieces[-1])
                end = _string_end(text, begin)
                if end == len(text):
                    raise MalformedJson("a string does not end", f", near byte {begin - 1}")
                if end - begin <= PIECE_BYTES:
                    parts.append(text[at : end + 1])
                else:
                    if (behind := _NO_BLANK.search(text, end + 1)) is not None and behind[0] == b":":
                        raise BoundExceeded("key", end - begin)
                    name = f"{self._mark}{len(strings)}"
                    strings[name] = self._string(begin, end)
                    parts += text[at:begin], name.encode(), b'"'
                at = end + 1
                last = at == len(text)
            if last:
                break
        self._at = at
        return parts, strings, b"".join(structure), last

    def _string(self, start: int, end: int) -> str:
        """Returns the string whose JSON text, without quotes, is `text[start:end]`."""
        parts: list[str] = []
        width = 0
        at = start
        while at < end:
            cut = _clean_cut(self._text, at, end)
            quoted = b'"%b"' % self._text[at:cut]
            try:
                part: str = self._parse(quoted)
            except ValueError as error:
                raise _malformed(quoted, at - 1, error) from None
            parts.append(part)
            width = max(width, getsizeof(part) // len(part))
            if width * (end - start) > WIDEST_STRING_BYTES and width * sum(map(len, parts)) > WIDEST_STRING_BYTES:
                # One character outside Latin-1 makes every character of a Python string two or four bytes wide.
                raise BoundExceeded("string", end - start)
            at = cut
        return "".join(parts)

    def _prefix(self) -> bytes:
        """Returns the open brackets as JSON text that precedes a piece; inside an object each is followed by the
        placeholder key."""
        if not self._open:
            return b""
        key = b'{"%b":' % self._mark.encode()
        return self._open[:-1].replace(b"{", key) + self._open[-1:]

    def _merge(self, value: Any) -> None:
        """Adds the values of a piece to the containers that were open where it begins. Raises `DuplicateKey`."""
        if not self._containers:
            self._root = value
        innermost = len(self._containers) - 1
        for level, container in enumerate(self._containers):
            child = None
            if isinstance(container, list):
                if level < innermost:
                    child = value[0]
                container.extend(islice(value, 1 if level < innermost else 0, None))
            else:
                if level < innermost:
                    child = value.pop(self._mark)
                if not container.keys().isdisjoint(value):
                    raise DuplicateKey(next(key for key in value if key in container))
                container.update(value)
            value = child

    def _descend(self, remaining: int, opened: int) -> None:
        """Updates `_containers` for the next piece: keeps the first `remaining`, then adds `opened` more, each of which
        is the last value of its parent."""
        del self._containers[remaining:]
        for _ in range(opened):
            if not self._containers:
                self._containers.append(self._root)
                continue
            parent = self._containers[-1]
            self._containers.append(parent[-1] if isinstance(parent, list) else next(reversed(parent.values())))


# --- where to cut ---------------------------------------------------------------------------------------------------

_NOT_STRUCTURE: Final = bytes(set(range(256)) - set(_BRACKETS + b":"))


class _Comma(NamedTuple):
    """A comma outside of strings: its position in a window, and the text outside of strings before it."""

    at: int
    outside: bytes


def _window(text: bytes, at: int) -> bytes:
    """Returns about `PIECE_BYTES` of `text` from `at` on, without splitting an escape at the end."""
    window = text[at : at + PIECE_BYTES]
    if (len(window) - len(window.rstrip(b"\\"))) % 2:
        window = text[at : at + len(window) + 1]
    return window


def _masked(window: bytes) -> bytes:
    """Replaces escaped quotes and backslashes by other bytes of the same length, so every remaining quote begins or
    ends a string."""
    return window.replace(rb"\\", b"__").replace(rb"\"", b"__") if b"\\" in window else window


def _last_comma(pieces: list[bytes]) -> _Comma | None:
    """Returns the last comma outside of strings, or None. `pieces` are the texts between quotes; the first is outside a
    string."""
    end = sum(map(len, pieces)) + len(pieces) - 1
    for index in range(len(pieces) - 1, -1, -1):
        piece = pieces[index]
        end -= len(piece)
        if index % 2 == 0 and (at := piece.rfind(b",")) >= 0:
            return _Comma(end + at, b"".join(pieces[0:index:2]) + piece[:at])
        end -= 1
    return None


def _string_end(text: bytes, start: int) -> int:
    """Returns the position of the quote that ends the string beginning at `start`, or the length of `text` if there is
    none."""
    while start < len(text):
        window = _window(text, start)
        at = _masked(window).find(b'"')
        if at >= 0:
            return start + at
        start += len(window)
    return len(text)


def _clean_cut(text: bytes, start: int, end: int) -> int:
    """Returns the end of the slice of a string that begins at `start`, without splitting a character or an escape."""
    cut = start + PIECE_BYTES
    if cut >= end:
        return end
    # In valid JSON such a place is at most twelve bytes ahead; for other text the parser raises the error.
    while cut < min(end, start + PIECE_BYTES + 12) and splits(text, start, cut):
        cut += 1
    return cut


def splits(text: bytes, start: int, cut: int) -> bool:
    """True if a cut before `text[cut]` would split a character, an escape or a pair of surrogate escapes of a string.
    `start` must be a position where a cut splits nothing."""
    if 0x80 <= text[cut] < 0xC0 or text[cut : cut + 4].lower() in _SECOND_HALVES:
        return True
    window = text[max(start, cut - 6) : cut]
    slash = window.rfind(b"\\")
    if slash < 0:
        return False
    at = cut - len(window) + slash
    run = text[start : at + 1]
    if (len(run) - len(run.rstrip(b"\\"))) % 2 == 0:
        return False  # The backslash itself is escaped.
    return cut - at < (6 if text[at + 1 : at + 2] == b"u" else 2)


# --- nesting --------------------------------------------------------------------------------------------------------


def _depth(brackets: bytes, depth: int, bounds: JsonBounds) -> int:
    """Returns the nesting depth after these brackets, which begin at `depth`. Raises `BoundExceeded`."""
    if not brackets:
        return depth
    levels = list(accumulate(memoryview(brackets.translate(_STEPS)).cast("b"), initial=depth))
    if max(levels) > bounds.depth:
        raise BoundExceeded("depth", bounds.depth)
    return levels[-1]


def _check_depth(text: bytes, bounds: JsonBounds) -> None:
    """Raises `BoundExceeded` if a text of at most `LARGE_BYTES` is nested too deep."""
    outside = b"".join(_masked(text).split(b'"')[::2])
    _depth(outside.translate(None, _NOT_BRACKETS), 0, bounds)


def _unmatched(structure: bytes) -> bytes:
    """Removes all matching pairs of brackets. The number of rounds is bounded by the nesting, which was checked
    before."""
    left = structure.translate(None, b":")
    before = -1
    while len(left) != before:
        before = len(left)
        left = left.replace(b"[]", b"").replace(b"{}", b"")
    return left


def _restore_strings(value: Any, mark: str, strings: dict[str, str]) -> Any:
    """Replaces the placeholders in `value` by the long strings."""
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


# --- errors ---------------------------------------------------------------------------------------------------------


def _malformed(text: bytes, offset: int, error: ValueError) -> MalformedJson:
    """Converts the parser's `error` for `text`, which begins at `offset` of the whole text."""
    reason = str(error)
    where = f", near byte {offset}" if offset else ""
    if isinstance(error, orjson.JSONDecodeError):
        reason = error.msg.removesuffix(f": line {error.lineno} column {error.colno} (char {error.pos})")
        where = where or f", at line {error.lineno}, column {error.colno}"
    if reason.startswith("str is not valid UTF-8"):
        try:
            text.decode()
        except UnicodeDecodeError as wrong:
            reason, where = f"byte {text[wrong.start]:#04x} is not UTF-8", f", at byte {offset + wrong.start}"
    return MalformedJson(reason, where)
