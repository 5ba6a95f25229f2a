"""Rounds: the calls of model servers in one exchange, each with its request and its answer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ...record import CallDecision
from ..capture.files import CapturedExchange, Entry, Kind
from ..capture.verdict import decisions_of
from .answer import ServerAnswer, read_server_answer
from .captured_request import CapturedRequest
from .judgements import Judgement, coerced, repaired

_STREAM: Final = "text/event-stream"


@dataclass(frozen=True, slots=True)
class Round:
    """One call of a model server: its entries in the capture and its answer. `judgements` are those on the answer as a
    whole."""

    number: int
    entries: Sequence[Entry]
    streamed: bool
    status: int
    answer: ServerAnswer
    judgements: Sequence[Judgement]

    def first(self, kind: Kind) -> Mapping[str, Any]:
        """Returns the fields of the first entry of a kind; empty if there is none."""
        return _first(self.entries, kind)

    def all(self, kind: Kind) -> list[Entry]:
        """Returns the entries of a kind."""
        return [entry for entry in self.entries if entry.kind == kind]

    @property
    def sent(self) -> bytes:
        """The request body."""
        return b"".join(entry.data for entry in self.all("sent"))

    @property
    def prompt(self) -> bytes:
        """The prompt that the server's chat template rendered from the request; empty if the server does not tell."""
        return b"".join(entry.data for entry in self.all("prompt"))


def rounds_of(captured: CapturedExchange, asked: CapturedRequest) -> Iterator[Round]:
    """Yields the rounds of an exchange in order. Tool calls are numbered across rounds."""
    entries: dict[int, list[Entry]] = {}
    for entry in captured.entries:
        if entry.call:
            entries.setdefault(entry.call, []).append(entry)
    numbers = sorted(entries)
    last = numbers[-1] if numbers else 0
    calls = 0
    for number in numbers:
        mine = entries[number]
        head = _first(mine, "answered")
        status = head.get("status", 0)
        streamed = str(head.get("headers", {}).get("content-type", "")).startswith(_STREAM)
        reads = [entry for entry in mine if entry.kind == "received" and status == 200]
        whole = captured.complete and (number != last or bool(captured.end))
        decisions = decisions_of(mine)
        answer = read_server_answer(
            reads, streamed=streamed, whole=whole, asked=asked, first_call=calls + 1, decisions=decisions
        )
        calls += len(answer.calls)
        finish_calls(answer, decisions)
        judgements = _of_round(mine, status, answer, decisions, last=number == last)
        for judgement in (*answer.judgements, *judgements):
            judgement.round = number
        yield Round(number, mine, streamed, status, answer, judgements)


def _first(entries: Sequence[Entry], kind: Kind) -> Mapping[str, Any]:
    return next((entry.fields for entry in entries if entry.kind == kind), {})


def _of_round(
    entries: Sequence[Entry], status: int, answer: ServerAnswer, decisions: Iterable[CallDecision], *, last: bool
) -> list[Judgement]:
    failed = _first(entries, "failed")
    found: list[Judgement] = []
    if failed:
        found.append(Judgement("failed", f"The server failed: {failed.get('message')} ({failed.get('code')})"))
    elif status >= 400:
        found.append(Judgement("failed", f"The server refused, with status {status}"))
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
