"""Reading and writing JSON on the wire, for text that need not be valid Unicode.

A backend may split one character into two halves (`"\\ud83d"`, then `"\\ude00"`) or send bytes that are not UTF-8.
orjson rejects both; a gateway must not (R6.5). Reading therefore falls back to the standard library, which keeps the
halves apart, so code that joins the texts also joins the halves; writing replaces remaining halves by U+FFFD.

NaN, infinity and numbers too large for a double, which Python servers do write, are read as null, so that everything
that was read can be written.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final

import orjson

from ...errors import BackendFault, quote
from ...fastparse import json_marks, with_own_texts
from ...known.past import Past, fold_items, make_once
from ...model import EMPTY
from ...repair.characters import valid_text
from ...support.bounded_json import PIECE_BYTES, BoundExceeded, DuplicateKey, JsonBounds, is_deep, loads

PIECE_CHARS: Final = 128 * 1024
"""Characters that `dump_in_pieces` writes at once: 1 ms if every character has to be escaped."""

MAX_ANSWER_DEPTH: Final = 200
"""Maximum nesting in data from a model server. The writer has a limit of 254."""

MAX_ANSWER_VALUES: Final = 1_000_000
"""Maximum number of values in a whole answer, or one frame, of a model server. The largest useful answers have 20
probabilities for each of some thousand tokens."""

MAX_ANSWER_CONTAINERS: Final = 200_000
"""Maximum number of arrays and objects in a whole answer, or one frame, of a model server."""

BOUNDS: Final = JsonBounds(MAX_ANSWER_VALUES, MAX_ANSWER_DEPTH, MAX_ANSWER_CONTAINERS)

MAX_MESSAGE_CHARS: Final = 500
"""Maximum length of a backend's error message (R10.8)."""


def _finite(text: str) -> float | None:
    number = float(text)
    return number if math.isfinite(number) else None


_LENIENT: Final = json.JSONDecoder(parse_float=_finite, parse_constant=lambda _: None)


def load(text: bytes | str) -> Any:
    """Returns the value of a JSON text. Raises `ValueError` if it is invalid; `BoundExceeded`, a subclass, if it is
    nested deeper than `MAX_ANSWER_DEPTH` or holds more than `MAX_ANSWER_VALUES`."""
    if len(text) > PIECE_BYTES:
        if isinstance(text, bytes):
            return loads(text, BOUNDS, _parse, json_marks)
        return loads(text.encode("utf-8", "surrogatepass"), BOUNDS, _parse_halves, json_marks)
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        value = _parse_leniently(text)
    if len(text) > 2 * MAX_ANSWER_DEPTH and _has_brackets(text) and is_deep(value, MAX_ANSWER_DEPTH):
        raise BoundExceeded("depth", MAX_ANSWER_DEPTH)
    return value


def read_body(body: bytes) -> Any:
    """Returns the JSON value of a server's whole answer. Raises `BackendFault` `upstream_invalid_response` if it is
    invalid."""
    try:
        return load(body)
    except ValueError as error:
        raise _unread("The model server's answer", "is not JSON", body, error) from None


def read_answer(body: bytes) -> dict[str, Any]:
    """Returns the JSON object of a server's whole answer. Raises `BackendFault` `upstream_invalid_response` if it is
    not an object."""
    value = read_body(body)
    if not isinstance(value, dict):
        raise unreadable_answer("The model server's answer is not a JSON object", value)
    return value


def read_frame(frame: bytes, name: str = "a frame") -> dict[str, Any]:
    """Returns the object in one frame of a server's stream; `name` is the protocol's word for a frame. Raises
    `BackendFault` `upstream_invalid_response` if it is not an object."""
    try:
        value = load(frame)
    except ValueError as error:
        raise _unread(f"The model server sent {name} that", "is not a JSON object", frame, error) from None
    if not isinstance(value, dict):
        raise unreadable_answer(f"The model server sent {name} that is not a JSON object", value)
    return value


