"""Parses request bodies to JSON objects, without blocking the event loop.

`limits.json_values` and `limits.json_depth` bound values and nesting (`toolwire.support.bounded_json`). A large body is
parsed in a thread.

A body with a duplicate key is refused: the gateway, a middleware and the model server could each use a different value.
NUL in strings is allowed. Lone surrogates, invalid UTF-8, NaN and Infinity are errors. Measurements: docs/adr/0003.
Clients that cut a text between the halves of an emoji send one half as an escape, in every later turn as well:
`parse_mended` makes such a body readable (R28.4).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import orjson

from ..config import LimitsConfig
from ..errors import ClientFault, quote
from ..fastparse import has_duplicates, json_marks
from ..formats.engine.toolset import TOOLS_KEY, CutTools, KnownTools
from ..support.bounded_json import LARGE_BYTES, BoundExceeded, DuplicateKey, JsonBounds, MalformedJson, is_deep, loads
from ..support.duplicate_keys import duplicate_key
from ..support.offload import OFFLOAD_BYTES, offload
from .known_conversations import ConversationLookup, TrimmedBody

COUNTED_BYTES: Final = 1024 * 1024
"""Objects of a longer body are counted in a thread: 30 MB take 8 ms."""

MOST_HALVES: Final = 1_000
"""Halves of surrogate pairs that are replaced in one body."""
_WHOLE: Final = re.compile(
    rb"(?:[^\\]++|\\[^u]|\\u(?![dD][89a-fA-F])|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})*+"
)
_HALF: Final = re.compile(rb"\\u[dD][89a-fA-F][0-9a-fA-F]{2}")

_HINT: Final = "Send one JSON object in UTF-8."


class MendedBody(NamedTuple):
    """A body with its JSON object. `halves`: the fault of the body that arrived, if `raw` has U+FFFD in place of halves
    of surrogate pairs. Under `requests.validation: strict` it is raised."""

    raw: bytes
    value: dict[str, Any]
    halves: ClientFault | None = None


async def parse_mended(
    body: bytes,
    limits: LimitsConfig,
    known: KnownTools | None = None,
    lookup: ConversationLookup | None = None,
    counted: Callable[[int], None] = lambda objects: None,
) -> MendedBody:
    """Returns the JSON object in `body`, as `parse_body` does, and replaces escapes of half a surrogate pair by U+FFFD
    if necessary."""
    try:
        return MendedBody(body, await parse_body(body, limits, known, lookup, counted))
    except ClientFault as fault:
        raw = body
        if "surrogate" in fault.message:
            raw = await offload(len(body) > OFFLOAD_BYTES, _without_halves, body)
        if raw is body:
            raise
        return MendedBody(raw, await parse_body(raw, limits, known, lookup, counted), fault)


def _without_halves(body: bytes) -> bytes:
    pieces: list[bytes] = []
    at = 0
    while (whole := _WHOLE.match(body, at)) is not None and whole.end() < len(body):
        half = _HALF.match(body, whole.end())
        if half is None or len(pieces) == MOST_HALVES:
            return body
        pieces.append(whole[0])
        at = half.end()
    return b"\\ufffd".join([*pieces, body[at:]]) if pieces else body


class _Parts(NamedTuple):
    """A body without its known parts: the first `items` of its conversation, and its `tools`. `rest` is what remains
    to be parsed, with `openers` opening brackets."""

    items: TrimmedBody | None
    tools: CutTools | None
    rest: bytes
    openers: int


async def parse_body(
    body: bytes,
    limits: LimitsConfig,
    known: KnownTools | None = None,
    lookup: ConversationLookup | None = None,
    counted: Callable[[int], None] = lambda objects: None,
) -> dict[str, Any]:
    """Returns the JSON object in `body`. Its `tools` are a `KnownList` if `known` is given and has or stores them. Its
    conversation is a `KnownItems` if `lookup` is given and the body can be looked up. Before a large body is parsed,
    `counted` is called with the number of objects and lists in it. Raises `ClientFault` `invalid_json`."""
    items: TrimmedBody | None = None
    tools: CutTools | None = None
    rest = body
    if len(body) <= LARGE_BYTES:
        if lookup is not None and (items := lookup.known.cut(body, lookup)) is not None:
            rest = items.rest
        if known is not None and TOOLS_KEY in rest and (tools := known.cut(rest)) is not None:
            rest = tools.rest
    parts = _Parts(items, tools, rest, 0)
    if rest is not body or len(body) > OFFLOAD_BYTES:
        openers, commas, _ = json_marks(rest) if len(rest) <= COUNTED_BYTES else await offload(True, json_marks, rest)
        parts = _Parts(items, tools, rest, openers)
        for known_openers, known_commas in [part.marks for part in (items, tools and tools.tools) if part is not None]:
            openers += known_openers
            commas += known_commas
        if openers + commas >= limits.json_values:
            parts = _Parts(None, None, body, openers)  # the parser may have to count all values of the body
        if len(body) > OFFLOAD_BYTES:
            counted(openers)
    if len(parts.rest) > OFFLOAD_BYTES:
        value = await offload(True, _read, body, parts, limits, known, lookup)
    else:
        value = _read(body, parts, limits, known, lookup)
    if not isinstance(value, dict):
        raise ClientFault(
            f"The body must be a JSON object, not {_kind(value)}.",
            code="invalid_json",
            hint='Send something like {"model": "...", "messages": [...]}.',
        )
    return value


def _read(
    body: bytes, parts: _Parts, limits: LimitsConfig, known: KnownTools | None, lookup: ConversationLookup | None
) -> Any:
    """Returns the value of `body`. Raises `ClientFault`, whose error describes the whole body."""
    items = parts.items
    value = _read_rest(parts, limits, known)
    if value is None and items is not None and items.known:
        try:
            value = _read_all(items.rest, limits, known)
        except ClientFault:
            items = TrimmedBody(body, items.start)
    if value is None:
        value = _read_all(body, limits, known)
    if items is not None and lookup is not None:
        lookup.known.keep(items, value, lookup, len(parts.rest))
    return value


def _read_rest(parts: _Parts, limits: LimitsConfig, known: KnownTools | None) -> dict[str, Any] | None:
    """Returns the object in the rest of a body with known tools; None if the body needs the full checks."""
    if parts.tools is None or known is None:
        return None
    try:
        value = orjson.loads(parts.rest)
    except orjson.JSONDecodeError:
        return None
    if has_duplicates(parts.rest, value) or (parts.openers > limits.json_depth and is_deep(value, limits.json_depth)):
        return None
    if not known.put_back(value, parts.tools.tools):
        return None
    found: dict[str, Any] = value
    return found


def _read_all(body: bytes, limits: LimitsConfig, known: KnownTools | None) -> Any:
    """Returns the value of `body`, without reusing known parts. Raises `ClientFault`."""
    try:
        value = loads(body, JsonBounds(limits.json_values, limits.json_depth), count=json_marks)
    except BoundExceeded as error:
        raise ClientFault(f"The body {error}.", code="invalid_json", hint=_HINTS[error.kind]) from None
    except DuplicateKey as error:
        raise _duplicate_key(error.key) from None
    except MalformedJson as error:
        raise _malformed(body, error) from None
    if len(body) > LARGE_BYTES:
        return value
    if has_duplicates(body, value):
        raise _duplicate_key(duplicate_key(body))
    if known is not None and TOOLS_KEY in body and isinstance(value, dict):
        known.learn(body, value)
    return value


_HINTS: Final = {
    "containers": "Send less at once.",
    "values": "Send less at once, or raise `limits.json_values`.",
    "depth": "Flatten it, or raise `limits.json_depth`.",
    "key": "Shorten it.",
    "string": "Send files as base64.",
}


def _duplicate_key(key: str | None) -> ClientFault:
    named = "" if key is None else f" {quote(key)}"
    return ClientFault(
        f"The body has an object with the key{named} twice.",
        code="invalid_json",
        hint="Send each key of an object once.",
    )


def _malformed(body: bytes, error: MalformedJson) -> ClientFault:
    if not body.strip():
        return ClientFault("The body is empty.", code="invalid_json", hint=_HINT)
    hint = _HINT
    if "surrogate" in error.reason:
        hint = "A \\u escape for one half of a surrogate pair needs the other half."
    return ClientFault(f"The body is not valid JSON: {error}.", code="invalid_json", hint=hint)


def _kind(value: object) -> str:
    kinds = {list: "an array", str: "a string", bool: "a boolean", int: "a number", float: "a number"}
    return "null" if value is None else f"{kinds[type(value)]} such as {quote(value)}"
