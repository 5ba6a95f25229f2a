"""JSON that others wrote, read within bounds and without stopping the event loop.

A parser holds the interpreter lock from its first byte to its last, and builds every value before anybody can count
them. `loads` therefore gives it little at a time:

1. The values and the nesting of a text that may hold many, or is long, are counted before it is parsed.
2. Such a text is cut into pieces of about `PIECE_BYTES`. A piece ends before a comma. It is parsed together with the
   brackets that are open around it, and what it holds is added to the arrays and objects that were built before.
3. A string longer than a piece is parsed in slices and joined.

For a text beyond `OFFLOAD_BYTES` the caller uses a thread: between two pieces other threads have their turn.

Law: for a valid text within the bounds, without duplicate keys, the value is that of the parser.
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

from toolwire.support.duplicate_keys import count_keys, duplicate_key
from toolwire.support.json_marks import CountMarks, json_marks

PIECE_BYTES: Final = 64 * 1024
"""Size of a piece and of a slice of a string: the parser needs less than 5 ms for it."""
PIECE_VALUES: Final = 40_000
"""A text that may hold as many values is cut into pieces."""
LARGE_BYTES: Final = 2 * 1024 * 1024
"""A longer text is cut as well; below, the parser needs less than 5 ms for its bytes."""
UNBROKEN_BYTES: Final = 1024 * 1024
"""The most that is given to the parser where no comma allows a cut. Beyond: blanks, which are left out, or no JSON."""
WIDEST_STRING_BYTES: Final = 48 * 1024 * 1024
"""Of one string in memory: putting it together cannot be done in slices."""

_BLANKS: Final = b" \t\r\n"
_NO_BLANK: Final = re.compile(rb"[^ \t\r\n]")
_BRACKETS: Final = b"[]{}"
_NOT_BRACKETS: Final = bytes(set(range(256)) - set(_BRACKETS))
_STEPS: Final = bytes.maketrans(_BRACKETS, b"\x01\xff\x01\xff")
"""Brackets as signed steps of nesting."""
_CLOSERS: Final = bytes.maketrans(b"[{", b"]}")
_SECOND_HALVES: Final = (rb"\udc", rb"\udd", rb"\ude", rb"\udf")

Parse = Callable[[bytes], Any]
"""A parser. It raises `ValueError`."""


class Bounds(NamedTuple):
    """The most values that a text may hold, and the levels of its nesting. `containers`: how many of the values may be
    arrays and objects, at which the collector of circles looks, all of them at once; None: any."""

    values: int
    depth: int
    containers: int | None = None


class BoundExceeded(ValueError):
    """A text passes a bound. `kind` says which, `size` is the bound; for `key` and `string` the bytes of what is too
    long."""

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
    """An object of a text has the same key twice."""

    def __init__(self, key: str) -> None:
        self.key = key
        super().__init__("has an object with the same key twice")


class MalformedJson(ValueError):
    """A text is not JSON: the parser's `reason`, and `where` in the text as words (empty: unknown)."""

    def __init__(self, reason: str, where: str) -> None:
        self.reason = reason
        self.where = where
        super().__init__(reason + where)


def loads(text: bytes, bounds: Bounds, parse: Parse | None = None, count: CountMarks = json_marks) -> Any:
    """The value of `text`, by orjson unless another parser is given. `count` counts its marks. Raises `BoundExceeded`,
    `MalformedJson`, and `DuplicateKey` for a text that was read in pieces."""
    if len(text) > LARGE_BYTES:
        return _Pieces(text, bounds, parse or orjson.loads).value()
    openers, commas, _ = count(text)
    most = min(bounds.values, PIECE_VALUES)
    # No value is shorter than a byte, so that in most texts there is nothing more to count.
    if len(text) >= most and openers + commas >= most:
        return _Pieces(text, bounds, parse or orjson.loads).value()
    try:
        value = orjson.loads(text) if parse is None else parse(text)
    except ValueError as error:
        if openers > bounds.depth:  # The parser has a limit of its own; ours has better words.
            _check_depth(text, bounds)
        raise _malformed(text, 0, error) from None
    if openers > bounds.depth and is_deep(value, bounds.depth):
        raise BoundExceeded("depth", bounds.depth)
    return value


def is_json(text: str) -> bool:
    """Whether a text is JSON. One of more than `UNBROKEN_BYTES` characters is not looked at: it is none."""
    if len(text) > UNBROKEN_BYTES:
        return False
    try:
        loads(text.encode(), _OF_TEXT)
    except ValueError:
        return False
    return True


_OF_TEXT: Final = Bounds(100_000, 1_000)


def is_deep(value: Any, most: int) -> bool:
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
    return bool(level)


