"""Conversion of arguments with a wrong type if there is exactly one way to convert them (R23.3).

Rules of this module:

1. A value that fits the schema never changes. A converted argument fits afterwards; an argument that cannot be made to
   fit stays unchanged.
2. Only the bytes of values that do not fit change. Everything else keeps its text, whitespace and digits included.
3. A value is converted only if exactly one of the readings below fits its part of the schema (each branch of `anyOf` or
   `oneOf` is tried). Anything that needs a guess (`"1,000"`, `"yes"`, an object for a string, null for anything) stays.
4. The schema engine decides what does not fit and whether a reading fits, not rules in this module.
5. Work is bounded: at most `FURTHER_CHECKS` times the work of the check that failed.

The readings: a number or boolean as a string with its text (`string`); a string as the number (`number`), boolean
(`boolean`) or null (`null`) that it spells; a string as the object or array whose JSON text it is (`json`); a value as
an array of that one value (`array`); a string as the allowed one that differs only in case (`enum`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple, get_args

import orjson

from ..repair.literals import json_string
from ..repair.relaxed_json import MAX_REPAIRED_VALUES, NUMBER, parses, read_value, repair_json, skip_space
from ..scan._grammar import SPACE
from ..schemas.schema import FURTHER_CHECKS, Flaw, Path, ToolSchema
from .untyped import types_of

CoercionKind = Literal["string", "number", "boolean", "null", "json", "array", "enum"]
COERCIONS: Final[tuple[CoercionKind, ...]] = get_args(CoercionKind)

MAX_DEPTH: Final = 6
"""Maximum number of nested readings. An array of objects in a string that holds numbers in strings takes three."""
ROUNDS: Final = 4
"""Maximum number of rounds of conversion: after each, the schema engine may find further values that do not fit."""

_INTEGRAL: Final = re.compile(r"(-?(?:0|[1-9][0-9]*))\.0+")
_NULLS: Final = ("null", "None")
_SPARE_CHARS: Final = 4096

_Kinds = frozenset[CoercionKind]
_NONE: Final[_Kinds] = frozenset()


class CoercedArguments(NamedTuple):
    """Converted arguments and the kinds of conversion, in the order of `COERCIONS`."""

    text: str
    kinds: tuple[CoercionKind, ...]


def coerce(arguments: str, schema: ToolSchema) -> CoercedArguments | None:
    """Returns `arguments` (JSON text that does not fit `schema`) converted, or None if nothing can be converted."""
    if arguments.count(",") > MAX_REPAIRED_VALUES or not parses(arguments):
        return None
    try:
        value = orjson.loads(arguments)
        if not isinstance(value, dict) or not schema.can_coerce(arguments, value):
            return None
        text, kinds = _Mender(schema, _SPARE_CHARS + FURTHER_CHECKS * len(arguments)).arguments(arguments)
    except (_TooMuch, ValueError, LookupError):  # too deep for the engine, or a position it cannot name
        return None
    return CoercedArguments(text, tuple(kind for kind in COERCIONS if kind in kinds)) if kinds else None


class _TooMuch(Exception):
    """The conversion would exceed its budget of work."""


class _Mended(NamedTuple):
    text: str
    kinds: _Kinds = _NONE


@dataclass(slots=True)
class _Mender:
    """Converts one call's arguments. `chars` is the number of characters that may still be checked."""

    schema: ToolSchema
    chars: int

    def arguments(self, text: str) -> _Mended:
        """Converts all arguments, or as many of them as possible."""
        whole = self._mended(text, (), 0)
        if whole is not None:
            return whole
        kinds = _NONE
        for member in dict.fromkeys(flaw.path[:1] for flaw in self._flaws(text, ()) if flaw.path):
            mended = self._mended(text, (), 0, member)
            if mended is not None:
                text, kinds = mended.text, kinds | mended.kinds
        return _Mended(text, kinds)

    def _flaws(self, text: str, where: Path) -> list[Flaw]:
        self.chars -= len(text)
        if self.chars < 0:
            raise _TooMuch
        return self.schema.flaws(orjson.loads(text), where)

    def _mended(self, text: str, where: Path, depth: int, member: Path = ()) -> _Mended | None:
        """Returns `text` made to fit the part of the schema at `where`, or None if that is impossible. With `member`,
        only that member is converted."""
        kinds = _NONE
        for _ in range(ROUNDS):
            flaws = [flaw for flaw in self._flaws(text, where) if flaw.path[:1] == member or not member]
            if not flaws:
                return _Mended(text, kinds)
            root = _read(text)
            changed: dict[tuple[int, int], str] = {}
            for flaw in flaws:
                start, end = root.span(flaw.path)
                if (start, end) in changed:
                    continue
                mended = self._replaced(text[start:end], flaw, depth + 1)
                if mended is None:
                    return None
                changed[start, end] = mended.text
                kinds |= mended.kinds
            text = _spliced(text, changed)
        return None

    def _replaced(self, text: str, flaw: Flaw, depth: int) -> _Mended | None:
        """Returns the only reading of a value that removes this flaw, or None if there are none or several."""
        if depth > MAX_DEPTH:
            return None
        part = self.schema.at(flaw.where)
        fitting: dict[str, _Mended] = {}
        if flaw.keyword in ("anyOf", "oneOf"):
            for branch in range(len(part[flaw.keyword])):
                mended = self._mended(text, (*flaw.where, flaw.keyword, branch), depth)
                if mended is not None and not self._flaws(mended.text, flaw.where):
                    fitting[mended.text] = mended
        elif flaw.keyword in ("type", "enum", "const"):
            for reading, kind in _readings(text, part):
                mended = self._mended(reading, flaw.where, depth)
                if mended is not None:
                    fitting[mended.text] = mended._replace(kinds=mended.kinds | {kind})
        return next(iter(fitting.values())) if len(fitting) == 1 else None