def _unread(subject: str, what: str, text: bytes, error: ValueError) -> BackendFault:
    """Returns the fault for a server's text that could not be read."""
    if isinstance(error, BoundExceeded | DuplicateKey):
        limit = ", the most that the gateway reads" if isinstance(error, BoundExceeded) else ""
        return BackendFault(f"{subject} {error}{limit}.", code="upstream_invalid_response")
    return unreadable_answer(f"{subject} {what}", text[:300].decode("utf-8", "replace"))


def frame_type(name: str | None, data: bytes) -> str | None:
    """Returns the type of a frame with this event name; None for an error or data that is not a JSON object."""
    try:
        value = load(data)
    except ValueError:
        return None
    return type_of(name, value) if isinstance(value, dict) else None


def type_of(name: str | None, value: Mapping[str, Any]) -> str | None:
    """Returns the type of a frame with this event name and content; None for an error."""
    kind = None if value.get("error") else value.get("type", name)
    return kind if isinstance(kind, str) else None


def unreadable_answer(what: str, value: Any) -> BackendFault:
    """Returns the fault for an answer of the wrong form."""
    return BackendFault(f"{what}: {quote(value)}.", code="upstream_invalid_response")


def nameless_call_fault() -> BackendFault:
    """Returns the fault for an answer with nothing but calls without a name (R29.2)."""
    message = "The model server's answer holds only calls without a name."
    return BackendFault(message, code="upstream_invalid_response")


def empty_answer_fault() -> BackendFault:
    """Returns the fault for a stream that ended without any part of an answer."""
    message = "The model server's stream ended without any part of an answer."
    return BackendFault(message, code="upstream_invalid_response", transient=True)


def unfinished_call_fault() -> BackendFault:
    """Returns the fault for an answer that ended inside its only call, without a finish reason (R29.2)."""
    message = "The model server's answer ended inside a call, without a finish reason."
    return BackendFault(message, code="upstream_invalid_response")


def _parse(text: bytes) -> Any:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return _parse_leniently(text)


def _parse_halves(text: bytes) -> Any:
    """Parses bytes that may contain halves of characters."""
    try:
        text.decode()
    except UnicodeDecodeError:
        return _parse_leniently(text.decode("utf-8", "surrogatepass"))
    return _parse(text)


def _parse_leniently(text: bytes | str) -> Any:
    if isinstance(text, bytes):
        text = text.decode("utf-8-sig", "replace")
    try:
        return _LENIENT.decode(text)
    except RecursionError:
        raise BoundExceeded("depth", MAX_ANSWER_DEPTH) from None


def _has_brackets(text: bytes | str) -> bool:
    """True if the text has enough opening brackets to exceed the maximum depth."""
    if isinstance(text, str):
        return text.count("[") + text.count("{") > MAX_ANSWER_DEPTH
    return text.count(b"[") + text.count(b"{") > MAX_ANSWER_DEPTH


def fields_in(value: Any) -> Mapping[str, Any]:
    """Returns `value` if it is an object, otherwise no fields."""
    return value if isinstance(value, Mapping) else EMPTY


def rest_of(value: Mapping[str, Any], known: frozenset[str]) -> Mapping[str, Any]:
    """Returns the fields of `value` that are not in `known`; null counts as absent."""
    if value.keys() <= known:
        return EMPTY
    return {key: item for key, item in value.items() if key not in known and item is not None} or EMPTY


def typed_parts(content: Any, kind: str) -> Any:
    """Returns the content of a server's message as a list of parts with types; servers also send one text or one part,
    or leave out the type `kind` of a text. The same object if it has that form, or no known one."""
    parts = [content] if isinstance(content, str | dict) else content
    if not isinstance(parts, list) or (parts is content and all(map(_is_typed, parts))):
        return content
    texts = ({"text": part} if isinstance(part, str) else part for part in parts)
    return [part if _is_typed(part) else {"type": kind, **part} for part in texts]


def _is_typed(part: Any) -> bool:
    return not isinstance(part, str) and not (isinstance(part, dict) and "type" not in part and "text" in part)


