"""Reader of streamed Messages answers.

Rules:

1. Everything is accepted: noise is left out (`noise.py`), an unknown event becomes `Opaque` with the event under
   `frame`, an unmodelled block becomes one `Opaque` when it is complete. An event that is not a JSON object ends the
   stream with a `Fault`. Bytes may be cut anywhere.
2. Blocks open and close where the server says so; blocks left open are closed at the end. A call with incomplete
   arguments is closed only when the next event is known: if the answer ends there for a limit, the call was cut off,
   whether or not the server closed it (R29.3). A call without a name is dropped; if the answer has nothing else, it is
   a fault (R29.2).
3. Counts are running totals: later values replace earlier ones, missing values stay.
4. A number from the server is checked before anything is counted or sized by it (`numbers.py`).
5. The stream is complete if `message_stop` or a stop reason came; otherwise it broke off.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ...events import BlockKind, BlockStatus, Close, Delta, Event, Finish, Opaque, Open, Start
from ...model import EMPTY, Extra, FinishReason, scoped
from ...scan._grammar import SPACE
from ..chat.reply import arguments_text, text_of
from ..shared import noise
from ..shared.call_deltas import CallDelta, new_call_id
from ..shared.client_tools import TOOLSET
from ..shared.ends import cut_off_reason, read_end
from ..shared.numbers import MAX_CHOICES, MAX_PARTS, add_counts, index_of, too_many
from ..shared.sse_reader import SseReader
from ..shared.wire import dump, fields_in, load, nameless_call_fault, rest_of
from .blocks import CALL, PROTOCOL, REDACTED, TEXT, THINKING, block_extra
from .errors import read_error
from .reply import ANSWER, is_nameless, read_stop, read_usage

_DELTA: Final = frozenset({"stop_reason", "stop_sequence"})
_EVENT: Final = frozenset({"type", "delta", "usage"})
_SIGNED: Final = THINKING | {"signature"}
_TEXTS: Final[Mapping[str, tuple[str, BlockKind]]] = {
    "text_delta": ("text", BlockKind.TEXT),
    "thinking_delta": ("thinking", BlockKind.REASONING),
    "input_json_delta": ("partial_json", BlockKind.TOOL_CALL),
}
"""Deltas with text: the key of the text, and the kind of its block."""


class MessagesReader(SseReader):
    """A `StreamReader` of Messages events."""

    frame_word = "an event"

    def __init__(self, frame_bytes: int, choices: int = MAX_CHOICES, note: noise.Note = noise.ignore_note) -> None:
        super().__init__(frame_bytes, choices, note)
        self._blocks: dict[int, _OpenBlock] = {}
        self._last = -1
        self._seen = 0
        self._ids: set[str] = set()
        self._lacks_name = self._has_opened = False
        self._starts: dict[int, Mapping[str, Any]] = {}  # the starts of calls
        self._ahead: dict[int, list[str]] = {}  # pieces of calls that have not begun
        self._ending: int | None = None  # a call that the server closed and that may have been cut off
        self._started = False
        self._counts: dict[str, Any] = {}
        self._stop: dict[str, Any] | None = None
        self._late: dict[str, Any] = {}
        self._early: list[Event] = []  # unknown events before the answer began

    # --- frames -----------------------------------------------------------------------------------------------------

    def _frame(self, name: str | None, value: dict[str, Any]) -> None:
        kind = text_of(value.get("type")) or name or ""
        error = read_error(value if kind != "error" else {**value, "type": "error"})
        if error is not None:
            self._fault(error)
            return
        match kind:
            case "content_block_delta":
                self._delta(value)
            case "content_block_start":
                self._open(value)
            case "content_block_stop":
                self._close(value)
            case "message_start":
                self._start(value.get("message"))
            case "message_delta":
                self._message_delta(value)
            case "message_stop":
                self._finish()
            case "ping":
                pass
            case _ if (left := noise.in_messages(name, value)) is not None:
                self.note(noise.LEFT_OUT, left)
            case _:
                (self.out if self._started else self._early).append(Opaque(PROTOCOL, {"frame": value}))

    def _start(self, message: Any) -> None:
        if self._started:
            return
        self._started = True
        fields = fields_in(message)
        self._count(fields.get("usage"))
        extra = scoped(PROTOCOL, rest_of(fields, ANSWER))
        usage = read_usage(self._counts) if self._counts else None
        self.out.append(Start(text_of(fields.get("id")), text_of(fields.get("model")), 0, extra, usage))
        self.out += self._early

    def _count(self, usage: Any) -> None:
        if isinstance(usage, dict):
            add_counts(self._counts, usage)

    def _message_delta(self, value: Mapping[str, Any]) -> None:
        self._start(None)
        delta = value.get("delta")
        if isinstance(delta, dict):
            self._stop = {**(self._stop or {}), **delta} if delta.get("stop_reason") or self._stop else self._stop
            if word := text_of(delta.get("stop_reason")):
                read_end(word)  # raises if the word means an error
            self._late.update(rest_of(delta, _DELTA))
        self._late.update(rest_of(value, _EVENT))
        self._count(value.get("usage"))

    def _finish(self) -> None:
        self._start(None)
        reason, extra = read_stop(self._stop or {}, self.note)
        is_cut = reason not in FinishReason.WHOLE
        for index in list(self._blocks):
            reason = cut_off_reason(reason) if is_cut and self._blocks[index].may_be_cut else reason
            self._end(index, cut=is_cut, explicit="stop_reason" in (self._stop or EMPTY))
        if self._lacks_name and not (self._has_opened or is_cut):
            self._fault(nameless_call_fault())
            return
        self._ended = True
        usage = read_usage(self._counts) if self._counts else None
        self.out.append(Finish(reason, usage, (), scoped(PROTOCOL, self._late), (extra,) if extra else ()))

    def _at_end(self) -> None:
        if self._stop is not None:
            self._finish()
        else:
            super()._at_end()

    # --- blocks -----------------------------------------------------------------------------------------------------

    def _index(self, value: Mapping[str, Any]) -> int:
        index = index_of(value.get("index"), MAX_PARTS, "a block")
        return self._last if index is None else index

    def _open(self, value: Mapping[str, Any]) -> None:
        self._start(None)
        index_given = index_of(value.get("index"), MAX_PARTS, "a block")
        index = self._last + 1 if index_given is None else index_given
        block = value.get("content_block")
        block = block if isinstance(block, dict) else {"type": "text"}
        if block.get("type") == "tool_use":
            if block.get("id") and self._starts.get(index) == block:
                return  # the same start was sent twice
            self._starts[index] = block
        if index in self._blocks:
            self._end(index)
        self._begin(index, block)

    def _begin(self, index: int, wire: Mapping[str, Any]) -> _OpenBlock:
        if self._seen >= MAX_PARTS:
            raise too_many("blocks", MAX_PARTS)
        if self._ending is not None:
            self._end(self._ending, explicit=True)
        self._last = index
        block = self._blocks[index] = _OpenBlock(self._seen, wire)
        self._seen += 1
        match block.kind:
            case BlockKind.TEXT:
                self._emit_open(block, block_extra(wire, TEXT))
                self._add_text(block, text_of(wire.get("text")))
            case BlockKind.REASONING if wire.get("type") == "redacted_thinking":
                self._emit_open(block, block_extra(wire, REDACTED))
            case BlockKind.REASONING:
                signature = text_of(wire.get("signature"))
                self._emit_open(block, block_extra(wire, THINKING if signature else _SIGNED))
                self._add_text(block, text_of(wire.get("thinking")))
            case BlockKind.TOOL_CALL if is_nameless(wire):
                block.is_nameless = self._lacks_name = True
                self.note(noise.NAMELESS, "")
            case BlockKind.TOOL_CALL:
                call_id = text_of(wire.get("id"))
                if not call_id or call_id in self._ids:
                    call_id = new_call_id()
                self._ids.add(call_id)
                name = text_of(wire.get("name"))
                group = text_of(wire.get(TOOLSET)) or None
                self._emit_open(block, block_extra(wire, CALL), name=name, call_id=call_id, namespace=group)
                for text in self._ahead.pop(index, ()):
                    self._add_text(block, text)
        return block

    def _emit_open(self, block: _OpenBlock, extra: Extra, **call: Any) -> None:
        assert block.kind is not None
        self._has_opened = True
        self.out.append(Open(block.number, block.kind, extra=extra, **call))

    def _delta(self, value: Mapping[str, Any]) -> None:
        self._start(None)
        index, wire_delta = self._index(value), value.get("delta")
        delta: Mapping[str, Any] = wire_delta if isinstance(wire_delta, dict) else EMPTY
        kind = text_of(delta.get("type"))
        block = self._blocks.get(index)
        if kind in _TEXTS:
            key, of = _TEXTS[kind]
            piece = delta.get(key)
            unsigned: _OpenBlock | None = None
            if block is not None and {block.kind, of} == _PROSE:  # the server goes on with another block
                if block.awaits_signature:
                    unsigned = self._blocks.pop(index)
                else:
                    self._end(index, explicit=True)
                block = None
            if block is None and of is not BlockKind.TOOL_CALL:  # the server left out the block's start
                block = self._begin(max(index, 0), {"type": "text" if of is BlockKind.TEXT else "thinking"})
                block.thinking = unsigned
            if block is not None and block.kind in (of, None):
                self._add_text(block, arguments_text(piece) if of is BlockKind.TOOL_CALL else text_of(piece))
                return
            if of is BlockKind.TOOL_CALL:
                if index not in self._starts:
                    self._ahead.setdefault(index, []).append(arguments_text(piece))
                return
        elif kind == "signature_delta" and block is not None and block.signed.kind is not BlockKind.TEXT:
            block.signed.late["signature"] = text_of(delta.get("signature"))
            return
        elif kind == "citations_delta" and block is not None:
            block.late.setdefault("citations", []).append(delta.get("citation"))
            return
        self.out.append(Opaque(PROTOCOL, {"frame": value}))

    def _add_text(self, block: _OpenBlock, text: str) -> None:
        if block.kind in (BlockKind.TOOL_CALL, None):
            block.draft.take(text)
        if text and block.kind is not None and not (block.is_nameless or block.has_input):
            self.out.append(Delta(block.number, text))

    def _close(self, value: Mapping[str, Any]) -> None:
        index = self._index(value)
        block = self._blocks.get(index)
        if block is not None and index == self._last and block.may_be_cut:
            self._ending = index
        elif block is not None:
            self._end(index, explicit=True)

    def _end(self, index: int, *, cut: bool = False, explicit: bool = False) -> None:
        """Closes a block. `cut`: the answer ended here for a limit. `explicit`: the server closed the block or sent
        a stop reason."""
        block = self._blocks.pop(index)
        if index == self._ending:
            self._ending = None
        if block.is_nameless:
            return
        if block.thinking is not None:
            self.out.append(Close(block.thinking.number, "complete", scoped(PROTOCOL, block.thinking.late)))
        status: BlockStatus = "complete"
        if block.kind is None:
            wire = block.wire
            if not block.draft.is_blank:
                arguments = block.arguments
                try:
                    wire = {**wire, "input": load(arguments)}
                except ValueError:
                    wire = {**wire, "input": {"input": arguments}}
            if (left := noise.of_item(wire)) is not None:
                self.note(noise.LEFT_OUT, left)
                return
            self.out.append(Opaque(PROTOCOL, {**wire, **block.late} if block.late else wire))
            return
        if block.kind is BlockKind.TOOL_CALL:
            half = not (explicit or block.has_input or block.draft.is_blank or block.draft.is_whole)
            if half or (cut and block.may_be_cut):
                status = "truncated"
            elif block.has_input or (block.draft.is_blank and explicit):
                self.out.append(Delta(block.number, block.arguments or "{}"))
        self.out.append(Close(block.number, status, scoped(PROTOCOL, block.late)))


_PROSE: Final = {BlockKind.TEXT, BlockKind.REASONING}


class _OpenBlock:
    """A block that is not closed: its start, and fields that came later. `kind` is None if it is not modelled. The
    reader sets `thinking`: thinking that the same block of the server began with, and whose signature is missing.
    `has_input`: it is a call whose arguments, or some, came with its start."""

    __slots__ = ("draft", "has_input", "is_nameless", "kind", "late", "number", "thinking", "wire")

    def __init__(self, number: int, wire: Mapping[str, Any]) -> None:
        self.number = number
        self.wire = wire
        self.late: dict[str, Any] = {}
        self.is_nameless = False
        self.thinking: _OpenBlock | None = None
        self.draft = CallDelta(0)
        self.draft.kind = "custom"  # never merges repeated text: pieces of Messages are always fragments
        self.kind = _KINDS.get(text_of(wire.get("type")))
        self.has_input = self.kind is BlockKind.TOOL_CALL and bool(wire.get("input"))

    @property
    def may_be_cut(self) -> bool:
        """True for a call whose arguments are incomplete or empty."""
        if self.kind is not BlockKind.TOOL_CALL or self.has_input:
            return False
        return self.draft.arguments.strip(SPACE) in ("", "{}") or not self.draft.is_whole

    @property
    def signed(self) -> _OpenBlock:
        """The block that a signature belongs to."""
        return self.thinking or self

    @property
    def awaits_signature(self) -> bool:
        """True for thinking that announced a signature which has not come."""
        announced = self.kind is BlockKind.REASONING and self.wire.get("signature") == ""
        return announced and "signature" not in self.late

    @property
    def arguments(self) -> str:
        """The arguments of a call. If some came with its start, its deltas repeat them or are only `{}`; if they hold
        anything else, both count."""
        start = arguments_text(self.wire.get("input") or None).strip(SPACE)
        first, later = _object_in(start), _object_in(self.draft.arguments)
        if not start or (later and first is None):
            return self.draft.arguments
        if not (first and later):
            return start
        whole = {**first, **later}
        return self.draft.arguments if whole == later else dump(whole).decode()


def _object_in(text: str) -> dict[str, Any] | None:
    """Returns the JSON object in a text; None if it holds none."""
    try:
        value = load(text)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


_KINDS: Final[Mapping[str, BlockKind]] = {
    "text": BlockKind.TEXT,
    "thinking": BlockKind.REASONING,
    "redacted_thinking": BlockKind.REASONING,
    "tool_use": BlockKind.TOOL_CALL,
}
