"""How a protocol shows conversations that have ids of their own (R28.7).

A conversation is kept as a turn without an answer, so a request goes on from it as from any other.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from toolwire.errors import ClientFault
from toolwire.protocols.shared.turn import Turn

Items = Sequence[Mapping[str, Any]]


class ConversationForm(Protocol):
    """The conversations of one protocol. `body` is always a client's parsed JSON."""

    def named(self, body: Mapping[str, Any]) -> str | None:
        """The id of the conversation that a request goes on from."""

    def new(self, owner: str, metadata: Mapping[str, Any], items: Items, created: float, expires: float) -> Turn:
        """A conversation with a fresh id. `items` have ids."""

    def is_conversation(self, turn: Turn | None) -> bool:
        """Whether a turn that was read is a conversation."""

    def items_of(self, turn: Turn) -> Items:
        """The items of a conversation, oldest first."""

    def changed(
        self, turn: Turn, expires: float, *, items: Items | None = None, metadata: Mapping[str, Any] | None = None
    ) -> Turn:
        """The conversation with other items or metadata, which lives until then at least."""

    def appended(self, turn: Turn, new: Items, expires: float) -> Turn:
        """The conversation with further items, but for those that it has: adding them again adds nothing."""

    def with_ids(self, items: Iterable[Mapping[str, Any]]) -> Items:
        """Items of a client as a conversation holds them."""

    def resource(self, turn: Turn) -> dict[str, Any]:
        """The JSON object of a conversation, as a client gets it."""

    def check(self, body: Mapping[str, Any]) -> None:
        """Raises `ClientFault` if `items` or `metadata` have a wrong form."""

    def missing(self, field: str) -> ClientFault:
        """The error for a field that is not there."""
