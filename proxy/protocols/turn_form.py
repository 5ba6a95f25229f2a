"""Interfaces of stored conversations (R12, R28.1): how a protocol names turns and conversations and shows them."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Any, Literal, Protocol

from ..errors import ClientFault, GatewayError
from ..known.past import Past
from ..model import Message, ModelReply, ModelRequest, OpaquePart
from .shared.turn import StoredTurn
from .streams import WriteOptions


class TurnForm(Protocol):
    """Stored conversations of a protocol whose clients leave their history to the server (R12): how turns are named and
    shown. Attributes and methods with a default may be left out by subclasses.

    A turn is stored in the form of `toolwire.model` (`toolwire.protocols.shared.turn`), so a later request may use
    another protocol. A turn's `extra` holds the rest that the protocol shows of it, which messages cannot express;
    Responses stores everything in its own form (`wire_form`). `body` is always a client's parsed JSON; an item is one
    entry of a request's input or an answer's output.
    """

    previous: str
    """Name of the request field with the id of the previous turn."""
    conversations: ConversationForm | None = None
    """Conversations with ids of their own, which a request may refer to."""

    def own(self, request: ModelRequest, body: Mapping[str, Any]) -> tuple[Message, ...]:
        """Returns the request's own messages: those that are stored with the turn. Without messages that each request
        repeats."""
        return request.messages

    def full_conversation(
        self, body: Mapping[str, Any], earlier: Sequence[Message], own: Sequence[Message], past: Past | None
    ) -> tuple[Message, ...]:
        """Returns the full conversation of a request: the `earlier` messages followed by its `own`. `past` holds the
        results of the conversation's earlier requests."""
        return (*earlier, *own)

    def reduced(self, turn: StoredTurn) -> StoredTurn:
        """Returns a stored turn with only what later requests of the conversation need."""
        return turn

    def with_tools(self, request: ModelRequest, body: Mapping[str, Any], earlier: Sequence[StoredTurn]) -> ModelRequest:
        """Returns `request` with the tools listed in `earlier` turns added (R28.1); the same object if there are
        none."""
        return request

    def asks_summary(self, body: Mapping[str, Any]) -> bool:
        """Returns True if the request asks for a summary of the conversation instead of an answer (R28.1)."""
        return False

    def summary_part(self, summary: str) -> OpaquePart:
        """Returns the answer to a request for a summary, as its only part. Raises `BackendFault` if the summary is
        empty."""
        raise NotImplementedError  # only for protocols whose requests can ask for it

    def references(self, body: Mapping[str, Any]) -> Sequence[str]:
        """Returns the ids of stored items that the request refers to by id only."""
        return ()

    def turn_of(self, item_id: str) -> str | None:
        """Returns the id of the turn that contains an item; None if the item's id does not contain it."""
        return None

    def items(self, turn: StoredTurn) -> Iterable[tuple[str, Mapping[str, Any]]]:
        """Returns the items of a turn, each with its id."""
        return ()

    def resolve_references(
        self, body: Mapping[str, Any], found: Mapping[str, Mapping[str, Any]], present: Container[str]
    ) -> tuple[Mapping[str, Any], tuple[Message, ...]]:
        """Returns `body` with references replaced by the items in `found`, except those whose ids are in `present`
        (they are in the conversation already), and the request's own messages after that."""
        raise NotImplementedError  # only for protocols whose requests have references

    def without_repeated(
        self, body: Mapping[str, Any], earlier: Sequence[StoredTurn]
    ) -> tuple[Mapping[str, Any], tuple[Message, ...]] | None:
        """Returns `body` without what is sent again before the results of the last turn's calls, and the request's own
        messages after that; None if there is nothing. Sent again are the whole inputs of the latest of the `earlier`
        turns, or with the calls the whole conversation. A model that got a repeated message behind the results would
        begin again."""
        return None

    def new_id(self) -> str:
        """Returns a new id for a turn."""

    def begun(self, turn: StoredTurn, options: WriteOptions) -> StoredTurn:
        """Returns `turn` with the form that clients get of it while its answer is being made."""
        return turn

    def finished(self, turn: StoredTurn, reply: ModelReply, options: WriteOptions) -> StoredTurn:
        """Returns `turn` with its complete answer. A streamed turn was passed to `begun` before."""

    def broken_off(
        self,
        turn: StoredTurn,
        reply: ModelReply,
        options: WriteOptions,
        status: Literal["failed", "cancelled"],
        error: GatewayError | None = None,
    ) -> StoredTurn:
        """Returns `turn` with an answer that ended with an error or was cancelled after `reply`."""

    def queued(self, turn: StoredTurn, options: WriteOptions) -> tuple[StoredTurn, bytes]:
        """Returns `turn`, waiting to be answered in the background, with the form that clients get of it, and the first
        frames of its stream. Later frames continue their numbers."""
        raise NotImplementedError  # only for protocols with answers in the background

    def ended(self, turn: StoredTurn, status: Literal["failed", "cancelled"], error: GatewayError | None) -> StoredTurn:
        """Returns a stored `turn` as failed or cancelled, when its answer will not be continued."""
        raise NotImplementedError

    def last_frame(self, turn: StoredTurn, number: int) -> bytes:
        """Returns the last frame, with this number, of the stream of a finished turn."""
        raise NotImplementedError

    def is_last_frame(self, frame: str) -> bool:
        """True if a stream ends with this frame."""
        raise NotImplementedError

    def shown(self, turn: StoredTurn) -> dict[str, Any]:
        """Returns the JSON object of a turn that clients get."""

    def listed(self, turn: StoredTurn) -> Sequence[Mapping[str, Any]]:
        """Returns the items of the request that began the turn."""


# --- conversations with ids of their own ------------------------------------------------------------------------------


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
