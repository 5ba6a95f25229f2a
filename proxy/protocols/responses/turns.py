"""Stored conversations of Responses, for the middleware `conversation`.

A turn is stored in the form of this protocol (`StoredTurn.wire_form`): `input` as the client sent it, and the response
object `resource` as the bytes that the client got. The messages of the conversation are made from them when the turn is
read. Messages are stored only if items cannot express them, because parts have fields of other protocols.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, Literal, overload

from ...errors import GatewayError
from ...known.past import Past, build_on_earlier, fold_items, past_of
from ...model import Message, ModelReply, ModelRequest, OpaquePart
from ..shared.turn import Beginning, Place, StoredBeginning, StoredTurn, TurnStatus
from ..shared.wire import PIECE_CHARS, dump, dump_in_pieces, item_pieces
from ..streams import WriteOptions
from ..turn_form import TurnForm
from .conversations import ResponsesConversations, stored_value
from .ids import new_response_id, response_of
from .item_types import types_in
from .item_writer import write_items
from .items import PROTOCOL, join_messages, own_items, read_items, whole_items
from .output import QUEUED, head_of
from .reply import Origins, broken_off, write_finished
from .request import instructions_of, with_earlier_inputs
from .resource import resource, response_error, write_begun, write_resource
from .settings_in_input import settings_in
from .stored_items import listed_item, messages_of_output, output_of_messages
from .summaries import asks_summary, summary_item
from .tools_in_input import carried_tools

_REFERENCE: Final = "item_reference"
_LAST: Final = frozenset({"response.completed", "response.incomplete", "response.failed"})
"""Events that end a stream."""
_HEAD: Final = b'{"input":'


class ResponsesTurns(TurnForm):
    """The `TurnForm` of Responses."""

    previous = "previous_response_id"
    conversations = ResponsesConversations()

    def own(self, request: ModelRequest, body: Mapping[str, Any]) -> tuple[Message, ...]:
        return request.messages[1:] if body.get("instructions") else request.messages

    def full_conversation(
        self, body: Mapping[str, Any], earlier: Sequence[Message], own: Sequence[Message], past: Past | None
    ) -> tuple[Message, ...]:
        """Returns `instructions`, then all messages in order, as if they had come as items of one input."""
        messages = join_messages((*earlier, *own), past)
        first = instructions_of(body, past)
        return messages if first is None else (first, *messages)

    def reduced(self, turn: StoredTurn) -> StoredTurn:
        """Returns a turn with only its input and its output: the response object also echoes the request's tools."""
        if not turn.wire_form:
            return turn
        stored = stored_value(turn)
        return replace(turn, wire_form={"input": stored["input"], "resource": {"output": stored["resource"]["output"]}})

    def with_tools(self, request: ModelRequest, body: Mapping[str, Any], earlier: Sequence[StoredTurn]) -> ModelRequest:
        inputs, _ = fold_items(request.past, "responses.carrying", earlier, True, _carrying)
        return with_earlier_inputs(request, body, inputs)

    asks_summary = staticmethod(asks_summary)

    def summary_part(self, summary: str) -> OpaquePart:
        return OpaquePart(PROTOCOL, summary_item(summary))

    # --- references -------------------------------------------------------------------------------------------------

    def references(self, body: Mapping[str, Any]) -> list[str]:
        items = own_items(body)
        if isinstance(items, str) or _REFERENCE not in types_in(items):
            return []
        named = [item.get("id") for item in items if _refers(item)]
        return [ident for ident in named if isinstance(ident, str)]

    turn_of = staticmethod(response_of)

    def items(self, turn: StoredTurn) -> Iterator[tuple[str, Mapping[str, Any]]]:
        for item in (*self.listed(turn), *self.shown(turn)["output"]):
            if isinstance(ident := item.get("id"), str):
                yield ident, item

    def resolve_references(
        self, body: Mapping[str, Any], found: Mapping[str, Mapping[str, Any]], present: Container[str]
    ) -> tuple[Mapping[str, Any], tuple[Message, ...]]:
        """Returns the body with each `item_reference` replaced by its item; unknown references stay and are ignored
        (R8.2)."""
        items = [
            found.get(item.get("id", ""), item) if _refers(item) else item
            for item in whole_items(own_items(body))
            if not (_refers(item) and item.get("id") in present)
        ]
        return {**body, "input": items}, read_items(items)

    def without_repeated(
        self, body: Mapping[str, Any], earlier: Sequence[StoredTurn]
    ) -> tuple[Mapping[str, Any], tuple[Message, ...]] | None:
        items = [*whole_items(own_items(body))]
        last = set(map(_call_id, self.shown(earlier[-1])["output"])) - {None}
        places = [place for place, item in enumerate(items) if _call_id(item) in last]
        calls = [place for place in places if items[place]["type"].endswith("_call")]
        if calls:  # the whole conversation
            rest = [item for place, item in enumerate(items) if place > calls[0] and place not in calls]
            own = [*self._new_items(items[: calls[0]], earlier), *rest]
        else:
            own = items[_repeated(items[: places[0]], earlier) :] if places else items
        return None if len(own) == len(items) else ({**body, "input": own}, read_items(own))

    def _new_items(
        self, before: Sequence[Mapping[str, Any]], earlier: Sequence[StoredTurn]
    ) -> Iterator[Mapping[str, Any]]:
        """Yields those of the items `before` a call that are no part of the conversation, such as a late result."""
        made = [item for turn in earlier for item in self.shown(turn)["output"]]
        known = {_content(item) for items in (made, *map(_sent, earlier)) for item in items}
        called = set(map(_call_id, made)) - {None}
        for item in before:
            kind = item["type"]
            models = item.get("role") == "assistant" or kind == "reasoning"  # clients change its form
            if not (models or (kind.endswith("_call") and _call_id(item) in called) or _content(item) in known):
                yield item

    # --- keeping ----------------------------------------------------------------------------------------------------

    new_id = staticmethod(new_response_id)

    def begun(self, turn: StoredTurn, options: WriteOptions) -> StoredTurn:
        return _with_input(turn, turn.status, options, write_begun(options, turn.id))

    def finished(self, turn: StoredTurn, reply: ModelReply, options: WriteOptions) -> StoredTurn:
        made = write_finished(reply, options)
        return _ended(turn, options, made.shown, made.written, made.origins)

    def broken_off(
        self,
        turn: StoredTurn,
        reply: ModelReply,
        options: WriteOptions,
        status: Literal["failed", "cancelled"],
        error: GatewayError | None = None,
    ) -> StoredTurn:
        origins: Origins = []
        shown = broken_off(reply, options, status, error, origins)
        return _ended(turn, options, shown, write_resource(shown, options), origins)

    # --- in the background ------------------------------------------------------------------------------------------

    def queued(self, turn: StoredTurn, options: WriteOptions) -> tuple[StoredTurn, bytes]:
        written = write_resource(resource(options, turn.id, "queued"), options)
        frames = (b'%b%d,"response":%b}\n\n' % (head_of(kind), number, written) for number, kind in enumerate(QUEUED))
        return _with_input(replace(turn, status="queued"), "queued", options, written), b"".join(frames)

    def ended(self, turn: StoredTurn, status: Literal["failed", "cancelled"], error: GatewayError | None) -> StoredTurn:
        stored = stored_value(turn)
        shown = {**stored["resource"], "status": status, "error": None if error is None else response_error(error)}
        return _stored(turn, status, dump_in_pieces({"input": stored["input"], "resource": shown}))

    def last_frame(self, turn: StoredTurn, number: int) -> bytes:
        """Returns the terminal event; for a cancelled response it is `response.incomplete`, as in a live stream."""
        kind = "incomplete" if turn.status == "cancelled" else turn.status
        return b'%b%d,"response":%b}\n\n' % (head_of(f"response.{kind}"), number, dump_in_pieces(self.shown(turn)))

    def is_last_frame(self, frame: str) -> bool:
        return frame.partition("\n")[0].removeprefix("event: ") in _LAST

    # --- showing ----------------------------------------------------------------------------------------------------

    def shown(self, turn: StoredTurn) -> dict[str, Any]:
        """Returns the response object (R8.14). For a turn of another protocol it is made from the messages."""
        if turn.wire_form:
            return {**stored_value(turn)["resource"], "status": turn.status}
        options = WriteOptions(request=ModelRequest(turn.model, ()), created=int(turn.created))
        status = "completed" if turn.status == "kept" else turn.status
        return resource(options, turn.id, status, output_of_messages(turn.output, turn.id))

    def listed(self, turn: StoredTurn) -> Sequence[Mapping[str, Any]]:
        return ListedItems(_sent(turn), turn.id)


