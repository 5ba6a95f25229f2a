"""Conversations with ids of their own (`/v1/conversations`): what is kept of one, and how a client sees it.

A conversation is kept as a turn without an answer, whose input are its items as they are listed, each with an id. So a
request goes on from it as from any other turn. Metadata stand where a turn has its response.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from secrets import token_hex
from typing import Any, Final

from toolwire.errors import ClientFault
from toolwire.protocols.responses.items import whole_items
from toolwire.protocols.responses.kept_items import listed
from toolwire.protocols.responses.request import SHAPE
from toolwire.protocols.responses.resource import conversation_of
from toolwire.protocols.shared.conversation_form import ConversationForm, Items
from toolwire.protocols.shared.turn import Turn
from toolwire.protocols.shared.wire import dump_in_pieces, load

PREFIX: Final = "conv_"


class ResponsesConversations(ConversationForm):
    """A `ConversationForm`."""

    def named(self, body: Mapping[str, Any]) -> str | None:
        """See `ConversationForm`."""
        return conversation_of(body)

    def new(self, owner: str, metadata: Mapping[str, Any], items: Items, created: float, expires: float) -> Turn:
        """A conversation with a fresh id. `items` have ids."""
        ident = f"{PREFIX}{token_hex(24)}"
        said = _said(metadata, items)
        return Turn(id=ident, owner=owner, status="kept", created=created, expires=expires, said=said)

    def is_conversation(self, turn: Turn | None) -> bool:
        """Whether a turn that was read is a conversation."""
        return turn is not None and turn.status == "kept" and turn.id.startswith(PREFIX)

    def items_of(self, turn: Turn) -> Items:
        """The items of a conversation, oldest first."""
        items: Items = _value(turn)["input"]
        return items

    def metadata_of(self, turn: Turn) -> Mapping[str, Any]:
        """The metadata of a conversation."""
        metadata: Mapping[str, Any] = _value(turn)["resource"]["metadata"]
        return metadata

    def changed(
        self, turn: Turn, expires: float, *, items: Items | None = None, metadata: Mapping[str, Any] | None = None
    ) -> Turn:
        """The conversation with other items or metadata, and as long as it lives then."""
        said = _said(
            self.metadata_of(turn) if metadata is None else metadata, self.items_of(turn) if items is None else items
        )
        return replace(turn, input=(), said=said, expires=max(expires, turn.expires))

    def appended(self, turn: Turn, new: Items, expires: float) -> Turn:
        """The conversation with further items, but for those that it has: adding them again adds nothing."""
        there = {item["id"] for item in self.items_of(turn)}
        return self.changed(
            turn, expires, items=[*self.items_of(turn), *(item for item in new if item["id"] not in there)]
        )

    def with_ids(self, items: Iterable[Mapping[str, Any]]) -> Items:
        """Items of a client as a conversation holds them. Those that are a mere reference are left out."""
        seed = token_hex(16)
        whole = (item for item in whole_items(items) if item["type"] != "item_reference")
        return [listed(item, seed, place) for place, item in enumerate(whole)]

    def resource(self, turn: Turn) -> dict[str, Any]:
        """The object `conversation`."""
        return {
            "id": turn.id,
            "object": "conversation",
            "created_at": int(turn.created),
            "metadata": self.metadata_of(turn),
        }

    def check(self, body: Mapping[str, Any]) -> None:
        """Raises `ClientFault` if `items` or `metadata` have not the form that `input` and `metadata` have in a
        request."""
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
        """See `ConversationForm`."""
        return SHAPE.missing(field)


def _value(turn: Turn) -> Mapping[str, Any]:
    value: Mapping[str, Any] = load(turn.said) if isinstance(turn.said, bytes) else turn.said
    return value


def _said(metadata: Mapping[str, Any], items: Items) -> bytes:
    return dump_in_pieces({"input": items, "resource": {"output": [], "metadata": dict(metadata)}})
