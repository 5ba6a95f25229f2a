"""The scanner as a stage of a reply: it finds calls in text blocks and makes them blocks of their own.

Each answer (`choice`) has one call scanner. Other blocks are forwarded unchanged. Blocks are numbered anew, because the
scanner makes more of them.

A server that makes calls itself may leave some in the text, because it does not know their form (`native`). If it makes
a call in the same answer, it knows the form, and calls in the text are only text; otherwise a call could be made twice.
Therefore calls in the text of such a server, and everything after them, are held until the end of the answer
(`toolwire.pipeline.scanning.waiting`).

A large block is parsed in a thread. That takes up to a tenth of a second, because nearly valid JSON is repaired and
valid JSON is checked several times. While a scanner holds a large block, text that may end it is deferred (`work`), and
everything after it.

If an answer may begin inside a reasoning block, `toolwire.pipeline.scanning.reasoning_detector` tells when its scanner
can be made and which text has to be scanned again.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

from ...call_policy.near import NearMiss
from ...call_policy.policy import CallPolicy
from ...call_policy.recognised import Schemas
from ...config import LimitsConfig, RouteOptions
from ...events import BlockKind, Close, Delta, Event, Fault, Finish, Open
from ...fastparse import CallScanner
from ...folding import parts_of
from ...model import EMPTY, Extra, FinishReason, Message, ModelReply, ReplyChoice, Text, merged, replace
from ...record import CallDecision
from ...scan._grammar import SPACE
from ...scanner import stays_unchanged
from ...support.offload import OFFLOAD_BYTES, in_thread
from ..answers.stages import Stage
from .offered_tools import OfferedTools
from .preopened import Pair, PreopenedReasoning
from .reasoning_detector import ReasoningDetector, reason_of
from .scanners import Counters, ScannerFactory
from .waiting import WaitingCalls

_LARGE: Final = OFFLOAD_BYTES // 2
"""The scanners are checked for large blocks after each such amount of text, so that a block of `OFFLOAD_BYTES` is
recognised before it ends."""
_SLICE_CHARS: Final = OFFLOAD_BYTES // 4
"""Characters in one call of a scanner. The call holds the interpreter lock, for 2 ms if the text is full of markers."""
_MAY_END: Final = re.compile(r"[])}>:`\n]")
"""Characters with which a block may end, in any format."""


class ScanStage(Stage):
    """Finds calls in visible text. `history` are the messages before the answer, with calls not yet written as text.
    `near` is called with near misses and their choice, `decided` with decisions.

    Ends the stream early after the last wanted call under `stop_after_call` (C34). A call that is cut off, by the limit
    of length or a fault, is not emitted (R6.8). If its arguments were streamed (`stream_after`, R6.13), it is closed as
    `truncated`. If no tool is on offer, only reasoning and framing are found. `schemas` has the checkers of the tools.
    For `native` see the module. `keeps_repeats`: a later stage drops repeated calls. `shows_cut`: a call that the limit
    of length cuts off is text, an exception to C18.
    """

    def __init__(
        self,
        offer: OfferedTools,
        options: RouteOptions,
        limits: LimitsConfig,
        count: Callable[[str], None],
        *,
        label: Callable[[str, str], None] = lambda name, label: None,
        near: Callable[[int, NearMiss], None] | None = None,
        decided: Callable[[CallDecision], None] | None = None,
        stream_after: Callable[[], int | None] | None = None,
        history: Sequence[Message] = (),
        schemas: Schemas | None = None,
        native: bool = False,
        keeps_repeats: bool = False,
        shows_cut: bool = False,
        preopened: PreopenedReasoning | None = None,
        only_rewritten: bool = False,
    ) -> None:
        self.only_rewritten = only_rewritten
        self.changes = not only_rewritten
        factory = ScannerFactory(
            offer,
            options,
            limits,
            stream_after=stream_after or _never,
            history=history,
            schemas=schemas,
            keeps_repeats=keeps_repeats,
        )
        self._options = options
        self._shows_cut = shows_cut
        self._grammar = factory.grammar
        self.factory = factory
        self._counters = Counters(count, label, near, decided)
        self._streamed = stream_after is not None
        self._waiting = WaitingCalls(count, label) if native else None
        self._answers: dict[int, _Answer] = {}
        self._texts: dict[int, _Answer] = {}  # text blocks of the server, and their answers
        self._stops = options.calls.stop_after_call and not offer.parallel
        self._calls: set[int] = set()
        self._beside: dict[int, Extra] = {}  # metadata of text blocks
        self._keeps_blocks = native or not offer.tools  # no calls are cut out of text blocks
        self._over = False
        self._detector: ReasoningDetector | None = None
        if preopened is not None and factory.plan.pairs:
            self._detector = ReasoningDetector(preopened, factory.plan.pairs, factory, limits.block_bytes)
        self._inside: Mapping[int, Pair] = {} if self._detector is None else self._detector.inside
        self._scanned_texts: Mapping[int, list[str]] = {} if self._detector is None else self._detector.scanned_texts
        self.later: list[Event] = []
        self._working = False
        self._large = False  # True if a scanner holds a large block
        self._looked = 0  # `scanned_bytes` at the last update of `_large`
        self.scanned_bytes = 0
        """Bytes of text (UTF-8) that went to the scanners. Text that does not go through `feed` is added by
        `note_text`."""

    def note_text(self, block: int, text: str) -> None:
        """Counts text of a server's block that goes to a scanner."""
        self.scanned_bytes += len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
        if self.scanned_bytes - self._looked > _LARGE:
            self._look()
        scanned = self._scanned_texts.get(self._texts[block].choice) if self._scanned_texts else None
        if scanned is not None and self._detector is not None:
            scanned.append(text)
            self._detector.room -= len(text)
            if self._detector.room < 0:
                self._detector.forget()

    def scanner_of(self, block: int) -> CallScanner | None:
        """Returns the scanner of a server's text block; None if its text has to go through `feed`."""
        answer = self._texts.get(block)
        if answer is None or self._over or self._large:
            return None
        return None if self._waiting is not None and self._waiting.holds(answer.choice) else answer.scanner

    def whole(self, reply: ModelReply) -> ModelReply | None:
        return reply if self._has_nothing(reply) else self._scan_one_text(reply)

    def _has_nothing(self, reply: ModelReply) -> bool:
        """Returns True if each answer is one text in which neither a call nor reasoning begins."""
        plan = self.factory.plan
        for choice in reply.choices:
            for part in choice.parts:
                if len(choice.parts) > 1 or type(part) is not Text or len(part.text) > _LARGE:
                    return False  # a large text is scanned in a thread
                if not stays_unchanged(part.text, plan.signs, plan.names):
                    return False
                if self._detector is not None and not self._detector.surely_begins_outside(part.text):
                    return False
        return True

    def _scan_one_text(self, reply: ModelReply) -> ModelReply | None:
        """Scans the only answer if it is one text of ordinary size, the usual case; else returns None."""
        parts = reply.choices[0].parts if len(reply.choices) == 1 else ()
        if self._waiting is not None or self._stops or self._streamed or len(parts) != 1:
            return None
        (choice,), (part,) = reply.choices, parts
        if type(part) is not Text or part.extra or not 0 < len(part.text) <= _LARGE:
            return None
        if self._detector is not None:
            self._detector.decide_by_whole(part.text, choice.reason)
        answer = self._texts[0] = self._answer(0)
        self._open(answer)
        self.note_text(0, part.text)
        found = self._scan(answer, part.text)
        if not self._over:
            found += self._finish(answer, choice.reason)
        if found and isinstance(last := found[-1], Fault):
            raise last.error
        scanned = ReplyChoice(tuple(parts_of(found)), choice.reason, _without_logprobs(choice.extra))
        return replace(reply, choices=(scanned,))

    def feed(self, events: list[Event], *, working: bool = False) -> list[Event]:
        """See `Stage`. `working`: called in a thread, so nothing is deferred."""
        detector = self._detector
        if not working and (self._working or self.later):
            self.later += events
            return []
        if detector is not None and detector.whole:
            if not working and any(type(event) is Delta and len(event.text) > _LARGE for event in events):
                self.later += events
                return []
            events = detector.when_complete(events)
        out: list[Event] = []
        for index, event in enumerate(events):
            if self._over:
                break
            if not working and (_may_end(event) if self._large else type(event) is Delta and len(event.text) > _LARGE):
                self.later += events[index:]
                break
            match event:
                case Delta() if event.block in self._texts:
                    self.note_text(event.block, event.text)
                    out += self._scan(self._texts[event.block], event.text)
                case Open(kind=BlockKind.TEXT):
                    answer = self._texts[event.block] = self._answer(event.choice)
                    if event.extra and self._keeps_blocks:
                        self._beside[event.block] = event.extra
                    if not answer.is_open:
                        self._open(answer)
                case Open(kind=BlockKind.REASONING):
                    if detector is not None:
                        detector.note_reasoning(event.choice)
                    out.append(event)
                case Open(kind=BlockKind.TOOL_CALL):
                    if self._waiting is not None:
                        out += self._without_calls(self._answer(event.choice), self._waiting)
                    if detector is not None:
                        detector.note_call(event.choice)
                    out.append(event)
                case Close() if event.block in self._texts:
                    if self._keeps_blocks:
                        out += self._closed(event)
                case Finish():
                    for answer in [one for one in self._answers.values() if one.is_open]:
                        reason = reason_of(event, answer.choice)
                        out += self._finish(answer, reason)
                        if answer.choice in self._scanned_texts and detector is not None and not self._over:
                            truncated = reason not in FinishReason.WHOLE
                            again = detector.decide_at_end(answer.choice, truncated=truncated)
                            out += self._read_again(answer, again) if again is not None else ()
                    out += self._ended(_without_probabilities(event) if event.choices else event)
                case Fault():
                    for answer in [one for one in self._answers.values() if one.is_open]:
                        out += self._finish(answer, None)
                    if any(type(left) is Fault for left in out):  # about a call that this fault cut off
                        out = [left for left in out if type(left) is not Fault]
                        self._over = False
                    out += self._ended(event)
                case _:
                    out.append(event)
        return out

    async def work(self) -> list[Event]:
        events, self.later, self._working = self.later, [], True
        try:
            found = await in_thread(partial(self.feed, events, working=True))
        finally:
            self._working = False
        if found:  # otherwise the block has not ended
            self._look()
        return found

    def _look(self) -> None:
        self._looked = self.scanned_bytes
        scanners = (answer.scanner for answer in self._answers.values())
        self._large = any(scanner is not None and scanner.held_bytes > _LARGE for scanner in scanners)

    def found(self, found: list[Event]) -> list[Event]:
        """Takes events of a scanner and returns the resulting events. The answer may end with them."""
        if found and (self._stops or isinstance(found[-1], Fault)):
            found = self._wanted(found)
        return found if self._waiting is None else self._waiting.feed(found)

    def _wanted(self, found: list[Event]) -> list[Event]:
        """Returns the events up to the one that ends the answer."""
        if isinstance(found[-1], Fault):
            self._over = True
            return found
        for index, event in enumerate(found):
            if isinstance(event, Open) and event.kind is BlockKind.TOOL_CALL:
                self._calls.add(event.block)
            elif isinstance(event, Close) and event.block in self._calls and event.status == "complete":
                self._over = True
                return [*found[: index + 1], Finish("tool_calls")]
        return found

    def _closed(self, closed: Close) -> list[Event]:
        """Handles the end of a text block. Usually the scan continues in the next block. It ends here only if calls in
        text are not searched for and the server has metadata for the block (citations, the item, its `phase`)."""
        answer = self._texts[closed.block]
        extra = merged(self._beside.pop(closed.block, EMPTY), closed.extra)
        if not extra:
            return []
        found = self._finish(answer, None if closed.status == "truncated" else FinishReason.STOP)
        answer.end()
        for index in range(len(found) - 1, -1, -1):
            if isinstance(last := found[index], Close):
                found[index] = Close(last.block, last.status, extra)
                break
        return found

    def _ended(self, last: Event) -> list[Event]:
        if self._over:
            return []
        return [last] if self._waiting is None else self._waiting.feed([last])

    def _without_calls(self, answer: _Answer, waiting: WaitingCalls) -> list[Event]:
        """Ends the search for calls in this answer, because the server has made one. Later text is searched for
        reasoning only."""
        if answer.called is not None:
            return []
        scanner, answer.scanner, answer.next_block = answer.scanner, None, None
        answer.called = scanner is not None and scanner.state == "reasoning"
        if scanner is None or answer.policy is None:
            return []
        answer.policy.recognises = False
        return self.found(scanner.finish()) + waiting.as_text(answer.choice)

    # --- the scanner of an answer
    # ---------------------------------------------------------------------------------------

    def _answer(self, choice: int) -> _Answer:
        answer = self._answers.get(choice)
        if answer is None:
            answer = self._answers[choice] = _Answer(choice)
        return answer

    def _open(self, answer: _Answer) -> None:
        """Begins the text of an answer. If only reasoning is searched for, leading whitespace matters only before
        reasoning (R6.6), so it is not held."""
        if answer.choice in self._inside:
            self._make(answer, trim=True)
        elif self._detector is not None and self._detector.begin(answer.choice):
            answer.head = ""
        elif self._grammar.syntaxes or self._options.reasoning.preopened:
            self._make(answer, trim=True)
        else:
            answer.head = ""

    def _scan(self, answer: _Answer, text: str) -> list[Event]:
        if answer.scanner is None:
            if answer.head is None:  # text after a call of the server
                self._open(answer)
            if answer.head is not None:
                text = answer.head + text
                answer.head = None if self._begin(answer, text) else text
        scanner = answer.scanner
        if scanner is None:
            return []
        if len(text) <= _SLICE_CHARS:
            return self.found(scanner.feed(text))
        slices = (text[at : at + _SLICE_CHARS] for at in range(0, len(text), _SLICE_CHARS))
        return self.found([event for each in slices for event in scanner.feed(each)])

    def _begin(self, answer: _Answer, head: str) -> bool:
        """Chooses the scanner of an answer by the beginning of its text. Returns False if more text is needed."""
        detector = self._detector
        if detector is not None and not detector.decide_by_head(answer.choice, head):
            return False
        trim = True
        if answer.choice not in self._inside and not self._grammar.syntaxes:
            word = head.lstrip(SPACE)
            markers = self.factory.markers or ()
            if not word or any(marker.startswith(word) and marker != word for marker in markers):
                return False
            trim = word.startswith(markers)
        self._make(answer, trim=trim)
        return True

    def _finish(self, answer: _Answer, reason: str | None) -> list[Event]:
        """Ends the text of an answer that is open. None: it was broken off."""
        found: list[Event] = []
        if answer.head is not None:
            found = self._make(answer, trim=bool(self._grammar.syntaxes)).feed(answer.head)
            answer.head = None
        assert answer.scanner is not None
        assert answer.policy is not None
        answer.policy.shows_cut = self._shows_cut and reason == FinishReason.LENGTH
        return self.found(found + answer.scanner.finish(truncated=reason not in FinishReason.WHOLE))

    def _read_again(self, answer: _Answer, text: str) -> list[Event]:
        """Scans a text again that was sent as reasoning but is none."""
        answer.end()
        scanner = self._make(answer, trim=bool(self._grammar.syntaxes), goes_on=False)
        return self.found(scanner.feed(text) + scanner.finish())

    def _make(self, answer: _Answer, *, trim: bool, goes_on: bool = True) -> CallScanner:
        """Makes the scanner of an answer. `goes_on`: if the answer had one before, the text continues."""
        choice, counters = answer.choice, self._counters
        if answer.called is None and self._waiting is not None:
            counters = Counters(*self._waiting.counts(choice), counters.near, counters.decided)
        answer.scanner, answer.policy = self.factory.make(
            choice,
            counters,
            trim=trim and not (goes_on and answer.next_block is not None),
            inside=self._inside.get(choice),
            called=answer.called,
            first_block=answer.next_block,
        )
        return answer.scanner


