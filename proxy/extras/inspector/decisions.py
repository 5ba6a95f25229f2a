"""Recorded decisions about calls in a capture: what was done with finished calls, and why an exchange has no call.

The gateway records these decisions when it makes them (`toolwire.record.CallDecision`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, get_args

from ...errors import quote
from ...model import FinishReason
from ...record import CallDecision, Decided
from ..capture.files import Entry
from .answer import CHOICE, Answer
from .asked import Asked
from .judgements import Judgement, coerced, dropped, repaired

_FATES: Final = {"refused": "Text, not a call", "misfit": "Passed on as it is", "failed": "Ended the answer"}


def decisions_of(entries: Iterable[Entry]) -> list[CallDecision]:
    """Returns the recorded decisions on the answer that the inspector shows."""
    found: list[CallDecision] = []
    for entry in entries:
        fields: dict[str, Any] = dict(entry.fields)
        kind: Decided = fields.pop("decided", None)
        if entry.kind == "decision" and kind in get_args(Decided) and fields.get("choice", CHOICE) == CHOICE:
            notes = tuple(map(str, fields.get("notes") or ()))
            places = {name: fields.get(name) for name in ("start", "end", "index")}
            arguments = entry.data.decode(errors="replace") if entry.data else None
            why, name = fields.get("why") or "", fields.get("name")
            found.append(CallDecision(kind, why, CHOICE, name, notes, arguments=arguments, **places))
    return _standing(found)


def _standing(decisions: Iterable[CallDecision]) -> list[CallDecision]:
    """Returns the decisions that hold. If a block was refused and then read again in another form, the first refusal
    holds, unless the second reading found something else."""
    standing: list[CallDecision] = []
    for one in decisions:
        if standing and standing[-1].kind == "refused" and _overlap(standing[-1], one):
            if one.kind == "refused":
                continue
            standing.pop()
        standing.append(one)
    return standing


def _overlap(one: CallDecision, other: CallDecision) -> bool:
    if one.start is None or one.end is None or other.start is None or other.end is None:
        return False
    return one.start < other.end and other.start < one.end


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


# --- the explanation of an exchange ---------------------------------------------------------------------------------


class Outcome:
    """The result of one request to a server: the answer, the decisions on it, and the server's failure.

    `discarded`: the answer was not used, and the model was asked again. `status` is that of the server, 0 if it did not
    answer; `failure` describes a failed connection.
    """

    def __init__(self, decisions: Sequence[CallDecision], answer: Answer, status: int, failure: str) -> None:
        self.decisions = decisions
        self.answer = answer
        self.status = status
        self.failure = failure
        self.discarded = any(one.kind == "discarded" for one in decisions)

    def of(self, *kinds: Decided) -> list[CallDecision]:
        """The decisions of these kinds."""
        return [one for one in self.decisions if one.kind in kinds]

    @property
    def called(self) -> list[str]:
        """The names of the tools that were called."""
        decided = self.of("made", "misfit", "refused", "failed")
        made = [one.name for one in decided if one.kind in ("made", "misfit") and one.index is not None]
        if made or any(one.index is not None for one in decided):
            return [name for name in dict.fromkeys(made) if name]
        return [] if self.discarded else list(dict.fromkeys(call.name for call in self.answer.calls))


def why(outcomes: Sequence[Outcome], asked: Asked, code: str | None) -> str | None:
    """Returns one sentence that explains why an exchange with tools has a call or none; None for an exchange without
    tools. `code` is that of the error with which the exchange ended."""
    if not (asked.tools or asked.offer.tools):
        return None
    used = [one for one in outcomes if not one.discarded]
    called = list(dict.fromkeys(name for one in used for name in one.called))
    if called:
        return f"Called {', '.join(map(quote, called))}{_how(used)}{_again(outcomes)}."
    if asked.offer.choice.mode == "none":
        return "No call: `tool_choice` is `none`."
    if not used:
        return f"No call: no server answered{f' ({code})' if code else ''}{_again(outcomes)}."
    reason = _why_not(used[-1], code).rstrip(".")
    return f"No call: {reason}{_again(outcomes)}."


def _how(used: Iterable[Outcome]) -> str:
    """Returns the end of that sentence for calls that were repaired, recovered or do not fit; empty for ordinary
    calls."""
    decisions = [decision for one in used for decision in one.of("found", "made", "misfit")]
    misfit = next((one.why for one in decisions if one.kind == "misfit"), "")
    if misfit:
        return f", though it does not fit: {misfit.rstrip('.')}"
    notes = {note for one in decisions for note in one.notes}
    if "recovered" in notes:
        return ", recovered from a damaged or unknown form"
    if "recognised" in notes:
        return ", read in a form that was not taught"
    if {"repaired", "unclosed_repaired"} & notes or any(note.startswith("repaired:") for note in notes):
        return ", after a repair"
    return ""


def _again(outcomes: Iterable[Outcome]) -> str:
    count = sum(one.discarded for one in outcomes)
    return f", after {count} answer{'s' if count > 1 else ''} that the gateway rejected" if count else ""


def _why_not(last: Outcome, code: str | None) -> str:
    """Returns the reason why the last answer holds no call."""
    dropped_ = last.of("dropped")
    cut = any("truncated_calls" in one.notes for one in dropped_)
    if last.status >= 400:
        return f"the server refused the request with status {last.status}{last.failure and f': {last.failure}'}"
    if last.failure:
        return f"the connection to the server was lost{' inside a call' if cut else ''}: {last.failure}"
    reason = last.answer.reason
    if cut:
        return f"the answer was cut inside a call ({reason or 'it has no end'})"
    for kinds in (("failed",), ("in_reasoning",), ("refused",)):
        found = [one.why for one in last.of(*kinds) if one.why]
        if found:
            return found[-1]
    if dropped_:
        return dropped(dropped_[-1].notes).removeprefix("Dropped: ")
    if reason is not None and reason not in FinishReason.WHOLE:
        return f"the answer was cut before it called a tool ({reason})"
    missed = last.of("missed")
    if missed:
        return missed[-1].why
    if code is not None:
        return f"the exchange ended with the error {code}"
    kinds_ = {span.kind for span in last.answer.spans} - {"markup"}
    if kinds_ == {"reasoning"}:
        return "the model wrote only reasoning"
    return "the model answered with text and never tried to call a tool" if kinds_ else "the answer is empty"
