"""Opaque reasoning, which a client sends back without understanding it: its value type, shared by all protocols, and
its place in the parts of a conversation.

Rules:

1. The opaque fields of a part (`ServerSide.opaque_fields`) stand in its `extra` under the protocol of their server;
   `server` next to them names that server (`toolwire.model.COMMON`).
2. A client of any protocol gets them as one sealed text (`SealedContent`), in the field that its protocol has for
   opaque text (`ClientSide.carried`).
3. If the client's protocol has no place for opaque fields on a call (`ClientSide.opaque_on_calls`), they stand under
   `call` in a reasoning part without text before the call.
4. A server gets only its own opaque fields. Fields without `server` came from the client directly: they may belong to
   its server, and go to all servers of that protocol.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from ...known.past import Past, fold_items, map_items
from ...model import EMPTY, Extra, Message, Part, Reasoning, ToolUse, fields_of, merged, scoped
from ...support.seals import sealed_in
from .wire import dump, load

SERVER: Final = "server"
CALL: Final = "call"
"""Keys of an `extra`, see `toolwire.model.COMMON`: the name of the server, and the fields of the next call."""
SIGNATURE: Final = "thought_signature"
"""Key of Gemini's signature on a call, which it sends over Chat."""
_UNSIGNED: Final = "skip_thought_signature_validator"
"""Takes the place of the signature on a call that another model made."""


def with_signature(call: ToolUse) -> ToolUse:
    """Returns a call of an earlier turn with a signature for Gemini, which refuses calls without one; the same object
    if it has its own."""
    if "extra_content" in fields_of(call.extra, "chat"):
        return call
    unsigned = scoped("chat", {"extra_content": {"google": {SIGNATURE: _UNSIGNED}}})
    return replace(call, extra=merged(call.extra, unsigned))


@dataclass(frozen=True, slots=True)
class SealedContent:
    """Content of a sealed text: the `text` of reasoning (None if the client sends the text back itself), and the opaque
    `fields` of `protocol` for the server. `of_call`: the fields belong to the next call instead of to reasoning."""

    text: str | None = None
    protocol: str = ""
    fields: Mapping[str, Any] = EMPTY
    of_call: bool = False

    def dump(self) -> bytes:
        """Returns the bytes to seal."""
        return dump({"t": self.text, "p": self.protocol, "f": dict(self.fields), "c": self.of_call})

    @classmethod
    def load(cls, payload: bytes) -> SealedContent:
        """Reads the bytes from `dump`. Raises `KeyError` or `ValueError` if they are something else."""
        held = load(payload)
        return cls(held["t"], held["p"], held["f"], held["c"])

    def extra(self, server: str) -> Extra:
        """Returns the `extra` of the part that the fields belong to."""
        if not self.fields:
            return EMPTY
        extra = {self.protocol: self.fields}
        return {CALL: extra, SERVER: server} if self.of_call else {**extra, SERVER: server}


def with_server(extra: Extra, protocol: str, opaque: frozenset[str], server: str) -> Extra:
    """Returns `extra` with the name of the server added if it has opaque fields."""
    return extra if opaque.isdisjoint(fields_of(extra, protocol)) else {**extra, SERVER: server}


def without_opaque(extra: Extra, protocol: str, opaque: frozenset[str]) -> Extra:
    """Returns `extra` without the opaque fields of a protocol and without the name of their server."""
    fields = fields_of(extra, protocol)
    if opaque.isdisjoint(fields):
        return extra
    remaining = {key: value for key, value in fields.items() if key not in opaque}
    rest = {key: value for key, value in extra.items() if key not in (protocol, SERVER)}
    return ({**rest, protocol: remaining} if remaining else rest) or EMPTY


# --- on the way in --------------------------------------------------------------------------------------------------

Open = Callable[[str], tuple[SealedContent, str] | None]
"""Function that opens a sealed text: returns its content and its server, or None if it was not made by this gateway for
this client and route."""


