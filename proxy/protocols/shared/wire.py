"""JSON on the wire, for text that need not be valid Unicode.

A backend may split one character into two halves (`"\\ud83d"`, then `"\\ude00"`) or send bytes that are not UTF-8.
orjson rightly refuses both; a gateway must not (R6.5). Reading therefore falls back to the standard library, which
keeps the halves apart so that whoever joins the text joins them too; writing replaces what is still half by U+FFFD.

Numbers that are none (NaN, infinity, what is too large for a double), which Python's own servers do write, are read as
null: so whatever was read can be written.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import orjson

from toolwire.errors import BackendFault, quote
from toolwire.fastparse import json_marks
from toolwire.known.past import Past, fold
from toolwire.support.bounded_json import PIECE_BYTES, BoundExceeded, Bounds, DuplicateKey, is_deep, loads

PIECE_CHARS: Final = 128 * 1024
"""Written at once by `dump_in_pieces`: 1 ms where every character has to be escaped."""

MAX_DEPTH: Final = 200
"""Nesting of what a model server sends. The writer has a limit of 254."""

MAX_VALUES: Final = 1_000_000
"""Values in a whole answer, or one frame, of a model server. The largest useful answers say 20 probabilities for each
of some thousand tokens."""

MAX_CONTAINERS: Final = 200_000
"""Arrays and objects among these values, at most."""

BOUNDS: Final = Bounds(MAX_VALUES, MAX_DEPTH, MAX_CONTAINERS)

MAX_MESSAGE_CHARS: Final = 500
"""A backend's error message is shortened to this many characters (R10.8)."""


def _finite(text: str) -> float | None:
    number = float(text)
    return number if math.isfinite(number) else None


_LENIENT: Final = json.JSONDecoder(parse_float=_finite, parse_constant=lambda _: None)


def load(text: bytes | str) -> Any:
    """The value of a JSON text. Raises `ValueError` if it is none: `BoundExceeded` for one that is nested more than
    `MAX_DEPTH` levels deep or holds more than `MAX_VALUES`."""
    if len(text) > PIECE_BYTES:
        if isinstance(text, bytes):
            return loads(text, BOUNDS, _parse, json_marks)
        return loads(text.encode("utf-8", "surrogatepass"), BOUNDS, _parse_halves, json_marks)
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        value = _parse_leniently(text)
    if len(text) > 2 * MAX_DEPTH and _has_brackets(text) and is_deep(value, MAX_DEPTH):
        raise BoundExceeded("depth", MAX_DEPTH)
    return value


def read_body(body: bytes) -> Any:
    """The value that is a server's whole answer. Raises `BackendFault` `upstream_invalid_response`."""
    try:
        return load(body)
    except ValueError as error:
        raise _unread("The model server's answer", "is not JSON", body, error) from None


def read_answer(body: bytes) -> dict[str, Any]:
    """As `read_body`, for an answer that has to be an object."""
    value = read_body(body)
    if not isinstance(value, dict):
        raise unreadable("The model server's answer is not a JSON object", value)
    return value


def read_frame(frame: bytes, name: str = "a frame") -> dict[str, Any]:
    """The object in one frame of a server's stream; `name` is what its protocol calls one. As `read_answer`."""
    try:
        value = load(frame)
    except ValueError as error:
        raise _unread(f"The model server sent {name} that", "is not a JSON object", frame, error) from None
    if not isinstance(value, dict):
        raise unreadable(f"The model server sent {name} that is not a JSON object", value)
    return value


def _unread(subject: str, what: str, text: bytes, error: ValueError) -> BackendFault:
    """The fault for a text of a server that could not be read."""
    if isinstance(error, BoundExceeded | DuplicateKey):
        limit = ", the most that the gateway reads" if isinstance(error, BoundExceeded) else ""
        return BackendFault(f"{subject} {error}{limit}.", code="upstream_invalid_response")
    return unreadable(f"{subject} {what}", text[:300].decode("utf-8", "replace"))


def unreadable(what: str, value: Any) -> BackendFault:
    """The fault for an answer that is not one."""
    return BackendFault(f"{what}: {quote(value)}.", code="upstream_invalid_response")


def nameless() -> BackendFault:
    """The fault of an answer that holds nothing but calls without a name (R29.2)."""
    message = "The model server's answer holds nothing but a call without a name."
    return BackendFault(message, code="upstream_invalid_response")


def nothing_said() -> BackendFault:
    """The fault of a stream that ended without any part of an answer."""
    message = "The model server's stream ended, and no part of an answer was in it."
    return BackendFault(message, code="upstream_invalid_response", transient=True)


def unfinished() -> BackendFault:
    """The fault of an answer that ended inside of its only call, without a word of why (R29.2)."""
    message = "The model server's answer ended inside of a call, and does not say why."
    return BackendFault(message, code="upstream_invalid_response")


def _parse(text: bytes) -> Any:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return _parse_leniently(text)