def count_values(value: Any) -> int:
    """The JSON values in `value`, itself included."""
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
    """One text on its way to a value.

    `_at` is where the next piece begins, `_open` the brackets that are open there, and `_containers` the arrays and
    objects that belong to them.
    """

    def __init__(self, text: bytes, bounds: Bounds, parse: Parse) -> None:
        self._text = text
        self._bounds = bounds
        self._parse = parse
        self._mark = token_hex(16)  # Not to be guessed, so no text can look like a string or a key of ours.
        self._at = 0
        self._open = b""
        self._containers: list[Any] = []
        self._root: Any = None

    def value(self) -> Any:
        """The value of the whole text."""
        self._measure()
        collecting = gc.isenabled()
        gc.disable()  # it would look at all earlier pieces again and again
        try:
            while self._read_piece():
                pass
        finally:
            if collecting:
                gc.enable()
        return self._root

    def _measure(self) -> None:
        """Raise `BoundExceeded` for a text beyond its bounds."""
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
        """Read one piece. Returns False after the last one."""
        start = self._at
        parts, strings, outside, last = self._next()
        body = b"".join(parts)
        if start and (first := body.lstrip(_BLANKS)[:1]) in (b"", b",", b"]", b"}"):
            reason = "trailing comma is not allowed" if first in (b"]", b"}") else "a value is missing behind a comma"
            raise MalformedJson(reason, f", near byte {start}")
        brackets = _unmatched(outside)
        closed = len(brackets) - len(brackets.lstrip(b"]}"))
        still = len(self._open) - closed
        opened = brackets[closed:]
        now_open = self._open[: max(still, 0)] + opened
        sound = still >= 0 and opened == opened.translate(None, b"]}")
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
            value = _put_back(value, self._mark, strings)
        self._merge(value)
        if not last:
            self._follow(still, len(opened))
            self._open = now_open
            self._at += 1  # the comma
        return not last

    def _next(self) -> tuple[list[bytes], dict[str, str], bytes, bool]:
        """Cut the next piece off: its text, in which marks stand for long strings; these strings; its brackets and
        colons outside of strings; and whether it is the last one."""
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
        """The string whose text is `text[start:end]`."""
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
        """The open brackets, each with a key of ours where its object goes on with another one."""
        if not self._open:
            return b""
        key = b'{"%b":' % self._mark.encode()
        return self._open[:-1].replace(b"{", key) + self._open[-1:]

    def _merge(self, value: Any) -> None:
        """Add what a piece holds to the containers that were open where it begins."""
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

    def _follow(self, still: int, opened: int) -> None:
        """Find the containers that are open where the next piece begins: `still` of the earlier ones, and so many more,
        each of which is the last value of the one around it."""
        del self._containers[still:]
        for _ in range(opened):
            if not self._containers:
                self._containers.append(self._root)
                continue
            around = self._containers[-1]
            self._containers.append(around[-1] if isinstance(around, list) else next(reversed(around.values())))


# --- where to cut ---------------------------------------------------------------------------------------------------

_NOT_STRUCTURE: Final = bytes(set(range(256)) - set(_BRACKETS + b":"))


class _Comma(NamedTuple):
    """A comma outside of strings: its place in a window, and all that stands outside of strings before it."""

    at: int
    outside: bytes


def _window(text: bytes, at: int) -> bytes:
    """About `PIECE_BYTES` of `text`, which do not end inside of an escape; `at` is not inside of one."""
    window = text[at : at + PIECE_BYTES]
    if (len(window) - len(window.rstrip(b"\\"))) % 2:
        window = text[at : at + len(window) + 1]
    return window


def _masked(window: bytes) -> bytes:
    """`window` with as many other bytes in the place of escaped quotes and backslashes: each quote that is left is the
    edge of a string, and stands where it stood."""
    return window.replace(rb"\\", b"__").replace(rb"\"", b"__") if b"\\" in window else window


def _last_comma(pieces: list[bytes]) -> _Comma | None:
    """The last comma outside of strings; `pieces` are what stands between quotes, the first one outside."""
    end = sum(map(len, pieces)) + len(pieces) - 1
    for index in range(len(pieces) - 1, -1, -1):
        piece = pieces[index]
        end -= len(piece)
        if index % 2 == 0 and (at := piece.rfind(b",")) >= 0:
            return _Comma(end + at, b"".join(pieces[0:index:2]) + piece[:at])
        end -= 1
    return None


def _string_end(text: bytes, start: int) -> int:
    """Where the quote stands that ends the string whose text begins at `start`; the end of `text` if there is none."""
    while start < len(text):
        window = _window(text, start)
        at = _masked(window).find(b'"')
        if at >= 0:
            return start + at
        start += len(window)
    return len(text)


def _clean_cut(text: bytes, start: int, end: int) -> int:
    """The end of a slice of a string that begins at `start`, cut between characters and between escapes."""
    cut = start + PIECE_BYTES
    if cut >= end:
        return end
    # In JSON a good place is at most twelve bytes ahead; where none is, the parser will say what is wrong.
    while cut < min(end, start + PIECE_BYTES + 12) and splits(text, start, cut):
        cut += 1
    return cut


def splits(text: bytes, start: int, cut: int) -> bool:
    """Whether a cut before `text[cut]`, in a string, would be inside a character, an escape, or a pair of surrogate
    escapes. A cut at `start` is known not to be."""
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


def _depth(brackets: bytes, depth: int, bounds: Bounds) -> int:
    """The nesting behind these brackets, which begin at `depth`."""
    if not brackets:
        return depth
    levels = list(accumulate(memoryview(brackets.translate(_STEPS)).cast("b"), initial=depth))
    if max(levels) > bounds.depth:
        raise BoundExceeded("depth", bounds.depth)
    return levels[-1]


def _check_depth(text: bytes, bounds: Bounds) -> None:
    """Raise `BoundExceeded` for a text of at most `LARGE_BYTES` that is nested too deep."""
    outside = b"".join(_masked(text).split(b'"')[::2])
    _depth(outside.translate(None, _NOT_BRACKETS), 0, bounds)


def _unmatched(structure: bytes) -> bytes:
    """The brackets without those that match; the nesting, which was counted, bounds the rounds."""
    left = structure.translate(None, b":")
    before = -1
    while len(left) != before:
        before = len(left)
        left = left.replace(b"[]", b"").replace(b"{}", b"")
    return left


def _put_back(value: Any, mark: str, strings: dict[str, str]) -> Any:
    """`value` with the long strings in their places."""
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


# --- what was wrong -------------------------------------------------------------------------------------------------


def _malformed(text: bytes, offset: int, error: ValueError) -> MalformedJson:
    """The error of `text`, which stands at `offset` of the whole one."""
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
