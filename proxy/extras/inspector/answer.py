"""The answer of a model server as it came, and what became of each part of it.

The bytes of the answer are read again, without a model: by the reader of the server's protocol, the scanner of the
route, and its call policy. The scanner reports where it found blocks and tags. The reasons are those of the decisions
that the gateway recorded when it served the answer.

Places are characters of the text, times are seconds since the exchange began.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Final

from ...call_policy.assembly import assemble
from ...call_policy.ids import CallIds
from ...call_policy.policy import CallPolicy
from ...events import BlockKind, Delta, Event, Fault, Finish, Open, text_block
from ...fastparse import CallScanner
from ...folding import unfold
from ...formats.engine.keys import NAMES
from ...model import FinishReason, ModelReply
from ...observability.redaction import Redaction
from ...pipeline.scanning.scanners import ScannerFactory
from ...record import CallDecision
from ...scan._grammar import Block, BlockSyntax, Decision, FoundCall, Grammar, valid_text, without_calls
from ...scan.spans import Span
from ...scanner import build_scanner
from ..capture.files import Entry
from ..capture.verdict import CHOICE, SECOND_CALL
from .bounds import READ_CHARS
from .captured_request import CapturedRequest
from .judgements import Judgement, Notes, judgements_of
from .text_spans import CallPiece, FedText, SpanKind, TextSpan, join_spans

COVER: Final = Redaction().text
"""Replaces texts that look like keys by stars. The capture has that done for each read, so a key that came in several
reads remains."""

_NAMED: Final = re.compile(rf'"(?:{"|".join(NAMES)})"\s{{0,8}}:\s{{0,8}}"([^\W\d][\w.-]{{0,63}})')
"""The tool name in an object that is no call."""


@dataclass(frozen=True, slots=True)
class Step:
    """One read of the answer: its time, the length of the text then, how much of that had been streamed or settled, and
    the scanner's state."""

    at: float
    upto: int
    released: int
    state: str


@dataclass(eq=False, slots=True)
class MadeCall:
    """A call in the answer. `n` counts from 1 in the whole exchange."""

    n: int
    name: str
    arguments: str = ""
    judgements: Sequence[Judgement] = ()


@dataclass(slots=True)
class ServerAnswer:
    """One answer of a server. `text` is all that the model wrote: visible text, reasoning, and the arguments of native
    calls. `reason` is the finish reason, None if the answer did not end."""

    text: str = ""
    reason: str | None = None
    spans: list[TextSpan] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    calls: list[MadeCall] = field(default_factory=list)
    judgements: list[Judgement] = field(default_factory=list)


def read_server_answer(
    reads: Sequence[Entry],
    *,
    streamed: bool,
    whole: bool,
    asked: CapturedRequest,
    first_call: int,
    decisions: Iterable[CallDecision],
) -> ServerAnswer:
    """Returns the answer whose body came in `reads`. `whole`: the body is complete. `first_call` is the number of its
    first call, `decisions` are those that were recorded."""
    reading = _Reading(asked, first_call, decisions)
    for at, events in _events(reads, streamed, whole, asked):
        reading.take(at, events)
    return reading.answer()


def read_text(text: str, asked: CapturedRequest) -> ServerAnswer:
    """Returns an answer that consists of this text, with the calls and the reasoning found in it."""
    reading = _Reading(asked, 1)
    reading.take(0.0, [*text_block(0, text), Finish()])
    return reading.answer()


def _events(
    reads: Sequence[Entry], streamed: bool, whole: bool, asked: CapturedRequest
) -> Iterator[tuple[float, list[Event]]]:
    """Yields the events of the answer, with the time at which they came. A body that is no answer has none."""
    if not reads:
        return
    if streamed:
        reader = asked.server.reader(frame_bytes=asked.limits.frame_bytes)
        for read in reads:
            yield read.at, reader.feed(read.data)
        if whole:
            yield reads[-1].at, reader.finish()
        return
    try:
        reply: ModelReply = asked.server.read_reply(b"".join(read.data for read in reads))
    except Exception:  # an error, or an incomplete body
        return
    yield reads[-1].at, unfold(reply)


