"""Calls as JSON objects: which member is the name, and which are the arguments (R6.1).

Rules of this module:

1. Arguments are never lost. A call has no arguments only if there is nothing but metadata beside its name; arguments
   that cannot be read are an error.
2. The name is the first string under a key of the syntax, then under one of `NAMES` (`formats/keys.py`); or in an
   object under one of `WRAPPERS`, whose members then count as the call's own. If no tool has that name, the next
   candidate is tried.
3. The arguments are the value under a key of the syntax; other members are then ignored. Otherwise they are the value
   under one of `ARGUMENTS`. Null and `""` there mean no arguments; so does `{}`, unless another reading fits the tool.
   Otherwise the call is flat: the arguments stand beside the name, each is a property of the tool, and all required
   ones are present. `METADATA` are left out unless they are properties.
4. A property may have the same name as one of these keys (R30.5). The value under a key of the syntax is the arguments
   whenever possible: it is a property of a flat call only if it is not an object, written directly or in a string. For
   another key both readings are compared. Its value is the arguments if it has a member of that same name, or if its
   members are properties and include all required ones. Otherwise the call is flat, if rule 3 allows it and the
   property may have such a value. Otherwise the value is the arguments after all.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, Literal

import orjson

from ..formats.engine.keys import ARGUMENTS, LISTINGS, METADATA, NAMES, WRAPPERS
from ..repair.relaxed_json import (
    MAX_DEPTH,
    RepairKind,
    compact_json,
    parses,
    read_json,
    read_value,
    repair_json,
    skip_space,
)
from ..scan._grammar import SPACE, BlockSyntax, valid_text
from ..scan.first_key import CONTENT, ROLE, THOUGHTS
from ..support.duplicate_keys import each_key_once
from .untyped import ParameterTypes
from .written import ParsedArguments, UnreadableArguments, WrittenArguments, WrittenCall, object_text

_COMBINED: Final = frozenset(("$ref", "allOf", "anyOf", "oneOf"))

Member = tuple[Any, str]
"""A value and its exact text."""

ABSENT: Final[Member] = (None, "null")


def is_message(value: Any) -> bool:
    """Returns True for a whole message with calls, as in requests and answers of an API."""
    calls = (value.get(key) for key in (*LISTINGS, *WRAPPERS)) if isinstance(value, dict) and ROLE in value else ()
    return any(isinstance(made, list | dict) for made in calls)


def said_beside(value: Any) -> tuple[str, str]:
    """Returns the thought and the content beside the calls in JSON, as xLAM and whole messages have them; each "" if
    there is none. They may also be arguments that stand beside the name."""
    said = value if isinstance(value, dict) else {}
    texts = {key: valid_text(said[key]) for key in (*THOUGHTS, CONTENT) if isinstance(said.get(key), str)}
    return next((texts[key] for key in THOUGHTS if texts.get(key)), ""), texts.get(CONTENT, "")


# --- arguments ------------------------------------------------------------------------------------------------------


def settle_arguments(text: str, *, repair: bool) -> tuple[str, tuple[RepairKind, ...]]:
    """Returns arguments that were given as a string as JSON text, and how they were repaired (R9.3, R9.5).

    Valid JSON is returned unchanged, except that duplicate keys and one extra level of quoting are removed. Blank text
    means no arguments. Raises `ValueError` with what is wrong.
    """
    settled, kinds = _from_string(text, repair)
    return each_key_once(settled), kinds


def _from_string(text: str, repair: bool) -> tuple[str, tuple[RepairKind, ...]]:
    """Returns the same, but with duplicate keys."""
    if not text.strip():
        return "{}", ()
    if parses(text):
        return _unquoted(text), ()
    text = _said_once(text)
    _, repaired, _, kinds = _read_arguments(text, repair)
    return repaired, kinds


def _unquoted(text: str) -> str:
    """Returns the object that a server encoded twice (a string inside the string), or `text` itself."""
    if not text.lstrip(SPACE).startswith('"'):
        return text
    inner = read_json(text)
    is_object = isinstance(inner, str) and inner.lstrip(SPACE).startswith("{") and parses(inner)
    return inner if is_object else text


_NOTHING: Final = re.compile(r"\s*(?:\{\s*\}|null|\"\")(?=\s*[{n\"])")


def _said_once(text: str) -> str:
    """Returns arguments without an empty value before them, which servers send until the arguments come."""
    found = _NOTHING.match(text)
    return text if found is None else text[found.end() :]


def _read_arguments(text: str, repair: bool) -> tuple[Any, str, str | None, tuple[RepairKind, ...]]:
    try:
        return read_nearly(text, repair)
    except ValueError as error:
        raise ValueError(f"its arguments are not valid JSON: {error}") from None


def read_nearly(text: str, repair: bool) -> tuple[Any, str, str | None, tuple[RepairKind, ...]]:
    """Returns the value of a JSON text and the text; if it was repaired, also what was wrong and how it was repaired.
    Raises `ValueError`."""
    try:
        return read_json(text), text, None, ()
    except ValueError as error:
        repaired = repair_json(text) if repair else None
        if repaired is None:
            raise
        return read_json(repaired[0]), repaired[0], str(error), repaired[1]


@dataclass(slots=True)
class JsonArguments:
    """Arguments as a JSON value with its exact text. `taught` is the form that the model was asked for. `key` is the
    value's key if it is the only member beside the name."""

    value: Any
    text: str
    taught: Literal["string", "object"]
    key: str | None = None

    def settle(self, parameters: Mapping[str, Any] | None, *, repair: bool, objects: bool) -> ParsedArguments:
        value = self.value
        if self.key is not None and parameters is not None and _may_declare(parameters, self.key):
            member = MemberArguments({self.key: (value, self.text)}, (self.key,), self.taught)
            return member.settle(parameters, repair=repair, objects=objects)
        if value is None:
            return ParsedArguments("{}")
        if isinstance(value, str):
            return ParsedArguments(*_from_string(valid_text(value), repair))
        if not isinstance(value, dict):
            raise ValueError("its arguments are neither a string nor an object")
        if self.taught == "object":
            return ParsedArguments(self.text)
        if not objects:
            raise ValueError("its arguments are an object where a string is required")
        return ParsedArguments(compact_json(self.text), unwrapped=True)


