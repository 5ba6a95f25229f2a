"""The scanner as a stage of a reply: text blocks in, text and call blocks out.

One call scanner per answer (`choice`). Blocks that are not text pass through; block ids are numbered afresh, because the
scanner makes more blocks than it was given.

A server that makes calls itself may leave some in the text, because it does not know their form (`native`). Where it made one, it knew
how: then what looks like one in the text of the same answer is text, whichever came first, so that no call is made twice. Calls that
were found in text therefore wait for the end of such an answer, and what follows them waits with them.

Where it is not known how an answer begins (`proxy.pipeline.unopened`), a whole one is read when all of it is there; of a stream waits what may be
the tag that it begins with, and what it said is looked at again at its end.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from typing import Final

from ..config import LimitsConfig, RouteOptions
from ..events import BlockKind, Close, Delta, Event, Fault, Finish, Open
from ..fastparse import CallScanner
from ..formats.base import ToolFormat
from ..formats.recognition import recognising
from ..formats.rendering import prompt_name
from ..judging.ids import CallIds
from ..judging.judge import Judge
from ..judging.recognised import Schemas
from ..model import Message, ModelReply, Text
from ..scan._grammar import SPACE, Grammar, without_calls
from ..scanner import build_scanner, is_itself, triggers
from .exchange import OfferedTools
from .stages import Stage
from .unopened import (
    BLOCK,
    HEAD_CHARS,
    Pair,
    Unopened,
    closes_at_once,
    closes_thoughts,
    in_sight,
    may_be_unopened,
    pairs_of,
    tells_nothing_yet,
    visible,
)
from .waiting import WaitingCalls

_PER_CHOICE = 1 << 32
"""Each scanner numbers its blocks in a range of its own; blocks of the backend keep their numbers below all of them."""


_NOTHING: Final = Grammar(shapes=())


@lru_cache(maxsize=256)
def not_taught(tool_format: ToolFormat) -> ToolFormat:
    """The format of a route where it was not taught: nothing is looked for but what is recognised anyway."""
    return replace(tool_format, grammar=_NOTHING)


class ScanStage(Stage):
    """Finds calls in visible text. `history` are the messages that the answer follows, before calls in them were made text. `near` is told
    of near misses: the choice, and what was wrong.

    Ends the stream early after the last wanted call under `stop_after_call` (C34). A call cut off by the limit of length or
    by a fault is never emitted (R6.8); with `incremental` (R6.13) what was given out of it is closed as `truncated`. Where no tool
    is on offer, nothing is a call, and only reasoning and framing are found. `schemas` has the checkers for the tools. `native`: see the
    module.
    """

    def __init__(
        self,
        offer: OfferedTools,
        options: RouteOptions,
        limits: LimitsConfig,
        count: Callable[[str], None],
        *,
        label: Callable[[str, str], None] | None = None,
        near: Callable[[int, str], None] | None = None,
        incremental: bool = False,
        history: Sequence[Message] = (),
        schemas: Schemas | None = None,
        native: bool = False,
        unopened: Unopened | None = None,
    ) -> None:
        self._offer = offer
        grammar = offer.format.grammar
        self._grammar = recognising(grammar, options.recognise) if offer.tools else without_calls(grammar)
        self._options = options
        self._limits = limits
        self._count = count
        self._label: Callable[[str, str], None] = label or (lambda name, label: None)
        self._near = near
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
        self._pairs = pairs_of(self._grammar, options.reasoning)
        self._unopened = unopened if self._pairs else None
        whole = self._unopened is not None and self._unopened.whole
        self._kept: list[Event] | None = [] if whole else None  # what came of a whole answer so far
        self._watched = None if whole else self._unopened  # of a stream it is looked at what it begins with
        self._inside: dict[int, Pair] = {}  # the tags that answers began inside of, though nothing said so
        self._thought: set[int] = set()  # answers of which the server itself has set thoughts apart
        self._apart: set[int] = set()  # and those of which it has set calls apart
        self._said: dict[int, list[str]] = {}  # what the scanners got, while it may have to be looked at again
        self._room = limits.block_bytes
        self.scanned_bytes = 0
        """So much text went to the scanners, as UTF-8; whoever gives it to them past `feed` adds it here by `passed`."""

    def passed(self, block: int, text: str) -> None:
        """This text of a block of the backend's goes to a scanner."""
        self.scanned_bytes += len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
        if self._said and (said := self._said.get(self._choice_of[block])) is not None:
            said.append(text)
            self._room -= len(text)
            if self._room < 0:  # whatever it says: it is kept no longer
                self._said.clear()

    def scanner_of(self, block: int) -> CallScanner | None:
        """What reads a block of the backend's text."""
        choice = self._choice_of.get(block)
        if choice is None or self._over or (self._waiting is not None and self._waiting.holds(choice)):
            return None
        return self._scanners.get(choice)

    def leaves(self, reply: ModelReply) -> bool:
        """See `proxy.pipeline.stages.Stage`: one text for each answer, in which nothing begins."""
        closers: list[str] = []
        if self._unopened is not None:
            if self._unopened.pair is not None:
                return False
            closers = [closer for _, closer in self._pairs]
        names = [prompt_name(tool) for tool in self._offer.tools]
        for choice in reply.choices:
            for part in choice.parts:
                if len(choice.parts) > 1 or type(part) is not Text:
                    return False
                if not is_itself(part.text, self._grammar, self._options.reasoning, names):
                    return False
                if any(closer in part.text for closer in closers):
                    return False
        return True

    def feed(self, events: list[Event]) -> list[Event]:
        """See `proxy.pipeline.stages.Stage`."""
        if self._kept is not None:
            self._kept += events
            if not events or not isinstance(events[-1], Finish | Fault):
                return []
            events, self._kept = self._kept, None
            self._foresee(events)
        out: list[Event] = []
        for event in events:
            if self._over:
                break
            match event:
                case Delta() if event.block in self._choice_of:
                    self.passed(event.block, event.text)
                    out += self._scan(self._choice_of[event.block], event.text)
                case Open(kind=BlockKind.TEXT):
                    self._choice_of[event.block] = event.choice
                    self._open(event.choice)
                case Open(kind=BlockKind.REASONING):
                    self._thought.add(event.choice)
                    out.append(event)
                case Open(kind=BlockKind.TOOL_CALL):
                    if self._waiting is not None:
                        out += self._without_calls(event.choice, self._waiting)
                    self._apart.add(event.choice)
                    out.append(event)
                case Close() if event.block in self._choice_of:
                    pass  # the text may go on in another block; only the end of the answer ends the scan
                case Finish():
                    for choice in (*self._scanners, *self._heads):
                        truncated = _reason(event, choice) == "length"
                        out += self._finish(choice, truncated=truncated)
                        if choice in self._said and not self._over:
                            out += self._look_back(choice, truncated=truncated)
                    out += self._ended(_without_probabilities(event))
                case Fault():
                    for choice in (*self._scanners, *self._heads):
                        out += self._finish(choice, truncated=True)
                    out += self._ended(event)
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
        if choice in self._inside:
            self._scanners[choice] = self._scanner(choice, trim=True)
        elif self._watched is not None and choice not in self._thought:
            self._heads[choice] = ""
            if self._room >= 0:
                self._said[choice] = []
        elif self._grammar.shapes or self._options.reasoning.preopened:
            self._scanners[choice] = self._scanner(choice, trim=True)
        else:
            self._heads[choice] = ""

    def _scan(self, choice: int, text: str) -> list[Event]:
        if choice in self._heads:
            text = self._heads.pop(choice) + text
            if not self._begin(choice, text):
                self._heads[choice] = text
                return []
        if choice not in self._scanners:  # text that goes on behind a call of the server
            self._open(choice)
        return self.found(self._scanners[choice].feed(text))

    def _begin(self, choice: int, head: str) -> bool:
        """Choose the scanner of an answer by what it begins with, if that tells."""
        if self._watched is not None and choice not in self._thought:
            if tells_nothing_yet(head, self._watched.pair, self._pairs):
                return False
            self._see_beginning(choice, head, self._watched)
        trim = True
        if choice not in self._inside and not self._grammar.shapes:
            word = head.lstrip(SPACE)
            markers = triggers(self._grammar, self._options.reasoning) or ()
            if not word or any(marker.startswith(word) and marker != word for marker in markers):
                return False
            trim = word.startswith(markers)
        self._scanners[choice] = self._scanner(choice, trim=trim)
        return True

    def _finish(self, choice: int, *, truncated: bool) -> list[Event]:
        found: list[Event] = []
        if choice in self._heads:
            self._scanners[choice] = self._scanner(choice, trim=bool(self._grammar.shapes))
            found = self._scanners[choice].feed(self._heads.pop(choice))
        return self.found(found + self._scanners[choice].finish(truncated=truncated))

    # --- where an answer begins: see `proxy.pipeline.unopened` -----------------------------------------------------------------

    def _see_beginning(self, choice: int, head: str, unopened: Unopened) -> None:
        """A stream begins like that."""
        word = head[:HEAD_CHARS].lstrip(SPACE)
        learned = unopened.pair
        if word.startswith(tuple(opener for opener, _ in self._pairs)):
            self._said.pop(choice, None)
            if learned is not None:
                unopened.wrong(learned)
        elif learned is not None:
            self._inside[choice] = learned
        elif (pair := closes_at_once(head, self._pairs)) is not None:
            self._said.pop(choice, None)
            self._inside[choice] = pair
            unopened.found(pair, "moved")

    def _foresee(self, events: list[Event]) -> None:
        """A whole answer is there: find out where its parts begin."""
        last, unopened = events[-1], self._unopened
        if unopened is None or not isinstance(last, Finish):
            return
        texts: dict[int, list[str]] = {}
        choices: dict[int, int] = {}
        for event in events:
            if isinstance(event, Open) and event.kind is BlockKind.TEXT:
                choices[event.block] = event.choice
                texts.setdefault(event.choice, [])
            elif isinstance(event, Open) and event.kind is BlockKind.REASONING and event.choice not in texts:
                self._thought.add(event.choice)
            elif isinstance(event, Open) and event.kind is BlockKind.TOOL_CALL:
                self._apart.add(event.choice)
            elif isinstance(event, Delta) and event.block in choices:
                texts[choices[event.block]].append(event.text)
        for choice, pieces in texts.items():
            text = "".join(pieces)
            if choice in self._thought or not text.strip(SPACE):
                continue
            learned = unopened.pair
            opens = learned is not None and text.lstrip(SPACE).startswith(tuple(opener for opener, _ in self._pairs))
            if learned is not None and not opens and self._closes(text, learned):
                self._inside[choice] = learned
                unopened.count("known")
                continue
            pair = self._unopened_pair(choice, text)
            if pair is not None:
                self._inside[choice] = pair
                unopened.found(pair, "moved")
            elif learned is not None and (opens or _reason(last, choice) != "length"):
                unopened.wrong(learned)

    def _look_back(self, choice: int, *, truncated: bool) -> list[Event]:
        """A stream has come to its end: learn from it. What it showed as thoughts and nothing closed is read again, as text."""
        unopened = self._unopened
        text = "".join(self._said.pop(choice))
        inside = self._inside.get(choice)
        if unopened is None or not text.strip(SPACE):
            return []
        if inside is None:
            pair = self._unopened_pair(choice, text)
            if pair is not None:
                unopened.found(pair, "shown")
            return []
        if self._closes(text, inside):
            unopened.count("known")
            return []
        if truncated:
            return []
        unopened.wrong(inside)
        if self._calls_inside and any(_is_call(event) for event in self._plainly(text)):
            return []  # it has been made
        unopened.count("repeated")
        del self._inside[choice]
        scanner = self._scanners[choice] = self._scanner(
            choice, trim=bool(self._grammar.shapes), first_block=self._scanners[choice].next_block
        )
        return self.found(scanner.feed(text) + scanner.finish())

    def _unopened_pair(self, choice: int, text: str) -> Pair | None:
        """The tags that an answer with this text begins inside of, as far as it shows that by itself."""
        if not may_be_unopened(text, self._pairs):
            return None
        said = visible(self._plainly(text))
        return closes_thoughts(said + BLOCK if choice in self._apart else said, self._pairs)

    def _closes(self, text: str, pair: Pair) -> bool:
        """Whether an answer that begins inside of `pair` comes out of it. In the arguments of a call a closing tag is data."""
        before, closer, _ = text.partition(pair[1])
        if not closer:
            return False
        markers = triggers(self._grammar, self._options.reasoning)
        if markers is not None and not any(marker in before for marker in markers):
            return True
        return any(opener in before for opener, _ in self._pairs) or pair[1] in visible(self._plainly(text))

    def _plainly(self, text: str) -> list[Event]:
        """What comes of a text that begins with what is said. Nothing is counted."""
        judge = Judge(
            self._offer.known,
            choice=self._offer.choice,
            parallel=self._offer.parallel,
            options=self._options,
            limits=self._limits,
            count=lambda name: None,
            ids=CallIds(self._history),
        )
        grammar = in_sight(self._grammar, self._options.reasoning)
        scanner = build_scanner(grammar, judge, self._options, self._limits, trim=False)
        return [*scanner.feed(text), *scanner.finish()]

    @property
    def _calls_inside(self) -> bool:
        """Calls in thoughts count."""
        return self._options.reasoning.scan_calls or self._grammar.calls_in_reasoning

    def _scanner(self, choice: int, *, trim: bool, first_block: int | None = None) -> CallScanner:
        offer = self._offer
        grammar, options = self._grammar, self._options
        first_block = (choice + 1) * _PER_CHOICE if first_block is None else first_block
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
            near=None if self._near is None else partial(self._near, choice),
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
            inside=self._inside.get(choice),
        )


def _is_call(event: Event) -> bool:
    return isinstance(event, Open) and event.kind is BlockKind.TOOL_CALL


def _without_probabilities(finish: Finish) -> Finish:
    """The end without what belongs to the model's own tokens: what was scanned is made of others."""
    if not any("logprobs" in extra for extra in finish.choices):
        return finish
    kept = ({key: value for key, value in extra.items() if key != "logprobs"} for extra in finish.choices)
    return Finish(finish.reason, finish.usage, finish.others, finish.extra, tuple(kept))


def _reason(finish: Finish, choice: int) -> str:
    """Why an answer ended."""
    return finish.others[choice - 1] if 0 < choice <= len(finish.others) else finish.reason
