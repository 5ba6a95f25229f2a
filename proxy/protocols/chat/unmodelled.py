"""Fields of Chat's messages and calls that the model has no place for: kept as they came, and put back in the same
shape."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from toolwire.model import EMPTY, Extra, fields_of, scoped

PROTOCOL: Final = "chat"


def rest_of(value: Mapping[str, Any], known: frozenset[str]) -> Mapping[str, Any]:
    """What is not modelled. Nulls are absent (rule 2)."""
    return {key: item for key, item in value.items() if key not in known and item is not None} or EMPTY


CALL_FIELDS: Final = frozenset({"name", "arguments", "input"})


def nestedrest_of(outer: Mapping[str, Any], key: str, inner: Mapping[str, Any], known: frozenset[str]) -> Extra:
    """What is not modelled of an object that holds another one under `key`, of which `known` is: in the same shape."""
    rest = {k: value for k, value in outer.items() if k not in (key, "type", "id") and value is not None}
    if inside := rest_of(inner, known):
        rest[key] = inside
    return scoped(PROTOCOL, rest)


def nest(written: dict[str, Any], key: str, extra: Extra) -> dict[str, Any]:
    """The object with the fields that `nestedrest_of` has kept."""
    fields = fields_of(extra, PROTOCOL)
    if not fields:
        return written
    inside = fields.get(key)
    rest = {k: value for k, value in fields.items() if k != key}
    inner = {**inside, **written[key]} if isinstance(inside, Mapping) else written[key]
    return {**rest, **written, key: inner}


def call_extra(call: Mapping[str, Any], key: str) -> Extra:
    """What is not modelled of a call whose name stands under `key`, in a request or in an answer."""
    inner = call.get(key)
    return nestedrest_of(call, key, inner if isinstance(inner, Mapping) else EMPTY, CALL_FIELDS)
