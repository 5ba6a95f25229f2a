"""A turn of a conversation, as it is kept between requests (R12): what was said in it, in the model's words.

A protocol that has to show what was said exactly as it stood keeps it in its own words, as JSON (`said`), and whoever
reads the turn makes the messages of it: nobody pays for them who only keeps it. The form in which all of it is written
down is `stored_form.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any, Final, Literal

from toolwire.model import EMPTY, Extra, Message, dataclass

TurnStatus = Literal["queued", "in_progress", "completed", "incomplete", "failed", "cancelled", "kept"]
"""How far the answer came. `kept`: there is none; what was said is kept for another turn
(`toolwire.pipeline.conversations.tool_memory`)."""

RUNNING: Final = frozenset({"queued", "in_progress"})
"""Statuses of a response that is not finished."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One request and its answer.

    `owner` is whose it is (a hash of the API key, empty without keys), `ancestors` are the ids of the turns before,
    oldest first. `input` is what this request alone says, without what each request says anew (instructions); `output`
    what the client was answered, results of the tools included that the gateway ran and showed. `rounds` are the calls
    of tools that it ran before that and did not show, each with its results: for the model that goes on, and for no
    client. `model` is the name that the client asked for. `created` and `expires` are Unix seconds. `said` is JSON:
    what was said in the words of the protocol. A turn that is put need not hold messages that follow from it, one that
    was read has them all, and there `said` is the value of that JSON. `size` is how many bytes a turn that was read
    has in its store.
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
    said: bytes | Mapping[str, Any] = field(default=b"", hash=False)
    rounds: tuple[Message, ...] = ()
    size: int = field(default=0, compare=False)

    @property
    def messages(self) -> tuple[Message, ...]:
        """All that was said, as the model is shown it again."""
        return (*self.input, *self.rounds, *self.output)