@dataclass(slots=True)
class TextArguments:
    """Arguments as text that should be JSON."""

    text: str
    taught: Literal["string", "object"]

    def settle(self, parameters: Mapping[str, Any] | None, *, repair: bool, objects: bool) -> ParsedArguments:
        text = self.text.strip(SPACE)
        if not text:
            return ParsedArguments("{}")
        if self.taught == "object" and text[0] == "{" and parses(text):
            return ParsedArguments(text)
        value, text, _, kinds = _read_arguments(text, repair)
        settled = JsonArguments(value, text, self.taught).settle(parameters, repair=repair, objects=objects)
        return settled._replace(repaired=kinds + settled.repaired) if kinds else settled


@dataclass(slots=True)
class MemberArguments:
    """Arguments among the members of a call's object, without its name. `keys` are the argument keys of the syntax.
    `cut`: the object was not closed, or more was closed than opened."""

    members: dict[str, Member]
    keys: tuple[str, ...]
    taught: Literal["string", "object"]
    cut: bool = False

    def settle(self, parameters: Mapping[str, Any] | None, *, repair: bool, objects: bool) -> ParsedArguments:
        """Returns the arguments as JSON text, by rules 3 and 4; see `WrittenArguments.settle`. Raises `ValueError`."""
        taught = next((key for key in self.keys if self._has_value(key)), None)
        explicitly_empty = self._is_explicitly_empty()
        known = ParameterTypes(parameters)
        if self.cut and taught is not None and self._flat(known).keys() - {taught}:
            raise ValueError("its brackets do not tell which members are arguments")
        wrapping = (taught,) if taught is not None else tuple(key for key in ARGUMENTS if self._has_value(key))
        flaw: ValueError | None = None
        if taught is not None and parameters is not None and not explicitly_empty:
            held = JsonArguments(*self.members[taught], self.taught)
            try:
                return held.settle(parameters, repair=repair, objects=objects)
            except ValueError as error:
                if not _may_declare(parameters, taught):
                    raise
                flaw, wrapping = error, ()
        flat = self._flat(known)
        fits_flat = bool(flat) and (parameters is None or _fits(flat, known))
        readings: list[ParsedArguments] = []
        for key in wrapping:
            try:
                reading = JsonArguments(*self.members[key], self.taught).settle(
                    parameters, repair=repair, objects=objects
                )
            except ValueError as error:
                flaw = flaw or error
                continue
            if _fits_text(reading.text, known) or _has(reading.text, key):
                return reading
            readings.append(reading)
        rather_flat = fits_flat and parameters is not None and self._may_be_flat(wrapping, known)
        if readings and not explicitly_empty and not rather_flat:
            return readings[0]
        if fits_flat and not (explicitly_empty and parameters is None):
            return self._settled_flat(flat, objects)
        if flaw is not None and not explicitly_empty:
            raise flaw
        empty = next((self.members[key] for key in (*self.keys, *ARGUMENTS) if key in self.members), None)
        if empty is None and self.cut:
            raise ValueError("it breaks off before its arguments")
        if empty is None and flat:
            raise ValueError(f"the keys beside its name are not the tool's arguments: {', '.join(flat)[:100]}")
        return JsonArguments(*(empty or ABSENT), self.taught).settle(parameters, repair=repair, objects=objects)

    @property
    def value(self) -> Any:
        """The value of the member whose key means "arguments" (one of `keys` or `ARGUMENTS`)."""
        return self._raw()[0]

    @property
    def text(self) -> str:
        """The JSON text of `value`, as the model wrote it."""
        return self._raw()[1]

    def _raw(self) -> Member:
        keys = [key for key in (*self.keys, *ARGUMENTS) if key in self.members]
        return self.members[next(filter(self._has_value, keys), keys[0])] if keys else ABSENT

    def _is_explicitly_empty(self) -> bool:
        """Returns True if the first non-blank value under a key of arguments is an empty object."""
        values = (self.members[key][0] for key in (*self.keys, *ARGUMENTS) if key in self.members)
        return next((value for value in values if value not in (None, "")), None) in ("{}", {})

    def _has_value(self, key: str) -> bool:
        return key in self.members and self.members[key][0] not in (None, "", "{}", {})

    def _flat(self, known: ParameterTypes) -> dict[str, Member]:
        """Returns the members that are the arguments if these stand beside the name."""
        declared = known.names
        return {
            key: member
            for key, member in self.members.items()
            if key in declared
            or not (key in METADATA or ((key in ARGUMENTS or key in self.keys) and not self._has_value(key)))
        }

    def _may_be_flat(self, wrapping: tuple[str, ...], known: ParameterTypes) -> bool:
        """Returns True if the values under the keys in `wrapping` may be properties of the tool with those names."""
        kinds = [(known.of(key), _kind(self.members[key][0])) for key in wrapping]
        return all(types is None or kind in types for types, kind in kinds)

    def _settled_flat(self, flat: Mapping[str, Member], objects: bool) -> ParsedArguments:
        if self.taught == "string" and not objects:
            raise ValueError("its arguments are beside its name, not in a string")
        text = object_text((valid_text(key), text) for key, (_, text) in flat.items())
        return ParsedArguments(text) if self.taught == "object" else ParsedArguments(compact_json(text), unwrapped=True)