class ListedItems(Sequence[Mapping[str, Any]]):
    """The listed items of a request; each is made when it is accessed."""

    def __init__(self, items: Sequence[Mapping[str, Any]], ident: str) -> None:
        self._items = items
        self._ident = ident

    def __len__(self) -> int:
        return len(self._items)

    @overload
    def __getitem__(self, place: int) -> Mapping[str, Any]: ...

    @overload
    def __getitem__(self, place: slice) -> list[Mapping[str, Any]]: ...

    def __getitem__(self, place: int | slice) -> Mapping[str, Any] | list[Mapping[str, Any]]:
        if isinstance(place, slice):
            return [self[each] for each in range(len(self))[place]]
        index = range(len(self))[place]
        return listed_item(self._items[index], self._ident, index)


def _carrying(before: bool, turns: Sequence[StoredTurn], start: int, inputs: list[Any]) -> bool:
    """Adds the inputs that list tools or change settings."""
    given = [stored_value(turn)["input"] for turn in turns if turn.wire_form]
    inputs += [items for items in given if any(carried_tools(items)) or settings_in(items)]
    return before


def read_stored_turn(stored: Mapping[str, Any]) -> tuple[tuple[Message, ...], tuple[Message, ...]]:
    """Returns the messages of a turn's input and of its output."""
    return read_items(stored["input"]), read_items(stored["resource"]["output"])


