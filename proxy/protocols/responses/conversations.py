"""Stored conversations with ids of their own (`/v1/conversations`): their stored form, and their form for clients.

A conversation is stored as a turn without an answer, with its listed items, which have ids, as the input. So a request
continues it like any other turn. Its metadata are stored where a turn has its response.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from secrets import token_hex
from typing import Any, Final

from ...errors import ClientFault
from ..shared.turn import StoredTurn
from ..shared.wire import dump_in_pieces, load
from ..turn_form import ConversationForm, Items
from .items import whole_items
from .request import SHAPE
from .resource import conversation_of
from .stored_items import listed_item

PREFIX: Final = "conv_"


class ResponsesConversations(ConversationForm):
    """The `ConversationForm` of Responses."""

    def named(self, body: Mapping[str, Any]) -> str | None:
        return conversation_of(body)

    def new(self, owner: str, metadata: Mapping[str, Any], items: Items, created: float, expires: float) -> StoredTurn:
        ident = f"{PREFIX}{token_hex(24)}"
        form = _stored_form(metadata, items)
        return StoredTurn(id=ident, owner=owner, status="kept", created=created, expires=expires, wire_form=form)

    def is_conversation(self, turn: StoredTurn | None) -> bool:
        return turn is not None and turn.status == "kept" and turn.id.startswith(PREFIX)

    def items_of(self, turn: StoredTurn) -> Items:
        items: Items = stored_value(turn)["input"]
        return items

    def metadata_of(self, turn: StoredTurn) -> Mapping[str, Any]:
        """Returns the metadata of a conversation."""
        metadata: Mapping[str, Any] = stored_value(turn)["resource"]["metadata"]
        return metadata

    def changed(
        self, turn: StoredTurn, expires: float, *, items: Items | None = None, metadata: Mapping[str, Any] | None = None
    ) -> StoredTurn:
        form = _stored_form(
            self.metadata_of(turn) if metadata is None else metadata, self.items_of(turn) if items is None else items
        )
        return replace(turn, input=(), wire_form=form, expires=max(expires, turn.expires))

    def appended(self, turn: StoredTurn, new: Items, expires: float) -> StoredTurn:
        there = {item["id"] for item in self.items_of(turn)}
        return self.changed(
            turn, expires, items=[*self.items_of(turn), *(item for item in new if item["id"] not in there)]
        )

    def with_ids(self, items: Iterable[Mapping[str, Any]]) -> Items:
        seed = token_hex(16)
        whole = (item for item in whole_items(items) if item["type"] != "item_reference")
        return [listed_item(item, seed, place) for place, item in enumerate(whole)]

    def resource(self, turn: StoredTurn) -> dict[str, Any]:
        return {
            "id": turn.id,
            "object": "conversation",
            "created_at": int(turn.created),
            "metadata": self.metadata_of(turn),
        }

    def check(self, body: Mapping[str, Any]) -> None:
        if isinstance(body.get("items"), str):
            raise ClientFault("Invalid 'items': expected an array, got a string.", code="invalid_type", param="items")
        try:
            SHAPE.check({"model": "-", "input": body.get("items"), "metadata": body.get("metadata")})
        except ClientFault as error:
            if error.param is None or not error.param.startswith("input"):
                raise
            message = error.message.replace("'input", "'items", 1)
            raise ClientFault(message, code=error.code, param=f"items{error.param.removeprefix('input')}") from None

    def missing(self, field: str) -> ClientFault:
        return SHAPE.missing(field)


def stored_value(turn: StoredTurn) -> Mapping[str, Any]:
    """Returns the stored form of a turn or a conversation (`StoredTurn.wire_form`) as JSON."""
    value: Mapping[str, Any] = load(turn.whole_wire_form) if isinstance(turn.wire_form, bytes) else turn.wire_form
    return value


def _stored_form(metadata: Mapping[str, Any], items: Items) -> bytes:
    return dump_in_pieces({"input": items, "resource": {"output": [], "metadata": dict(metadata)}})
