"""Unmodelled fields of Chat's messages and calls: stored in their original shape and written back in it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ...model import EMPTY, Extra, fields_of, scoped
from ..shared.wire import rest_of

PROTOCOL: Final = "chat"


CALL_FIELDS: Final = frozenset({"name", "arguments", "input"})


def nested_rest_of(outer: Mapping[str, Any], key: str, inner: Mapping[str, Any], known: frozenset[str]) -> Extra:
    """Returns the unmodelled fields of an object with another object `inner` under `key`, in the same shape; `known`
    are the modelled fields of `inner`."""
    rest = {k: value for k, value in outer.items() if k not in (key, "type", "id") and value is not None}
    if inside := rest_of(inner, known):
        rest[key] = inside
    return scoped(PROTOCOL, rest)


def nest(written: dict[str, Any], key: str, extra: Extra) -> dict[str, Any]:
    """Returns the object `written` with the fields from `nested_rest_of` added."""
    fields = fields_of(extra, PROTOCOL)
    if not fields:
        return written
    inside = fields.get(key)
    rest = {k: value for k, value in fields.items() if k != key}
    inner = {**inside, **written[key]} if isinstance(inside, Mapping) else written[key]
    return {**rest, **written, key: inner}


def call_extra(call: Mapping[str, Any], key: str) -> Extra:
    """Returns the unmodelled fields of a call whose name stands under `key`, in a request or in an answer."""
    inner = call.get(key)
    return nested_rest_of(call, key, inner if isinstance(inner, Mapping) else EMPTY, CALL_FIELDS)
