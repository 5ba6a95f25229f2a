"""Helpers that read a JSON Schema for the grammar writers: types, size limits, merging several schemas."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from .notation import Inexpressible

NOTES: Final = frozenset(
    (
        *("$comment", "$defs", "$id", "$schema", "additionalProperties", "default", "definitions", "deprecated"),
        *("description", "example", "examples", "readOnly", "title", "writeOnly"),
    )
)
"""Keywords that do not restrict the values of declared properties."""

RANGES: Final = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")
"""Keywords for ranges of numbers, which a grammar cannot express."""

JSON_TYPES: Final = ("string", "number", "boolean", "null", "array", "object")

_NOT_SAID: Final = (NOTES - {"additionalProperties"}).union(RANGES)

_TYPE_HINTS: Final[Mapping[str, tuple[str, ...]]] = {
    "object": ("properties", "required", "additionalProperties"),
    "array": ("items", "prefixItems", "minItems", "maxItems"),
    "string": ("minLength", "maxLength", "pattern", "format"),
    "number": RANGES,
}


def type_names(schema: Any) -> list[str] | None:
    """Returns the types that a schema allows or implies by its other keywords; None: any."""
    if not isinstance(schema, Mapping):
        return None
    types = schema.get("type")
    if types is None:
        types = next((kind for kind, keys in _TYPE_HINTS.items() if any(key in schema for key in keys)), None)
        if types is None:
            return None
    names = [types] if isinstance(types, str) else list(types)
    if schema.get("nullable") is True and "null" not in names:
        names.append("null")
    return names


def sizes(schema: Mapping[str, Any], least: str, most: str, default: int | None) -> tuple[int, int | None]:
    """Returns the limits under two keywords such as `minItems` and `maxItems`. `default` is the upper limit if the
    schema has none. Raises `Inexpressible` if the lower limit is above the upper one."""
    low = int(schema.get(least, 0))
    if most in schema:
        high: int | None = int(schema[most])
    else:
        high = None if default is None else max(default, low)
    if high is not None and low > high:
        raise Inexpressible(f"{least} is above {most}")
    return low, high


def has_type(value: Any, types: Any) -> bool:
    """Returns True if an enumerated value has one of the types declared beside the enumeration."""
    if types is None:
        return True
    names = (types,) if isinstance(types, str) else tuple(types)
    match value:
        case None:
            return "null" in names
        case bool():
            return "boolean" in names
        case str():
            return "string" in names
        case int():
            return "integer" in names or "number" in names
        case float():
            return "number" in names or ("integer" in names and value.is_integer())
        case list():
            return "array" in names
    return "object" in names


def merge(schemas: Sequence[Any]) -> Any:
    """Returns one schema that requires all of them. Raises `Inexpressible` if two conflict in a way that cannot be
    merged."""
    merged: dict[str, Any] = {}
    for schema in schemas:
        if schema is True:
            continue
        if not isinstance(schema, Mapping):
            raise Inexpressible("nothing fits")
        for key, value in schema.items():
            if key not in merged or key in _NOT_SAID or merged[key] == value:
                merged[key] = value
            elif key == "properties":
                joined = dict(merged[key])
                for name, inner in value.items():
                    joined[name] = {"allOf": [joined[name], inner]} if name in joined else inner
                merged[key] = joined
            elif key == "required":
                merged[key] = [*merged[key], *(name for name in value if name not in merged[key])]
            elif key == "allOf":
                merged[key] = [*merged[key], *value]
            elif key in ("minLength", "minItems", "minProperties"):
                merged[key] = max(merged[key], value)
            elif key in ("maxLength", "maxItems", "maxProperties"):
                merged[key] = min(merged[key], value)
            elif key == "type":
                merged[key] = _common(merged[key], value)
            elif key == "additionalProperties" and False in (merged[key], value):
                merged[key] = False
            else:
                raise Inexpressible(f"two different {key}")
    return merged


def _common(left: Any, right: Any) -> list[str]:
    ours = [left] if isinstance(left, str) else list(left)
    theirs = [right] if isinstance(right, str) else list(right)
    both = [name for name in ours if name in theirs]
    if ("integer" in ours and "number" in theirs) or ("number" in ours and "integer" in theirs):
        both.append("integer")
    return list(dict.fromkeys(both))