def open_sealed_texts(
    messages: tuple[Message, ...], open_sealed: Open, past: Past | None = None, key: Hashable = None
) -> tuple[tuple[Message, ...], int]:
    """Returns the messages with sealed texts replaced by their content, and the number of sealed texts that cannot be
    opened. These are dropped; visible text beside them stays. `key`: everything that `open_sealed` depends on."""

    def step(before: tuple[bool, int], several: Sequence[Message], start: int, made: list[Message]) -> tuple[bool, int]:
        same, dropped = before

        def counted(value: str) -> tuple[SealedContent, str] | None:
            nonlocal dropped
            content = open_sealed(value)
            dropped += content is None
            return content

        for message in several:
            if not any(map(_is_sealed, message.parts)):
                made.append(message)
                continue
            same = False
            if parts := tuple(_opened(message.parts, counted)):
                made.append(replace(message, parts=parts))
        return same, dropped

    made, (same, dropped) = fold_items(past, ("opened", key), messages, (True, 0), step)
    return messages if same else tuple(made), dropped


def _is_sealed(part: Part) -> bool:
    return isinstance(part, Reasoning | ToolUse) and bool(part.extra) and bool(sealed_in(part.extra))


def _opened(parts: Iterable[Part], open_sealed: Open) -> Iterator[Part]:
    opened_whole = False  # True while further parts of an item that was opened as a whole follow
    for part in parts:
        if opened_whole and isinstance(part, Reasoning) and _continues(part):
            continue
        opened_whole = False
        if not _is_sealed(part):
            yield part
            continue
        assert isinstance(part, Reasoning | ToolUse)
        contents = [one for value in sealed_in(part.extra) if (one := open_sealed(value)) is not None]
        if isinstance(part, ToolUse):
            extra = _unsealed(part.extra)
            for carried, server in contents:
                extra = merged(extra, {carried.protocol: carried.fields, SERVER: server})
            yield replace(part, extra=extra)
            continue
        for carried, server in contents:
            opened_whole = opened_whole or carried.text is not None
            text = "" if carried.of_call else part.text if carried.text is None else carried.text
            if text or carried.fields:
                yield Reasoning(text, carried.extra(server))
        if part.text and all(carried.of_call for carried, _ in contents):
            yield Reasoning(part.text)


def _continues(part: Reasoning) -> bool:
    return any(isinstance(fields, Mapping) and "continues" in fields for fields in part.extra.values())


def _unsealed(extra: Extra) -> Extra:
    """Returns `extra` without the fields that hold a sealed text."""
    remaining: dict[str, Any] = {}
    for protocol, fields in extra.items():
        if isinstance(fields, Mapping):
            fields = {key: value for key, value in fields.items() if not sealed_in(value)}
        if fields:
            remaining[protocol] = fields
    return remaining or EMPTY


# --- to a server ----------------------------------------------------------------------------------------------------


def for_server(messages: tuple[Message, ...], server: str, past: Past | None = None) -> tuple[Message, ...]:
    """Returns the messages for `server`: without opaque fields of other servers, and with its own fields of calls moved
    from the reasoning to the calls."""

    def fitted(message: Message) -> Message | None:
        if not any(_is_to_fit(part, server) for part in message.parts):
            return message
        parts = tuple(_fitted(message.parts, server))
        return replace(message, parts=parts) if parts else None

    return map_items(past, ("for server", server), messages, fitted)


def _is_to_fit(part: Part, server: str) -> bool:
    if not isinstance(part, Reasoning | ToolUse) or not part.extra:
        return False
    return CALL in part.extra or _is_foreign(part.extra, server)


def _is_foreign(extra: Extra, server: str) -> bool:
    return extra.get(SERVER, server) != server or bool(sealed_in(extra))


def _fitted(parts: Iterable[Part], server: str) -> Iterator[Part]:
    of_call: Extra = EMPTY
    for part in parts:
        match part:
            case Reasoning(text=text, extra=extra) if CALL in extra:
                of_call = EMPTY if _is_foreign(extra, server) else extra[CALL]
            case Reasoning(text=text, extra=extra) if _is_foreign(extra, server):
                if text:
                    yield Reasoning(text)
            case ToolUse(extra=extra):
                if _is_foreign(extra, server):
                    extra = _unsealed(extra) if extra.get(SERVER, server) == server else EMPTY
                extra = merged(extra, of_call)
                of_call = EMPTY
                yield part if extra is part.extra else replace(part, extra=extra)
            case _:
                yield part
