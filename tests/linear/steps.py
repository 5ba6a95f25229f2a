"""A backtracking matcher for Python's regular expressions that counts its steps.

It walks the tree of `re._parser` in the order in which `re` does, without the shortcuts of `re`: so `re` needs at most
as many steps, up to a factor. A step is one look at one character or one decision. `re` itself cannot be counted.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from re import _constants as sre
from re import _parser as parser
from typing import Any, Final

Continue = Callable[[int], int]
"""Goes on from a place. Returns the end of the match, or `FAILED`."""
Match = Callable[[int, Continue], int]
Test = Callable[[str], bool]

FAILED: Final = -1
DEPTH: Final = 100_000
"""Calls that may be open at once."""
CLIPPED: Final = 4
"""In `Steps(clip=True)`, the most often that a bounded repeat counts."""


def has_loop(pattern: re.Pattern[Any]) -> bool:
    """Whether anything repeats without a bound. Nothing else can take more steps at a place of a longer text."""

    def found(node: Any) -> bool:
        return node is sre.MAXREPEAT or (isinstance(node, tuple | list | parser.SubPattern) and any(map(found, node)))

    return found(_parsed(pattern))


def _parsed(pattern: re.Pattern[Any]) -> parser.SubPattern:
    unicode = re.UNICODE if isinstance(pattern.pattern, bytes) else 0
    return parser.parse(pattern.pattern, pattern.flags & ~unicode)


class TooManySteps(Exception):
    """The budget of steps is used up."""


class Steps:
    """Matches `pattern` and counts in `steps`. Raises `TooManySteps` beyond `budget`. With `clip`, bounded repeats are
    cut to `CLIPPED`: growth shows in short texts, then."""

    def __init__(self, pattern: re.Pattern[Any], *, clip: bool = False, budget: int = 5_000_000) -> None:
        tree = _parsed(pattern)
        self.steps = 0
        self.budget = budget
        self._clip = clip
        self._ascii = isinstance(pattern.pattern, bytes) or bool(pattern.flags & re.ASCII)
        self._text = ""
        self._groups: dict[int, tuple[int, int]] = {}
        self._match = self._sequence(list(tree), tree.state.flags | pattern.flags)

    def find_all(self, text: str | bytes) -> list[tuple[int, int]]:
        """The places of all matches, as `finditer` gives them."""
        found, at = [], 0
        self._text = text.decode("latin-1") if isinstance(text, bytes) else text
        with _deep():
            while at <= len(self._text):
                self._groups = {}
                end = self._match(at, _as_it_is)
                if end == FAILED or (end == at and found and found[-1] == (at, at)):
                    at += 1
                    continue
                found.append((at, end))
                # behind an empty match, one that is not empty may begin at the same place: `re` looks for it, too
                at = end if end > at else at + 1
        return found

    def match(self, text: str | bytes, at: int = 0, *, full: bool = False) -> int:
        """The end of the match at a place, or `FAILED`."""
        self._text = text.decode("latin-1") if isinstance(text, bytes) else text
        self._groups = {}
        size = len(self._text)
        with _deep():
            return self._match(at, (lambda end: end if end == size else FAILED) if full else _as_it_is)

    def _step(self, number: int = 1) -> None:
        self.steps += number
        if self.steps > self.budget:
            raise TooManySteps

    def _sequence(self, nodes: list[Any], flags: int) -> Match:
        parts = [self._node(op, given, flags) for op, given in nodes]
        if not parts:
            return lambda at, go_on: go_on(at)
        whole = parts[-1]
        for part in reversed(parts[:-1]):
            whole = _both(part, whole)
        return whole

    def _node(self, op: Any, given: Any, flags: int) -> Match:
        test = self._single(op, given, flags)
        if test is not None:
            return self._one(test)
        if op is sre.BRANCH:
            return self._branch([self._sequence(list(way), flags) for way in given[1]])
        if op is sre.SUBPATTERN:
            group, add, remove, inner = given
            return self._group(group, self._sequence(list(inner), (flags | add) & ~remove))
        if op in (sre.MAX_REPEAT, sre.MIN_REPEAT, sre.POSSESSIVE_REPEAT):
            return self._repeat(op, given, flags)
        if op is sre.ATOMIC_GROUP:
            return self._atomic(self._sequence(list(given), flags))
        if op in (sre.ASSERT, sre.ASSERT_NOT):
            return self._assertion(op is sre.ASSERT, given, flags)
        if op is sre.AT:
            return self._edge(given, flags)
        if op is sre.GROUPREF:
            return self._reference(given)
        raise NotImplementedError(str(op))

    # --- one character ----------------------------------------------------------------------------------------------

    def _single(self, op: Any, given: Any, flags: int) -> Test | None:
        folded = bool(flags & re.IGNORECASE)
        if op is sre.LITERAL:
            return _folded(chr(given).__eq__, folded)
        if op is sre.NOT_LITERAL:
            return _folded(chr(given).__ne__, folded)
        if op is sre.ANY:
            return (lambda c: True) if flags & re.DOTALL else (lambda c: c != "\n")
        if op is sre.IN:
            return self._class(given, folded)
        return None

    def _class(self, items: list[Any], folded: bool) -> Test:
        negated = items[0][0] is sre.NEGATE
        tests = [self._item(op, given) for op, given in items[negated:]]
        holds = _folded(lambda c: any(test(c) for test in tests), folded)
        known: dict[str, bool] = {}

        def test(c: str) -> bool:
            said = known.get(c)
            if said is None:
                said = known[c] = holds(c) is not negated
            return said

        return test

    def _item(self, op: Any, given: Any) -> Test:
        if op is sre.LITERAL:
            return lambda c: ord(c) == given
        if op is sre.RANGE:
            low, high = given
            return lambda c: low <= ord(c) <= high
        return _category(given, self._ascii)

    def _one(self, test: Test) -> Match:
        def match(at: int, go_on: Continue) -> int:
            self.steps += 1  # `_step`, which would take half of the time here
            if self.steps > self.budget:
                raise TooManySteps
            return go_on(at + 1) if at < len(self._text) and test(self._text[at]) else FAILED

        return match

    # --- several ----------------------------------------------------------------------------------------------------

    def _branch(self, ways: list[Match]) -> Match:
        def match(at: int, go_on: Continue) -> int:
            for way in ways:
                self._step()
                if (end := way(at, go_on)) != FAILED:
                    return end
            return FAILED

        return match

    def _group(self, group: int | None, inner: Match) -> Match:
        if group is None:
            return inner

        def match(at: int, go_on: Continue) -> int:
            before = self._groups.get(group)

            def close(end: int) -> int:
                inside = self._groups.get(group)
                self._groups[group] = at, end
                if (found := go_on(end)) == FAILED and inside is not None:
                    self._groups[group] = inside
                return found

            if (end := inner(at, close)) == FAILED:
                if before is None:
                    self._groups.pop(group, None)
                else:
                    self._groups[group] = before
            return end

        return match

    def _repeat(self, op: Any, given: Any, flags: int) -> Match:
        low, high, inner = given
        if self._clip and (low > CLIPPED or (high is not sre.MAXREPEAT and high > CLIPPED)):
            low, high = min(low, CLIPPED), high if high is sre.MAXREPEAT else CLIPPED
        nodes = list(inner)
        while len(nodes) == 1 and nodes[0][0] is sre.SUBPATTERN and nodes[0][1][0] is None and not nodes[0][1][1]:
            nodes = list(nodes[0][1][3])
        test = self._single(*nodes[0], flags) if len(nodes) == 1 else None
        most = sys.maxsize if high is sre.MAXREPEAT else int(high)
        if op is sre.POSSESSIVE_REPEAT:
            return self._possessive(self._one(test) if test else self._sequence(nodes, flags), low, most)
        lazy = op is sre.MIN_REPEAT
        if test is not None:
            return self._run_lazily(test, low, most) if lazy else self._run(test, low, most)
        return self._loop(self._sequence(nodes, flags), low, most, lazy)

    def _run(self, test: Test, low: int, most: int) -> Match:
        def match(at: int, go_on: Continue) -> int:
            text, end = self._text, at
            last = min(len(text), at + most)
            while end < last and test(text[end]):
                end += 1
            self._step(end - at + 1)
            while end >= at + low:
                if (found := go_on(end)) != FAILED:
                    return found
                end -= 1
            return FAILED

        return match

    def _run_lazily(self, test: Test, low: int, most: int) -> Match:
        def match(at: int, go_on: Continue) -> int:
            text, end = self._text, at
            while True:
                if end - at >= low and (found := go_on(end)) != FAILED:
                    return found
                self._step()
                if end - at >= most or end >= len(text) or not test(text[end]):
                    return FAILED
                end += 1

        return match

    def _loop(self, inner: Match, low: int, most: int, lazy: bool) -> Match:
        def match(at: int, go_on: Continue) -> int:
            def again(at: int, done: int, since: int) -> int:
                self._step()
                if done >= low and at == since and done:  # an empty round: no more of them
                    return go_on(at)
                if lazy and done >= low and (end := go_on(at)) != FAILED:
                    return end
                if done < most and (end := inner(at, lambda end: again(end, done + 1, at))) != FAILED:
                    return end
                return FAILED if lazy or done < low else go_on(at)

            return again(at, 0, FAILED)

        return match

    def _possessive(self, inner: Match, low: int, most: int) -> Match:
        def match(at: int, go_on: Continue) -> int:
            done = 0
            while done < most:
                self._step()
                end = inner(at, _as_it_is)
                if end == FAILED:
                    break
                done += 1
                if end == at:
                    done = max(done, low)
                    break
                at = end
            return go_on(at) if done >= low else FAILED

        return match

    def _atomic(self, inner: Match) -> Match:
        def match(at: int, go_on: Continue) -> int:
            end = inner(at, _as_it_is)
            return FAILED if end == FAILED else go_on(end)

        return match

    # --- edges ------------------------------------------------------------------------------------------------------

    def _assertion(self, wanted: bool, given: Any, flags: int) -> Match:
        direction, inner = given
        width = inner.getwidth()[0] if direction < 0 else 0
        whole = self._sequence(list(inner), flags)

        def match(at: int, go_on: Continue) -> int:
            self._step()
            holds = at >= width and whole(at - width, _as_it_is) != FAILED
            return go_on(at) if holds is wanted else FAILED

        return match

    def _edge(self, where: Any, flags: int) -> Match:
        word = _category(sre.CATEGORY_WORD, self._ascii)

        def holds(at: int) -> bool:
            text = self._text
            if where is sre.AT_BEGINNING_STRING or (where is sre.AT_BEGINNING and not flags & re.MULTILINE):
                return at == 0
            if where is sre.AT_BEGINNING:
                return at == 0 or text[at - 1] == "\n"
            if where is sre.AT_END_STRING:
                return at == len(text)
            if where is sre.AT_END:
                end = at == len(text) or (at == len(text) - 1 and text[at] == "\n")
                return end or bool(flags & re.MULTILINE and text[at] == "\n")
            between = (at > 0 and word(text[at - 1])) is not (at < len(text) and word(text[at]))
            return between is (where is sre.AT_BOUNDARY)

        def match(at: int, go_on: Continue) -> int:
            self._step()
            return go_on(at) if holds(at) else FAILED

        return match

    def _reference(self, group: int) -> Match:
        def match(at: int, go_on: Continue) -> int:
            place = self._groups.get(group)
            if place is None:
                self._step()
                return FAILED
            said = self._text[slice(*place)]
            for _ in said:
                self._step()
            return go_on(at + len(said)) if self._text.startswith(said, at) else FAILED

        return match


@contextmanager
def _deep() -> Iterator[None]:
    """Lets `DEPTH` calls be open at once."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(DEPTH)
    try:
        yield
    finally:
        sys.setrecursionlimit(before)


def _as_it_is(end: int) -> int:
    return end


def _both(first: Match, second: Match) -> Match:
    return lambda at, go_on: first(at, lambda end: second(end, go_on))


def _folded(test: Test, folded: bool) -> Test:
    return (lambda c: test(c.lower()) or test(c.upper())) if folded else test


def _category(which: Any, is_ascii: bool) -> Test:
    name = str(which).removeprefix("CATEGORY_")
    negated = name.startswith("NOT_")
    test: Test = {
        "DIGIT": str.isdecimal,
        "SPACE": str.isspace,
        "WORD": lambda c: c.isalnum() or c == "_",
    }[name.removeprefix("NOT_")]
    return lambda c: (test(c) and (c.isascii() or not is_ascii)) is not negated
