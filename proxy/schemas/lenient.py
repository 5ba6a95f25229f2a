"""Converts the schemas that clients really send to valid JSON Schema (R28.4).

Rules:

1. A replacement has the same meaning or is less strict: a draft-04 bound becomes a number, null and meaningless values
   are removed, types of other languages become JSON types.
2. Tuples in the form of draft 7 (`items` is a list) become those of 2020-12 unless `$schema` names an early draft:
   clients remove it.
3. A reference to a missing part of the schema is removed. One that leads out of the schema stays, and is refused
   (R3.4).
4. If nothing has to be changed, the same object is returned.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import unquote

from ._schema_walk import EDGES, pointed

MAX_DEPTH: Final = 200

_TYPES: Final = frozenset({"array", "boolean", "integer", "null", "number", "object", "string"})
_OTHER_TYPES: Final[Mapping[str, str]] = {
    **dict.fromkeys(("str", "text", "date", "datetime"), "string"),
    **dict.fromkeys(("int", "int32", "int64", "long"), "integer"),
    **dict.fromkeys(("float", "double", "decimal"), "number"),
    **dict.fromkeys(("dict", "map"), "object"),
    **dict.fromkeys(("list", "tuple", "set"), "array"),
    "bool": "boolean",
    "none": "null",
}
"""Types by their names in programming languages, in lower case."""
BY_NAME: Final = frozenset(keyword for keyword, (_, mapped) in EDGES.items() if mapped)
"""Keywords whose value is an object with a schema under each name."""
DATA: Final = frozenset({"const", "default", "enum", "examples", "example"})
"""Keywords whose values are data, not schemas."""
_BOUNDS: Final = {"exclusiveMinimum": "minimum", "exclusiveMaximum": "maximum"}
_NO_PARAMETERS: Final[Mapping[str, Any]] = {"type": "object", "properties": {}}


def mended(parameters: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns the parameters of a tool with irregular parts replaced by valid ones."""
    schema = _Mending(parameters).schema(parameters, 0)
    root = schema.get("type", "object")
    if isinstance(root, list) and "object" in root:
        schema = {**schema, "type": "object"}
    dialect = schema.get("$schema")
    if "$schema" in schema and not (isinstance(dialect, str) and "json-schema.org/draft" in dialect):
        schema = {key: value for key, value in schema.items() if key != "$schema"}
    return schema


def complete(parameters: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """Returns parameters in the form that every model server accepts: an object with `properties`. Returns the same
    object if they have that form."""
    if parameters is None:
        return _NO_PARAMETERS
    if "type" in parameters and "properties" in parameters:
        return parameters
    if any(key in parameters for key in ("$ref", "allOf", "anyOf", "oneOf")):
        return parameters if "type" in parameters else {"type": "object", **parameters}
    return {**_NO_PARAMETERS, **parameters}


class _Mending:
    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root
        dialect = root.get("$schema")
        self._early = isinstance(dialect, str) and "json-schema.org/draft-0" in dialect

    def schema(self, schema: Mapping[str, Any], depth: int) -> Mapping[str, Any]:
        """Returns one schema and its subschemas, made valid."""
        if depth > MAX_DEPTH:
            return schema
        out: dict[str, Any] = {}
        changed = False
        if isinstance(schema.get("items"), list) and not self._early:
            changed, schema = True, _with_tuple(schema)
        for key, value in schema.items():
            better = self._value(schema, key, value, depth)
            changed = changed or better is not value
            if better is not _LEFT_OUT:
                out[key] = better
        return out if changed else schema

    def _value(self, schema: Mapping[str, Any], key: str, value: Any, depth: int) -> Any:
        if key == "enum":
            return _enum(value)
        if key in DATA:
            return value  # null as well
        if value is None:
            return _LEFT_OUT
        match key:
            case "type":
                return _type(value)
            case "$ref" if isinstance(value, str) and value.startswith("#/") and not self._leads(value):
                return _LEFT_OUT
            case "exclusiveMinimum" | "exclusiveMaximum" if isinstance(value, bool):
                bound = schema.get(_BOUNDS[key])
                return bound if value and isinstance(bound, int | float) else _LEFT_OUT
            case "required":
                return _required(value)
            case "id" if isinstance(value, str):
                return _LEFT_OUT
        if key not in EDGES:
            return value
        if isinstance(value, Mapping):
            return self._mapped(value, depth) if key in BY_NAME else self.schema(value, depth + 1)
        if value == [] and (key in BY_NAME or key == "prefixItems"):
            return {} if key in BY_NAME else _LEFT_OUT
        if isinstance(value, list) and key not in BY_NAME:
            better = [self.schema(one, depth + 1) if isinstance(one, Mapping) else one for one in value]
            return value if all(a is b for a, b in zip(better, value, strict=True)) else better
        return value

    def _mapped(self, schemas: Mapping[str, Any], depth: int) -> Mapping[str, Any]:
        better = {
            name: self.schema(one, depth + 1) if isinstance(one, Mapping) else {} if one is None else one
            for name, one in schemas.items()
        }
        return schemas if all(better[name] is one for name, one in schemas.items()) else better

    def _leads(self, reference: str) -> bool:
        """Returns True if a pointer leads to a schema in the document."""
        try:
            return isinstance(pointed(self._root, unquote(reference[1:]))[0], Mapping | bool)
        except LookupError:
            return False


_LEFT_OUT: Final = object()


def _with_tuple(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns a schema whose `items` is a list with the keywords of 2020-12."""
    others = {key: value for key, value in schema.items() if key not in ("items", "additionalItems")}
    further = {"items": schema["additionalItems"]} if "additionalItems" in schema else {}
    return {**others, "prefixItems": schema["items"], **further}


def _type(value: Any) -> Any:
    """Returns a type, or several; `_LEFT_OUT` if any type is allowed."""
    if isinstance(value, str):
        if value in _TYPES:
            return value
        small = value.lower()
        return _LEFT_OUT if small in ("any", "") else small if small in _TYPES else _OTHER_TYPES.get(small, value)
    if not isinstance(value, list):
        return value
    better = [_type(one) if one is not None else "null" for one in value]
    if not better or _LEFT_OUT in better:
        return _LEFT_OUT
    better = list(dict.fromkeys(better)) if all(isinstance(one, str) for one in better) else better
    return value if better == value else better


def _enum(value: Any) -> Any:
    """Returns the allowed values without duplicates; `_LEFT_OUT` if none are listed."""
    if not isinstance(value, list) or not value:
        return _LEFT_OUT if value is None or value == [] else value
    try:
        plain = all(isinstance(one, str) for one in value) and len(set(value)) < len(value)
    except TypeError:
        return value
    return list(dict.fromkeys(value)) if plain else value


def _required(value: Any) -> Any:
    """Returns the names of required properties without duplicates. A boolean (`required: true` in a property) is
    `_LEFT_OUT`."""
    if isinstance(value, bool):
        return _LEFT_OUT
    if isinstance(value, list) and all(isinstance(one, str) for one in value) and len(set(value)) < len(value):
        return list(dict.fromkeys(value))
    return value
