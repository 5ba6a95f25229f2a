"""Reader of streamed Responses answers, from servers that omit various events and fields.

Rules:

1. Everything is accepted: noise is left out (`noise.py`), an unknown event, or one about an unmodelled item, becomes
   `Opaque`, a frame that is not a JSON object ends the stream with a `Fault`. Bytes may be cut anywhere.
2. A block opens with its item's first content and closes when its item is done. Content that is only in a `done` event,
   a finished item or the final response object is read from there, so only the last event is required. A call without a
   name is dropped; if the answer has nothing else, it is a fault (R29.2).
3. An unmodelled item becomes one `Opaque` when it is done, with the whole item as payload. Frames about its progress
   become `Opaque` too; the frame that announced it then comes before them.
4. A number from the server is checked before anything is counted or sized by it (`numbers.py`).
5. The stream is complete if its terminal event came; otherwise it broke off.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ...errors import BackendFault
from ...events import BlockKind, Event, Finish, Opaque, Open, Start
from ...model import EMPTY, FinishReason, fields_of, scoped
from ..chat.reply import arguments_text, text_of
from ..shared import noise
from ..shared.numbers import MAX_CHOICES, MAX_PARTS, index_of, too_many, whole_number
from ..shared.sse_reader import SseReader
from ..shared.wire import fields_in, nameless_call_fault
from .item_reader import CALLS, CallIdentity, ItemReader, call_identity
from .items import PROTOCOL
from .reply import failure, finish_extra, finish_reason, probabilities
from .resource import read_fault, read_usage

_TEXTS: Final[Mapping[str, tuple[str, BlockKind]]] = {
    "response.output_text": ("text", BlockKind.TEXT),
    "response.refusal": ("refusal", BlockKind.REFUSAL),
    "response.reasoning_text": ("text", BlockKind.REASONING),
    "response.reasoning": ("text", BlockKind.REASONING),
    "response.reasoning_summary_text": ("text", BlockKind.REASONING),
    "response.function_call_arguments": ("arguments", BlockKind.TOOL_CALL),
    "response.custom_tool_call_input": ("input", BlockKind.TOOL_CALL),
}
"""Families of events with text: the key of the whole text in `.done`, and the kind of the block."""
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
"""Events without information that other events lack, and prefixes of such events."""
_MODELLED: Final = CALLS | {"message", "reasoning", ""}
"""Types of modelled items; an item without a type may be any of these."""


class ResponsesReader(SseReader):
    """A `StreamReader` of Responses events."""

    def __init__(self, frame_bytes: int, choices: int = MAX_CHOICES, note: noise.Note = noise.ignore_note) -> None:
        super().__init__(frame_bytes, choices, note)
        self._items: list[ItemReader] = []
        self._places: dict[int, ItemReader] = {}  # the latest item at each index
        self._idents: dict[str, ItemReader] = {}
        self._calls: dict[str, ItemReader] = {}
        self._last: ItemReader | None = None
        self._next = self._blocks = 0
        self._started = self._lacks_name = False
        self._top: Mapping[str, Any] = EMPTY
        self._early: list[Event] = []  # unknown events before the answer began

    # --- frames -----------------------------------------------------------------------------------------------------

    def _frame(self, name: str | None, value: dict[str, Any]) -> None:
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
            if not item.is_finished:
                item.take(value.get("item"))
            item.announced = value if item.kind not in _MODELLED and item.use is None else None
        elif kind == "response.output_item.done":
            item = self._item(value)
            if not item.is_finished:
                item.take(value.get("item"))
                item.is_complete = True
            self._done(item)
        elif (left := noise.in_responses(name, value)) is not None:
            self.note(noise.LEFT_OUT, left)
        elif kind not in _SILENT and not kind.startswith(_PIECES):
            about = self._idents.get(text_of(value.get("item_id")))
            if about is not None and about.announced is not None and not about.is_finished:
                self.out.append(Opaque(PROTOCOL, about.announced))
                about.announced = None
            (self.out if self._started else self._early).append(Opaque(PROTOCOL, value))

    def _start(self, response: Any) -> None:
        if not self._started:
            self._started = True
            fields = fields_in(response)
            created = whole_number(fields.get("created_at"))
            extra = finish_extra({**fields, "completed_at": None, "service_tier": None})
            self._top = fields_of(extra, PROTOCOL)
            self.out.append(Start(text_of(fields.get("id")), text_of(fields.get("model")), created, extra))
            self.out += self._early

    def _item(self, value: Mapping[str, Any], *, begins: bool = False) -> ItemReader:
        """Returns the item that a frame is about, or announces (`begins`): by index and id, otherwise by the id of its
        call, otherwise the latest item. A new item if the frame's content cannot belong to that one (R29.2). Raises
        `BackendFault` for an invalid index."""
        self._start(None)
        wire = fields_in(value.get("item"))
        ident, call_id = text_of(value.get("item_id") or wire.get("id")), text_of(wire.get("call_id"))
        index = index_of(value.get("output_index"), MAX_PARTS, "an item")
        item = self._idents.get(ident) if ident else None
        if index is not None and (item is None or item.index != index):
            item = self._places.get(index) or (None if begins else item or self._calls.get(call_id))
        elif item is None and not begins:
            last = self._last if not wire or (self._last and self._last.wire and not self._last.is_finished) else None
            item = self._calls.get(call_id) or last
        if item is None or (wire and item.is_other(wire, ident, begins=begins)):
            item = self._new(index)
        return self._noted(item, ident, call_id)

    def _listed(
        self, place: int, wire: Mapping[str, Any], used: set[ItemReader], emitted_calls: set[CallIdentity]
    ) -> ItemReader | None:
        """Returns the item at `place` of the final response object; `used` are its items so far. None for a call in
        `emitted_calls`, which was already emitted."""
        ident, call_id = text_of(wire.get("id")), text_of(wire.get("call_id"))
        item = self._idents.get(ident) or self._calls.get(call_id)
        if item is None or item in used:
            if text_of(wire.get("type")) in CALLS and call_identity(wire) in emitted_calls:
                return None
            item = self._places.get(place)
            if item is None or (text_of(wire.get("type")) in CALLS and item.is_other(wire, ident, begins=False)):
                item = self._new(place)
        used.add(item)
        return self._noted(item, ident, call_id)

    def _new(self, index: int | None) -> ItemReader:
        if index is None:
            index = self._next
        if len(self._items) >= MAX_PARTS or index >= MAX_PARTS:
            raise too_many("items", MAX_PARTS)
        self._next = max(self._next, index + 1)
        item = self._places[index] = ItemReader(self, index)
        self._items.append(item)
        return item

    def _noted(self, item: ItemReader, ident: str, call_id: str) -> ItemReader:
        self._last = item
        item.ident = item.ident or ident
        if ident:
            self._idents.setdefault(ident, item)
        if call_id:
            self._calls.setdefault(call_id, item)
        return item

    def _text(self, value: Mapping[str, Any], key: str, kind: BlockKind, *, summary: bool, whole: bool) -> None:
        item = self._item(value)
        if item.is_finished:
            return
        piece = value.get(key if whole else "delta")
        text = arguments_text(piece) if key == "arguments" else text_of(piece)
        if kind is BlockKind.TOOL_CALL:
            item.kind = item.kind or ("custom_tool_call" if key == "input" else "function_call")
            item.name = item.name or text_of(value.get("name"))
            item.begin_call()
            item.is_complete = item.is_complete or whole
            item.arguments(text, whole=whole)
        else:
            place = index_of(value.get("summary_index" if summary else "content_index"), MAX_PARTS, "a part")
            probabilities_extra = probabilities(value) if value.get("logprobs") and not whole else EMPTY
            item.part(kind, summary, place or 0, text, whole=whole, probabilities=probabilities_extra)

    def _done(self, item: ItemReader) -> None:
        if not item.is_finished:
            item.is_finished = True
            item.catch_up()
            if item.is_nameless:
                self._lacks_name = True
                self.note(noise.NAMELESS, "")

    def _end(self, response: Any, kind: str) -> None:
        answer = fields_in(response)
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
        used: set[ItemReader] = set()
        emitted_calls = {call_identity(item.wire) for item in self._items if item.is_finished and item.kind in CALLS}
        for place, shown in enumerate(output):
            item = self._listed(place, shown, used, emitted_calls) if isinstance(shown, dict) else None
            if item is not None and not item.is_finished:
                item.take(shown)
                item.is_complete = True
        for item in self._items:
            self._done(item)
        reason = finish_reason(answer, self.note, incomplete=kind == "response.incomplete")
        if self._lacks_name and not self._blocks and reason in FinishReason.WHOLE:
            self._fault(nameless_call_fault())
            return
        self._ended = True
        extra = dict(finish_extra(answer))
        late = {key: value for key, value in extra.pop(PROTOCOL, EMPTY).items() if self._top.get(key) != value}
        self.out.append(
            Finish(reason, read_usage(answer.get("usage")), (), {**extra, **scoped(PROTOCOL, late)} or EMPTY)
        )

    # --- for items --------------------------------------------------------------------------------------------------

    def open(self, kind: BlockKind, **fields: Any) -> int:
        """Opens a new block and returns its number."""
        self._blocks += 1
        self.emit(Open(self._blocks - 1, kind, **fields))
        return self._blocks - 1

    def emit(self, event: Event) -> None:
        """Emits an event."""
        self.out.append(event)