def raw_string(arguments: WrittenArguments) -> str | None:
    """Returns the string in the place of arguments, or None if they are not a string."""
    match arguments:
        case JsonArguments(value=str(text)) | MemberArguments(value=str(text)) | TextArguments(text=text):
            return text
        case _:
            return None


def raw_arguments(arguments: WrittenArguments) -> str | None:
    """Returns the text of arguments that should be JSON and cannot be read; None for arguments in another form."""
    text = raw_string(arguments)
    if text is None and isinstance(arguments, JsonArguments | MemberArguments):
        return arguments.text
    return text


def _may_declare(parameters: Mapping[str, Any], key: str) -> bool:
    """Returns True if a tool with this schema may have a property of this name."""
    properties = parameters.get("properties")
    return (isinstance(properties, Mapping) and key in properties) or not _COMBINED.isdisjoint(parameters)


def _fits(members: Mapping[str, Any], known: ParameterTypes) -> bool:
    """Returns True if all members are properties and all required ones are present."""
    return members.keys() <= set(known.names) and members.keys() >= known.required


def _fits_text(text: str, known: ParameterTypes) -> bool:
    value = read_json(text)
    return isinstance(value, dict) and _fits(value, known)


def _has(text: str, key: str) -> bool:
    value = read_json(text)
    return isinstance(value, dict) and key in value


def _kind(value: object) -> str:
    """Returns the JSON Schema type of a value. Every number is a `number`."""
    match value:
        case str():
            return "string"
        case dict():
            return "object"
        case list():
            return "array"
        case bool():
            return "boolean"
        case _:
            return "null" if value is None else "number"


# --- calls ----------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=256)  # a pure function of a frozen value; there are few
def _head(syntax: BlockSyntax) -> re.Pattern[str]:
    """Returns a pattern for the usual beginning of a JSON call: its name, then the key of its arguments."""
    name = r'"([^"\\\x00-\x1f]*)"'
    tokens: tuple[str, ...] = (r"\{", name, ":")
    if syntax.names:
        names, keys = ("|".join(map(re.escape, keys)) for keys in (syntax.names, syntax.parameters))
        tokens = (r"\{", f'"(?:{names})"', ":", name, ",", f'"({keys})"', ":")
    space = f"[{SPACE}]*"
    return re.compile(space + space.join(tokens) + space)


