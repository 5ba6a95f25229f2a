"""Decides which part of a call's arguments can be sent before the call has ended (R6.13).

Arguments may still be converted to the types of the tool's schema at the end (`coercion.py`), so a value is sent only
if conversion cannot change it:

- A string is sent while it comes if its part of the schema allows any string.
- An object or array is followed if its part of the schema allows one, and its values are treated by these rules.
- Any other value is sent when it is complete and fits.

After a value that may change nothing more is sent before the end. Keywords that only restrict a value (`minLength`,
`pattern`, `required`, ...) never lead to a conversion, so they are not read here.

The client of a custom tool gets the text of the argument `input`, not JSON, so that text is what is sent.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import orjson

from ..repair.relaxed_json import read_json
from ..scan._grammar import BlockSyntax, EarlyCall, FoundCall, ValueKind, valid_text
from .assembly import begin_member, member
from .untyped import ParameterTypes, target

_ANY: Final[Mapping[str, Any]] = {}
_TEXT: Final = re.compile(rb'(?:[^"\\]+|\\.)*', re.DOTALL)
_SCALAR: Final = re.compile(rb"[A-Za-z0-9+.-]+")
_INPUT: Final = re.compile(rb'[ \t\r\n]*\{[ \t\r\n]*"input"[ \t\r\n]*:[ \t\r\n]*"')
_INPUT_BYTES: Final = 64
"""The text of a custom tool is sent early if it begins within so many bytes of the arguments."""
_CHARACTERS: Final = re.compile(
    rb'(?:[^"\\]+|\\[^u]|\\u(?![dD][89abAB])[0-9a-fA-F]{4}|\\u[0-9a-fA-F]{4}(?=[^\\]|\\[^u]|\\u[0-9a-fA-F]{4}))*'
)
"""Whole characters of a JSON string: a first half of a surrogate pair counts once it is known what follows."""
_UNREAD: Final = frozenset(
    (
        *("$ref", "$dynamicRef", "$recursiveRef", "anyOf", "oneOf", "allOf", "not", "if", "then", "else"),
        *("dependentSchemas", "dependencies", "patternProperties", "propertyNames", "prefixItems", "contains"),
        *("unevaluatedItems", "unevaluatedProperties", "additionalItems"),
    )
)
"""Keywords of which only some are read, in some places. A value whose part of the schema has another one waits."""
_EXACT: Final = frozenset(("type", "enum", "const", "title", "description", "default", "examples", "deprecated"))
"""A part of a schema with no other keywords is fulfilled by a value of its type."""
_OF_SCHEMAS: Final = frozenset(("type", "properties", "required", "$schema", "additionalProperties"))
"""First keys of a schema in place of arguments: the model recites the tool's definition, which is no call."""
_REFERENCES: Final = 8
"""Maximum number of `$ref`s in a row that are followed."""

# States of `ValueGate`.
_VALUE: Final = 0
_KEY: Final = 1
_IN_KEY: Final = 2
_FREE: Final = 3
_STRING: Final = 4
_WORD: Final = 5
_BEHIND: Final = 6
_SHUT: Final = 7


class SafeCall(EarlyCall):
    """A call of a tool on offer that may be streamed early. `opened` returns the call at the moment when it is opened.
    `gate` lets those bytes of its arguments pass that no conversion can change; None lets all pass."""

    def __init__(
        self, opened: Callable[[], FoundCall | None], types: ParameterTypes, gate: InputGate | ValueGate | None = None
    ) -> None:
        self._opened = opened
        self._types = types
        self._gate = gate

    def open(self) -> FoundCall | None:
        return self._opened()

    @property
    def sends_text(self) -> bool:  # type: ignore[override]  # constant in the base class
        """True if more text of the current string can be sent without `release`."""
        return self._gate is None or self._gate.in_text

    def release(self, more: bytes) -> bytes:
        return more if self._gate is None else self._gate.release(more)

    def argument(self, syntax: BlockSyntax, key: str, value: str) -> str:
        return member(syntax, key, value, self._types)

    def value_kind(self, syntax: BlockSyntax, key: str, begun: str) -> tuple[str, ValueKind]:
        """Returns the key of an argument as JSON, and the kind of the value that begins with `begun`."""
        return begin_member(syntax, key, begun, self._types)