def _parse_halves(text: bytes) -> Any:
    """As `_parse`, for what was text, with halves of characters in it."""
    return _parse(text) if _is_utf8(text) else _parse_leniently(text.decode("utf-8", "surrogatepass"))


def _is_utf8(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


def _parse_leniently(text: bytes | str) -> Any:
    if isinstance(text, bytes):
        text = text.decode("utf-8", "replace")
    try:
        return _LENIENT.decode(text)
    except RecursionError:
        raise BoundExceeded("depth", MAX_DEPTH) from None


def _has_brackets(text: bytes | str) -> bool:
    """Whether there are enough of them to be too deep."""
    if isinstance(text, str):
        return text.count("[") + text.count("{") > MAX_DEPTH
    return text.count(b"[") + text.count(b"{") > MAX_DEPTH


def dump(value: Any) -> bytes:
    """`value` as compact JSON. Half characters inside become U+FFFD. Raises `TypeError` for what JSON cannot hold."""
    try:
        return orjson.dumps(value)
    except orjson.JSONEncodeError:
        # Whole numbers beyond 64 bits and half characters: the standard library writes both.
        return whole(json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)).encode()


def dump_in_pieces(value: Any) -> bytes:
    """As `dump`, for megabytes in a thread: no more than about `PIECE_CHARS` characters are written without others
    having their turn, since what writes JSON keeps the interpreter."""
    weights: dict[int, int] = {}
    _weigh(value, weights)
    pieces: list[bytes] = []
    _dump_into(pieces, value, weights)
    return b"".join(pieces)


def dump_request(body: Mapping[str, Any], field: str | None, past: Past | None) -> bytes:
    """As `dump_in_pieces`, of a request whose conversation stands in `field` (`dump_items`)."""
    pieces: list[bytes] = []
    between = b"{"
    for key, item in body.items():
        pieces.append(b"%b%b:" % (between, dump(key)))
        between = b","
        pieces.append(dump_items(item, past) if key == field and isinstance(item, list) else dump_in_pieces(item))
    return b"".join((*pieces, b"}"))


def dump_items(items: Sequence[Any], past: Past | None) -> bytes:
    """As `dump_in_pieces`, of the items of a conversation: those that were written for the request before are not
    written again."""
    return b"[%b]" % b",".join(fold(past, "written", items, 0, _dump_more)[0])


def _dump_more(_: int, items: Sequence[Any], start: int, made: list[bytes]) -> int:
    made += map(dump_in_pieces, items)
    return 0


def dumper(large: bool) -> Callable[[Any], bytes]:
    """Writes a value of this size."""
    return dump_in_pieces if large else dump


def _weigh(value: Any, weights: dict[int, int]) -> int:
    """About how long the JSON of `value` is; of each object and array in it `weights` has that by its identity."""
    if isinstance(value, str):
        return len(value) + 3
    if isinstance(value, dict):
        weight = sum(len(key) + _weigh(item, weights) for key, item in value.items())
    elif isinstance(value, list | tuple):
        weight = sum(_weigh(item, weights) for item in value)
    else:
        return 8
    weights[id(value)] = weight
    return weight + 3


def _dump_into(pieces: list[bytes], value: Any, weights: dict[int, int]) -> None:
    if isinstance(value, str):
        _dump_text_into(pieces, value)
    elif weights.get(id(value), 0) <= PIECE_CHARS:
        pieces.append(dump(value))
    elif isinstance(value, dict):
        between = b"{"
        for key, item in value.items():
            pieces.append(b"%b%b:" % (between, dump(key)))
            _dump_into(pieces, item, weights)
            between = b","
        pieces.append(b"}")
    else:
        between = b"["
        light: list[Any] = []  # neighbours that are written together
        weight = 0
        for item in value:
            more = len(item) if isinstance(item, str) else weights.get(id(item), 0)
            if light and weight + more > PIECE_CHARS:
                pieces.append(between + dump(light)[1:-1])
                between, light, weight = b",", [], 0
            if more > PIECE_CHARS:
                pieces.append(between)
                _dump_into(pieces, item, weights)
                between = b","
            else:
                light.append(item)
                weight += more + 3
        pieces.append((between + dump(light)[1:-1] if light else b"") + b"]")


def _dump_text_into(pieces: list[bytes], text: str) -> None:
    pieces.append(b'"')
    start = 0
    while start < len(text):
        end = start + PIECE_CHARS
        if "\ud800" <= text[end - 1 : end] <= "\udbff":
            end += 1  # two halves of a character stay together
        pieces.append(dump(text[start:end])[1:-1])
        start = end
    pieces.append(b'"')


def whole(text: str) -> str:
    """`text` with the two halves of a character joined and single halves replaced by U+FFFD."""
    if text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def shorten(message: str) -> str:
    """A foreign message, cut to `MAX_MESSAGE_CHARS` characters."""
    message = whole(message.strip())
    return message if len(message) <= MAX_MESSAGE_CHARS else message[: MAX_MESSAGE_CHARS - 1] + "…"
