"""Reasoning that a client brings back without understanding it: the value type that all protocols share, and where it
stands in the parts of a conversation.

Rules:

1. The opaque fields of a part (`ServerSide.opaque_fields`) stand in its `extra` under the protocol of their server, and
   `server` beside them says which server that was (`proxy.model.COMMON`).
2. They are shown to a client of any protocol as one sealed text (`Carried`), in the field that its protocol has for
   such (`ClientSide.carried`).
3. A server is told of its own opaque fields only. Fields without `server` came from the client as they are: they may be
   its server's own, and go to servers of that protocol.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from operator import is_
from typing import Any, Final

from ..model import EMPTY, Extra, Message, Part, Reasoning, ToolUse, fields_of, merged
from ..support.seals import sealed_in
from .wire import dump, load

SERVER: Final = "server"
"""The word of `proxy.model.COMMON`."""


@dataclass(frozen=True, slots=True)
class Carried:
    """What a sealed text holds: the `text` of reasoning (None: the client brings it back itself), and the `fields` of
    `protocol` that its server wants to see again. `of_call`: they belong to the next call and not to reasoning."""

    text: str | None = None
    protocol: str = ""
    fields: Mapping[str, Any] = EMPTY
    of_call: bool = False

    def dump(self) -> bytes:
        """The bytes that are sealed."""
        return dump({"t": self.text, "p": self.protocol, "f": dict(self.fields), "c": self.of_call})

    @classmethod
    def load(cls, payload: bytes) -> Carried:
        """What `dump` wrote."""
        held = load(payload)
        return cls(held["t"], held["p"], held["f"], held["c"])

    def extra(self, server: str) -> Extra:
        """The `extra` of the part that it belongs to."""
        return {self.protocol: self.fields, SERVER: server} if self.fields else EMPTY


def marked(extra: Extra, protocol: str, opaque: frozenset[str], server: str) -> Extra:
    """With the name of the server, if something of `extra` is opaque."""
    return extra if opaque.isdisjoint(fields_of(extra, protocol)) else {**extra, SERVER: server}


def without_opaque(extra: Extra, protocol: str, opaque: frozenset[str]) -> Extra:
    """Without the opaque fields of a protocol, and the name of their server."""
    fields = fields_of(extra, protocol)
    if opaque.isdisjoint(fields):
        return extra
    kept = {key: value for key, value in fields.items() if key not in opaque}
    rest = {key: value for key, value in extra.items() if key not in (protocol, SERVER)}
    return ({**rest, protocol: kept} if kept else rest) or EMPTY


# --- on the way in --------------------------------------------------------------------------------------------------

Open = Callable[[str], tuple[Carried, str] | None]
"""What a sealed text holds, and the server that it is of; None if it was not made here for this client and route."""


def opened(messages: tuple[Message, ...], open_sealed: Open) -> tuple[Message, ...]:
    """The messages with what their sealed texts hold in the place of these. What cannot be opened is left out; the text
    that stands beside stays."""
    out: list[Message] = []
    for message in messages:
        if not any(_is_sealed(part) for part in message.parts):
            out.append(message)
        elif parts := tuple(_opened(message.parts, open_sealed)):
            out.append(replace(message, parts=parts))
    return messages if len(out) == len(messages) and all(map(is_, out, messages)) else tuple(out)


def _is_sealed(part: Part) -> bool:
    return isinstance(part, Reasoning | ToolUse) and bool(part.extra) and bool(sealed_in(part.extra))


def _opened(parts: Iterable[Part], open_sealed: Open) -> Iterator[Part]:
    of_calls: list[Extra] = []
    said = False  # the item that goes on was opened as a whole
    for part in parts:
        if said and isinstance(part, Reasoning) and _continues(part):
            continue
        said = False
        if isinstance(part, ToolUse):
            if _is_sealed(part):
                found = [one for value in sealed_in(part.extra) if (one := open_sealed(value)) is not None]
                of_calls = [carried.extra(server) for carried, server in found]
                part = replace(part, extra=_unsealed(part.extra))
            if of_calls:
                part = replace(part, extra=merged(part.extra, of_calls.pop(0)))
            yield part
        elif isinstance(part, Reasoning) and _is_sealed(part):
            found = [one for value in sealed_in(part.extra) if (one := open_sealed(value)) is not None]
            of_calls += [carried.extra(server) for carried, server in found if carried.of_call]
            thoughts = [(carried, server) for carried, server in found if not carried.of_call]
            for carried, server in thoughts:
                said = said or carried.text is not None
                text = part.text if carried.text is None else carried.text
                if text or carried.fields:
                    yield Reasoning(text, carried.extra(server))
            if not thoughts and part.text:
                yield Reasoning(part.text)
        else:
            yield part


def _continues(part: Reasoning) -> bool:
    return any(isinstance(fields, Mapping) and "continues" in fields for fields in part.extra.values())


def _unsealed(extra: Extra) -> Extra:
    """Without the fields that hold a sealed text."""
    kept: dict[str, Any] = {}
    for protocol, fields in extra.items():
        if isinstance(fields, Mapping):
            fields = {key: value for key, value in fields.items() if not sealed_in(value)}
        if fields:
            kept[protocol] = fields
    return kept or EMPTY


# --- to a server ----------------------------------------------------------------------------------------------------


def for_server(messages: tuple[Message, ...], server: str) -> tuple[Message, ...]:
    """The messages without what only another server understands."""
    out: list[Message] = []
    for message in messages:
        if not any(_is_foreign(part, server) for part in message.parts):
            out.append(message)
            continue
        parts = [_own(part, server) for part in message.parts]
        if kept := tuple(part for part in parts if part is not None):
            out.append(replace(message, parts=kept))
    return messages if len(out) == len(messages) and all(map(is_, out, messages)) else tuple(out)


def _is_foreign(part: Part, server: str) -> bool:
    if not isinstance(part, Reasoning | ToolUse) or not part.extra:
        return False
    return part.extra.get(SERVER, server) != server or bool(sealed_in(part.extra))


def _own(part: Part, server: str) -> Part | None:
    if not _is_foreign(part, server):
        return part
    if isinstance(part, ToolUse):
        foreign = part.extra.get(SERVER, server) != server
        return replace(part, extra=EMPTY if foreign else _unsealed(part.extra))
    assert isinstance(part, Reasoning)
    return Reasoning(part.text) if part.text else None
