"""Text in which certain patterns do not occur, as GBNF: an automaton that looks for all of them at once, one rule per
state.

A state records, for each pattern, how much of it has been seen. So an unfinished pattern is ordinary text, and each
text has exactly one derivation: llama.cpp keeps one stack, and a character costs no more than in a plain repetition.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final, Literal

from .notation import Expression, Rule, choice, in_class, literal, sequence
from .rules import GrammarBounds, GrammarRules

MAX_STATES: Final = 600
"""Maximum number of states of a text whose characters are counted."""

CONTROLS: Final = r"\x00-\x08\x0B-\x1F\x7F"
"""Control characters that raw text does not contain, for a character class. Tabs and line ends are allowed."""

SPACE: Final = (" \t\r\n", True)
"""A unit (`Unit`) of optional whitespace."""

Where = Literal["anywhere", "plain", "line", "start"]
Unit = tuple[str, bool]
"""A step of a pattern: a set of characters of which one must occur here; True: any number of them, also none."""
_State = frozenset[tuple[int, int]]
"""Pairs of a pattern's index and the number of its units seen so far."""


@dataclass(frozen=True, slots=True)
class Pattern:
    """`units` in sequence. `then` follows them and ends the text; None: the pattern must not occur. `where` it may
    begin: `anywhere`, `plain` (not after a backtick, where it is quoted), at the start of a `line`, or at the `start`
    of the text."""

    units: tuple[Unit, ...]
    then: Expression | None
    where: Where = "anywhere"

    @classmethod
    def of(cls, text: str, then: Expression | None) -> Pattern:
        """Returns the pattern of a literal that may begin anywhere."""
        return cls(units(text), then)


def units(text: str) -> tuple[Unit, ...]:
    """Returns a literal as units of a `Pattern`, one for each character."""
    return tuple((char, False) for char in text)


def spaced(text: str) -> tuple[Unit, ...]:
    """Returns the beginning of a JSON text, with optional whitespace wherever JSON allows it, also before it."""
    units_: list[Unit] = []
    inside = escaped = False
    for char in text:
        if not inside and char not in SPACE[0]:
            units_.append(SPACE)
        if inside or char not in SPACE[0]:
            units_.append((char, False))
        inside ^= char == '"' and not escaped
        escaped = char == "\\" and not escaped
    return tuple(units_)


class TextRules(GrammarRules):
    """The named rules of one grammar, and in `texts` the rules of each `TextWithout` written so far."""

    def __init__(self, bounds: GrammarBounds) -> None:
        super().__init__(bounds)
        self.texts: dict[tuple[TextWithout, int, int | None], Rule] = {}


@dataclass(frozen=True)
class TextWithout:
    """Text without `patterns`. It ends with a pattern that has a continuation, with `end`, or, if `may_end`, anywhere.

    `without` are characters it never contains, as in a character class. `escape` is an expression that counts as one
    character. `begun` precedes the text and may be the beginning of a pattern.
    """

    patterns: tuple[Pattern, ...]
    without: str = ""
    escape: Expression | None = None
    end: Expression | None = None
    may_end: bool = False
    begun: str = ""

    def rule(self, rules: TextRules, low: int = 0, high: int | None = None, start: Rule | None = None) -> Rule:
        """Returns a rule for text without the patterns, of `low` to `high` characters. If exact counting takes too many
        rules, the text also avoids the first two characters of each pattern, or else has no limit. `start`: a reserved
        rule to use."""
        if start is not None:
            return _Writer(rules, self, low, high).write(start)
        if (self, low, high) not in rules.texts:
            rules.texts[self, low, high] = self._written(rules, low, high)
        return rules.texts[self, low, high]

    def _written(self, rules: TextRules, low: int, high: int | None) -> Rule:
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
    def _shortened(self) -> TextWithout:
        def short(pattern: Pattern) -> Pattern:
            rest = "".join(chars for chars, _ in pattern.units[2:])
            then = None if pattern.then is None else sequence(literal(rest), pattern.then)
            return replace(pattern, units=pattern.units[:2], then=then)

        return replace(self, patterns=tuple(map(short, self.patterns)))

    @property
    def _size(self) -> int:
        """The approximate number of states."""
        return 1 + sum(len(pattern.units) - 1 for pattern in self.patterns)

    # --- the automaton ----------------------------------------------------------------------------------------------

    @cached_property
    def anew(self) -> _State:
        """The state in the middle of a line in which no pattern has begun."""
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
        """The state at the start of the text, after `begun`."""
        state = self._closed((index, 0) for index in range(len(self.patterns)))
        for char in self.begun:
            state = self.next_state(state, char)
        return state

    def next_state(self, state: _State, char: str) -> _State:
        """Returns the state of the automaton after `char`."""
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
        """Returns the characters whose next state differs from that of all other characters."""
        units = (self.patterns[index].units[at] for index, at in state if at < len(self.patterns[index].units))
        found = {char for chars, _ in units for char in chars}
        return found | ({"\n"} if self._at_line else set()) | ({"`"} if self._quoted != self.anew else set())

    def complete(self, state: _State) -> list[Pattern]:
        """Returns the patterns that are complete in this state, longest first."""
        found = (self.patterns[index] for index, at in state if at == len(self.patterns[index].units))
        return sorted(found, key=lambda pattern: -len(pattern.units))

    def pending(self, state: _State) -> int:
        """Returns how many of the last characters may belong to a pattern that ends the text."""
        return max((at for index, at in state if self.patterns[index].then is not None), default=0)


class _Writer:
    """Writes the rules of a text. Characters are counted as far as `low` and `high` require."""

    def __init__(self, rules: TextRules, text: TextWithout, low: int, high: int | None) -> None:
        self._rules = rules
        self._text = text
        self._low = low
        self._high = high
        self._names: dict[tuple[_State, int], Rule] = {}
        self._waiting: list[tuple[_State, int]] = []
        # With a minimum only, counting stops at the minimum plus the longest ending pattern.
        longest = max((len(p.units) for p in text.patterns if p.then is not None), default=0)
        self._counted = low + longest if low else 0

    def write(self, start: Rule) -> Rule:
        """Writes all rules; returns `start`, the first one."""
        first = (self._text.first, 0)
        self._names[first] = start
        self._waiting.append(first)
        while self._waiting:
            at = self._waiting.pop()
            if options := self._options(*at):
                self._rules.define(self._names[at], choice(options))
        return start

    def _go(self, state: _State, count: int) -> Expression | None:
        """Returns the rule of a state, or None if no text matches it."""
        certain = count - self._text.pending(state)
        if self._high is not None:
            if certain > self._high:
                return None
        else:  # the minimum has been reached, or counting stops at its limit
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
        """Returns the continuation after `char`, or None if it must not occur."""
        after = self._text.next_state(state, char)
        complete = self._text.complete(after)
        if not complete:
            return self._go(after, count + 1)
        for pattern in complete:
            if pattern.then is not None:
                enough = not self._low or count + 1 - len(pattern.units) >= self._low
                return sequence(pattern.then) if enough else None
        return None
