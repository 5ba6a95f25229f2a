"""Values without a type, as in `<parameter=count>3</parameter>`: the tool's JSON Schema decides the type.

Rules of this module:

1. A string keeps its text. Any other value is read as JSON (numbers keep their text), then as a Python literal (`True`,
   `None`, single quotes). A value that cannot be read stays a string; the schema check decides whether it fits (R9.4).
2. If a schema allows strings and other types, a text is read as another type only if that type is allowed. Of Python's
   syntax only the constants and text that begins with `[` or `{` count there: `+47`, `0x1F` and `(1)` are strings.
3. Without a schema for the key, text that is valid JSON other than a string is JSON; any other text is a string.
4. Only the types in a schema are read, each part of it at most once per key, also if several `$ref`s point to it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from typing import Any, Final, Self
from urllib.parse import unquote

from ..repair.literals import json_string, python_value
from ..repair.relaxed_json import NUMBER, compact_json, parses
from ..scan._grammar import SPACE, ValueKind
from ..schemas._schema_walk import pointed

Types = frozenset[str]
"""Names of JSON Schema types."""

STRING: Final[Types] = frozenset(("string",))
OTHERS: Final[Types] = frozenset(("integer", "number", "boolean", "null", "object", "array"))

_WHOLE: Final = re.compile(r"-?[0-9]+")
_JSON_WORDS: Final = ("true", "false", "null")
_PYTHON_WORDS: Final = ("True", "False", "None")
_PYTHON: Final = ("[", "{", *_PYTHON_WORDS)
_NUMBER_BEGUN: Final = re.compile(r"-?(?:(?:0|[1-9][0-9]*)(?:\.[0-9]*)?(?:(?<=[0-9])[eE][+-]?[0-9]*)?)?")


class ParameterTypes:
    """The types of a tool's parameters. `schema` is the tool's, or None if it is unknown."""

    def __init__(self, schema: Mapping[str, Any] | None) -> None:
        self._root: Mapping[str, Any] = schema or {}
        self._read((self._root,))

    def _read(self, schemas: Sequence[object]) -> None:
        self._schemas: dict[str, list[object]] = {}
        self._other: list[object] = []
        self._items: list[object] = []
        self._within: dict[str | None, Self] = {}
        for schema in schemas:
            for part in _parts(schema, self._root):
                properties = part.get("properties")
                if isinstance(properties, Mapping):
                    for name, inner in properties.items():
                        self._schemas.setdefault(name, []).append(inner)
                self._other.append(part.get("additionalProperties"))
                self._items.append(part.get("items"))

    @property
    def names(self) -> tuple[str, ...]:
        """The parameters' names, in the schema's order."""
        return tuple(self._schemas)

    @property
    def required(self) -> frozenset[str]:
        """The parameters that are required in every reading of the schema."""
        demanded = (part.get("required") for part in _parts(self._root, self._root, ("allOf",)))
        return frozenset(name for names in demanded if isinstance(names, list | tuple) for name in names)

    def of(self, key: str) -> Types | None:
        """Returns the types that a parameter may have, or None if the schema does not say."""
        return self._of(self._schemas.get(key, self._other))

    def _of(self, schemas: Sequence[object]) -> Types | None:
        types = {name for schema in schemas for part in _parts(schema, self._root) for name in _types(part)}
        return frozenset(types) or None

    def inside(self, key: str) -> Self:
        """Returns the types inside a parameter that is an object or array."""
        return self._about(key, self._schemas.get(key, self._other))

    def items(self) -> tuple[Types | None, Self]:
        """Returns the types of an array's items, and the types inside those items."""
        return self._of(self._items), self._about(None, self._items)

    def _about(self, key: str | None, schemas: Sequence[object]) -> Self:
        if key not in self._within:
            found = self._within[key] = copy(self)
            found._read(schemas)
        return self._within[key]


