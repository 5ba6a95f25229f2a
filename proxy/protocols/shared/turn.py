"""A stored turn of a conversation (R12), in the form of `toolwire.model`.

A protocol that has to show input and output exactly as they were stores them in its own form, as JSON
(`wire_form`). The messages are made from it when a turn is read, so storing a turn does not pay for them.
`toolwire.protocols.stored.json_form` defines the stored form.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any, Final, Literal, NamedTuple

from ...model import EMPTY, Extra, Message, dataclass

TurnStatus = Literal["queued", "in_progress", "completed", "incomplete", "failed", "cancelled", "kept"]
"""Progress of the answer. `kept`: the turn has no answer; it holds input for other turns
(`toolwire.pipeline.exchange.tool_memory`)."""

RUNNING: Final = frozenset({"queued", "in_progress"})
"""Statuses of a response that is not finished."""
ANSWERED: Final = frozenset({"completed", "incomplete"})
"""Statuses of a turn that later requests can continue. Such a turn never changes."""


class Place(NamedTuple):
    """Where a store has the beginning of a turn: the `id` of its last stored text, the number of stored `texts` that
    are joined for it, and its size in pieces (`Beginning.pieces`) and bytes (`length`)."""

    id: int
    texts: int
    pieces: int
    length: int


class StoredBeginning:
    """Remembers with a conversation's cached results (`toolwire.known.past`) where its beginning is stored. `place` is
    None until a store has written it."""

    __slots__ = ("place",)

    def __init__(self) -> None:
        self.place: Place | None = None


@dataclass(frozen=True, slots=True)
class Beginning:
    """The first `pieces` of the JSON of a turn's `wire_form`, `length` bytes together. Later turns begin with the same
    pieces, because an agent sends its whole conversation with every turn. A store writes them once and notes the place
    in `written`. `before` is the place of an earlier turn's pieces, with which these begin."""

    pieces: Sequence[bytes]
    length: int
    written: StoredBeginning
    before: Place | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredTurn:
    """One request and its answer.

    `owner` is a hash of the client's API key, empty without keys; `ancestors` are the ids of the earlier turns, oldest
    first. `input` are the request's own messages, without those that each request repeats (instructions). `output` is
    the answer that the client got, including results of server-side tools that were shown. `rounds` are server-side
    calls before that with their results, which were not shown: only the model gets them again. `model` is the name in
    the request. `created` and `expires` are Unix seconds. `wire_form` is the JSON of input and output in the protocol's
    form. A turn to be stored need not hold messages that can be made from it; a turn that was read holds all, and its
    `wire_form` is the parsed JSON. A turn to be stored may have the first part of `wire_form` as `beginning`. `size` is
    the number of bytes of the turn as its store reads it. `values` is the number of its JSON values, if it was read
    with a `ReadBudget`.
    """

    id: str
    owner: str
    ancestors: tuple[str, ...] = ()
    input: tuple[Message, ...] = ()
    output: tuple[Message, ...] = ()
    status: TurnStatus
    model: str = ""
    extra: Extra = EMPTY
    created: float
    expires: float
    wire_form: bytes | Mapping[str, Any] = field(default=b"", hash=False)
    rounds: tuple[Message, ...] = ()
    size: int = field(default=0, compare=False)
    values: int = field(default=0, compare=False)
    beginning: Beginning | None = field(default=None, compare=False)

    @property
    def messages(self) -> tuple[Message, ...]:
        """All messages of the turn, as the model gets them in later turns."""
        return (*self.input, *self.rounds, *self.output)

    @property
    def whole_wire_form(self) -> bytes:
        """`wire_form` of a turn to be stored, including its beginning."""
        assert isinstance(self.wire_form, bytes)
        return self.wire_form if self.beginning is None else b"".join((*self.beginning.pieces, self.wire_form))
