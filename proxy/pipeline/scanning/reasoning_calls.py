"""Calls inside a reasoning block that never ends (R30.4).

Some models write a call without closing the reasoning block before it, and some servers report a whole answer as
reasoning. Such an answer has neither text nor calls. A call at the end of its reasoning is a near miss, and the model
is asked again. A call that is followed by more reasoning was only considered.

If the exchange is observed, streams and answers with text behind their reasoning are checked too, to explain why there
is no call (R35.4). They are not asked for again: a stream has already sent its reasoning.
"""

from __future__ import annotations

from collections.abc import Callable

from ...call_policy.near import NearMiss
from ...errors import quote
from ...events import Delta, Event, Finish
from ...folding import fold
from ...model import FinishReason, ModelReply, Reasoning, ReplyChoice, ToolUse
from ...record import CallDecision
from ...support.offload import OFFLOAD_BYTES
from ..answers.stages import Stage
from .scanners import ScannerFactory


class ReasoningCalls(Stage):
    """Reports calls in unclosed reasoning to `near` if there is one, with the number of the answer, and the decision to
    `decided`; with `observed` also the decision about calls in closed reasoning. Changes nothing."""

    changes = False

    def __init__(
        self,
        factory: ScannerFactory,
        near: Callable[[int, NearMiss], None] | None,
        decided: Callable[[CallDecision], None],
        *,
        observed: bool,
    ) -> None:
        self._factory = factory
        self._near = near
        self._decided = decided
        self._observed = observed
        self._events: list[Event] = []
        self._size = 0

    def whole(self, reply: ModelReply) -> ModelReply:
        for number, choice in enumerate(reply.choices):
            thoughts = [part.text for part in choice.parts if isinstance(part, Reasoning)]
            unclosed = len(thoughts) == len(choice.parts)
            if not thoughts or not (unclosed or self._observed) or not _may_want_a_call(choice):
                continue
            names = self._factory.calls_at_end("".join(thoughts))
            if names:
                shown = ", ".join(map(quote, dict.fromkeys(names)))
                where = (
                    "reasoning that has no end"
                    if unclosed
                    else "the reasoning, which is only searched with `reasoning.scan_calls`"
                )
                why = f"The call of {shown} is in {where}."
                self._decided(CallDecision("in_reasoning", why, number, names[0]))
                if unclosed and self._near is not None:
                    self._near(number, NearMiss(why, names))
        return reply

    def feed(self, events: list[Event]) -> list[Event]:
        self._events += events
        if events and isinstance(events[-1], Finish):
            self.whole(fold(self._events))
        return events

    def see(self, event: Event) -> None:
        """Watches one event of a stream. A long stream is not checked, because that would hold the event loop."""
        self._size += len(event.text) + 1 if isinstance(event, Delta) else 1
        if self._size <= OFFLOAD_BYTES:
            self.feed([event])
        else:
            self._events.clear()


def _may_want_a_call(choice: ReplyChoice) -> bool:
    """Returns True if an answer has no call and was not cut off by a limit."""
    return choice.reason in FinishReason.WHOLE and not any(isinstance(part, ToolUse) for part in choice.parts)