def typed_value(text: str, types: Types | None) -> str:
    """Returns `text` as the JSON text of a value that may have one of `types` (None: any type)."""
    if types == STRING:
        return json_string(text)
    bare = text.strip(SPACE)
    value = _as_json(bare)
    if types is None:
        return json_string(text) if value is None or value[0] == '"' else value
    mixed = "string" in types
    if value is None and (not mixed or bare.startswith(_PYTHON)):
        try:
            value = python_value(bare)
        except ValueError:
            pass
    if value is None or (mixed and types.isdisjoint(_types_of(value))):
        return json_string(text)
    return value


def kind_of_value(begun: str, types: Types | None) -> ValueKind:
    """Returns what `typed_value` will make of a value that begins with `begun`: a string of exactly that text (`text`),
    JSON that begins with a bracket if valid (`json`), or undecided (`unsure`)."""
    if types == STRING:
        return "text"
    bare = begun.strip(SPACE)
    if not bare:
        return "unsure"
    if types is not None and "string" not in types:
        return "json" if bare[0] in "{[" and not types.isdisjoint(("object", "array")) else "unsure"
    if bare[0] in "{[":
        return "unsure" if types is None or "object" in types or "array" in types else "text"
    number = types is None or "number" in types or "integer" in types
    ended = begun[-1] in SPACE
    if number and (NUMBER if ended else _NUMBER_BEGUN).fullmatch(bare):
        return "unsure"
    words = _JSON_WORDS + _PYTHON_WORDS
    return "unsure" if bare in words or (not ended and any(word.startswith(bare) for word in words)) else "text"


def _as_json(text: str) -> str | None:
    if NUMBER.fullmatch(text) or text in _JSON_WORDS:
        return text
    return compact_json(text) if text[:1] in ("{", "[", '"') and parses(text) else None


def _types_of(text: str) -> tuple[str, ...]:
    """Returns the types of a JSON text, without `string`."""
    match text[0]:
        case "{":
            return ("object",)
        case "[":
            return ("array",)
        case "t" | "f":
            return ("boolean",)
        case "n":
            return ("null",)
        case '"':
            return ()
        case _:
            return ("integer", "number") if _WHOLE.fullmatch(text) else ("number",)


def _parts(
    schema: object, root: Mapping[str, Any], combined: tuple[str, ...] = ("oneOf", "anyOf", "allOf")
) -> Iterator[Mapping[str, Any]]:
    """Yields a schema and all schemas that it refers to or is `combined` of, each once."""
    waiting = [schema]
    seen: set[int] = set()
    while waiting:
        part = waiting.pop()
        if not isinstance(part, Mapping) or id(part) in seen:
            continue
        seen.add(id(part))
        yield part
        for keyword in combined:
            inner = part.get(keyword)
            if isinstance(inner, list | tuple):
                waiting += reversed(inner)
        if isinstance(ref := part.get("$ref"), str):
            waiting.append(target(ref, root))


def target(ref: str, root: Mapping[str, Any]) -> object:
    """Returns the part of the schema that a reference points to, or None."""
    if ref == "#":
        return root
    if not ref.startswith("#/"):
        return None
    try:
        part: object = pointed(root, unquote(ref[1:]))[0]
    except LookupError:
        return None
    return part


def types_of(part: Mapping[str, Any]) -> Types:
    """Returns the types that one part of a schema names or implies, without following references."""
    return frozenset(_types(part))


def _types(part: Mapping[str, Any]) -> Iterator[str]:
    """Yields the types that one part of a schema names or implies."""
    if part.get("nullable") is True:
        yield "null"
    named = part.get("type")
    if isinstance(named, str):
        yield named
    elif isinstance(named, list | tuple):
        yield from (name for name in named if isinstance(name, str))
    elif isinstance(values := part.get("enum"), list | tuple):
        yield from map(_type_of, values)
    elif "const" in part:
        yield _type_of(part["const"])
    elif "properties" in part:
        yield "object"
    elif "items" in part:
        yield "array"


def _type_of(value: object) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case str():
            return "string"
        case int():
            return "integer"
        case float():
            return "number"
        case Mapping():
            return "object"
        case _:
            return "array"
