"""Conversations over Responses that the gateway remembers: what the middleware `conversation` asks of the protocol.

A turn is kept as items: those of its request, and its resource, whose `output` are those of the answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal

from ...errors import GatewayError
from ...model import Message, ModelReply
from ..base import TurnForm, WriteOptions
from .ids import new_response_id, response_of
from .items import input_items, own_items, whole_items
from .reply import broken_off, finished
from .request import read_messages
from .resource import resource


class ResponsesTurns(TurnForm):
    """A `TurnForm`."""

    def items(self, body: Mapping[str, Any]) -> list[Mapping[str, Any]]:
        """The items of `input`, each with its type."""
        return list(whole_items(own_items(body)))

    def read_messages(self, body: Mapping[str, Any], items: Iterable[Mapping[str, Any]]) -> tuple[Message, ...]:
        """`instructions`, then what the items say (R12.3)."""
        return read_messages(body, items)

    def new_id(self) -> str:
        """A fresh id of a response."""
        return new_response_id()

    def turn_of(self, item_id: str) -> str | None:
        """The id of the response that an item belongs to, if its id leads back."""
        return response_of(item_id)

    def listed(self, body: Mapping[str, Any], ident: str) -> tuple[Mapping[str, Any], ...]:
        """The items of `input` as `GET /v1/responses/{id}/input_items` lists them."""
        return input_items(body, ident)

    def begun(self, options: WriteOptions, ident: str) -> dict[str, Any]:
        """The response in progress."""
        return resource(options, ident, "in_progress")

    def finished(self, reply: ModelReply, options: WriteOptions) -> dict[str, Any]:
        """The response of a whole answer."""
        return finished(reply, options)

    def broken_off(
        self,
        reply: ModelReply,
        options: WriteOptions,
        status: Literal["failed", "cancelled"],
        error: GatewayError | None = None,
    ) -> dict[str, Any]:
        """The response of an answer that broke off after `reply`."""
        return broken_off(reply, options, status, error)
