"""Calls inside of a thought that never closes (R30.4).

Some models write a call and forget to end the thought before it; some servers take a whole answer for a thought. Such
an answer says nothing and calls nothing. A call at the end of its thoughts is a near miss: the model is asked again. A
call with further thoughts behind it is only considered.

Only whole answers are looked at: a stream has shown the thoughts.
"""

from __future__ import annotations

from collections.abc import Callable

from ..call_policy.near import NearMiss
from ..errors import quote
from ..events import Event, Finish
from ..folding import fold
from ..model import FinishReason, ModelReply, Reasoning, ReplyChoice
from .scanners import ScannerFactory
from .stages import Stage


class ReasoningCalls(Stage):
    """Tells `near` of such calls, with the number of the answer. Changes nothing."""

    changes = False

    def __init__(self, factory: ScannerFactory, near: Callable[[int, NearMiss], None]) -> None:
        self._factory = factory
        self._near = near
        self._events: list[Event] = []

    def whole(self, reply: ModelReply) -> ModelReply:
        """See `Stage`."""
        for number, choice in enumerate(reply.choices):
            if not _only_thinks(choice):
                continue
            names = self._factory.calls_at_end("".join(p.text for p in choice.parts if isinstance(p, Reasoning)))
            if names:
                shown = ", ".join(map(quote, dict.fromkeys(names)))
                self._near(number, NearMiss(f"The call of {shown} stands inside of a thought that has no end.", names))
        return reply

    def feed(self, events: list[Event]) -> list[Event]:
        """See `Stage`."""
        self._events += events
        if events and isinstance(events[-1], Finish):
            self.whole(fold(self._events))
        return events


def _only_thinks(choice: ReplyChoice) -> bool:
    """There are thoughts and nothing else, and no limit has cut them off."""
    thinks = bool(choice.parts) and all(isinstance(part, Reasoning) for part in choice.parts)
    return thinks and choice.reason in FinishReason.WHOLE