def quick_call(text: str, syntax: BlockSyntax) -> WrittenCall | None:
    """Returns the call if the JSON has the usual form, else None (then `json_calls` reads it). The text between the
    head and the last brace is parsed as one JSON value, which proves that the whole is valid and has no other members.
    """
    head = _head(syntax).match(text)
    end = text.rfind("}")
    if head is None or skip_space(text, end + 1) != len(text):
        return None
    inner = text[head.end() : end].rstrip(SPACE)
    if inner.count("{") + inner.count("[") >= MAX_DEPTH:
        return None
    try:
        value = orjson.loads(inner)
    except orjson.JSONDecodeError:
        return None
    return WrittenCall(
        head[1], JsonArguments(value, inner, syntax.arguments, head[2] if syntax.names else None), None, text
    )


def json_calls(value: Any, text: str, syntax: BlockSyntax, *, listed: bool, cut: bool) -> Iterator[WrittenCall]:
    """Yields the calls in JSON: an object, an object with a list of calls, or (if `listed`) an array. `cut`: see
    `MemberArguments`. Raises `ValueError` for other values."""
    if isinstance(value, dict):
        members = members_of(text)
        listing = next((key for key in LISTINGS if key in value), None)
        if listing is None or any(name in value for name in syntax.names):
            yield _json_call(members, text, syntax, cut)
            return
        value, text = members[listing]
    elif not listed:
        raise ValueError("it is not a JSON object")
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise ValueError("its calls are not an array of objects")
    for item in elements_of(text):
        yield quick_call(item, syntax) or _json_call(members_of(item), item, syntax, cut)


def _json_call(members: dict[str, Member], source: str, syntax: BlockSyntax, cut: bool) -> WrittenCall:
    """Returns the call that an object describes."""
    if not syntax.names:
        ((name, arguments),) = members.items() if len(members) == 1 else (("", ABSENT),)
        return WrittenCall(valid_text(name), JsonArguments(*arguments, syntax.arguments), source=source)
    readings = [*_named(members, syntax)]
    for key, (value, text) in members.items():
        if key in WRAPPERS and isinstance(value, dict):
            readings += _named({**_without(members, key), **members_of(text)}, syntax)
    call = None if readings else WrittenCall("", UnreadableArguments("it has no name"), source=source)
    for name, rest in reversed(readings):
        arguments_ = MemberArguments(rest, syntax.parameters, syntax.arguments, cut)
        call = WrittenCall(name, arguments_, source=source, otherwise=call)
    assert call is not None
    return call


def _named(members: dict[str, Member], syntax: BlockSyntax) -> Iterator[tuple[str, dict[str, Member]]]:
    """Yields the possible names in the order of rule 2, each with the remaining members."""
    for key in dict.fromkeys((*syntax.names, *NAMES)):
        value, _ = members.get(key, ABSENT)
        if isinstance(value, str):
            yield valid_text(value), _without(members, key)


def _without(members: dict[str, Member], key: str) -> dict[str, Member]:
    return {other: member for other, member in members.items() if other != key}


# --- slices of a JSON text ------------------------------------------------------------------------------------------


def members_of(text: str) -> dict[str, Member]:
    """Returns the members of a JSON object, each with its exact text. The last of equal keys wins (R9.10). `text` must
    be a valid JSON object."""
    members: dict[str, Member] = {}
    at = skip_space(text, skip_space(text) + 1)
    while text[at] != "}":
        key, end = read_value(text, at)
        start = skip_space(text, skip_space(text, end) + 1)
        value, end = read_value(text, start)
        members[key] = (value, text[start:end])
        at = _after_comma(text, end)
    return members


def members_within(value: Any, text: str) -> dict[str, Member] | None:
    """Returns the members of a value if it is an object, or a string with a JSON object; else None. `text` is the
    value's JSON text."""
    if isinstance(value, str):
        try:
            text, value = value, read_json(value)
        except ValueError:
            return None
    return members_of(text) if isinstance(value, dict) else None


def elements_of(text: str) -> Iterator[str]:
    """Yields the exact texts of the elements of a JSON array. `text` must be a valid JSON array."""
    at = skip_space(text, skip_space(text) + 1)
    while text[at] != "]":
        _, end = read_value(text, at)
        yield text[at:end]
        at = _after_comma(text, end)


def _after_comma(text: str, end: int) -> int:
    at = skip_space(text, end)
    return skip_space(text, at + 1) if text[at] == "," else at
