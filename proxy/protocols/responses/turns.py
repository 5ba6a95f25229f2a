"""Conversations over Responses that the gateway remembers: what the middleware `conversation` asks of the protocol.

A turn is kept in the words of this protocol (`Turn.said`): `input` as the client sent it, and the response as it was
shown, `resource`, whose bytes are those that the client gets. The messages that a conversation goes on from are made of
them when somebody reads it. They are kept as messages only where items do not say all of them: what other protocols say
of a part.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, Literal, overload

from toolwire.errors import GatewayError
from toolwire.known.past import past_of
from toolwire.model import Message, ModelReply, ModelRequest, Opaque, Text
from toolwire.protocols.base import TurnForm, WriteOptions
from toolwire.protocols.responses.conversations import ResponsesConversations
from toolwire.protocols.responses.ids import new_response_id, response_of
from toolwire.protocols.responses.item_types import types_in
from toolwire.protocols.responses.items import PROTOCOL, joined, own_items, read_items, whole_items, write_items
from toolwire.protocols.responses.kept_items import answered, listed, made_output
from toolwire.protocols.responses.output import QUEUED, head_of
from toolwire.protocols.responses.reply import Origins, broken_off, write_finished
from toolwire.protocols.responses.request import with_earlier_tools
from toolwire.protocols.responses.resource import resource, response_error, write_begun, write_resource
from toolwire.protocols.responses.summaries import asks_summary, summary_item
from toolwire.protocols.shared.turn import Turn, TurnStatus
from toolwire.protocols.shared.wire import PIECE_CHARS, dump, dump_in_pieces, dump_items, load

_REFERENCE: Final = "item_reference"
_LAST: Final = frozenset({"response.completed", "response.incomplete", "response.failed"})
"""Events that end a stream."""


class ResponsesTurns(TurnForm):
    """A `TurnForm`."""

    previous = "previous_response_id"
    conversations = ResponsesConversations()

    def own(self, request: ModelRequest, body: Mapping[str, Any]) -> tuple[Message, ...]:
        """All but the instructions (R12.3)."""
        return request.messages[1:] if body.get("instructions") else request.messages

    def going_on(
        self, body: Mapping[str, Any], earlier: Sequence[Message], own: Sequence[Message]
    ) -> tuple[Message, ...]:
        """`instructions`, then everything in its order, as if it had come as items of one input."""
        instructions = body.get("instructions")
        first = (Message("system", (Text(instructions),)),) if instructions else ()
        return (*first, *joined((*earlier, *own)))

    def with_tools(self, request: ModelRequest, body: Mapping[str, Any], earlier: Sequence[Turn]) -> ModelRequest:
        """See `TurnForm.with_tools`."""
        inputs = [_value(turn.said)["input"] for turn in earlier if turn.said]
        return with_earlier_tools(request, body, inputs)

    def asks_summary(self, body: Mapping[str, Any]) -> bool:
        """See `TurnForm.asks_summary`: a `compaction_trigger` stands in the input."""
        return asks_summary(body)

    def summary_part(self, summary: str) -> Opaque:
        """See `TurnForm.summary_part`: an item of type `compaction`."""
        return Opaque(PROTOCOL, summary_item(summary))

    # --- references -------------------------------------------------------------------------------------------------

    def references(self, body: Mapping[str, Any]) -> list[str]:
        """The ids in all `item_reference`."""
        items = own_items(body)
        if isinstance(items, str) or _REFERENCE not in types_in(items):
            return []
        named = [item.get("id") for item in items if _refers(item)]
        return [ident for ident in named if isinstance(ident, str)]

    def turn_of(self, item_id: str) -> str | None:
        """The id of the response that an item belongs to, if its id leads back."""
        return response_of(item_id)

    def items(self, turn: Turn) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """The items of input and output."""
        for item in (*self.listed(turn), *self.shown(turn)["output"]):
            if isinstance(ident := item.get("id"), str):
                yield ident, item

    def put_in(
        self, body: Mapping[str, Any], found: Mapping[str, Mapping[str, Any]], said: Container[str]
    ) -> tuple[Mapping[str, Any], tuple[Message, ...]]:
        """Each `item_reference` is the item itself; it is left where it leads nowhere (it is ignored, R8.2)."""
        items = [
            found.get(item.get("id", ""), item) if _refers(item) else item
            for item in whole_items(own_items(body))
            if not (_refers(item) and item.get("id") in said)
        ]
        return {**body, "input": items}, read_items(items)

    # --- keeping ----------------------------------------------------------------------------------------------------

    def new_id(self) -> str:
        """A fresh id of a response."""
        return new_response_id()

    def begun(self, turn: Turn, options: WriteOptions) -> Turn:
        """With the response in progress."""
        return _kept(turn, turn.status, _said(options, write_begun(options, turn.id)))

    def finished(self, turn: Turn, reply: ModelReply, options: WriteOptions) -> Turn:
        """With the response of a whole answer."""
        made = write_finished(reply, options)
        return _ended(turn, options, made.shown, made.written, made.origins)

    def broken_off(
        self,
        turn: Turn,
        reply: ModelReply,
        options: WriteOptions,
        status: Literal["failed", "cancelled"],
        error: GatewayError | None = None,
    ) -> Turn:
        """With the response of an answer that broke off after `reply`."""
        origins: Origins = []
        shown = broken_off(reply, options, status, error, origins)
        return _ended(turn, options, shown, write_resource(shown, options), origins)

    # --- in the background ------------------------------------------------------------------------------------------

    def queued(self, turn: Turn, options: WriteOptions) -> tuple[Turn, bytes]:
        """`response.created` and `response.queued`."""
        written = write_resource(resource(options, turn.id, "queued"), options)
        frames = (b'%b%d,"response":%b}\n\n' % (head_of(kind), number, written) for number, kind in enumerate(QUEUED))
        return _kept(replace(turn, status="queued"), "queued", _said(options, written)), b"".join(frames)

    def ended(self, turn: Turn, status: Literal["failed", "cancelled"], error: GatewayError | None) -> Turn:
        """With the response as it was shown last."""
        said = _value(turn.said)
        shown = {
            **said["resource"],
            "status": status,
            "error": None if error is None else response_error(error),
        }
        return _kept(turn, status, dump_in_pieces({"input": said["input"], "resource": shown}))

    def last_frame(self, turn: Turn, number: int) -> bytes:
        """The terminal event; of a cancelled response it is `response.incomplete`, as where it is written live."""
        kind = "incomplete" if turn.status == "cancelled" else turn.status
        return b'%b%d,"response":%b}\n\n' % (head_of(f"response.{kind}"), number, dump_in_pieces(self.shown(turn)))

    def is_last_frame(self, frame: str) -> bool:
        """By the name of its event."""
        return frame.partition("\n")[0].removeprefix("event: ") in _LAST

    # --- showing ----------------------------------------------------------------------------------------------------

    def shown(self, turn: Turn) -> dict[str, Any]:
        """The response (R8.14). What another protocol kept is shown as far as messages say it."""
        if turn.said:
            return {**_value(turn.said)["resource"], "status": turn.status}
        options = WriteOptions(request=ModelRequest(turn.model, ()), created=int(turn.created))
        status = "completed" if turn.status == "kept" else turn.status
        return resource(options, turn.id, status, made_output(turn.output, turn.id))

    def listed(self, turn: Turn) -> Sequence[Mapping[str, Any]]:
        """The items of `input` as `GET /v1/responses/{id}/input_items` lists them."""
        items = [*whole_items(_value(turn.said)["input"])] if turn.said else write_items(turn.input)
        return Listed(items, turn.id)


class Listed(Sequence[Mapping[str, Any]]):
    """The items of a request as they are listed. Each is made when it is looked at."""

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
        return listed(self._items[index], self._ident, index)


def _value(said: bytes | Mapping[str, Any]) -> Mapping[str, Any]:
    value: Mapping[str, Any] = load(said) if isinstance(said, bytes) else said
    return value


def read_said(said: Mapping[str, Any]) -> tuple[tuple[Message, ...], tuple[Message, ...]]:
    """What was said in a turn, and what was answered."""
    return read_items(said["input"]), read_items(said["resource"]["output"])


def _refers(item: Mapping[str, Any]) -> bool:
    return item.get("type") == _REFERENCE


def _ended(turn: Turn, options: WriteOptions, shown: Mapping[str, Any], written: bytes, origins: Origins) -> Turn:
    """`turn` with its answer, whose resource is `shown`."""
    unsaid = any(part.extra for parts in origins for part in parts if not isinstance(part, Opaque))
    output = answered(shown["output"], origins) if unsaid else ()
    return _kept(turn, shown["status"], _said(options, written), output)


def _kept(turn: Turn, status: TurnStatus, said: bytes, output: tuple[Message, ...] = ()) -> Turn:
    """`turn` without the messages that follow from what was `said`."""
    return Turn(
        id=turn.id,
        owner=turn.owner,
        ancestors=turn.ancestors,
        output=output,
        status=status,
        model=turn.model,
        extra=turn.extra,
        created=turn.created,
        expires=turn.expires,
        said=said,
        rounds=turn.rounds,
    )


def _said(options: WriteOptions, written: bytes) -> bytes:
    """What is kept with a response that was `written`."""
    given = options.made.get(_said)
    if given is None:
        origin = options.request.origin
        items = own_items(options.body)
        if origin is None or origin.size <= PIECE_CHARS:
            given = dump(items)
        elif isinstance(items, str):
            given = dump_in_pieces(items)
        else:
            given = dump_items(items, past_of(items))
        options.made[_said] = given
    return b"".join((b'{"input":', given, b',"resource":', written, b"}"))  # others run while it copies megabytes