class _NotingPolicy(CallPolicy):
    """The call policy of the route, with notes on what it decides."""

    def __init__(self, asked: CapturedRequest, notes: Notes) -> None:
        self._notes = notes
        super().__init__(
            asked.offer.known,
            choice=asked.offer.choice,
            parallel=asked.offer.parallel,
            options=asked.options,
            limits=asked.limits,
            count=notes.count,
            label=notes.label,
            near=notes.near,
            refused=notes.refused,
            ids=CallIds(asked.history),
        )

    def block(self, block: Block) -> Decision:
        decision = super().block(block)
        if block.syntax.untaught and not decision.calls and not self._notes.said:
            self._look_closer(block)
        return decision

    def broken(self, syntax: BlockSyntax, begun: str) -> None:
        super().broken(syntax, begun)
        if not self._notes.said and (named := _NAMED.search(begun)) is not None:
            self._notes.not_offered(named[1])

    def _look_closer(self, block: Block) -> None:
        """Notes the tool that a block in an untaught form names. The call policy passes over it in silence if that tool
        is not on offer."""
        try:
            found = assemble(block, repair=True)
        except ValueError:
            return
        names = [written.name for written in found.calls if written.name]
        if names and all(name.isidentifier() for name in names):
            self._notes.not_offered(names[0])


