"""Conversations over Responses that the gateway remembers: what the middleware `conversation` asks of the protocol.

A turn is kept as messages (`proxy.protocols.turn`). Its items are made of them whenever somebody asks for them, and are
those that the client saw: what messages do not say of an item stands beside them in the turn's `extra`, `kept_items.py`
says how, and so does what stands around the output (`resource`).
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, Literal

from ...errors import GatewayError
from ...model import Extra, Message, ModelReply, ModelRequest, Text, fields_of, scoped
from ..base import TurnForm, WriteOptions
from ..turn import Turn
from .ids import new_response_id, response_of
from .items import PROTOCOL, joined, own_items, read_items, whole_items, write_items
from .kept_items import AtPlace, answered, as_made, difference, listed, made_output, mended
from .reply import Origins, broken_off, finished
from .resource import RESOURCE_KEYS, resource

_OF_THE_TURN: Final = ("id", "object", "status", "output")
"""Fields of a resource that a turn says itself."""


class ResponsesTurns(TurnForm):
    """A `TurnForm`."""

    previous = "previous_response_id"

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

    # --- references -------------------------------------------------------------------------------------------------

    def references(self, body: Mapping[str, Any]) -> list[str]:
        """The ids in all `item_reference`."""
        items = own_items(body)
        if isinstance(items, str):
            return []
        named = [item.get("id") for item in items if item.get("type") == "item_reference"]
        return [ident for ident in named if isinstance(ident, str)]

    def turn_of(self, item_id: str) -> str | None:
        """The id of the response that an item belongs to, if its id leads back."""
        return response_of(item_id)

    def items(self, turn: Turn) -> dict[str, Mapping[str, Any]]:
        """The items of input and output, by their ids."""
        items = (*self.listed(turn), *_output(turn))
        return {ident: item for item in items if isinstance(ident := item.get("id"), str)}

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
        """With the response in progress, and the items of `input` as they are listed."""
        around = _around(resource(options, turn.id, "in_progress"))
        return replace(turn, extra=_beside({**_asked(turn, options), "resource": around}))

    def finished(self, turn: Turn, reply: ModelReply, options: WriteOptions) -> Turn:
        """With the response of a whole answer."""
        origins: Origins = []
        return _ended(turn, _asked(turn, options), finished(reply, options, origins), origins)

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
        return _ended(turn, _asked(turn, options), shown, origins)

    # --- showing ----------------------------------------------------------------------------------------------------

    def shown(self, turn: Turn) -> dict[str, Any]:
        """The response (R8.14). What another protocol kept is shown as far as messages say it."""
        around = fields_of(turn.extra, PROTOCOL).get("resource")
        if around is None:
            options = WriteOptions(request=ModelRequest(turn.model, ()), created=int(turn.created))
            return resource(options, turn.id, "completed" if turn.status == "kept" else turn.status, _output(turn))
        own = {"id": turn.id, "object": "response", "status": turn.status, "output": _output(turn)}
        shown = {**around, **own}
        return {key: shown[key] for key in (*RESOURCE_KEYS, *around) if key in shown}

    def listed(self, turn: Turn) -> list[Mapping[str, Any]]:
        """The items of `input` as `GET /v1/responses/{id}/input_items` lists them."""
        return mended(write_items(turn.input), fields_of(turn.extra, PROTOCOL).get("input"), _listing(turn))


def turn_of_items(kept: Mapping[str, Any]) -> Turn:
    """The turn in what versions kept that knew items only: those of the input as they are listed, and the resource.
    Raises `KeyError` or `TypeError` if it is none."""
    ident, shown = kept["id"], kept["resource"]
    turn = Turn(
        id=ident,
        owner=kept["owner"],
        ancestors=tuple(kept["ancestors"]),
        input=read_items(kept["input"]),
        status=shown["status"],
        model=shown.get("model", ""),
        created=kept["created"],
        expires=kept["expires"],
    )
    if turn.status == "kept":
        return replace(turn, output=read_items(shown["output"]))
    return _ended(turn, {"input": _unsaid(turn, kept["input"])}, shown, [[] for _ in shown["output"]])


def _asked(turn: Turn, options: WriteOptions) -> Mapping[str, Any]:
    """What its messages do not say of the items of its input; known if it was begun."""
    known: Mapping[str, Any] | None = turn.extra.get(PROTOCOL)
    return {"input": _unsaid(turn, list(whole_items(own_items(options.body))))} if known is None else known


def _refers(item: Mapping[str, Any]) -> bool:
    return item.get("type") == "item_reference"


def _around(shown: Mapping[str, Any]) -> dict[str, Any]:
    """What stands around the output of a resource."""
    around = dict(shown)
    for key in _OF_THE_TURN:
        around.pop(key, None)
    return around


def _ended(turn: Turn, asked: Mapping[str, Any], shown: Mapping[str, Any], origins: Origins) -> Turn:
    """`turn` with its answer, whose resource is `shown`; `asked` is what is beside its input."""
    output = answered(shown["output"], origins)
    unsaid = difference(shown["output"], made_output(output, turn.id), as_made)
    extra = _beside({**asked, "resource": _around(shown), "output": unsaid})
    return replace(turn, output=output, status=shown["status"], extra=extra)


def _beside(fields: Mapping[str, Any]) -> Extra:
    """What this protocol keeps beside the messages; None says nothing."""
    return scoped(PROTOCOL, {key: value for key, value in fields.items() if value is not None})


def _listing(turn: Turn) -> AtPlace:
    """How the items of its input are listed."""
    ident = turn.id
    return lambda item, place: listed(item, ident, place)


def _unsaid(turn: Turn, items: Sequence[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """What the messages of its input do not say of these items."""
    return difference(items, write_items(turn.input), _listing(turn))


def _output(turn: Turn) -> list[Mapping[str, Any]]:
    return mended(made_output(turn.output, turn.id), fields_of(turn.extra, PROTOCOL).get("output"), as_made)