def _readings(text: str, part: Mapping[str, Any]) -> list[tuple[str, CoercionKind]]:
    """Returns the readings of a value under this part of the schema, as JSON texts with their kinds."""
    types = types_of(part)
    if text[0] == '"':
        string = orjson.loads(text)
        readings = _readings_of_string(string, part, types)
        bare = string.strip(SPACE)
        is_one = bare not in ("", *_NULLS) and bare[0] != "["
    else:
        is_scalar = text[0] not in "{[n"
        readings = [(json_string(text), "string")] if is_scalar and "string" in types else []
        is_one = is_scalar or text[0] == "{"
    if is_one and "array" in types:
        readings.append((f"[{text}]", "array"))
    return readings


def _readings_of_string(text: str, part: Mapping[str, Any], types: frozenset[str]) -> list[tuple[str, CoercionKind]]:
    readings: list[tuple[str, CoercionKind]] = []
    bare = text.strip(SPACE)
    allowed = part["enum"] if "enum" in part else [part["const"]] if "const" in part else []
    for other in dict.fromkeys(other for other in allowed if isinstance(other, str)):
        if other != text and other.casefold() == text.casefold():
            readings.append((json_string(other), "enum"))
    if NUMBER.fullmatch(bare):
        integral = _INTEGRAL.fullmatch(bare) if "integer" in types and "number" not in types else None
        readings.append((integral[1] if integral else bare, "number"))
    elif bare.lower() in ("true", "false"):
        readings.append((bare.lower(), "boolean"))
    elif bare in _NULLS and "null" in types:
        readings.append(("null", "null"))
    elif bare[:1] in ("{", "[") and (repaired := repair_json(bare)) and "brackets" not in repaired[1]:
        readings.append((repaired[0], "json"))
    return readings


# --- positions of values in a text ----------------------------------------------------------------------------------


@dataclass(slots=True)
class _Node:
    start: int
    end: int
    inner: dict[str | int, _Node]

    def span(self, path: Path) -> tuple[int, int]:
        """Returns the start and end of the value at this path."""
        node = self
        for step in path:
            node = node.inner[step]
        return node.start, node.end


def _read(text: str, at: int = 0) -> _Node:
    """Returns the positions of all values in a JSON text. The last of equal keys counts (R9.10). `text` must be valid
    JSON."""
    at = skip_space(text, at)
    bracket = text[at]
    if bracket not in "{[":
        return _Node(at, read_value(text, at)[1], {})
    node = _Node(at, at, {})
    at = skip_space(text, at + 1)
    while text[at] not in "}]":
        key: str | int = len(node.inner)
        if bracket == "{":
            key, end = read_value(text, at)
            at = skip_space(text, end) + 1
        child = node.inner[key] = _read(text, at)
        at = skip_space(text, child.end)
        if text[at] == ",":
            at = skip_space(text, at + 1)
    node.end = at + 1
    return node


def _spliced(text: str, changed: Mapping[tuple[int, int], str]) -> str:
    """Returns `text` with some spans replaced. Of nested spans the inner ones are replaced."""
    pieces: list[str] = []
    end = len(text)
    for (start, stop), new in sorted(changed.items(), reverse=True):
        if stop <= end:
            pieces += (text[stop:end], new)
            end = start
    pieces.append(text[:end])
    return "".join(reversed(pieces))
