"""Interface of conversations that have ids of their own (R28.7).

A conversation is stored as a turn without an answer, so requests continue it like any other turn.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from ...errors import ClientFault
from .turn import StoredTurn

Items = Sequence[Mapping[str, Any]]


class ConversationForm(Protocol):
    """The conversations of one protocol. `body` is always a client's parsed JSON."""

    def named(self, body: Mapping[str, Any]) -> str | None:
        """Returns the id of the conversation that a request continues; None if it names none."""

    def new(self, owner: str, metadata: Mapping[str, Any], items: Items, created: float, expires: float) -> StoredTurn:
        """Returns a conversation with a new id. `items` have ids."""

    def is_conversation(self, turn: StoredTurn | None) -> bool:
        """True if a stored turn is a conversation."""

    def items_of(self, turn: StoredTurn) -> Items:
        """Returns the items of a conversation, oldest first."""

    def changed(
        self, turn: StoredTurn, expires: float, *, items: Items | None = None, metadata: Mapping[str, Any] | None = None
    ) -> StoredTurn:
        """Returns the conversation with other items or metadata, which expires at `expires` at the earliest."""

    def appended(self, turn: StoredTurn, new: Items, expires: float) -> StoredTurn:
        """Returns the conversation with new items appended, except those that it already has."""

    def with_ids(self, items: Iterable[Mapping[str, Any]]) -> Items:
        """Returns a client's items in the form in which a conversation stores them, with ids."""

    def resource(self, turn: StoredTurn) -> dict[str, Any]:
        """Returns the JSON object of a conversation that clients get."""

    def check(self, body: Mapping[str, Any]) -> None:
        """Checks the form of `items` and `metadata`. Raises `ClientFault` if it is wrong."""

    def missing(self, field: str) -> ClientFault:
        """Returns the error for a missing field."""
