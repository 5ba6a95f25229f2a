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
    For `native` see the module. `keeps_repeats`: a later stage drops repeated calls.
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
        self._grammar = factory.grammar
        self.factory = factory
        self._counters = Counters(count, label, near, decided)
        self._streamed = stream_after is not None
        self._waiting = WaitingCalls(count, label) if native else None
        self._scanners: dict[int, CallScanner] = {}
        self._policies: dict[int, CallPolicy] = {}
        self._heads: dict[int, str] = {}  # beginnings of answers, while their scanner is undecided
        self._called: dict[int, bool] = {}  # answers with calls made by the server: True if inside reasoning
        self._stops = options.calls.stop_after_call and not offer.parallel
        self._calls: set[int] = set()
        self._beside: dict[int, Extra] = {}  # metadata of text blocks
        self._keeps_blocks = native or not offer.tools  # no calls are cut out of text blocks
        self._numbered: dict[int, int] = {}  # the next block of answers whose scanner ended
        self._choice_of: dict[int, int] = {}
        self._over = False
        self._detector: ReasoningDetector | None = None
        if preopened is not None and factory.plan.pairs:
            self._detector = ReasoningDetector(preopened, factory.plan.pairs, factory, limits.block_bytes)
        self._inside: Mapping[int, Pair] = {} if self._detector is None else self._detector.inside
        self._said: Mapping[int, list[str]] = {} if self._detector is None else self._detector.said
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
        said = self._said.get(self._choice_of[block]) if self._said else None
        if said is not None and self._detector is not None:
            said.append(text)
            self._detector.room -= len(text)
            if self._detector.room < 0:
                self._detector.forget()

    def scanner_of(self, block: int) -> CallScanner | None:
        """Returns the scanner of a server's text block; None if its text has to go through `feed`."""
        choice = self._choice_of.get(block)
        if choice is None or self._over or self._large or (self._waiting is not None and self._waiting.holds(choice)):
            return None
        return self._scanners.get(choice)

    def whole(self, reply: ModelReply) -> ModelReply | None:
        return reply if self._has_nothing(reply) else self._one_text(reply)

    def _has_nothing(self, reply: ModelReply) -> bool:
        """Returns True if each answer is one text in which neither a call nor reasoning begins."""
        plan = self.factory.plan
        for choice in reply.choices:
            for part in choice.parts:
                if len(choice.parts) > 1 or type(part) is not Text or len(part.text) > _LARGE:
                    return False  # a large text is scanned in a thread
                if not stays_unchanged(part.text, plan.signs, plan.names):
                    return False
                if self._detector is not None and not self._detector.leaves(part.text):
                    return False
        return True

    def _one_text(self, reply: ModelReply) -> ModelReply | None:
        """Scans the only answer if it is one text of ordinary size, the usual case; else returns None."""
        parts = reply.choices[0].parts if len(reply.choices) == 1 else ()
        if self._waiting is not None or self._stops or self._streamed or len(parts) != 1:
            return None
        (choice,), (said,) = reply.choices, parts
        if type(said) is not Text or said.extra or not 0 < len(said.text) <= _LARGE:
            return None
        if self._detector is not None:
            self._detector.foresee(said.text, choice.reason)
        self._choice_of[0] = 0
        self._open(0)
        self.note_text(0, said.text)
        found = self._scan(0, said.text)
        if not self._over:
            found += self._finish(0, truncated=choice.reason not in FinishReason.WHOLE)
        if found and isinstance(last := found[-1], Fault):
            raise last.error
        answer = ReplyChoice(tuple(parts_of(found)), choice.reason, _without_logprobs(choice.extra))
        return replace(reply, choices=(answer,))

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
            events = detector.gathered(events)
        out: list[Event] = []
        for index, event in enumerate(events):
            if self._over:
                break
            if not working and (_may_end(event) if self._large else type(event) is Delta and len(event.text) > _LARGE):
                self.later += events[index:]
                break
            match event:
                case Delta() if event.block in self._choice_of:
                    self.note_text(event.block, event.text)
                    out += self._scan(self._choice_of[event.block], event.text)
                case Open(kind=BlockKind.TEXT):
                    self._choice_of[event.block] = event.choice
                    if event.extra and self._keeps_blocks:
                        self._beside[event.block] = event.extra
                    if event.choice not in self._scanners and event.choice not in self._heads:
                        self._open(event.choice)
                case Open(kind=BlockKind.REASONING):
                    if detector is not None:
                        detector.thinks(event.choice)
                    out.append(event)
                case Open(kind=BlockKind.TOOL_CALL):
                    if self._waiting is not None:
                        out += self._without_calls(event.choice, self._waiting)
                    if detector is not None:
                        detector.calls(event.choice)
                    out.append(event)
                case Close() if event.block in self._choice_of:
                    if self._keeps_blocks:
                        out += self._closed(event)
                case Finish():
                    for choice in (*self._scanners, *self._heads):
                        truncated = reason_of(event, choice) not in FinishReason.WHOLE
                        out += self._finish(choice, truncated=truncated)
                        if choice in self._said and detector is not None and not self._over:
                            again = detector.look_back(choice, truncated=truncated)
                            out += self._read_again(choice, again) if again is not None else ()
                    out += self._ended(_without_probabilities(event) if event.choices else event)
                case Fault():
                    for choice in (*self._scanners, *self._heads):
                        out += self._finish(choice, truncated=True)
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
        self._large = any(scanner.held_bytes > _LARGE for scanner in self._scanners.values())

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
        choice = self._choice_of[closed.block]
        extra = merged(self._beside.pop(closed.block, EMPTY), closed.extra)
        if not extra:
            return []
        found = self._finish(choice, truncated=closed.status == "truncated")
        self._numbered[choice] = self._scanners.pop(choice).next_block
        for index in range(len(found) - 1, -1, -1):
            if isinstance(last := found[index], Close):
                found[index] = Close(last.block, last.status, extra)
                break
        return found

    def _ended(self, last: Event) -> list[Event]:
        if self._over:
            return []
        return [last] if self._waiting is None else self._waiting.feed([last])

    def _without_calls(self, choice: int, waiting: WaitingCalls) -> list[Event]:
        """Ends the search for calls in this answer, because the server has made one. Later text is searched for
        reasoning only."""
        if choice in self._called:
            return []
        scanner = self._scanners.pop(choice, None)
        self._numbered.pop(choice, None)
        self._called[choice] = scanner is not None and scanner.state == "reasoning"
        if scanner is None:
            return []
        self._policies[choice].recognises = False
        return self.found(scanner.finish()) + waiting.as_text(choice)

    # --- the scanner of an answer
    # ---------------------------------------------------------------------------------------

    def _open(self, choice: int) -> None:
        """Begins the text of an answer. If only reasoning is searched for, leading whitespace matters only before
        reasoning (R6.6), so it is not held."""
        if choice in self._inside:
            self._make(choice, trim=True)
        elif self._detector is not None and self._detector.begin(choice):
            self._heads[choice] = ""
        elif self._grammar.syntaxes or self._options.reasoning.preopened:
            self._make(choice, trim=True)
        else:
            self._heads[choice] = ""

    def _scan(self, choice: int, text: str) -> list[Event]:
        if choice in self._heads:
            text = self._heads.pop(choice) + text
            if not self._begin(choice, text):
                self._heads[choice] = text
                return []
        elif choice not in self._scanners:  # text after a call of the server
            self._open(choice)
        scanner = self._scanners[choice]
        if len(text) <= _SLICE_CHARS:
            return self.found(scanner.feed(text))
        slices = (text[at : at + _SLICE_CHARS] for at in range(0, len(text), _SLICE_CHARS))
        return self.found([event for each in slices for event in scanner.feed(each)])

    def _begin(self, choice: int, head: str) -> bool:
        """Chooses the scanner of an answer by the beginning of its text. Returns False if more text is needed."""
        detector = self._detector
        if detector is not None and not detector.seen(choice, head):
            return False
        trim = True
        if choice not in self._inside and not self._grammar.syntaxes:
            word = head.lstrip(SPACE)
            markers = self.factory.markers or ()
            if not word or any(marker.startswith(word) and marker != word for marker in markers):
                return False
            trim = word.startswith(markers)
        self._make(choice, trim=trim)
        return True

    def _finish(self, choice: int, *, truncated: bool) -> list[Event]:
        found: list[Event] = []
        if choice in self._heads:
            found = self._make(choice, trim=bool(self._grammar.syntaxes)).feed(self._heads.pop(choice))
        return self.found(found + self._scanners[choice].finish(truncated=truncated))

    def _read_again(self, choice: int, text: str) -> list[Event]:
        """Scans a text again that was sent as reasoning but is none."""
        before = self._scanners[choice]
        scanner = self._make(choice, trim=bool(self._grammar.syntaxes), first_block=before.next_block)
        return self.found(scanner.feed(text) + scanner.finish())

    def _make(self, choice: int, *, trim: bool, first_block: int | None = None) -> CallScanner:
        called, counters = self._called.get(choice), self._counters
        if first_block is None and choice in self._numbered:
            first_block, trim = self._numbered[choice], False  # continues inside the text
        if called is None and self._waiting is not None:
            counters = Counters(*self._waiting.counts(choice), counters.near, counters.decided)
        self._scanners[choice], self._policies[choice] = self.factory.make(
            choice, counters, trim=trim, inside=self._inside.get(choice), called=called, first_block=first_block
        )
        return self._scanners[choice]


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
