"""The stored form of messages and turns: JSON that is read back as the same values.

Rules:

1. A message is written part by part, each with all its fields, whatever protocol it came from (docs/adr/0029). Fields
   with their default value are left out. Reading gives equal values, and writing those gives the same bytes, with two
   exceptions: half a character becomes U+FFFD, as the client got it, and a tuple inside an `extra` or a payload becomes
   a list.
2. A turn names its form (`FORM`), and only that form is read. A change of what is written raises the number and changes
   the files in `tests/store/kept/`. The order of fields is no part of the form.
3. Unknown content (another form, kind of part or field) raises `UnknownForm`, because leaving it out would change the
   conversation.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any, Final, TypeVar

from ...model import Attempt, Image, Message, OpaquePart, Part, Reasoning, Refusal, Text, ToolResult, ToolUse
from ..responses.turns import read_stored_turn
from ..shared.turn import StoredTurn

T = TypeVar("T")

FORM: Final = 4
_TO_DO: Final = "empty the store, or run the version that wrote it"
_UNKNOWN: Final = f"a stored response has content that this version of the gateway does not know: {_TO_DO}"

_KINDS: Final[Mapping[str, type[Part]]] = {
    "text": Text,
    "attempt": Attempt,
    "refusal": Refusal,
    "image": Image,
    "reasoning": Reasoning,
    "call": ToolUse,
    "result": ToolResult,
    "opaque": OpaquePart,
}
"""Classes of a message's parts by their stored `type`."""


class UnknownForm(ValueError):
    """Stored data was written by another version of the gateway. The message quotes none of it."""


def _fields(kind: type[Any]) -> tuple[tuple[str, Any], ...]:
    """Returns the names of a dataclass's fields with their defaults."""
    return tuple((field.name, field.default) for field in dataclasses.fields(kind))


_Fields = tuple[tuple[str, Any], ...]
_MESSAGE: Final = _fields(Message)
_MESSAGES: Final = ("input", "output", "rounds")
_TURN: Final = tuple(
    field for field in _fields(StoredTurn) if field[0] not in ("wire_form", "size", "values", "beginning")
)
_PARTS: Final = {kind: (name, _fields(kind)) for name, kind in _KINDS.items()}


def write_messages(messages: Iterable[Message]) -> list[dict[str, Any]]:
    """Returns the messages as JSON objects."""
    return [
        {"role": message.role, "parts": [_write_part(part) for part in message.parts]}
        if message.name is None and not message.extra  # most messages
        else _write(message, {}, _MESSAGE)
        for message in messages
    ]


def read_messages(stored: Iterable[Mapping[str, Any]]) -> tuple[Message, ...]:
    """Returns the messages that `write_messages` wrote. Raises `UnknownForm`; `KeyError` or `TypeError` for anything
    else."""
    return tuple(
        [
            Message(message["role"], tuple([_read_part(part) for part in message["parts"]]))
            if len(message) == 2  # most messages
            else _read(Message, dict(message))
            for message in stored
        ]
    )


def write_turn(turn: StoredTurn) -> dict[str, Any]:
    """Returns the turn as a JSON object, without `wire_form`, which is JSON already."""
    return _write(turn, {"form": FORM}, _TURN)


def read_turn(stored: Mapping[str, Any]) -> StoredTurn:
    """Returns the turn in an object that this version wrote, `wire_form` included. Raises `UnknownForm`; `KeyError` or
    `TypeError` for anything that `write_turn` did not write."""
    values = dict(stored)
    form = values.pop("form")
    if form != FORM:
        raise UnknownForm(
            f"a stored response has form {form:d}, and this version of the gateway reads only form {FORM}: {_TO_DO}"
        )
    for name in _MESSAGES:
        values[name] = read_messages(values.get(name, ()))
    values["ancestors"] = tuple(values.get("ancestors", ()))
    if "said" in values:
        values["wire_form"] = wire_form = values.pop("said")
        asked, answered = read_stored_turn(wire_form)
        values["input"], values["output"] = values["input"] or asked, values["output"] or answered
    return _read(StoredTurn, values)


def _write(value: Any, written: dict[str, Any], fields: _Fields) -> dict[str, Any]:
    for name, default in fields:
        item = getattr(value, name)
        if item is default or item == default:
            continue
        if name == "parts":
            item = [_write_part(part) for part in item]
        elif name in _MESSAGES:
            item = write_messages(item)
        written[name] = item
    return written


def _write_part(part: Part) -> dict[str, Any]:
    if type(part) is Text and not part.extra:  # most parts
        return {"type": "text", "text": part.text}
    name, fields = _PARTS[type(part)]
    return _write(part, {"type": name}, fields)


def _read(kind: type[T], values: dict[str, Any]) -> T:
    if "parts" in values:
        values["parts"] = tuple([_read_part(part) for part in values["parts"]])
    try:
        return kind(**values)
    except TypeError:
        if values.keys() - {name for name, _ in _fields(kind)}:
            raise UnknownForm(_UNKNOWN) from None
        raise


def _read_part(stored: Mapping[str, Any]) -> Part:
    if len(stored) == 2 and stored["type"] == "text":  # most parts
        return Text(stored["text"])
    values = dict(stored)
    kind = _KINDS.get(values.pop("type"))
    if kind is None:
        raise UnknownForm(_UNKNOWN)
    return _read(kind, values)