def dump(value: Any) -> bytes:
    """Returns `value` as compact JSON. Halves of characters become U+FFFD. Raises `TypeError` for values that JSON
    cannot hold."""
    try:
        return orjson.dumps(value)
    except orjson.JSONEncodeError:
        # The standard library can write whole numbers beyond 64 bits and halves of characters.
        return valid_text(json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)).encode()


def dump_in_pieces(value: Any) -> bytes:
    """Returns `value` as compact JSON, for megabytes in a thread: writes about `PIECE_CHARS` characters at once,
    because the encoder holds the interpreter lock and other threads must get their turn in between."""
    weights: dict[int, int] = {}
    _weigh(value, weights)
    pieces: list[bytes] = []
    _dump_into(pieces, value, weights)
    return b"".join(pieces)


_CONTAINERS: Final = (dict, list, tuple)


def dump_request(body: Mapping[str, Any], field: str | None, past: Past | None) -> bytes:
    """Returns the JSON of a request whose conversation is in `field`; its items are written by `item_pieces`.
    Reuses the JSON of `tools` if an earlier request had the same objects."""
    pieces = [b"{"]
    between = b""
    light: dict[str, Any] = {}  # neighbouring fields that are written together
    weight = 0
    for key, item in body.items():
        more = len(key) + 6 + (len(item) if isinstance(item, str) else 8)
        if not isinstance(item, _CONTAINERS) and weight + more <= PIECE_CHARS:
            light[key] = item
            weight += more
            continue
        if light:
            pieces.append(between + dump(light)[1:-1])
            between, light, weight = b",", {}, 0
        pieces.append(b"%b%b:" % (between, dump(key)))
        between = b","
        if key == field and isinstance(item, list):
            pieces += item_pieces(item, past)
        elif key == "tools" and isinstance(item, list):
            pieces.append(make_once(past, "written tools", item, partial(dump_in_pieces, item)))
        else:
            pieces.append(dump_in_pieces(item))
    if light:
        pieces.append(between + dump(light)[1:-1])
    return b"".join((*pieces, b"}"))


def item_pieces(items: Sequence[Any], past: Past | None) -> list[bytes]:
    """Returns the pieces of the JSON array of a conversation's items: joining them once copies a long conversation
    once. Reuses the JSON of items that were written for an earlier request; writes the others with
    `dump_in_pieces`."""
    if not items:
        return [b"[]"]
    return [*fold_items(past, "written", items, 0, _dump_more)[0], b"]"]


def _dump_more(_: int, items: Sequence[Any], start: int, made: list[bytes]) -> int:
    for at, item in enumerate(items, start):
        made.append(b"%b%b" % (b"," if at else b"[", dump_in_pieces(with_own_texts(item))))
    return 0


def dumper(large: bool) -> Callable[[Any], bytes]:
    """Returns `dump_in_pieces` for large values, otherwise `dump`."""
    return dump_in_pieces if large else dump


def _weigh(value: Any, weights: dict[int, int]) -> int:
    """Returns the approximate length of the JSON of `value`, and stores that of each object and array in it in
    `weights`, by identity."""
    inner: Iterable[Any]
    if isinstance(value, dict):
        weight, inner = sum(map(len, value)), value.values()
    elif isinstance(value, list | tuple):
        weight, inner = 0, value
    else:
        return len(value) + 3 if isinstance(value, str) else 8
    for item in inner:
        weight += len(item) + 3 if isinstance(item, str) else _weigh(item, weights)
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
        light: list[Any] = []  # neighbouring items that are written together
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
            end += 1  # keeps two halves of a character together
        pieces.append(dump(text[start:end])[1:-1])
        start = end
    pieces.append(b'"')


def shorten(message: str) -> str:
    """Returns another server's message, shortened to `MAX_MESSAGE_CHARS` characters."""
    message = valid_text(message.strip())
    return message if len(message) <= MAX_MESSAGE_CHARS else message[: MAX_MESSAGE_CHARS - 1] + "…"
