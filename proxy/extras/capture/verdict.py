"""The verdict on an exchange: a short kind and one sentence that explains why there is a tool call or none (R35.4).

It is made from the decisions that the gateway recorded while it served the answer (`toolwire.record.CallDecision`), and
from how each request to a server ended.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, get_args

from ...errors import quote
from ...events import BlockKind
from ...model import FinishReason
from ...record import CallDecision, Decided
from .files import Entry

CHOICE: Final = 0
"""Index of the answer that is judged if a server gave several."""

MOST_DECISIONS: Final = 512
"""The number of decisions of one answer that are remembered while it is recorded: the latest."""

MOST_NAMES: Final = 8
"""The number of called tools that a verdict names."""

CLIENT_LEFT: Final = "client_closed_request"

VerdictKind = Literal[
    "called",
    "repaired",
    "recovered",
    "misfit",
    "none",
    "unwanted",
    "demanded",
    "attempted",
    "denied",
    "in_reasoning",
    "cut",
    "lost",
    "upstream",
    "refused",
    "failed",
    "left",
]
"""Kinds of verdicts:

`called` `repaired` `recovered` `misfit`    there is a call: an ordinary one, one after a repair, one in a form that was
not taught or is damaged, one that does not fit its tool's schema;
`none`          the model never tried to call a tool;
`unwanted`      the client forbade calls by `tool_choice`;
`demanded`      a demanded call was not made;
`attempted`     an attempt to call a tool is no call;
`denied`        the tool that was called is not permitted;
`in_reasoning`  the call is in the reasoning;
`cut`           the answer ended before or inside a call;
`lost`          the connection to the server was lost;
`upstream`      the server refused the request;
`refused`       the gateway refused the request;
`failed`        the exchange ended with another error;
`left`          the client left before the end.
"""


@dataclass(frozen=True, slots=True)
class CaptureVerdict:
    """The verdict on an exchange. `called` are the names of the tools that were called."""

    kind: VerdictKind
    sentence: str
    called: tuple[str, ...] = ()


@dataclass(slots=True)
class CallOutcome:
    """The result of one request to a server.

    `status` is that of the server, 0 if it did not answer; `failure` describes an error on the way. `reason` is the
    finish reason, None if the answer has no end. `decisions` are those about the answer that hold.
    """

    status: int = 0
    failure: str = ""
    reason: str | None = None
    decisions: list[CallDecision] = field(default_factory=list)

    def add(self, decision: CallDecision) -> None:
        """Adds a decision about the answer. If a block was refused and then read again in another form, the first
        refusal holds, unless the second reading found something else."""
        if decision.choice != CHOICE:
            return
        standing = self.decisions
        if standing and standing[-1].kind == "refused" and _overlap(standing[-1], decision):
            if decision.kind == "refused":
                return
            standing.pop()
        standing.append(decision)
        if len(standing) > MOST_DECISIONS:
            del standing[0]

    def of(self, *kinds: Decided) -> list[CallDecision]:
        """Returns the decisions of these kinds."""
        return [one for one in self.decisions if one.kind in kinds]

    @property
    def discarded(self) -> bool:
        """True if the answer was not used, and the model was asked again."""
        return any(one.kind == "discarded" for one in self.decisions)

    @property
    def called(self) -> list[str]:
        """The names of the tools that were called."""
        denied = {one.name for one in self.of("denied")}
        made = [one.name for one in self.of("made", "misfit") if one.index is not None and one.name not in denied]
        return [name for name in dict.fromkeys(made) if name]


def decisions_of(entries: Iterable[Entry]) -> list[CallDecision]:
    """Returns the decisions in a capture on one answer that hold."""
    outcome = CallOutcome()
    for entry in entries:
        fields: dict[str, Any] = dict(entry.fields)
        kind: Decided = fields.pop("decided", None)
        if entry.kind == "decision" and kind in get_args(Decided):
            notes = tuple(map(str, fields.get("notes") or ()))
            places = {name: fields.get(name) for name in ("start", "end", "index")}
            arguments = entry.data.decode(errors="replace") if entry.data else None
            why, name, choice = fields.get("why") or "", fields.get("name"), fields.get("choice", CHOICE)
            outcome.add(CallDecision(kind, why, choice, name, notes, arguments=arguments, **places))
    return outcome.decisions


def _overlap(one: CallDecision, other: CallDecision) -> bool:
    if one.start is None or one.end is None or other.start is None or other.end is None:
        return False
    return one.start < other.end and other.start < one.end


def judge(
    outcomes: Sequence[CallOutcome],
    *,
    offered: bool,
    choice: str = "auto",
    code: str | None = None,
    message: str = "",
    written: Collection[BlockKind] | None = None,
) -> CaptureVerdict | None:
    """Returns the verdict on an exchange; None for one without tools that did not fail. `offered`: the request had
    tools; `choice` is the mode of its `tool_choice`. `code` and `message` are those of the error with which the
    exchange ended, `written` the kinds of content in the last answer, None if unknown."""
    used = [one for one in outcomes if not one.discarded]
    called = list(dict.fromkeys(name for one in used for name in one.called)) if offered else []
    unchecked = offered and any(one.of("found") and not one.of("made", "misfit", "refused", "failed") for one in used)
    if called or unchecked:
        kind, how = _how(used)
        after = f". Then the exchange failed: {error_text(code, message)}" if code not in (None, CLIENT_LEFT) else ""
        names = ", ".join(map(quote, called[:MOST_NAMES])) or "a tool"
        more = f" and {len(called) - MOST_NAMES} more" if len(called) > MOST_NAMES else ""
        sentence = f"Called {names}{more}{how}{_again(outcomes)}{after.rstrip('.')}."
        return CaptureVerdict(kind, sentence, tuple(called[:MOST_NAMES]))
    if code is None and not offered:
        return None
    kind, reason = _why_not(outcomes, used, choice if offered else "auto", code, message)
    if not reason:
        reason = _nothing_tried(written, outcomes)
    again = _again(outcomes, reason)
    reason = f"No call: {reason}" if offered else reason[:1].upper() + reason[1:]
    return CaptureVerdict(kind, f"{reason.rstrip('.')}{again}.")


def error_text(code: str | None, message: str) -> str:
    """Returns an error as the end of a sentence."""
    return f"{message.rstrip('.')} ({code})" if message else str(code)


def _how(used: Iterable[CallOutcome]) -> tuple[VerdictKind, str]:
    """Returns the kind of verdict for an exchange with calls, and the end of its sentence: empty for ordinary calls."""
    decisions = [decision for one in used for decision in one.of("found", "made", "misfit")]
    misfit = next((one for one in decisions if one.kind == "misfit"), None)
    if misfit is not None:
        what = misfit.why.partition(" does not fit the tool's schema: ")[2] or misfit.why
        which = f"the call of {quote(misfit.name)}" if misfit.name else "a call"
        return "misfit", f", but {which} does not fit its schema: {what.rstrip('.')}"
    notes = {note for one in decisions for note in one.notes}
    if "recovered" in notes:
        return "recovered", ", recovered from a damaged or unknown form"
    if "recognised" in notes:
        return "recovered", ", read in a form that was not taught"
    if {"repaired", "unclosed_repaired"} & notes or any(note.startswith("repaired:") for note in notes):
        return "repaired", ", after a repair"
    return "called", ""


def _again(outcomes: Iterable[CallOutcome], said: str = "") -> str:
    """Returns how many answers were rejected, and why the last of them was, unless that is `said`."""
    rejected = [one.of("discarded")[-1].why for one in outcomes if one.discarded]
    if not rejected:
        return ""
    why = "" if said and rejected[-1].startswith(said) else f": {rejected[-1].rstrip('.')}"
    return f", after {len(rejected)} rejected answer{'s' if len(rejected) > 1 else ''}{why}"


def _why_not(
    outcomes: Sequence[CallOutcome], used: Sequence[CallOutcome], choice: str, code: str | None, message: str
) -> tuple[VerdictKind, str]:
    """Returns the reason why an exchange has no call."""
    if code == CLIENT_LEFT:
        return "left", "the client left before the end of the answer"
    if not outcomes:
        if code is None:
            return "none", "no server was asked"
        return "refused", f"the gateway refused the request: {error_text(code, message)}"
    if choice == "none" and code is None:
        return "unwanted", "`tool_choice` is `none`"
    if not used:
        return "failed", f"no server answered ({code})" if code else "no answer was used"
    return _why_not_in(used[-1], code, message)


def _why_not_in(last: CallOutcome, code: str | None, message: str) -> tuple[VerdictKind, str]:
    """Returns the reason why the last answer holds no call; empty if the model never tried."""
    cut = any("truncated_calls" in one.notes for one in last.of("dropped"))
    if last.status >= 400:
        said = f": {last.failure}" if last.failure else ""
        return "upstream", f"the server refused the request with status {last.status}{said}"
    if last.failure and not last.status:
        return "lost", f"the server did not answer: {last.failure}"
    if last.failure:
        return "lost", f"the connection to the server was lost{' inside a call' if cut else ''}: {last.failure}"
    reason = last.reason
    if cut:
        return "cut", f"the answer was cut inside a call ({reason or 'it has no end'})"
    kinds: Sequence[tuple[VerdictKind, Decided]] = (
        ("attempted", "failed"),
        ("denied", "denied"),
        ("attempted", "refused"),
        ("in_reasoning", "in_reasoning"),
    )
    for kind, decided in kinds:
        found = [one.why for one in last.of(decided) if one.why]
        if found:
            return kind, found[-1]
    if dropped_ := last.of("dropped"):
        return "attempted", dropped(dropped_[-1].notes)
    if reason is not None and reason not in FinishReason.WHOLE:
        return "cut", f"the answer was cut before it called a tool ({reason})"
    if missed := last.of("missed"):
        return "demanded", missed[-1].why
    if code is not None:
        return "failed", f"the exchange ended with the error {error_text(code, message)}"
    return "none", ""


def _nothing_tried(written: Collection[BlockKind] | None, outcomes: Iterable[CallOutcome]) -> str:
    if written is not None and not written:
        return "the answer is empty"
    if written is not None and set(written) == {BlockKind.REASONING}:
        return "the model wrote only reasoning"
    tried = any(one.discarded for one in outcomes)
    return f"the model answered with text{'' if tried else ' and never tried to call a tool'}"


def dropped(notes: Collection[str]) -> str:
    """Returns why a block or call was dropped. `notes` are the counters that were raised for it."""
    if "truncated_calls" in notes:
        return "the answer was cut by length inside this call"
    if "dropped_parallel" in notes:
        return SECOND_CALL
    if "deduped" in notes:
        return "it repeats an earlier call (`calls.dedupe_calls`)"
    return "it holds no call"


SECOND_CALL: Final = "a second call, and `parallel_tool_calls` is off"
