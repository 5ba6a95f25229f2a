"""Rounds: the calls of model servers in one exchange, each with its request and its answer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from ...record import CallDecision
from ..capture.files import CapturedExchange, RecordedCall
from ..capture.verdict import decisions_of
from .answer import ServerAnswer, read_server_answer
from .captured_request import CapturedRequest
from .judgements import Judgement, coerced, repaired


@dataclass(frozen=True, slots=True)
class Round:
    """One call of a model server, and its answer. `judgements` are those on the answer as a whole."""

    call: RecordedCall
    answer: ServerAnswer
    judgements: Sequence[Judgement]


def rounds_of(captured: CapturedExchange, asked: CapturedRequest) -> Iterator[Round]:
    """Yields the rounds of an exchange in order. Tool calls are numbered across rounds."""
    calls = captured.calls
    made = 0
    for call in calls:
        last = call is calls[-1]
        decisions = decisions_of(call.entries)
        answer = read_server_answer(
            call.all("received") if call.status == 200 else (),
            streamed=call.streamed,
            whole=captured.complete and (not last or bool(captured.end)),
            asked=asked,
            first_call=made + 1,
            decisions=decisions,
        )
        made += len(answer.calls)
        finish_calls(answer, decisions)
        judgements = _of_round(call, answer, decisions, last=last)
        for judgement in (*answer.judgements, *judgements):
            judgement.round = call.number
        yield Round(call, answer, judgements)


def _of_round(
    call: RecordedCall, answer: ServerAnswer, decisions: Iterable[CallDecision], *, last: bool
) -> list[Judgement]:
    failed = call.first("failed")
    found: list[Judgement] = []
    if failed:
        found.append(Judgement("failed", f"The server failed: {failed.get('message')} ({failed.get('code')})"))
    elif call.status >= 400:
        found.append(Judgement("failed", f"The server refused, with status {call.status}"))
    if answer.reason == "length":
        found.append(Judgement("cut", "The answer was cut by its limit of length"))
    if not last:
        rejected = next((one.why for one in decisions if one.kind == "discarded"), "")
        because = f": {rejected}" if rejected else ""
        found.append(Judgement("retried", f"A server was asked again after this answer{because}"))
    return found


# --- recorded decisions about finished calls --------------------------------------------------------------------------


_FATES: Final = {"refused": "Text, not a call", "misfit": "Passed on as it is", "failed": "Ended the answer"}


def finish_calls(answer: ServerAnswer, decisions: Iterable[CallDecision]) -> None:
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