class _Answer:
    """The scan of one answer. Its text is open while it has a scanner or a `head`."""

    __slots__ = ("called", "choice", "head", "next_block", "policy", "scanner")

    def __init__(self, choice: int) -> None:
        self.choice = choice
        self.head: str | None = None
        """The beginning of the text, while its scanner is undecided."""
        self.scanner: CallScanner | None = None
        self.policy: CallPolicy | None = None
        """The policy of the scanner that was made last."""
        self.called: bool | None = None
        """None until the server has made a call in this answer. Then True if that was inside reasoning."""
        self.next_block: int | None = None
        """The number of the next block, if a scanner of this answer has ended."""

    @property
    def is_open(self) -> bool:
        return self.scanner is not None or self.head is not None

    def end(self) -> None:
        """Ends the scanner. Another one continues with its next block."""
        assert self.scanner is not None
        self.next_block, self.scanner = self.scanner.next_block, None


def _never() -> None:
    """Returns None: no call is streamed."""


def _may_end(event: Event) -> bool:
    """Returns True if a block may end with this event."""
    return type(event) is not Delta or _MAY_END.search(event.text) is not None


def _without_probabilities(finish: Finish) -> Finish:
    """Returns the last event without log probabilities: they belong to the model's tokens, and the scanned text has
    others."""
    if not any("logprobs" in extra for extra in finish.choices):
        return finish
    choices = tuple(map(_without_logprobs, finish.choices))
    return Finish(finish.reason, finish.usage, finish.others, finish.extra, choices)


def _without_logprobs(extra: Extra) -> Extra:
    return {key: value for key, value in extra.items() if key != "logprobs"} if "logprobs" in extra else extra
