"""Parses request bodies to JSON objects, without blocking the event loop.

`limits.json_values` and `limits.json_depth` bound values and nesting (`toolwire.support.bounded_json`). A large body is
parsed in a thread.

A body with a duplicate key is refused: the gateway, a middleware and the model server could each use a different value.
NUL in strings is allowed. Lone surrogates, invalid UTF-8, NaN and Infinity are errors. Measurements: docs/adr/0003.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import orjson

from ..config import LimitsConfig
from ..errors import ClientFault, quote
from ..fastparse import has_duplicates, json_marks
from ..formats.engine.toolset import TOOLS_KEY, KnownTools
from ..support.bounded_json import (
    LARGE_BYTES,
    BoundExceeded,
    DuplicateKey,
    JsonBounds,
    MalformedJson,
    is_deep,
    loads,
)
from ..support.duplicate_keys import duplicate_key
from ..support.offload import OFFLOAD_BYTES, offload
from .conversations import ConversationLookup, Cut

COUNTED_BYTES: Final = 1024 * 1024
"""Objects of a longer body are counted in a thread: 30 MB take 8 ms."""

_HINT: Final = "Send one JSON object in UTF-8."


async def read_json(
    body: bytes,
    limits: LimitsConfig,
    known: KnownTools | None = None,
    lookup: ConversationLookup | None = None,
    counted: Callable[[int], None] = lambda objects: None,
) -> dict[str, Any]:
    """Returns the JSON object in `body`. Its `tools` are a `KnownList` if `known` is given and has or stores them. Its
    conversation is a `KnownItems` if `whose` is given and the body can be looked up. Before a large body is parsed,
    `counted` is called with the number of objects and lists in it. Raises `ClientFault` `invalid_json`."""
    cut = None
    if lookup is not None and len(body) <= LARGE_BYTES:
        cut = lookup.known.cut(body, lookup)
    if cut is not None:
        openers, commas = cut.marks()
        if openers + commas >= limits.json_values:
            cut = None  # the parser may have to count all values of the body
    elif len(body) > OFFLOAD_BYTES:
        openers, _, _ = await offload(len(body) > COUNTED_BYTES, json_marks, body)
    if len(body) > OFFLOAD_BYTES:
        counted(openers)
    if len(body if cut is None else cut.rest) > OFFLOAD_BYTES:
        value = await offload(True, _read, body, limits, known, lookup, cut)
    else:
        value = _read(body, limits, known, lookup, cut)
    if not isinstance(value, dict):
        raise ClientFault(
            f"The body must be a JSON object, not {_kind(value)}.",
            code="invalid_json",
            hint='Send something like {"model": "...", "messages": [...]}.',
        )
    return value


def _read(
    body: bytes, limits: LimitsConfig, known: KnownTools | None, lookup: ConversationLookup | None, cut: Cut | None
) -> Any:
    """Returns the value of `body`; `cut` holds its known items. Raises `ClientFault`."""
    value = None
    if cut is not None and cut.known:
        try:
            value = _read_all(cut.rest, limits, known)
        except ClientFault:  # the error has to describe the whole body
            cut = Cut(body, cut.start)
    if value is None:
        value = _read_all(body, limits, known)
    if cut is not None and lookup is not None:
        lookup.known.keep(cut, value, lookup)
    return value


def _read_all(body: bytes, limits: LimitsConfig, known: KnownTools | None) -> Any:
    """Returns the value of `body`, without reusing known items. Raises `ClientFault`."""
    if known is not None and (len(body) > LARGE_BYTES or TOOLS_KEY not in body):
        known = None
    value = None if known is None else _read_known(body, limits, known)
    if value is not None:
        return value
    try:
        value = loads(body, JsonBounds(limits.json_values, limits.json_depth), count=json_marks)
    except BoundExceeded as error:
        raise ClientFault(f"The body {error}.", code="invalid_json", hint=_HINTS[error.kind]) from None
    except DuplicateKey as error:
        raise _duplicate_key(error.key) from None
    except MalformedJson as error:
        raise _malformed(body, error) from None
    if len(body) <= LARGE_BYTES and has_duplicates(body, value):
        raise _duplicate_key(duplicate_key(body))
    if known is not None and isinstance(value, dict):
        known.learn(body, value)
    return value


def _read_known(body: bytes, limits: LimitsConfig, known: KnownTools) -> dict[str, Any] | None:
    """Returns the object in a body whose list of tools was parsed before; None if the body needs the full checks."""
    cut = known.cut(body)
    if cut is None:
        return None
    tools, rest = cut
    openers, commas, _ = json_marks(rest)
    if tools.values + len(rest) >= limits.json_values <= tools.values + openers + commas:
        return None
    try:
        value = orjson.loads(rest)
    except orjson.JSONDecodeError:
        return None
    if has_duplicates(rest, value) or (openers > limits.json_depth and is_deep(value, limits.json_depth)):
        return None
    if not known.put_back(value, tools):
        return None
    found_value: dict[str, Any] = value
    return found_value


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