def _call_id(item: Mapping[str, Any]) -> str | None:
    """Returns the id of the call that an item is, or is the result of; None for other items."""
    ident = item.get("call_id")
    return ident if isinstance(ident, str) and str(item.get("type")).endswith(("_call", "_output")) else None


def _sent(turn: StoredTurn) -> Sequence[Mapping[str, Any]]:
    """Returns the items of a turn's input."""
    return [*whole_items(stored_value(turn)["input"])] if turn.wire_form else write_items(turn.input)


def _content(item: Mapping[str, Any]) -> bytes:
    """Returns what an item says, however clients write it."""
    said = {key: item[key] for key in sorted(item) if key not in ("id", "status")}
    if item["type"] == "message" and isinstance(text := item.get("content"), str):
        said["content"] = [{"type": "input_text", "text": text}]
    return dump(said)


def _repeated(before: Sequence[Mapping[str, Any]], earlier: Sequence[StoredTurn]) -> int:
    """Returns how many of the items `before` a result are the whole input of the latest turns. Equal messages of older
    turns do not count: a user may have written "continue" again."""
    given, sent, count = [*map(_content, before)], list[bytes](), 0
    for turn in reversed(earlier):
        sent[:0] = map(_content, _sent(turn))
        if len(sent) > len(given):
            break
        if given[: len(sent)] == sent:
            count = len(sent)
    return count


def _refers(item: Mapping[str, Any]) -> bool:
    return item.get("type") == _REFERENCE


def _ended(
    turn: StoredTurn, options: WriteOptions, shown: Mapping[str, Any], written: bytes, origins: Origins
) -> StoredTurn:
    """Returns `turn` with its answer, whose response object is `shown`."""
    has_other_fields = any(part.extra for parts in origins for part in parts if not isinstance(part, OpaquePart))
    output = messages_of_output(shown["output"], origins) if has_other_fields else ()
    return _with_input(turn, shown["status"], options, written, output)


def _stored(
    turn: StoredTurn,
    status: TurnStatus,
    wire_form: bytes,
    output: tuple[Message, ...] = (),
    beginning: Beginning | None = None,
) -> StoredTurn:
    """Returns `turn` without the messages that can be made from `wire_form`."""
    return replace(
        turn, input=(), output=output, status=status, wire_form=wire_form, size=0, values=0, beginning=beginning
    )


def _with_input(
    turn: StoredTurn, status: TurnStatus, options: WriteOptions, written: bytes, output: tuple[Message, ...] = ()
) -> StoredTurn:
    """Returns `turn` with the input of its request, and a response that was `written`."""
    made: Beginning | bytes | None = options.made.get(_with_input)
    if made is None:
        made = options.made[_with_input] = _input(options)
    if isinstance(made, bytes):
        return _stored(turn, status, b'%b,"resource":%b}' % (made, written), output)
    close = b"" if isinstance(own_items(options.body), str) else b"]"
    return _stored(turn, status, b'%b,"resource":%b}' % (close, written), output, made)


def _input(options: WriteOptions) -> Beginning | bytes:
    """Returns the first part of a turn's JSON, with the input. A `Beginning` has no bracket after the items, because
    later turns have more of them."""
    origin = options.request.origin
    items = own_items(options.body)
    past = past_of(items)
    if not items or (past is None and (origin is None or origin.size <= PIECE_CHARS)):
        return _HEAD + dump(items)
    pieces = [_HEAD, *([dump_in_pieces(items)] if isinstance(items, str) else item_pieces(items, past)[:-1])]
    length = sum(map(len, pieces))
    if past is None:
        return Beginning(pieces, length, StoredBeginning())
    before: list[Place] = []

    def make(earlier: list[StoredBeginning]) -> StoredBeginning:
        before.extend([one.place for one in earlier if one.place is not None])
        return StoredBeginning()

    written = build_on_earlier(past, "stored", items, make)
    return Beginning(pieces, length, written, before[0] if before else None)
