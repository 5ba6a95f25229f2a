"""Text in which certain patterns do not occur, as GBNF: the automaton that looks for them all at once, one rule for
each of its states.

A state is what could have begun: for each pattern, how far it has been seen. So a beginning of a pattern that goes on
otherwise is ordinary text, and exactly one way leads through the grammar for any text: llama.cpp keeps one stack, and a
character costs what it costs in an endless repetition.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Final, Literal

from toolwire.formats.gbnf.notation import Expression, Rule, choice, in_class, literal, sequence

if TYPE_CHECKING:
    from toolwire.formats.gbnf.rules import Rules

MAX_STATES: Final = 600
"""States of a text whose characters are counted."""

CONTROLS: Final = r"\x00-\x08\x0B-\x1F\x7F"
"""Inside a character class: what raw text does not hold. Tabs and line ends it does."""

SPACE: Final = (" \t\r\n", True)
"""Whitespace, or none."""

Where = Literal["anywhere", "plain", "line", "start"]
Unit = tuple[str, bool]
"""Characters, one of which stands here; true: as many as one likes, perhaps none."""
_State = frozenset[tuple[int, int]]
"""Pairs of a pattern and how many of its units have been seen."""


@dataclass(frozen=True, slots=True)
class Pattern:
    """`units` one after the other. `then` is what follows them, and the text is over; None: they must not occur.
    `where` they may begin: anywhere, anywhere but right behind a backtick (there they are quoted), at the start of a
    line, or at the start of the text."""

    units: tuple[Unit, ...]
    then: Expression | None
    where: Where = "anywhere"

    @classmethod
    def of(cls, text: str, then: Expression | None) -> Pattern:
        """A literal, anywhere."""
        return cls(units(text), then)


def units(text: str) -> tuple[Unit, ...]:
    """A literal."""
    return tuple((char, False) for char in text)


def spaced(text: str) -> tuple[Unit, ...]:
    """The beginning of a JSON text, with whitespace wherever JSON allows it, also before."""
    found: list[Unit] = []
    inside = escaped = False
    for char in text:
        if not inside and char not in SPACE[0]:
            found.append(SPACE)
        if inside or char not in SPACE[0]:
            found.append((char, False))
        inside ^= char == '"' and not escaped
        escaped = char == "\\" and not escaped
    return tuple(found)


@dataclass(frozen=True)
class Text:
    """Text without `patterns`, up to one of them that something follows, or up to `end`, or, if `may_end`, to anywhere.

    `without` are the characters that it never holds, as they stand in a class. `escape` stands for a character. `begun`
    is what comes before the text and may be a pattern's beginning.
    """

    patterns: tuple[Pattern, ...]
    without: str = ""
    escape: Expression | None = None
    end: Expression | None = None
    may_end: bool = False
    begun: str = ""

    def rule(self, rules: Rules, low: int = 0, high: int | None = None, start: Rule | None = None) -> Rule:
        """A rule for such text of `low` to `high` characters: exactly, or, where that would take too many rules,
        without the patterns' first two characters in it, or with the bound left open. `start`: a reserved rule to be
        it."""
        if start is not None:
            return _Writer(rules, self, low, high).write(start)
        if (self, low, high) not in rules.texts:
            rules.texts[self, low, high] = self._written(rules, low, high)
        return rules.texts[self, low, high]

    def _written(self, rules: Rules, low: int, high: int | None) -> Rule:
        for text, least, most in ((self, low, high), (self._shortened, low, high), (self, low, None)):
            if (least, most) == (0, None):
                break
            states = text._size * (1 + (least if most is None else most))
            if states <= MAX_STATES and rules.affords(states):
                return _Writer(rules, text, least, most).write(rules.reserve("text"))
        if (low, high) != (0, None):
            return self.rule(rules)
        return _Writer(rules, self, 0, None).write(rules.reserve("text"))

    @cached_property
    def _shortened(self) -> Text:
        def short(pattern: Pattern) -> Pattern:
            rest = "".join(chars for chars, _ in pattern.units[2:])
            then = None if pattern.then is None else sequence(literal(rest), pattern.then)
            return replace(pattern, units=pattern.units[:2], then=then)

        return replace(self, patterns=tuple(map(short, self.patterns)))

    @property
    def _size(self) -> int:
        """About how many states there are."""
        return 1 + sum(len(pattern.units) - 1 for pattern in self.patterns)

    # --- the automaton ----------------------------------------------------------------------------------------------

    @cached_property
    def anew(self) -> _State:
        """Nothing has been seen."""
        return self._begun("anywhere", "plain")

    @cached_property
    def _at_line(self) -> _State:
        return self._begun("line")

    @cached_property
    def _quoted(self) -> _State:
        return self._begun("anywhere")

    def _begun(self, *places: Where) -> _State:
        return self._closed((index, 0) for index, p in enumerate(self.patterns) if p.where in places)

    @cached_property
    def first(self) -> _State:
        """The state at the start."""
        state = self._closed((index, 0) for index in range(len(self.patterns)))
        for char in self.begun:
            state = self.after(state, char)
        return state

    def after(self, state: _State, char: str) -> _State:
        """The state after `char`."""
        seen = set()
        for index, at in state:
            units = self.patterns[index].units
            if at < len(units) and char in units[at][0]:
                seen.add((index, at if units[at][1] else at + 1))
        begun = self._quoted if char == "`" else self.anew
        return self._closed(seen) | begun | (self._at_line if char == "\n" else frozenset())

    def _closed(self, seen: Iterable[tuple[int, int]]) -> _State:
        closed = set()
        for index, at in seen:
            units = self.patterns[index].units
            closed.add((index, at))
            while at < len(units) and units[at][1]:
                at += 1
                closed.add((index, at))
        return frozenset(closed)

    def chars(self, state: _State) -> set[str]:
        """The characters that lead elsewhere than any other one."""
        units = (self.patterns[index].units[at] for index, at in state if at < len(self.patterns[index].units))
        found = {char for chars, _ in units for char in chars}
        return found | ({"\n"} if self._at_line else set()) | ({"`"} if self._quoted != self.anew else set())

    def complete(self, state: _State) -> list[Pattern]:
        """The patterns that have just been seen, the longest first."""
        found = (self.patterns[index] for index, at in state if at == len(self.patterns[index].units))
        return sorted(found, key=lambda pattern: -len(pattern.units))

    def pending(self, state: _State) -> int:
        """How many of the last characters may belong to what ends the text."""
        return max((at for index, at in state if self.patterns[index].then is not None), default=0)


class _Writer:
    """Writes the rules of a text. Their characters are counted as far as `low` and `high` ask for it."""

    def __init__(self, rules: Rules, text: Text, low: int, high: int | None) -> None:
        self._rules = rules
        self._text = text
        self._low = low
        self._high = high
        self._names: dict[tuple[_State, int], Rule] = {}
        self._waiting: list[tuple[_State, int]] = []
        # Where only the least number matters, what ends the text is the last that has to be told from it.
        longest = max((len(p.units) for p in text.patterns if p.then is not None), default=0)
        self._counted = low + longest if low else 0

    def write(self, start: Rule) -> Rule:
        """All rules, `start` being the first."""
        first = (self._text.first, 0)
        self._names[first] = start
        self._waiting.append(first)
        while self._waiting:
            at = self._waiting.pop()
            if options := self._options(*at):
                self._rules.define(self._names[at], choice(options))
        return start

    def _go(self, state: _State, count: int) -> Expression | None:
        """The rule of a state; None if there is no such text."""
        certain = count - self._text.pending(state)
        if self._high is not None:
            if certain > self._high:
                return None
        else:  # wherever it ends from here on, it may be enough
            count = self._counted if certain >= self._low else min(count, self._counted)
        at = (state, count)
        if at not in self._names:
            self._names[at] = self._rules.reserve("text")
            self._waiting.append(at)
        return self._names[at]

    def _options(self, state: _State, count: int) -> list[Expression]:
        text = self._text
        special = text.chars(state)
        if text.escape is not None:
            special -= {'"', "\\"}
        leads: dict[Expression, list[str]] = {}
        for char in sorted(special):
            lead = self._lead(state, char, count)
            if lead is not None:
                leads.setdefault(lead, []).append(char)
        options: list[Expression] = []
        other = self._go(text.anew, count + 1)
        if other is not None:
            options.append(
                sequence(f"[^{text.without}{in_class(special)}]" if text.without or special else "[^\\x00]", other)
            )
            if text.escape is not None:
                options.append(sequence(text.escape, other))
        for lead, chars in leads.items():
            options.append(sequence(literal(chars[0]) if len(chars) == 1 else f"[{in_class(chars)}]", lead))
        if text.end is not None and count >= self._low:
            options.append(text.end)
        if text.may_end:
            options.append("")
        return options

    def _lead(self, state: _State, char: str, count: int) -> Expression | None:
        """What follows `char`; None if it must not come."""
        after = self._text.after(state, char)
        complete = self._text.complete(after)
        if not complete:
            return self._go(after, count + 1)
        for pattern in complete:
            if pattern.then is not None:
                enough = not self._low or count + 1 - len(pattern.units) >= self._low
                return sequence(pattern.then) if enough else None
        return None
