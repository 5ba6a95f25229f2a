"""Recorded decisions about finished calls: the form in which they were sent, and the reasons in words."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from ...record import CallDecision
from .answer import Answer
from .judgements import Judgement, coerced, repaired

_FATES: Final = {"refused": "Text, not a call", "misfit": "Passed on as it is", "failed": "Ended the answer"}


def finish_calls(answer: Answer, decisions: Iterable[CallDecision]) -> None:
    """Updates the calls of an answer to the form in which they were sent, and adds the decisions about them."""
    for decision in decisions:
        index = decision.index
        if index is None or not 0 <= index < len(answer.calls):
            continue
        call = answer.calls[index]
        done = list(_done(decision, call.arguments))
        for judgement in done:
            judgement.calls.append(call.n)
        call.arguments = call.arguments if decision.arguments is None else decision.arguments
        call.judgements = [*call.judgements, *done]
        answer.judgements += done


def _done(decision: CallDecision, arguments: str) -> Iterable[Judgement]:
    for note in decision.notes:
        counter, _, label = note.partition(":")
        if counter == "repaired" and label:
            yield repaired(label, arguments)
        elif counter == "coerced" and label:
            yield coerced(label)
    if decision.kind in _FATES:
        kind = decision.kind if decision.kind in ("refused", "failed") else "near"
        yield Judgement(kind, f"{_FATES[decision.kind]}: {decision.why}")
