"""The form in which messages and turns are kept: JSON that comes back as the same values.

Rules:

1. A message is written part by part, each with all that the model holds of it, whatever protocol it came from
   (docs/adr/0029). What has its default value is left out. Reading gives equal values, and writing those the same
   bytes; only half a character is U+FFFD, as the client saw it, and a tuple inside of an `extra` or a payload is a
   list.
2. A turn says in which form it is (`FORM`), and only that form is read. Whoever changes what is written raises the
   number and the files in `tests/store/kept/`.
3. Nothing is passed over: what this version does not know (another form, a kind of part, a field) is `UnknownForm`,
   since a conversation that goes on without it would be another one.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any, Final, TypeVar

from ..model import Attempt, Image, Message, Opaque, Part, Reasoning, Refusal, Text, ToolResult, ToolUse
from .responses.turns import read_said
from .turn import Turn

T = TypeVar("T")

FORM: Final = 4
_TO_DO: Final = "empty the store, or run the version that wrote it"
_UNKNOWN: Final = f"a kept response holds what this version of the gateway does not know: {_TO_DO}"

_KINDS: Final[Mapping[str, type[Part]]] = {
    "text": Text,
    "attempt": Attempt,
    "refusal": Refusal,
    "image": Image,
    "reasoning": Reasoning,
    "call": ToolUse,
    "result": ToolResult,
    "opaque": Opaque,
}
"""The parts of a message by the `type` that they are kept with."""


class UnknownForm(ValueError):
    """What is kept is of another version of the gateway. The message says nothing of what it holds."""


def _fields(kind: type[Any]) -> tuple[tuple[str, Any], ...]:
    """Names of a dataclass, and the value at which each is left out."""
    return tuple((field.name, field.default) for field in dataclasses.fields(kind))


_Fields = tuple[tuple[str, Any], ...]
_MESSAGE: Final = _fields(Message)
_MESSAGES: Final = ("input", "output", "rounds")
_TURN: Final = tuple(field for field in _fields(Turn) if field[0] not in ("said", "size"))
_PARTS: Final = {kind: (name, _fields(kind)) for name, kind in _KINDS.items()}


def write_messages(messages: Iterable[Message]) -> list[dict[str, Any]]:
    """The messages as JSON objects."""
    return [
        {"role": message.role, "parts": [_write_part(part) for part in message.parts]}
        if message.name is None and not message.extra  # most of them
        else _write(message, {}, _MESSAGE)
        for message in messages
    ]


def read_messages(kept: Iterable[Mapping[str, Any]]) -> tuple[Message, ...]:
    """The messages that `write_messages` wrote. Raises `UnknownForm`; `KeyError` or `TypeError` for what it never
    wrote."""
    return tuple(
        [
            Message(message["role"], tuple([_read_part(part) for part in message["parts"]]))
            if len(message) == 2  # most of them
            else _read(Message, dict(message))
            for message in kept
        ]
    )


def write_turn(turn: Turn) -> dict[str, Any]:
    """The turn as a JSON object, but for what is `said`: that is JSON already."""
    return _write(turn, {"form": FORM}, _TURN)


def read_turn(kept: Mapping[str, Any]) -> Turn:
    """The turn in what this version wrote, `said` included. Raises as `read_messages`."""
    values = dict(kept)
    form = values.pop("form")
    if form != FORM:
        raise UnknownForm(
            f"a kept response has form {form:d}, and this version of the gateway reads {FORM} only: {_TO_DO}"
        )
    for name in _MESSAGES:
        values[name] = read_messages(values.get(name, ()))
    values["ancestors"] = tuple(values.get("ancestors", ()))
    if "said" in values:
        asked, answered = read_said(values["said"])
        values["input"], values["output"] = values["input"] or asked, values["output"] or answered
    return _read(Turn, values)


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
    if type(part) is Text and not part.extra:  # most of them
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


def _read_part(kept: Mapping[str, Any]) -> Part:
    if len(kept) == 2 and kept["type"] == "text":  # most of them
        return Text(kept["text"])
    values = dict(kept)
    kind = _KINDS.get(values.pop("type"))
    if kind is None:
        raise UnknownForm(_UNKNOWN)
    return _read(kind, values)