class _Reading:
    """Reads the events of one answer."""

    def __init__(self, asked: CapturedRequest, first_call: int, decisions: Iterable[CallDecision] = ()) -> None:
        self._asked = asked
        self._recorded = {(one.start, one.end): one for one in decisions if one.start is not None}
        self._grammar = ScannerFactory(asked.offer, asked.options, asked.limits).grammar
        self._notes = Notes(asked.names)
        self._policy = _NotingPolicy(asked, self._notes)
        self._next = first_call
        self._answer = ServerAnswer()
        self._pieces: list[str] = []
        self._place = 0  # the length of the text
        self._kinds: dict[int, BlockKind] = {}  # of the server's blocks
        self._native: dict[int, MadeCall] = {}  # by the server's block
        self._unwanted: dict[int, Judgement] = {}  # native calls beyond the first, where one is allowed
        self._ended = False
        self._passed_over = False
        self._scanner, self._fed = self._scan(self._grammar, preopened=bool(asked.options.reasoning.preopened))

    def _scan(self, grammar: Grammar, *, preopened: bool) -> tuple[CallScanner, FedText]:
        options = self._asked.options
        options = replace(options, reasoning=replace(options.reasoning, preopened=preopened))
        scanner = build_scanner(grammar, self._policy, options, self._asked.limits, on_span=self._found)
        inside = scanner.state == "reasoning"  # no tags, no reasoning
        return scanner, FedText(self._answer.spans, options.calls.trim == "edge", inside)

    def answer(self) -> ServerAnswer:
        """Returns the answer, as far as it has come."""
        answer = self._answer
        answer.text = COVER("".join(self._pieces))
        answer.spans = join_spans(answer.spans, self._place)
        return answer

    def take(self, at: float, events: Iterable[Event]) -> None:
        """Takes the next events of the server's answer, which came at this time."""
        came = False
        for event in events:
            match event:
                case Open(kind=kind, choice=choice) if choice == CHOICE:
                    self._kinds[event.block] = kind
                    if kind is BlockKind.TOOL_CALL:
                        self._end_text()
                        self._begin_native(event)
                case Delta() if event.block in self._kinds:
                    came = True
                    text = valid_text(event.text)
                    room = max(0, READ_CHARS - self._place)
                    if text[:room]:
                        self._more(event.block, text[:room])
                    if text[room:]:
                        self._pass_over(text[room:])
                case Finish() | Fault() if not self._ended:
                    came = self._ended = True
                    self._finish(event)
                case _:
                    pass
        if came:
            open_at = self._fed.first_open()
            released = self._place if open_at is None else open_at
            self._answer.steps.append(Step(at, self._place, released, self._scanner.state))

    def _more(self, block: int, text: str) -> None:
        kind = self._kinds[block]
        if kind is BlockKind.TEXT:
            self._fed.add(text, self._place)
            self._add(text)
            self._scanner.feed(text)
            if self._scanner.state != "done":
                self._fed.release(self._scanner.held_bytes)
        elif block in self._unwanted:
            self._show(text, "dropped", None, (self._unwanted[block],))
        elif kind is BlockKind.TOOL_CALL:
            self._native[block].arguments += text
            self._show(text, "call", self._native[block].n)
        else:
            self._show(text, "reasoning" if kind is BlockKind.REASONING else "text")

    def _add(self, text: str) -> None:
        self._pieces.append(text)
        self._place += len(text)

    def _show(self, text: str, kind: SpanKind, call: int | None = None, judgements: Sequence[Judgement] = ()) -> None:
        """Adds text that no scanner reads."""
        begin = self._place
        self._add(text)
        self._answer.spans.append(TextSpan(begin, self._place, kind, call, judgements))

    def _finish_text(self, *, truncated: bool) -> None:
        """Ends the text that the scanner reads."""
        failed = self._scanner.state == "done"
        self._scanner.finish(truncated=truncated)
        self._fed.finish(failed=failed)

    def _pass_over(self, text: str) -> None:
        """Shows text beyond the bound without a search for calls."""
        if not self._passed_over:
            self._passed_over = True
            self._finish_text(truncated=True)
            self._answer.judgements.append(
                Judgement("cut", f"Searched for calls up to character {self._place}; the rest is shown as text")
            )
        self._show(text, "text")

    def _end_text(self) -> None:
        """A native call begins. Text behind it is searched only for reasoning."""
        if self._native or self._asked.format:
            return
        inside = self._scanner.state == "reasoning"
        self._policy.recognises = False
        self._finish_text(truncated=False)
        self._scanner, self._fed = self._scan(without_calls(self._grammar), preopened=inside)

    def _begin_native(self, event: Open) -> None:
        """A native call begins. Where one call is allowed, further ones are dropped."""
        if self._answer.calls and not self._asked.offer.parallel:
            self._unwanted[event.block] = Judgement("dropped", f"Dropped: {SECOND_CALL}")
            self._answer.judgements.append(self._unwanted[event.block])
        else:
            self._native[event.block] = self._call(event.name or "")

    def _finish(self, event: Finish | Fault) -> None:
        if isinstance(event, Finish):
            self._answer.reason = event.reason
        if not self._passed_over:
            self._finish_text(truncated=isinstance(event, Fault) or event.reason not in FinishReason.WHOLE)

    # --- what the scanner reports ---------------------------------------------------------------------------------

    def _found(self, span: Span) -> None:
        """The scanner found a block or tag. Its words are those of the recorded decision; where none was recorded, the
        notes of the call policy here."""
        decision = span.decision
        if (recorded := self._recorded.get((span.start, span.end))) is not None:
            self._notes.repeat(recorded)
        said = self._notes.take()
        if span.kind != "block":
            self._vanish(span, [CallPiece(span.end - span.start, "markup")])
            return
        text = self._fed.text(span)
        judgements, of_calls = judgements_of(said, text, decision)
        if decision.calls:
            self._vanish(span, self._pieces_of(text, decision, of_calls))
        elif decision.error is not None or (decision.drop and not decision.reasoning):
            kind: SpanKind = "dropped" if decision.drop else "refused"
            self._vanish(span, [CallPiece(span.end - span.start, kind, None, judgements)])
        elif decision.drop:
            self._vanish(span, [CallPiece(span.end - span.start, "reasoning")])
            return
        elif judgements and not self._fed.refuse(span, judgements):
            return
        self._answer.judgements += [*judgements, *chain.from_iterable(of_calls)]

    def _vanish(self, span: Span, pieces: Sequence[CallPiece]) -> None:
        for judgement in self._fed.vanish(span, pieces):
            self._answer.judgements.remove(judgement)

    def _pieces_of(self, text: str, decision: Decision, of_calls: Sequence[Sequence[Judgement]]) -> list[CallPiece]:
        """Returns the parts of a block with calls: each call in the text that it gives as its source, the last one up
        to the end."""
        pieces: list[CallPiece] = []
        at = text.find(decision.reasoning) if decision.reasoning else 0
        if at >= 0 and decision.reasoning:
            pieces.append(_piece(text[:at], "markup"))
            pieces.append(_piece(decision.reasoning, "reasoning"))
            at += len(decision.reasoning)
        at = max(at, 0)
        for found, judgements in zip(decision.calls, of_calls, strict=True):
            call = self._call(found)
            for judgement in judgements:
                judgement.calls.append(call.n)
            call.judgements = judgements
            end = len(text)
            if found is not decision.calls[-1]:
                begin = text.find(found.source or "", at)
                end = at if begin < 0 else begin + len(found.source or "")
            pieces.append(_piece(text[at:end], "call", call.n, judgements))
            at = end
        return pieces

    def _call(self, found: FoundCall | str) -> MadeCall:
        call = (
            MadeCall(self._next, found) if isinstance(found, str) else MadeCall(self._next, found.name, found.arguments)
        )
        self._next += 1
        self._answer.calls.append(call)
        return call


def _piece(text: str, kind: SpanKind, call: int | None = None, judgements: Sequence[Judgement] = ()) -> CallPiece:
    return CallPiece(len(text.encode()), kind, call, judgements)
