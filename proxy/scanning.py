"""The scanner as a stage of a reply: text blocks in, text and call blocks out.

One call scanner per answer (`choice`). Blocks that are not text pass through; block ids are numbered afresh, because the
scanner makes more blocks than it was given.

A server that makes calls itself may leave some in the text, because it does not know their form (`native`). Where it made one, it knew
how: then what looks like one in the text of the same answer is text, whichever came first, so that no call is made twice. Calls that
were found in text therefore wait for the end of such an answer, and what follows them waits with them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Final

from ._grammar import SPACE, Grammar, without_calls
from .config import LimitsConfig, RouteOptions
from .events import BlockKind, Close, Delta, Event, Fault, Finish, Open
from .exchange import Offer
from .fastparse import CallScanner
from .formats.base import ToolFormat
from .formats.recognition import recognising
from .judging.ids import CallIds
from .judging.judge import Judge
from .judging.recognised import Schemas
from .model import Message, ModelReply, Text
from .scanner import build_scanner, triggers
from .waiting import WaitingCalls

_PER_CHOICE = 1 << 32
"""Each scanner numbers its blocks in a range of its own; blocks of the backend keep their numbers below all of them."""


_NOTHING: Final = Grammar(shapes=())


@lru_cache(maxsize=256)
def not_taught(tool_format: ToolFormat) -> ToolFormat:
    """The format of a route where it was not taught: nothing is looked for but what is recognised anyway."""
    return replace(tool_format, grammar=_NOTHING)


class ScanStage:
    """Finds calls in visible text. `history` are the messages that the answer follows, before calls in them were made text.

    Ends the stream early after the last wanted call under `stop_after_call` (C34). A call cut off by the limit of length or
    by a fault is never emitted (R6.8); with `incremental` (R6.13) what was given out of it is closed as `truncated`. Where no tool
    is on offer, nothing is a call, and only reasoning and framing are found. `schemas` has the checkers for the tools. `native`: see the
    module.
    """

    def __init__(
        self,
        offer: Offer,
        options: RouteOptions,
        limits: LimitsConfig,
        count: Callable[[str], None],
        *,
        label: Callable[[str, str], None] | None = None,
        incremental: bool = False,
        history: Sequence[Message] = (),
        schemas: Schemas | None = None,
        native: bool = False,
    ) -> None:
        self._offer = offer
        grammar = offer.format.grammar
        self._grammar = recognising(grammar, options.recognise) if offer.tools else without_calls(grammar)
        self._options = options
        self._limits = limits
        self._count = count
        self._label: Callable[[str, str], None] = label or (lambda name, label: None)
        self._incremental = incremental
        self._history = history
        self._schemas = schemas
        self._waiting = WaitingCalls(count, self._label) if native else None
        self._judges: dict[int, Judge] = {}
        self._called: dict[
            int, bool
        ] = {}  # the answers in which the server itself has made a call: whether out of a thought
        self._calls: set[int] = set()
        self._scanners: dict[int, CallScanner] = {}
        self._heads: dict[int, str] = {}  # what an answer has begun with, while that decides which scanner it needs
        self._choice_of: dict[int, int] = {}
        self._over = False
        self.scanned_bytes = 0
        """So much text went to the scanners, as UTF-8; whoever gives it to them past `feed` adds it here by `passed`."""

    def passed(self, text: str) -> None:
        """This text goes to a scanner."""
        self.scanned_bytes += len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))

    def scanner_of(self, block: int) -> CallScanner | None:
        """What reads a block of the backend's text."""
        choice = self._choice_of.get(block)
        if choice is None or self._over or (self._waiting is not None and self._waiting.holds(choice)):
            return None
        return self._scanners.get(choice)

    def leaves(self, reply: ModelReply) -> bool:
        """See `proxy.reply.Stage`: one text for each answer, in which nothing begins."""
        markers = triggers(self._grammar, self._options.reasoning)
        if markers is None:
            return False
        for choice in reply.choices:
            for part in choice.parts:
                if len(choice.parts) > 1 or type(part) is not Text:
                    return False
                for marker in markers:
                    if marker in part.text:
                        return False
        return True

    def feed(self, events: list[Event]) -> list[Event]:
        """See `proxy.reply.Stage`."""
        out: list[Event] = []
        for event in events:
            if self._over:
                break
            match event:
                case Delta() if event.block in self._choice_of:
                    self.passed(event.text)
                    out += self._scan(self._choice_of[event.block], event.text)
                case Open(kind=BlockKind.TEXT):
                    self._choice_of[event.block] = event.choice
                    self._open(event.choice)
                case Close() if event.block in self._choice_of:
                    pass  # the text may go on in another block; only the end of the answer ends the scan
                case Finish():
                    for choice in (*self._scanners, *self._heads):
                        reason = event.others[choice - 1] if 0 < choice <= len(event.others) else event.reason
                        out += self._finish(choice, truncated=reason == "length")
                    out += self._ended(event)
                case Fault():
                    for choice in (*self._scanners, *self._heads):
                        out += self._finish(choice, truncated=True)
                    out += self._ended(event)
                case Open(kind=BlockKind.TOOL_CALL) if self._waiting is not None:
                    out += self._without_calls(event.choice, self._waiting)
                    out.append(event)
                case _:
                    out.append(event)
        return out

    def found(self, found: list[Event]) -> list[Event]:
        """What becomes of what a scanner has found: the answer may end with it."""
        found = self._wanted(found)
        return found if self._waiting is None else self._waiting.feed(found)

    def _wanted(self, found: list[Event]) -> list[Event]:
        if found and isinstance(found[-1], Fault):
            self._over = True
        elif self._options.stop_after_call and not self._offer.parallel:
            for index, event in enumerate(found):
                if isinstance(event, Open) and event.kind is BlockKind.TOOL_CALL:
                    self._calls.add(event.block)
                elif isinstance(event, Close) and event.block in self._calls and event.status == "complete":
                    self._over = True
                    return [*found[: index + 1], Finish("tool_calls")]
        return found

    def _ended(self, last: Event) -> list[Event]:
        if self._over:
            return []
        return [last] if self._waiting is None else self._waiting.feed([last])

    def _without_calls(self, choice: int, waiting: WaitingCalls) -> list[Event]:
        """The server has made a call: the text before it ends here, and what comes behind it is searched only for thoughts."""
        if choice in self._called:
            return []
        scanner = self._scanners.pop(choice, None)
        self._called[choice] = scanner is not None and scanner.state == "reasoning"
        if scanner is None:
            return []
        self._judges[choice].recognises = False
        return self.found(scanner.finish()) + waiting.as_text(choice)

    def _open(self, choice: int) -> None:
        """An answer has text. Where only thoughts are looked for, white space matters only if it begins with one (R6.6): else it
        would be held for nothing."""
        if choice in self._scanners or choice in self._heads:
            return
        if self._grammar.shapes or self._options.reasoning.preopened:
            self._scanners[choice] = self._scanner(choice, trim=True)
        else:
            self._heads[choice] = ""

    def _scan(self, choice: int, text: str) -> list[Event]:
        if choice in self._heads:
            text = self._heads.pop(choice) + text
            word = text.lstrip(SPACE)
            markers = triggers(self._grammar, self._options.reasoning) or ()
            if not word or any(marker.startswith(word) and marker != word for marker in markers):
                self._heads[choice] = text
                return []
            self._scanners[choice] = self._scanner(choice, trim=word.startswith(markers))
        if choice not in self._scanners:  # text that goes on behind a call of the server
            self._open(choice)
        return self.found(self._scanners[choice].feed(text))

    def _finish(self, choice: int, *, truncated: bool) -> list[Event]:
        found: list[Event] = []
        if choice in self._heads:
            self._scanners[choice] = self._scanner(choice, trim=False)
            found = self._scanners[choice].feed(self._heads.pop(choice))
        return self.found(found + self._scanners[choice].finish(truncated=truncated))

    def _scanner(self, choice: int, *, trim: bool) -> CallScanner:
        offer = self._offer
        grammar, options, first_block = self._grammar, self._options, (choice + 1) * _PER_CHOICE
        count: Callable[[str], object] = self._count
        label: Callable[[str, str], object] = self._label
        if choice in self._called:
            grammar, first_block = without_calls(grammar), first_block + _PER_CHOICE // 2
            options = replace(options, reasoning=replace(options.reasoning, preopened=self._called[choice]))
        elif self._waiting is not None:
            count, label = self._waiting.counts(choice)
        judge = self._judges[choice] = Judge(
            offer.known,
            choice=offer.choice,
            parallel=offer.parallel,
            options=options,
            limits=self._limits,
            count=count,
            label=label,
            ids=CallIds(self._history),
            schemas=self._schemas,
        )
        return build_scanner(
            grammar,
            judge,
            options,
            self._limits,
            choice=choice,
            first_block=first_block,
            incremental=self._incremental,
            trim=trim,
        )
