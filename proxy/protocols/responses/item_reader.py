"""Reader of one output item of a streamed Responses answer: assembles the item from its events, and knows its block and
what was already emitted of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Protocol

from ...events import BlockKind, BlockStatus, Close, Delta, Event, Opaque
from ...model import EMPTY, CallKind, Extra, ToolUse, fields_of, scoped
from ...scan._grammar import SPACE
from ..chat.reply import arguments_text, text_of
from ..shared import noise
from ..shared.call_deltas import CallDelta, new_call_id
from ..shared.wire import rest_of
from .client_tools import read_client_call
from .items import MESSAGE_FIELDS, PROTOCOL, call_extra, message_of, reasoning_fields, text_extra, usual_item

CALLS: Final = frozenset({"function_call", "custom_tool_call"})
_REFUSAL: Final = frozenset({"type", "refusal"})
_PART_KINDS: Final[Mapping[str, BlockKind]] = {
    "output_text": BlockKind.TEXT,
    "text": BlockKind.TEXT,
    "refusal": BlockKind.REFUSAL,
}


class AnswerBlocks(Protocol):
    """The interface to the answer that an item belongs to. `note` is called for oddities."""

    note: noise.Note

    def open(self, kind: BlockKind, **fields: Any) -> int:
        """Opens a new block and returns its number."""

    def emit(self, event: Event) -> None:
        """Emits an event."""


class ItemReader:
    """One output item: its open block, and what was already emitted of it."""

    __slots__ = (
        "_answer",
        "_block",
        "_draft",
        "_opened_fields",
        "_place",
        "_shown",
        "announced",
        "ident",
        "index",
        "is_complete",
        "is_finished",
        "kind",
        "name",
        "use",
        "wire",
    )

    def __init__(self, answer: AnswerBlocks, index: int) -> None:
        self.index = index
        self.ident = self.kind = self.name = ""
        self.is_finished = False
        self.is_complete = False  # True once the server has sent the complete item
        self.announced: Mapping[str, Any] | None = None
        self.use: ToolUse | None = None  # the call, for a tool that the client runs
        self.wire: Mapping[str, Any] = {}
        self._answer = answer
        self._block: int | None = None
        self._place: tuple[BlockKind, bool, int] | None = None
        self._draft = _draft("function")
        self._opened_fields: Mapping[str, Any] = EMPTY  # the fields in the `extra` of the open block
        self._shown: set[tuple[BlockKind, bool, int]] = set()

    def take(self, wire: Any) -> None:
        """Stores the item as the server sent it, partial or complete."""
        if isinstance(wire, dict):
            self.wire = wire = usual_item(wire)
            self.kind = text_of(wire.get("type")) or self.kind
            self.name = text_of(wire.get("name")) or self.name
            self.use = read_client_call(wire, self.ident or text_of(wire.get("id")) or new_call_id())

    @property
    def is_nameless(self) -> bool:
        """True for a call without a name, which is dropped (R29.2)."""
        return self.kind in CALLS and self.use is None and not self.name.strip(SPACE)

    def is_other(self, wire: Mapping[str, Any], ident: str, *, begins: bool) -> bool:
        """True if `wire`, an item at this item's index, is another item; `begins`: it comes from an event that begins
        an item."""
        if ident and ident == self.ident and (begins or not self.is_finished):
            return False
        if any(a and b and a != b for a, b in zip(_identity(wire), _identity(self.wire), strict=True)):
            return True
        if not self.is_finished:
            return False
        return ident != self.ident if begins else self.kind in CALLS and call_identity(wire) != call_identity(self.wire)

    def begin_call(self) -> None:
        """Prepares for arguments."""
        if self._place is not None:  # servers never mix text and arguments in one item, but the reader must accept it
            self._close("complete")
            self._place = None
            self._draft = _draft("function")
        # servers may repeat arguments of functions; a repetition in text is part of the text
        self._draft.kind = "custom" if self.kind == "custom_tool_call" else "function"

    def part(
        self, kind: BlockKind, summary: bool, place: int, text: str, *, whole: bool, probabilities: Extra = EMPTY
    ) -> None:
        """Emits text of a part of a message or of reasoning: the next piece with its probabilities, or the whole
        text."""
        at = (kind, summary, place)
        if not text or (whole and at in self._shown and at != self._place):
            return
        if self._block is None or self._place is None or self._place[:2] != at[:2]:
            self._close("complete")
            self._open(kind, summary)
        elif self._place != at:
            if summary:
                self._add_text("\n\n")
            self._draft = _draft("custom")
        self._place = at
        self._shown.add(at)
        self._add_text(self._take(text, whole), probabilities)

    def arguments(self, text: str, *, whole: bool) -> None:
        """Emits arguments of a call, the next piece or all. They are held back until the item with the name of the tool
        has arrived."""
        new = self._take(text, whole)
        if self._block is not None:
            self._add_text(new)
        elif (self.wire or self.is_finished) and not self.is_nameless:
            call_id = text_of(self.wire.get("call_id")) or self.ident or new_call_id()
            self._opened_fields = self._fields()
            self._block = self._answer.open(
                BlockKind.TOOL_CALL,
                name=self.name,
                call_id=call_id,
                call_kind=self._draft.kind,
                namespace=text_of(self.wire.get("namespace")) or None,
                extra=scoped(PROTOCOL, self._opened_fields),
            )
            self._add_text(self._draft.arguments)

    def _take(self, text: str, whole: bool) -> str:
        """Returns the part of `text` that is new."""
        if whole:
            so_far = self._draft.arguments
            text = text[len(so_far) :] if text.startswith(so_far) else ""
        return self._draft.take(text)

    def _add_text(self, text: str, probabilities: Extra = EMPTY) -> None:
        if text and self._block is not None:
            self._answer.emit(Delta(self._block, text, probabilities or None))

    def _open(self, kind: BlockKind, summary: bool) -> None:
        self._draft = _draft("custom")
        fields = self._fields()
        if kind is BlockKind.REASONING and self._shown:
            fields = {"continues": True}
        elif self._shown:
            fields = EMPTY
        self._opened_fields = {**fields, "summary": True} if summary else fields
        self._block = self._answer.open(kind, extra=scoped(PROTOCOL, self._opened_fields))

    def _fields(self) -> Mapping[str, Any]:
        """Returns the unmodelled fields of the item, for the `extra` of a block."""
        if self.use is not None:
            return fields_of(self.use.extra, PROTOCOL)
        if self.kind in CALLS:
            return fields_of(call_extra(self.wire), PROTOCOL)
        if self.kind == "reasoning":
            return reasoning_fields(self.wire)
        rest = rest_of(self.wire, MESSAGE_FIELDS)
        return {"item": rest} if rest else EMPTY

    def _close(self, status: str, fields: Mapping[str, Any] = EMPTY) -> None:
        """Closes the open block. `fields` are the fields known now; those that `Open` already had are left out."""
        if self._block is not None:
            late = {key: value for key, value in fields.items() if self._opened_fields.get(key) != value}
            end: BlockStatus = "truncated" if status == "incomplete" else "complete"
            self._answer.emit(Close(self._block, end, scoped(PROTOCOL, late)))
            self._block = None

    def catch_up(self) -> None:
        """Emits everything that was not emitted yet, and closes the block."""
        wire, status = self.wire, text_of(self.wire.get("status"))
        late = self._fields()
        if self.use is not None:
            self.name, self.wire = self.use.name, {**wire, "call_id": self.use.call_id}
            self.begin_call()
            self.arguments(self.use.arguments, whole=True)
        elif self.kind in CALLS:
            key = "input" if self.kind == "custom_tool_call" else "arguments"
            self.begin_call()
            self.arguments(arguments_text(wire.get(key)), whole=True)
            if self.kind == "function_call" and self._draft.is_blank and self.is_complete and status != "incomplete":
                self._add_text("{}")  # arguments always parse as JSON (R7.3)
            if self.kind == "function_call" and not (self.is_complete or self._draft.is_blank or self._draft.is_whole):
                status = "incomplete"
        elif self.kind == "reasoning":
            for summary, parts in ((True, wire.get("summary")), (False, wire.get("content"))):
                for place, part in enumerate(parts if isinstance(parts, list) else ()):
                    if isinstance(part, dict):
                        self.part(BlockKind.REASONING, summary, place, text_of(part.get("text")), whole=True)
            if not self._shown and late:
                self._opened_fields = late
                self._block = self._answer.open(BlockKind.REASONING, extra=scoped(PROTOCOL, late))
            elif "continues" in self._opened_fields:
                late = EMPTY  # the fields belong to the previous block
        elif self.kind == "message":
            content = wire.get("content")
            for place, part in enumerate(content if isinstance(content, list) else ()):
                kind = _PART_KINDS.get(text_of(part.get("type"))) if isinstance(part, dict) else None
                if kind is not None:
                    text = text_of(part.get("refusal" if kind is BlockKind.REFUSAL else "text"))
                    self.part(kind, False, place, text, whole=True)
                    late = {**late, **_part_fields(part, kind)}
                elif isinstance(part, dict):
                    self._answer.emit(Opaque(PROTOCOL, message_of(part, late.get("item", EMPTY))))
                    late = EMPTY
        elif (left := noise.of_item(wire)) is not None:
            self._answer.note(noise.LEFT_OUT, left)
        elif not self._shown:
            self._answer.emit(Opaque(PROTOCOL, wire))
        self._close(status, late)


CallIdentity = tuple[str, str, str]
"""The identity of a call: its type, name and arguments."""


def call_identity(wire: Mapping[str, Any]) -> CallIdentity:
    """Returns the identity of the call in a call item."""
    value = wire.get("input" if wire.get("type") == "custom_tool_call" else "arguments")
    return text_of(wire.get("type")), text_of(wire.get("name")), arguments_text(value)


def _identity(wire: Mapping[str, Any]) -> tuple[str, str, str]:
    """Returns the values that distinguish items regardless of their ids."""
    return text_of(wire.get("call_id")), text_of(wire.get("type")), text_of(wire.get("name"))


def _part_fields(part: Mapping[str, Any], kind: BlockKind) -> Mapping[str, Any]:
    return rest_of(part, _REFUSAL) if kind is BlockKind.REFUSAL else fields_of(text_extra(part), PROTOCOL)


def _draft(kind: CallKind) -> CallDelta:
    draft = CallDelta(0)
    draft.kind = kind
    return draft
