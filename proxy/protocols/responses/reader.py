"""Streamed Responses answers to events, from servers that leave out what they please.

Rules:

1. Total: what is neither answer nor error is left out (`noise.py`); an event of a kind that is not known, and one about
   an item that is not modelled, becomes `Opaque`; a frame that is no JSON object ends the stream with a `Fault`. Bytes
   may be cut anywhere.
2. A block opens when its item says something and closes when its item is done. What only a `done` event, a finished
   item or the final resource holds is caught up from there, so no event but the last is needed.
3. An item that is not modelled is one `Opaque` when it is done, with the whole item as payload. Frames that tell how
   it goes on are too, and if there are any the one before them that announces it.
4. What is counted or sized by a server's number is bounded first (`numbers.py`).
5. The stream is good when its terminal event came; else it broke off.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ...errors import BackendFault, GatewayError
from ...events import BlockKind, BlockStatus, Close, Delta, Event, Fault, Finish, Opaque, Open, Start
from ...fastparse import SseFramer
from ...model import EMPTY, CallKind, Extra, ToolUse, fields_of, scoped
from ...scan._grammar import FrameTooLarge
from .. import noise
from ..call_deltas import CallDelta, new_call_id
from ..chat.reply import text_of
from ..numbers import MAX_PARTS, index_of, too_many, whole_number
from ..wire import load, read_frame
from .client_tools import read_client_call
from .errors import read_fault
from .items import MESSAGE_FIELDS, PROTOCOL, call_extra, message_of, reasoning_fields, rest_of, text_extra
from .reply import failure, finish_extra, finish_reason, probabilities
from .resource import read_usage

_TEXTS: Final[Mapping[str, tuple[str, BlockKind]]] = {
    "response.output_text": ("text", BlockKind.TEXT),
    "response.refusal": ("refusal", BlockKind.REFUSAL),
    "response.reasoning_text": ("text", BlockKind.REASONING),
    "response.reasoning": ("text", BlockKind.REASONING),
    "response.reasoning_summary_text": ("text", BlockKind.REASONING),
    "response.function_call_arguments": ("arguments", BlockKind.TOOL_CALL),
    "response.custom_tool_call_input": ("input", BlockKind.TOOL_CALL),
}
"""Families of events that carry text: where `.done` holds the whole of it, and the block it belongs to."""
_RUNNING: Final = frozenset({"response.created", "response.in_progress", "response.queued"})
_ENDS: Final = frozenset(
    {"response.completed", "response.incomplete", "response.failed", "response.cancelled", "response.done"}
)
_SILENT: Final = frozenset(
    {
        "response.content_part.added", "response.content_part.done",
        "response.reasoning_summary_part.added", "response.reasoning_summary_part.done",
    }
)  # fmt: skip
_PIECES: Final = ("response.shell_call_command.", "response.apply_patch_call_operation_diff.")
"""Events that say nothing which others do not say, and how such ones begin."""
_CALLS: Final = frozenset({"function_call", "custom_tool_call"})
_MODELLED: Final = _CALLS | {"message", "reasoning", ""}
"""Types of items; without one it may be any of these."""
_REFUSAL: Final = frozenset({"type", "refusal"})
_PART_KINDS: Final[Mapping[str, BlockKind]] = {
    "output_text": BlockKind.TEXT,
    "text": BlockKind.TEXT,
    "refusal": BlockKind.REFUSAL,
}


class ResponsesReader:
    """A `StreamReader`."""

    def __init__(self, frame_bytes: int, note: noise.Note = noise.unnoted) -> None:
        self.note = note
        self._framer = SseFramer(frame_bytes)
        self._items: dict[int, _Item] = {}
        self._idents: dict[str, int] = {}
        self._last = 0
        self._next = 0  # behind all of them
        self._blocks = 0
        self._started = self._ended = False
        self._top: Mapping[str, Any] = EMPTY
        self._out: list[Event] = []
        self._early: list[Event] = []  # said before the answer began

    def feed(self, data: bytes) -> list[Event]:
        """The events in these bytes. After the terminal event or a `Fault` everything is ignored."""
        if not self._ended:
            try:
                for name, frame in self._framer.feed(data):
                    self._frame(name, frame)
            except FrameTooLarge as error:
                self._oversize(error)
            except BackendFault as error:
                self._fault(error)
        return self._taken()

    def finish(self) -> list[Event]:
        """The bytes are over: a stream without terminal event is a `Fault` `upstream_disconnected` (R10.8)."""
        if not self._ended:
            try:
                for name, frame in self._framer.finish():  # Some servers leave out the last blank line.
                    if _is_whole(frame):
                        self._frame(name, frame)
            except FrameTooLarge as error:
                self._oversize(error)
            except BackendFault as error:
                self._fault(error)
        self._break_off()
        return self._taken()

    def _break_off(self) -> None:
        message = "The model server broke off before the answer was finished."
        self._fault(BackendFault(message, code="upstream_disconnected", transient=True))

    def _taken(self) -> list[Event]:
        out, self._out = self._out, []
        return out

    def _oversize(self, error: FrameTooLarge) -> None:
        self._fault(BackendFault(f"The model server's answer: {error}.", code="upstream_invalid_response"))

    def _fault(self, error: GatewayError) -> None:
        if not self._ended:
            self._ended = True
            self._out.append(Fault(error))

    # --- frames -----------------------------------------------------------------------------------------------------

    def _frame(self, name: str | None, frame: bytes) -> None:
        if self._ended or not frame:
            return
        if frame.strip() == b"[DONE]":
            self._break_off()  # nothing counts behind it
            return
        if not frame.startswith(b"{") and (left := noise.of_text(frame)) is not None:
            self.note(noise.LEFT_OUT, left)
            return
        value = read_frame(frame)
        kind = text_of(value.get("type")) or name or ""
        error = read_fault(value) or (read_fault({"error": value}) if kind == "error" else None)
        if error is not None:
            self._fault(error)
            return
        family, _, edge = kind.rpartition(".")
        if family in _TEXTS and edge in ("delta", "done"):
            self._text(value, *_TEXTS[family], summary="summary" in family, whole=edge == "done")
        elif kind in _RUNNING:
            self._start(value.get("response"))
        elif kind in _ENDS:
            self._end(value.get("response"), kind)
        elif kind == "response.output_item.added":
            item = self._item(value)
            item.take(value.get("item"))
            item.announced = value if item.kind not in _MODELLED and item.use is None else None
        elif kind == "response.output_item.done":
            item = self._item(value)
            item.take(value.get("item"))
            self._done(item)
        elif (left := noise.in_responses(name, value)) is not None:
            self.note(noise.LEFT_OUT, left)
        elif kind not in _SILENT and not kind.startswith(_PIECES):
            about = self._items.get(self._idents.get(text_of(value.get("item_id")), -1))
            if about is not None and about.announced is not None and not about.over:
                self._out.append(Opaque(PROTOCOL, about.announced))
                about.announced = None
            (self._out if self._started else self._early).append(Opaque(PROTOCOL, value))

    def _start(self, response: Any) -> None:
        if not self._started:
            self._started = True
            given = response if isinstance(response, dict) else {}
            created = whole_number(given.get("created_at"))
            extra = finish_extra({**given, "completed_at": None, "service_tier": None})
            self._top = fields_of(extra, PROTOCOL)
            self._out.append(Start(text_of(given.get("id")), text_of(given.get("model")), created, extra))
            self._out += self._early

    def _item(self, value: Mapping[str, Any]) -> _Item:
        """The item that a frame is about: by index, else by id, else the one before. Raises `BackendFault` for an index
        that cannot be."""
        self._start(None)
        shown = value.get("item")
        ident = text_of(value.get("item_id") or (shown.get("id") if isinstance(shown, dict) else None))
        index = index_of(value.get("output_index"), MAX_PARTS, "an item")
        if index is None:
            # Without index and without a known id, an item that is announced is a new one.
            index = self._idents.get(ident, self._next if "item" in value else self._last)
        self._last = index
        item = self._items.get(index)
        if item is None:
            if index >= MAX_PARTS:
                raise too_many("items", MAX_PARTS)
            item = self._items[index] = _Item(self)
            self._next = max(self._next, index + 1)
        if ident and not item.ident:
            item.ident = ident
            self._idents.setdefault(ident, index)
        return item

    def _text(self, value: Mapping[str, Any], key: str, kind: BlockKind, *, summary: bool, whole: bool) -> None:
        item = self._item(value)
        if item.over:
            return
        text = text_of(value.get(key if whole else "delta"))
        if kind is BlockKind.TOOL_CALL:
            item.kind = item.kind or ("custom_tool_call" if key == "input" else "function_call")
            item.name = item.name or text_of(value.get("name"))
            item.begin_call()
            item.arguments(text, whole=whole)
        else:
            place = index_of(value.get("summary_index" if summary else "content_index"), MAX_PARTS, "a part")
            chances = probabilities(value) if value.get("logprobs") and not whole else EMPTY
            item.part(kind, summary, place or 0, text, whole=whole, chances=chances)

    def _done(self, item: _Item) -> None:
        if not item.over:
            item.over = True
            item.catch_up()

    def _end(self, response: Any, kind: str) -> None:
        answer = response if isinstance(response, dict) else {}
        self._start(answer)
        error = read_fault(answer) or failure(answer)
        if error is None and kind in ("response.failed", "response.cancelled"):
            error = BackendFault("The model server's response failed.")
        if error is not None:
            self._fault(error)
            return
        output = answer.get("output")
        output = output if isinstance(output, list) else []
        if len(output) > MAX_PARTS:
            raise too_many("items", MAX_PARTS)
        for index, shown in enumerate(output):
            if isinstance(shown, dict):
                item = self._item({"output_index": self._idents.get(text_of(shown.get("id")), index), "item": shown})
                if not item.over:
                    item.take(shown)
        for item in self._items.values():
            self._done(item)
        self._ended = True
        reason = finish_reason(answer, self.note, incomplete=kind == "response.incomplete")
        extra = dict(finish_extra(answer))
        late = {key: value for key, value in extra.pop(PROTOCOL, EMPTY).items() if self._top.get(key) != value}
        self._out.append(
            Finish(reason, read_usage(answer.get("usage")), (), {**extra, **scoped(PROTOCOL, late)} or EMPTY)
        )

    # --- for items --------------------------------------------------------------------------------------------------

    def open(self, kind: BlockKind, **fields: Any) -> int:
        """A new block."""
        self._blocks += 1
        self.emit(Open(self._blocks - 1, kind, **fields))
        return self._blocks - 1

    def emit(self, event: Event) -> None:
        """Give out an event."""
        self._out.append(event)


class _Item:
    """One output item: its open block, and what of it has been given out."""

    __slots__ = (
        *("_block", "_draft", "_place", "_reader", "_said", "_shown", "announced", "ident", "kind", "name", "over"),
        *("use", "wire"),
    )

    def __init__(self, reader: ResponsesReader) -> None:
        self.ident = self.kind = self.name = ""
        self.over = False
        self.announced: Mapping[str, Any] | None = None
        self.use: ToolUse | None = None  # a call of a tool that the client runs
        self.wire: Mapping[str, Any] = {}
        self._reader = reader
        self._block: int | None = None
        self._place: tuple[BlockKind, bool, int] | None = None
        self._draft = _draft("function")
        self._said: Mapping[str, Any] = EMPTY  # what the open block has in its `extra`
        self._shown: set[tuple[BlockKind, bool, int]] = set()

    def take(self, wire: Any) -> None:
        """The item as a server shows it, half or whole."""
        if isinstance(wire, dict):
            self.wire = wire
            self.kind = text_of(wire.get("type")) or self.kind
            self.name = text_of(wire.get("name")) or self.name
            self.use = read_client_call(wire, self.ident or text_of(wire.get("id")) or new_call_id())

    def begin_call(self) -> None:
        """What comes next are arguments."""
        if self._place is not None:  # no server mixes the two, but a reader must survive it
            self._close("complete")
            self._place = None
            self._draft = _draft("function")
        # Only arguments of functions may be repeated by a server; text may repeat itself.
        self._draft.kind = "custom" if self.kind == "custom_tool_call" else "function"

    def part(
        self, kind: BlockKind, summary: bool, place: int, text: str, *, whole: bool, chances: Extra = EMPTY
    ) -> None:
        """Text of a part of a message or of reasoning: more of it, with its probabilities, or all of it."""
        at = (kind, summary, place)
        if not text or (whole and at in self._shown and at != self._place):
            return
        if self._block is None or self._place is None or self._place[:2] != at[:2]:
            self._close("complete")
            self._open(kind, summary)
        elif self._place != at:
            if summary:
                self._give("\n\n")
            self._draft = _draft("custom")
        self._place = at
        self._shown.add(at)
        self._give(self._take(text, whole), chances)

    def arguments(self, text: str, *, whole: bool) -> None:
        """Arguments of a call: more of them, or all of them. Held back until the item is there to say who is called."""
        new = self._take(text, whole)
        if self._block is not None:
            self._give(new)
        elif self.wire or self.over:
            call_id = text_of(self.wire.get("call_id")) or self.ident or new_call_id()
            self._said = self._fields()
            self._block = self._reader.open(
                BlockKind.TOOL_CALL,
                name=self.name,
                call_id=call_id,
                call_kind=self._draft.kind,
                namespace=text_of(self.wire.get("namespace")) or None,
                extra=scoped(PROTOCOL, self._said),
            )
            self._give(self._draft.arguments)

    def _take(self, text: str, whole: bool) -> str:
        """What of a text is new."""
        if whole:
            so_far = self._draft.arguments
            text = text[len(so_far) :] if text.startswith(so_far) else ""
        return self._draft.take(text)

    def _give(self, text: str, chances: Extra = EMPTY) -> None:
        if text and self._block is not None:
            self._reader.emit(Delta(self._block, text, chances or None))

    def _open(self, kind: BlockKind, summary: bool) -> None:
        self._draft = _draft("custom")
        fields = self._fields()
        if kind is BlockKind.REASONING and self._shown:
            fields = {"continues": True}
        elif self._shown:
            fields = EMPTY
        self._said = {**fields, "summary": True} if summary else fields
        self._block = self._reader.open(kind, extra=scoped(PROTOCOL, self._said))

    def _fields(self) -> Mapping[str, Any]:
        """What is known of the item beside what is modelled, for the `extra` of a block."""
        if self.use is not None:
            return fields_of(self.use.extra, PROTOCOL)
        if self.kind in _CALLS:
            return fields_of(call_extra(self.wire), PROTOCOL)
        if self.kind == "reasoning":
            return reasoning_fields(self.wire)
        rest = rest_of(self.wire, MESSAGE_FIELDS)
        return {"item": rest} if rest else EMPTY

    def _close(self, status: str, fields: Mapping[str, Any] = EMPTY) -> None:
        """`fields`: what is known now; what was said when the block opened is not said again."""
        if self._block is not None:
            late = {key: value for key, value in fields.items() if self._said.get(key) != value}
            end: BlockStatus = "truncated" if status == "incomplete" else "complete"
            self._reader.emit(Close(self._block, end, scoped(PROTOCOL, late)))
            self._block = None

    def catch_up(self) -> None:
        """Give out what has not been given, and close."""
        wire, status = self.wire, text_of(self.wire.get("status"))
        late = self._fields()
        if self.use is not None:
            self.name, self.wire = self.use.name, {**wire, "call_id": self.use.call_id}
            self.begin_call()
            self.arguments(self.use.arguments, whole=True)
        elif self.kind in _CALLS:
            key = "input" if self.kind == "custom_tool_call" else "arguments"
            self.begin_call()
            self.arguments(text_of(wire.get(key)), whole=True)
            if self.kind == "function_call" and self._draft.is_blank and status != "incomplete":
                self._give("{}")  # arguments always parse as JSON (R7.3)
        elif self.kind == "reasoning":
            for summary, parts in ((True, wire.get("summary")), (False, wire.get("content"))):
                for place, part in enumerate(parts if isinstance(parts, list) else ()):
                    if isinstance(part, dict):
                        self.part(BlockKind.REASONING, summary, place, text_of(part.get("text")), whole=True)
            if not self._shown and late:
                self._said = late
                self._block = self._reader.open(BlockKind.REASONING, extra=scoped(PROTOCOL, late))
            elif "continues" in self._said:
                late = EMPTY  # it belongs to the block before
        elif self.kind == "message":
            content = wire.get("content")
            for place, part in enumerate(content if isinstance(content, list) else ()):
                kind = _PART_KINDS.get(text_of(part.get("type"))) if isinstance(part, dict) else None
                if kind is not None:
                    text = text_of(part.get("refusal" if kind is BlockKind.REFUSAL else "text"))
                    self.part(kind, False, place, text, whole=True)
                    late = {**late, **_part_fields(part, kind)}
                elif isinstance(part, dict):
                    self._reader.emit(Opaque(PROTOCOL, message_of(part, late.get("item", EMPTY))))
                    late = EMPTY
        elif (left := noise.of_item(wire)) is not None:
            self._reader.note(noise.LEFT_OUT, left)
        elif not self._shown:
            self._reader.emit(Opaque(PROTOCOL, wire))
        self._close(status, late)


def _part_fields(part: Mapping[str, Any], kind: BlockKind) -> Mapping[str, Any]:
    return rest_of(part, _REFUSAL) if kind is BlockKind.REFUSAL else fields_of(text_extra(part), PROTOCOL)


def _draft(kind: CallKind) -> CallDelta:
    draft = CallDelta(0)
    draft.kind = kind
    return draft


def _is_whole(frame: bytes) -> bool:
    """Whether a last frame without its blank line was not cut."""
    try:
        load(frame)
    except ValueError:
        return frame.strip() == b"[DONE]"
    return True
