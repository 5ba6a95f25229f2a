"""Streamed Responses answers to events, from servers that leave out what they please.

Rules:

1. Total: what is neither answer nor error is left out (`noise.py`); an event of a kind that is not known, and one about
   an item that is not modelled, becomes `Opaque`; a frame that is no JSON object ends the stream with a `Fault`. Bytes
   may be cut anywhere.
2. A block opens when its item says something and closes when its item is done. What only a `done` event, a finished
   item or the final resource holds is caught up from there, so no event but the last is needed.
   A call without a name is left out; if nothing else was said, the answer is none (R29.2).
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
from ...model import EMPTY, CallKind, Extra, FinishReason, ToolUse, fields_of, scoped
from ...scan._grammar import SPACE, FrameTooLarge
from .. import noise
from ..call_deltas import CallDelta, new_call_id
from ..chat.reply import arguments_text, text_of
from ..numbers import MAX_PARTS, index_of, too_many, whole_number
from ..wire import load, nameless, read_frame
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
        self._items: list[_Item] = []
        self._places: dict[int, _Item] = {}  # the last one at each index
        self._idents: dict[str, _Item] = {}
        self._calls: dict[str, _Item] = {}
        self._last: _Item | None = None
        self._next = self._blocks = 0
        self._started = self._ended = self._lacks_name = False
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
            item = self._item(value, begins=True)
            if not item.over:
                item.take(value.get("item"))
            item.announced = value if item.kind not in _MODELLED and item.use is None else None
        elif kind == "response.output_item.done":
            item = self._item(value)
            if not item.over:
                item.take(value.get("item"))
                item.said_whole = True
            self._done(item)
        elif (left := noise.in_responses(name, value)) is not None:
            self.note(noise.LEFT_OUT, left)
        elif kind not in _SILENT and not kind.startswith(_PIECES):
            about = self._idents.get(text_of(value.get("item_id")))
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

    def _item(self, value: Mapping[str, Any], *, begins: bool = False) -> _Item:
        """The item that a frame is about, or announces (`begins`): by index and id, else by the id of its call, else
        the one before. A new one if it shows what that cannot be (R29.2). Raises `BackendFault` for a wrong index."""
        self._start(None)
        shown = value.get("item")
        wire: Mapping[str, Any] = shown if isinstance(shown, dict) else EMPTY
        ident, call_id = text_of(value.get("item_id") or wire.get("id")), text_of(wire.get("call_id"))
        index = index_of(value.get("output_index"), MAX_PARTS, "an item")
        item = self._idents.get(ident) if ident else None
        if index is not None and (item is None or item.index != index):
            item = self._places.get(index) or (None if begins else item or self._calls.get(call_id))
        elif item is None and not begins:
            last = self._last if not wire or (self._last and self._last.wire and not self._last.over) else None
            item = self._calls.get(call_id) or last
        if item is None or (wire and item.is_other(wire, ident, begins=begins)):
            item = self._new(index)
        return self._noted(item, ident, call_id)

    def _listed(self, place: int, wire: Mapping[str, Any], used: set[_Item], said: set[Said]) -> _Item | None:
        """The item at `place` of the final resource, which has shown `used`; None for a call that was given out, one
        that is in `said`."""
        ident, call_id = text_of(wire.get("id")), text_of(wire.get("call_id"))
        item = self._idents.get(ident) or self._calls.get(call_id)
        if item is None or item in used:
            if text_of(wire.get("type")) in _CALLS and _said(wire) in said:
                return None
            item = self._places.get(place)
            if item is None or (text_of(wire.get("type")) in _CALLS and item.is_other(wire, ident, begins=False)):
                item = self._new(place)
        used.add(item)
        return self._noted(item, ident, call_id)

    def _new(self, index: int | None) -> _Item:
        if index is None:
            index = self._next
        if len(self._items) >= MAX_PARTS or index >= MAX_PARTS:
            raise too_many("items", MAX_PARTS)
        self._next = max(self._next, index + 1)
        item = self._places[index] = _Item(self, index)
        self._items.append(item)
        return item

    def _noted(self, item: _Item, ident: str, call_id: str) -> _Item:
        self._last = item
        item.ident = item.ident or ident
        if ident:
            self._idents.setdefault(ident, item)
        if call_id:
            self._calls.setdefault(call_id, item)
        return item

    def _text(self, value: Mapping[str, Any], key: str, kind: BlockKind, *, summary: bool, whole: bool) -> None:
        item = self._item(value)
        if item.over:
            return
        said = value.get(key if whole else "delta")
        text = arguments_text(said) if key == "arguments" else text_of(said)
        if kind is BlockKind.TOOL_CALL:
            item.kind = item.kind or ("custom_tool_call" if key == "input" else "function_call")
            item.name = item.name or text_of(value.get("name"))
            item.begin_call()
            item.said_whole = item.said_whole or whole
            item.arguments(text, whole=whole)
        else:
            place = index_of(value.get("summary_index" if summary else "content_index"), MAX_PARTS, "a part")
            chances = probabilities(value) if value.get("logprobs") and not whole else EMPTY
            item.part(kind, summary, place or 0, text, whole=whole, chances=chances)

    def _done(self, item: _Item) -> None:
        if not item.over:
            item.over = True
            item.catch_up()
            if item.is_nameless:
                self._lacks_name = True
                self.note(noise.NAMELESS, "")

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
        used: set[_Item] = set()
        said = {_said(item.wire) for item in self._items if item.over and item.kind in _CALLS}
        for place, shown in enumerate(output):
            item = self._listed(place, shown, used, said) if isinstance(shown, dict) else None
            if item is not None and not item.over:
                item.take(shown)
                item.said_whole = True
        for item in self._items:
            self._done(item)
        reason = finish_reason(answer, self.note, incomplete=kind == "response.incomplete")
        if self._lacks_name and not self._blocks and reason in FinishReason.WHOLE:
            self._fault(nameless())
            return
        self._ended = True
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
        *("_block", "_draft", "_place", "_reader", "_said", "_shown", "announced", "ident", "index", "kind", "name"),
        *("over", "said_whole", "use", "wire"),
    )

    def __init__(self, reader: ResponsesReader, index: int) -> None:
        self.index = index
        self.ident = self.kind = self.name = ""
        self.over = False
        self.said_whole = False  # its server has shown it as it is at its end
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

    @property
    def is_nameless(self) -> bool:
        """It is a call without a name, which is none (R29.2)."""
        return self.kind in _CALLS and self.use is None and not self.name.strip(SPACE)

    def is_other(self, wire: Mapping[str, Any], ident: str, *, begins: bool) -> bool:
        """Whether what a server shows at this item's index, at its beginning or later, is another item."""
        if ident and ident == self.ident and (begins or not self.over):
            return False
        if any(a and b and a != b for a, b in zip(_identity(wire), _identity(self.wire), strict=True)):
            return True
        if not self.over:
            return False
        return ident != self.ident if begins else self.kind in _CALLS and _said(wire) != _said(self.wire)

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
        elif (self.wire or self.over) and not self.is_nameless:
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
            self.arguments(arguments_text(wire.get(key)), whole=True)
            if self.kind == "function_call" and self._draft.is_blank and self.said_whole and status != "incomplete":
                self._give("{}")  # arguments always parse as JSON (R7.3)
            if self.kind == "function_call" and not (self.said_whole or self._draft.is_blank or self._draft.is_whole):
                status = "incomplete"
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


Said = tuple[str, str, str]
"""What a call says: its type, name and arguments."""


def _said(wire: Mapping[str, Any]) -> Said:
    value = wire.get("input" if wire.get("type") == "custom_tool_call" else "arguments")
    return text_of(wire.get("type")), text_of(wire.get("name")), arguments_text(value)


def _identity(wire: Mapping[str, Any]) -> tuple[str, str, str]:
    """What tells an item from another one, whatever their ids."""
    return text_of(wire.get("call_id")), text_of(wire.get("type")), text_of(wire.get("name"))


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