class InputGate:
    """Reads the beginning of a custom tool's arguments as valid JSON and returns the text of `input` as it grows.

    `input` must be the first key. Other arguments may turn out to be the text itself (`candidate.free_text`).
    """

    in_text: Final = False  # no byte passes unread: escapes are decoded

    def __init__(self) -> None:
        self._unread = b""
        self._state = _VALUE

    def release(self, more: bytes) -> bytes:
        """Returns the text that became certain with `more`, as whole characters in UTF-8."""
        if self._state == _SHUT:
            return b""
        self._unread += more
        if self._state == _VALUE:
            begun = _INPUT.match(self._unread, 0, _INPUT_BYTES)
            if begun is None:
                self._state = _SHUT if len(self._unread) >= _INPUT_BYTES else _VALUE
                return b""
            self._unread = self._unread[begun.end() :]
            self._state = _FREE
        found = _CHARACTERS.match(self._unread)
        assert found is not None  # the pattern also matches the empty text
        self._unread = self._unread[found.end() :]
        if self._unread[:1] == b'"':
            self._state = _SHUT
        return found[0] if b"\\" not in found[0] else _decoded(found[0])


class ValueGate:
    """Reads the beginning of valid JSON and lets those bytes pass that no conversion can change."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self._root = schema
        self._inside: list[tuple[Mapping[str, Any], bool]] = []  # parts for the enclosing brackets; True for arrays
        self._part: Mapping[str, Any] = schema  # for the current value
        self._state = _VALUE
        self._held = bytearray()
        self._cut = b""  # a backslash at the end of what was read

    @property
    def in_text(self) -> bool:
        """True inside a string whose text passes."""
        return self._state == _FREE and not self._cut

    def release(self, more: bytes) -> bytes:
        """Returns the bytes that can pass, of those held and `more`."""
        out = bytearray()
        more, self._cut = self._cut + more, b""
        at = 0
        while at < len(more) and self._state != _SHUT:
            at = self._step(more, at, out)
        return bytes(out)

    def _step(self, more: bytes, at: int, out: bytearray) -> int:
        """Reads a token at `at`, or as much of it as is there. Returns the position after it."""
        state = self._state
        if state in (_FREE, _STRING, _IN_KEY):
            return self._text(more, at, out)
        if state == _WORD:
            found = _SCALAR.match(more, at)
            if found is not None:
                self._held += found[0]
                return found.end()
            self._held_value(out)
            return at
        byte = more[at : at + 1]
        if byte in b" \t\r\n:":
            out += byte
        elif byte in b"}]":
            self._inside.pop()
            self._pass(byte, _BEHIND, out)
        elif state == _BEHIND:
            part, array = self._inside[-1]
            self._part = self._read(part.get("items"))
            self._pass(byte, _VALUE if array else _KEY, out)
        elif state == _KEY:
            self._held = bytearray(byte)
            self._pass(byte, _IN_KEY, out)
        else:
            self._value_begins(byte, out)
        return at + 1

    def _pass(self, more: bytes | bytearray, state: int, out: bytearray) -> None:
        out += more
        self._state = state

    def _text(self, more: bytes, at: int, out: bytearray) -> int:
        """Reads more of a string."""
        found = _TEXT.match(more, at)
        assert found is not None  # the pattern also matches the empty text
        end = found.end()
        ended = more[end : end + 1] == b'"'
        text = more[at : end + ended]
        state = self._state
        if state != _FREE:
            self._held += text
        if state != _STRING:
            out += text
        if not ended:
            self._cut = more[end:]
            return len(more)
        if state == _FREE:
            self._state = _BEHIND
        elif state == _STRING:
            self._held_value(out)
        else:
            self._key_ended()
        return end + 1

    def _key_ended(self) -> None:
        part, _ = self._inside[-1]
        properties, key = part.get("properties"), _loads(self._held)
        known = properties if isinstance(properties, Mapping) else _ANY
        self._part = self._read(known.get(key, part.get("additionalProperties")))
        recited = part is self._root and key in _OF_SCHEMAS and key not in known
        self._state = _SHUT if recited else _VALUE

    def _value_begins(self, byte: bytes, out: bytearray) -> None:
        if byte in b"{[":
            part = self._container(self._part, "object" if byte == b"{" else "array")
            if part is None:
                self._state = _SHUT
                return
            self._inside.append((part, byte == b"["))
            self._part = self._read(part.get("items"))
            self._pass(byte, _KEY if byte == b"{" else _VALUE, out)
        elif byte == b'"' and self._takes_any_text(self._part):
            self._pass(byte, _FREE, out)
        else:
            self._held = bytearray(byte)
            self._state = _STRING if byte == b'"' else _WORD

    def _held_value(self, out: bytearray) -> None:
        """Passes the value that was held, if it fits."""
        if self._fits(_loads(self._held), self._part):
            self._pass(self._held, _BEHIND, out)
        else:
            self._state = _SHUT

    # --- parts of the schema ------------------------------------------------------------------------------------------

    def _read(self, part: object) -> Mapping[str, Any]:
        """Returns a part of the schema with references replaced by their targets. Parts that demand nothing, or that no
        value fits, lead to no conversion."""
        for _ in range(_REFERENCES):
            if not isinstance(part, Mapping):
                return {"not": _ANY} if isinstance(part, list) else _ANY
            ref = part.get("$ref")
            if not isinstance(ref, str) or (part.keys() - {"$ref"}) & _UNREAD:
                return part
            part = target(ref, self._root)
        return {"not": _ANY}

    def _branches(self, part: Mapping[str, Any], *keywords: str) -> Iterator[Mapping[str, Any]]:
        """Yields the part, or its branches if it is only a choice by one of these keywords."""
        chosen = part.keys() & _UNREAD
        if not chosen:
            yield part
        elif (
            len(chosen) == 1
            and (keyword := next(iter(chosen))) in keywords
            and not {"type", "enum", "const"} & part.keys()
        ):
            yield from map(self._read, part[keyword] if isinstance(part[keyword], list) else ())

    def _container(self, part: Mapping[str, Any], kind: str) -> Mapping[str, Any] | None:
        """Returns the part of the schema that alone decides about an object or array here; None if none does."""
        branches = [each for each in self._branches(part, "anyOf", "oneOf") if kind in _types(each, kind)]
        part = branches[0] if len(branches) == 1 else {"not": _ANY}
        return None if part.keys() & (_UNREAD | {"enum", "const"}) else part

    def _takes_any_text(self, part: Mapping[str, Any]) -> bool:
        """Returns whether no string here can be converted."""
        return any(
            "string" in _types(each, "string") and not each.keys() & (_UNREAD | {"enum", "const"})
            for each in self._branches(part, "anyOf")
            if each is part or each.keys() <= _EXACT
        )

    def _fits(self, value: Any, part: Mapping[str, Any]) -> bool:
        """Returns whether a string, number or constant here cannot be converted, because it is one of those that the
        schema allows."""
        kind = _kind(value)
        return any(
            not each.keys() & _UNREAD
            and (kind in (types := _types(each, kind)) or (kind == "integer" and "number" in types))
            and all(value in [one for one in allowed if type(one) is type(value)] for allowed in _allowed(each))
            for each in self._branches(part, "anyOf")
            if each is part or each.keys() <= _EXACT
        )


def _decoded(text: bytes) -> bytes:
    """Returns the text that these whole characters of a JSON string stand for."""
    quoted = b'"%b"' % text
    try:
        decoded: str = orjson.loads(quoted)
    except ValueError:  # half a surrogate pair
        decoded = valid_text(read_json(quoted.decode()))
    return decoded.encode()


def _loads(text: bytearray) -> Any:
    """Returns a JSON value; for one with half a surrogate pair, which orjson does not read, with the escape itself."""
    try:
        return orjson.loads(text)
    except ValueError:
        return text[1:-1].decode()


def _types(part: Mapping[str, Any], otherwise: str) -> list[Any]:
    """Returns the types that a part of a schema names; `otherwise` if it names none."""
    named = part.get("type", otherwise)
    return named if isinstance(named, list) else [named]


def _allowed(part: Mapping[str, Any]) -> Iterator[list[Any]]:
    """Yields the values that a part of a schema lists, for each keyword that lists some."""
    if "enum" in part:
        yield part["enum"] if isinstance(part["enum"], list) else []
    if "const" in part:
        yield [part["const"]]


def _kind(value: Any) -> str:
    """Returns the JSON type of a string, number or constant."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, str):
        return "string"
    return "integer" if isinstance(value, int) or value.is_integer() else "number"
