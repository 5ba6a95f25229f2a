"""The table of the scanner's states is what the scanners do: nothing is missing in it, and nothing never happens."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict
from random import Random
from typing import Any, NamedTuple, TypeVar

import pytest

from tests.parse.oracle import Settings
from tests.parse.policies import WordPolicy
from tests.parse.texts import GRAMMARS, text_of
from toolwire.events import Event, Fault
from toolwire.scan._grammar import DONE, STATES, BlockSyntax, Branch, Grammar
from toolwire.scan._pyparse import CallScanner
from toolwire.scan.transitions import INSIDE, OUTSIDE, TRANSITIONS

pytestmark = pytest.mark.twin

S = TypeVar("S", bound=CallScanner)
SEEDS = 50
PASSED_OVER = Grammar(
    syntaxes=(
        BlockSyntax(
            opener="<note>",
            closer="</note>",
            body=(
                (Branch(read="object", then=1),),
                (Branch(literal=";", then=2),),
                (Branch(read="object", field="call", then=3),),
                (Branch(literal="</note>"),),
            ),
        ),
    )
)
"""A field that is read by depth and belongs to no call: rare, but a format may have one."""

THINK = (("<think>", "</think>"),)


class Answer(NamedTuple):
    """One answer, and how it is read."""

    grammar: Grammar
    text: str
    settings: Settings
    strict: bool
    truncated: bool

    def scanner(self, kind: type[S]) -> S:
        return kind(self.grammar, WordPolicy(self.strict), **asdict(self.settings))


RARE = Answer(GRAMMARS["fenced_json"], "```json" + " " * 31 + '{  "tool_calls"', Settings(block_bytes=40), True, False)
"""A block that is too large before anything is known of it."""


def answers() -> Iterator[Answer]:
    yield RARE
    for grammar in (*GRAMMARS.values(), PASSED_OVER):
        for seed in range(SEEDS):
            random = Random(seed)
            text = text_of(grammar, random)
            size = random.choice([1 << 20, 1 << 20, 90, 40])
            odds = [random.random() < share for share in (0.5, 0.3, 0.3, 0.4, 0.3)]
            reasoning = random.choice([(), THINK])
            yield Answer(grammar, text, Settings(size, odds[0], reasoning, odds[1], odds[2]), odds[3], odds[4])


class Watched(CallScanner):
    """Remembers each change of state, from one look at it to the next."""

    def __init__(self, *args: Any, **options: Any) -> None:
        self.changes: set[tuple[int, int]] = set()
        super().__init__(*args, **options)

    def _watch(self, step: Callable[[Any], int], argument: int) -> int:
        before = self._shown
        at = step(argument)
        if self._shown != before:
            self.changes.add((before, self._shown))
        return at

    @property
    def _shown(self) -> int:
        return STATES.index(self.state)

    def _step(self, pos: int) -> int:
        return self._watch(super()._step, pos)

    def _end(self, truncated: bool) -> int:
        return self._watch(super()._end, truncated)

    def finish(self, truncated: bool = False) -> list[Event]:
        over = self._shown == DONE
        found = super().finish(truncated)
        if not over and not any(isinstance(event, Fault) for event in found):
            self.changes.add((self._prose.state, DONE))
        return found


def names(pairs: Iterable[tuple[int, int]]) -> set[str]:
    return {f"{STATES[source]} -> {STATES[target]}" for source, target in pairs}


def test_the_table_is_what_the_specification_does() -> None:
    changes: set[tuple[int, int]] = set()
    for answer in answers():
        scanner = answer.scanner(Watched)
        for character in answer.text:
            scanner.feed(character)
        scanner.finish(answer.truncated)
        changes |= scanner.changes
    assert names(changes) == names(pair for row in TRANSITIONS for pair in row)


def test_no_two_rows_are_about_the_same() -> None:
    pairs = [pair for row in TRANSITIONS for pair in row]
    assert len(pairs) == len(set(pairs))
    assert sorted((*OUTSIDE, *INSIDE, DONE)) == list(range(len(STATES)))
