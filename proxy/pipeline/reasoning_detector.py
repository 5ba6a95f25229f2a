"""Detection of reasoning blocks that the prompt has opened, while the answers of a reply are read. The rules are in
`proxy.pipeline.preopened`.

Rules:

1. A whole answer is read when all of it is there. Of a stream waits what may be the tag that it begins with, and what
   it said is looked at again at its end.
2. What is kept of streams for that is bounded. Beyond the bound nothing is looked at again.
3. Of an answer whose thoughts the server itself has set apart there is nothing to find out.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..events import BlockKind, Delta, Event, Fault, Finish, Open
from ..scan._grammar import SPACE
from .preopened import (
    BLOCK,
    HEAD_CHARS,
    Pair,
    PreopenedReasoning,
    closes_at_once,
    closes_thoughts,
    may_be_preopened,
    tells_nothing_yet,
    visible,
)
from .scanners import ScannerFactory


class ReasoningDetector:
    """Of all answers to one request. `pairs` are the tags of thoughts, of which there is at least one; `room` bounds
    the characters that are kept."""

    def __init__(
        self, preopened: PreopenedReasoning, pairs: Sequence[Pair], factory: ScannerFactory, room: int
    ) -> None:
        self.whole = preopened.whole
        """The answers are read when all is there (`gathered`)."""
        self.inside: dict[int, Pair] = {}
        """The tags that answers began inside of, though nothing said so."""
        self.said: dict[int, list[str]] = {}
        """What the scanners got of streams, while it may have to be looked at again."""
        self._preopened = preopened
        self._pairs = pairs
        self._openers, self._closers, self._firsts, self._size, self._starts = factory.plan.marks
        self._factory = factory
        self.room = room
        """So many characters may still be kept in `said`."""
        self._kept: list[Event] = []
        self._thought: frozenset[int] = frozenset()  # answers of which the server itself has set thoughts apart
        self._called: frozenset[int] = frozenset()  # and those of which it has set calls apart

    def leaves(self, text: str) -> bool:
        """Whether a whole text of an answer is quite certainly none that began inside of thoughts."""
        return self._preopened.pair is None and not self._is_closed(text)

    def _is_closed(self, text: str) -> bool:
        """Whether a closing tag stands in it."""
        for first in self._firsts:
            if first in text:  # nearly always none
                return any(closer in text for closer in self._closers)
        return False

    def thinks(self, choice: int) -> None:
        """The server itself has set thoughts of this answer apart."""
        self._thought |= {choice}

    def calls(self, choice: int) -> None:
        """The server itself has made a call in this answer."""
        self._called |= {choice}

    # --- whole answers
    # --------------------------------------------------------------------------------------------------

    def gathered(self, events: list[Event]) -> list[Event]:
        """All that has come when it is all, else nothing. Then it is known where the answers begin."""
        self._kept += events
        if not events or not isinstance(events[-1], Finish | Fault):
            return []
        events, self._kept = self._kept, []
        last = events[-1]
        if isinstance(last, Finish) and not self.leaves("".join([e.text for e in events if isinstance(e, Delta)])):
            self._foresee(events, last)
        return events

    def foresee(self, text: str, reason: str) -> None:
        """The one answer is this text. Then it is known where it begins."""
        if not self.leaves(text) and text.strip(SPACE):
            self._foresee_one(0, text, Finish(reason))

    def _foresee(self, events: list[Event], last: Finish) -> None:
        texts: dict[int, list[str]] = {}
        choices: dict[int, int] = {}
        for event in events:
            if isinstance(event, Open) and event.kind is BlockKind.TEXT:
                choices[event.block] = event.choice
                texts.setdefault(event.choice, [])
            elif isinstance(event, Open) and event.kind is BlockKind.REASONING and event.choice not in texts:
                self.thinks(event.choice)
            elif isinstance(event, Open) and event.kind is BlockKind.TOOL_CALL:
                self.calls(event.choice)
            elif isinstance(event, Delta) and event.block in choices:
                texts[choices[event.block]].append(event.text)
        for choice, pieces in texts.items():
            text = "".join(pieces)
            if choice not in self._thought and text.strip(SPACE):
                self._foresee_one(choice, text, last)

    def _foresee_one(self, choice: int, text: str, last: Finish) -> None:
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
        elif learned is not None and (opens or reason_of(last, choice) != "length"):
            self._preopened.wrong(learned)

    # --- streams
    # --------------------------------------------------------------------------------------------------------

    def begin(self, choice: int) -> bool:
        """The text of this answer begins. Whether it matters what its stream begins with."""
        if self.whole or choice in self._thought:
            return False
        if self.room >= 0:
            self.said[choice] = []
        return True

    def forget(self) -> None:
        """There is no more room: whatever the answers say is kept no longer."""
        self.said.clear()

    def seen(self, choice: int, head: str) -> bool:
        """It begins like that. Whether that is enough to know where."""
        if self.whole or choice in self._thought:
            return True
        learned = self._preopened.pair
        word = head[:HEAD_CHARS].lstrip(SPACE)
        if word and word[: self._size] not in self._starts:  # most answers
            if learned is not None:
                self.inside[choice] = learned
            return True
        if tells_nothing_yet(head, learned, self._pairs):
            return False
        if word.startswith(self._openers):
            self.said.pop(choice, None)
            if learned is not None:
                self._preopened.wrong(learned)
        elif learned is not None:
            self.inside[choice] = learned
        elif (pair := closes_at_once(head, self._pairs)) is not None:
            self.said.pop(choice, None)
            self.inside[choice] = pair
            self._preopened.found(pair, "moved")
        return True

    def look_back(self, choice: int, *, truncated: bool) -> str | None:
        """It has come to its end: learn from it. Gives what it showed as thoughts and nothing closed, and so has to be
        read again, as text."""
        text = "".join(self.said.pop(choice))
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
        if self._factory.calls_inside and any(map(_is_call, self._factory.plainly(text))):
            return None  # it has been made
        self._preopened.count("repeated")
        del self.inside[choice]
        return text

    # --- of one text
    # ----------------------------------------------------------------------------------------------------

    def _pair_of(self, choice: int, text: str) -> Pair | None:
        """The tags that an answer with this text begins inside of, as far as it shows that by itself."""
        if not self._is_closed(text) or not may_be_preopened(text, self._pairs):
            return None
        said = visible(self._factory.plainly(text))
        return closes_thoughts(said + BLOCK if choice in self._called else said, self._pairs)

    def _closes(self, text: str, pair: Pair) -> bool:
        """Whether an answer that begins inside of `pair` comes out of it. In the arguments of a call a closing tag is
        data."""
        before, closer, _ = text.partition(pair[1])
        if not closer:
            return False
        markers = self._factory.markers
        if markers is not None and not any(marker in before for marker in markers):
            return True
        return any(opener in before for opener in self._openers) or pair[1] in visible(self._factory.plainly(text))


def _is_call(event: Event) -> bool:
    return isinstance(event, Open) and event.kind is BlockKind.TOOL_CALL


def reason_of(finish: Finish, choice: int) -> str:
    """Why an answer ended."""
    return finish.others[choice - 1] if 0 < choice <= len(finish.others) else finish.reason
