"""Detection of reasoning blocks that the prompt has opened, while the answers of a reply are read. The rules are in
`toolwire.pipeline.scanning.preopened`.

Rules:

1. A whole answer is judged when it is complete. A stream holds back what may be its first tag, and its text is judged
   again at its end.
2. The text that is buffered of streams is limited. Beyond the limit nothing is judged again.
3. An answer whose reasoning the server has marked itself is not judged.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...events import BlockKind, Delta, Event, Fault, Finish, Open
from ...scan._grammar import SPACE
from .preopened import (
    BLOCK,
    HEAD_CHARS,
    Pair,
    PreopenedReasoning,
    closes_at_once,
    closes_thoughts,
    is_undecided,
    may_be_preopened,
    text_before_reasoning,
)
from .scanners import ScannerFactory


class ReasoningDetector:
    """Detects preopened reasoning in all answers to one request. `pairs` are the tags of reasoning, at least one pair;
    `room` limits the number of characters that are buffered."""

    def __init__(
        self, preopened: PreopenedReasoning, pairs: Sequence[Pair], factory: ScannerFactory, room: int
    ) -> None:
        self.whole = preopened.whole
        """True if the answers are judged when they are complete (`when_complete`)."""
        self.inside: dict[int, Pair] = {}
        """The tags inside which answers begin without an opening tag, by answer."""
        self.scanned_texts: dict[int, list[str]] = {}
        """The text of streams that went to the scanners, as long as it may have to be scanned again; by answer."""
        self._preopened = preopened
        self._pairs = pairs
        self._openers, self._closers, self._firsts, self._size, self._starts = factory.plan.marks
        self._factory = factory
        self.room = room
        """Characters that may still be buffered in `scanned_texts`."""
        self._buffered: list[Event] = []
        self._marked: frozenset[int] = frozenset()  # answers whose reasoning the server marked itself
        self._called: frozenset[int] = frozenset()  # answers whose calls the server made itself

    def surely_begins_outside(self, text: str) -> bool:
        """Returns True if a whole answer with this text certainly did not begin inside a reasoning block."""
        return self._preopened.pair is None and not self._is_closed(text)

    def _is_closed(self, text: str) -> bool:
        """Returns True if the text has a closing tag."""
        for first in self._firsts:
            if first in text:  # rarely true
                return any(closer in text for closer in self._closers)
        return False

    def note_reasoning(self, choice: int) -> None:
        """Notes that the server has marked reasoning of this answer."""
        self._marked |= {choice}

    def note_call(self, choice: int) -> None:
        """Notes that the server has made a call in this answer."""
        self._called |= {choice}

    # --- whole answers
    # --------------------------------------------------------------------------------------------------

    def when_complete(self, events: list[Event]) -> list[Event]:
        """Buffers events. Returns all of them when the answers are complete, else none. The tags in `inside` are known
        then."""
        self._buffered += events
        if not events or not isinstance(events[-1], Finish | Fault):
            return []
        events, self._buffered = self._buffered, []
        last = events[-1]
        if isinstance(last, Finish) and not self.surely_begins_outside(
            "".join([e.text for e in events if isinstance(e, Delta)])
        ):
            self._decide_all(events, last)
        return events

    def decide_by_whole(self, text: str, reason: str) -> None:
        """Decides whether the only answer began inside a reasoning block, before its complete `text` is scanned.
        `reason` is its finish reason."""
        if not self.surely_begins_outside(text) and text.strip(SPACE):
            self._decide_one(0, text, reason)

    def _decide_all(self, events: list[Event], last: Finish) -> None:
        texts: dict[int, list[str]] = {}
        choices: dict[int, int] = {}
        for event in events:
            if isinstance(event, Open) and event.kind is BlockKind.TEXT:
                choices[event.block] = event.choice
                texts.setdefault(event.choice, [])
            elif isinstance(event, Open) and event.kind is BlockKind.REASONING and event.choice not in texts:
                self.note_reasoning(event.choice)
            elif isinstance(event, Open) and event.kind is BlockKind.TOOL_CALL:
                self.note_call(event.choice)
            elif isinstance(event, Delta) and event.block in choices:
                texts[choices[event.block]].append(event.text)
        for choice, pieces in texts.items():
            text = "".join(pieces)
            if choice not in self._marked and text.strip(SPACE):
                self._decide_one(choice, text, reason_of(last, choice))

    def _decide_one(self, choice: int, text: str, reason: str) -> None:
        learned = self._preopened.pair
        opens = learned is not None and text.lstrip(SPACE).startswith(self._openers)
        if learned is not None and not opens and self._closes(text, learned):
            self.inside[choice] = learned
            self._preopened.count("known")
            return
        pair = self._pair_of(choice, text)
        if pair is not None:
            self.inside[choice] = pair
            self._preopened.found(pair, "moved")
        elif learned is not None and (opens or reason != "length"):
            self._preopened.wrong(learned)

    # --- streams
    # --------------------------------------------------------------------------------------------------------

    def begin(self, choice: int) -> bool:
        """Begins the text of an answer. Returns True if `decide_by_head` has to decide from its first characters
        whether it begins inside a reasoning block."""
        if self.whole or choice in self._marked:
            return False
        if self.room >= 0:
            self.scanned_texts[choice] = []
        return True

    def forget(self) -> None:
        """Drops all buffered text, because it exceeds the limit."""
        self.scanned_texts.clear()

    def decide_by_head(self, choice: int, head: str) -> bool:
        """Decides from the first characters of an answer whether it begins inside a reasoning block. Returns False if
        more text is needed."""
        if self.whole or choice in self._marked:
            return True
        learned = self._preopened.pair
        word = head[:HEAD_CHARS].lstrip(SPACE)
        if word and word[: self._size] not in self._starts:  # most answers
            if learned is not None:
                self.inside[choice] = learned
            return True
        if is_undecided(head, learned, self._pairs):
            return False
        if word.startswith(self._openers):
            self.scanned_texts.pop(choice, None)
            if learned is not None:
                self._preopened.wrong(learned)
        elif learned is not None:
            self.inside[choice] = learned
        elif (pair := closes_at_once(head, self._pairs)) is not None:
            self.scanned_texts.pop(choice, None)
            self.inside[choice] = pair
            self._preopened.found(pair, "moved")
        return True

    def decide_at_end(self, choice: int, *, truncated: bool) -> str | None:
        """Decides at the end of an answer whether it began inside a reasoning block. If its stream was sent as
        reasoning and no tag closed it, returns the text to scan again; else None."""
        text = "".join(self.scanned_texts.pop(choice))
        inside = self.inside.get(choice)
        if not text.strip(SPACE):
            return None
        if inside is None:
            pair = self._pair_of(choice, text)
            if pair is not None:
                self._preopened.found(pair, "shown")
            return None
        if self._closes(text, inside):
            self._preopened.count("known")
            return None
        if truncated:
            return None
        self._preopened.wrong(inside)
        if self._factory.calls_inside and any(map(_is_call, self._factory.events_of(text))):
            return None  # the call was already sent
        self._preopened.count("repeated")
        del self.inside[choice]
        return text

    # --- judging one text
    # ----------------------------------------------------------------------------------------------------

    def _pair_of(self, choice: int, text: str) -> Pair | None:
        """Returns the tags inside which an answer with this text begins, judged by the text alone; None if it began
        outside of reasoning."""
        if not self._is_closed(text) or not may_be_preopened(text, self._pairs):
            return None
        before = text_before_reasoning(self._factory.events_of(text))
        return closes_thoughts(before + BLOCK if choice in self._called else before, self._pairs)

    def _closes(self, text: str, pair: Pair) -> bool:
        """Returns True if an answer that begins inside `pair` closes it. A closing tag in the arguments of a call is
        data."""
        before, closer, _ = text.partition(pair[1])
        if not closer:
            return False
        markers = self._factory.markers
        if markers is not None and not any(marker in before for marker in markers):
            return True
        return any(opener in before for opener in self._openers) or pair[1] in text_before_reasoning(
            self._factory.events_of(text)
        )


def _is_call(event: Event) -> bool:
    return isinstance(event, Open) and event.kind is BlockKind.TOOL_CALL


def reason_of(finish: Finish, choice: int) -> str:
    """Returns the finish reason of answer number `choice`."""
    return finish.others[choice - 1] if 0 < choice <= len(finish.others) else finish.reason
