"""Successive halving: all candidates answer a few cases, the better half twice as many, and so on, until all cases are
asked.

Rules of this module:

1. Nothing here asks anybody: `next` says what to ask, `put` takes what came of it. Several may be under way at once.
2. Candidates are compared by the same cases. A case goes to all who are still in it before the next one begins, so that
   whoever cannot reach the better half any more is out at once, and asking ends when nobody can catch the first, or
   when `ALIKE` cases were worth the same for all who are left, each of them.
3. An answer that the model server owes (None) counts neither way: it could have been anything.
4. Of equals the earlier one is better.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from typing import Final

FIRST: Final = 6
"""Cases of the first round."""

ALIKE: Final = 24

FAULTS: Final = 3
"""Whoever begins with so many faults and no answer is out."""


class Race:
    """One run of halving. `entrants` in their order; `cases` is how many there are."""

    def __init__(self, entrants: Sequence[int], cases: int, *, first: int = FIRST) -> None:
        self.active = list(entrants)
        self.out: dict[int, str] = {}
        """Who is out, and why, in the order in which it happened."""
        self.round = 1
        self.decided = False
        """Whether it ended before all cases because nobody could win any more."""
        self._order = {entrant: place for place, entrant in enumerate(entrants)}
        self._cases = cases
        self._goal = self._keep(len(self.active))
        """How many go on after this round; in the last one there is a winner."""
        self._upto = first if first < cases and self._goal < len(self.active) else cases
        self._points: dict[int, dict[int, float | None]] = {entrant: {} for entrant in entrants}
        self._given: set[tuple[int, int]] = set()

    @property
    def to_come(self) -> int:
        """How many answers will still be asked for, unless somebody is out early."""
        entrants, upto = self._goal, self._upto
        total = sum(self._upto - self._asked(entrant) for entrant in self.active)
        while upto < self._cases:
            done, upto = upto, self._next(upto, entrants)
            total += entrants * (upto - done)
            entrants = self._keep(entrants)
        return 0 if self.over else total

    @property
    def over(self) -> bool:
        """Nothing is left to ask."""
        return self.decided or not self.active or (self._upto == self._cases and self._complete)

    def next(self) -> tuple[int, int] | None:
        """Whom to ask which case (its number); None if nothing can be asked before what is under way has come."""
        if self.over:
            return None
        for case in range(self._upto):
            for entrant in self.active:
                if (entrant, case) not in self._given:
                    self._given.add((entrant, case))
                    return entrant, case
        return None

    def put(self, entrant: int, case: int, points: float | None) -> None:
        """What an answer was worth, between 0 and 1; None if the model server failed. What was known before may be told
        as well, before it is asked."""
        self._given.add((entrant, case))
        self._points[entrant][case] = points
        if entrant in self.active:
            asked = [self._points[entrant][number] for number in sorted(self._points[entrant])]
            if len(asked) >= FAULTS and not any(value is not None for value in asked):
                self._drop(entrant, "the model server fails")
        self._settle()

    def ranking(self) -> list[int]:
        """Everybody, the best first: those who are still in it, then by how long they were."""
        gone = list(self.out)
        return [*sorted(self.active, key=self._rank), *reversed(gone)]

    def score(self, entrant: int) -> float:
        """Points an answer, so far."""
        values = [value for value in self._points[entrant].values() if value is not None]
        return sum(values) / len(values) if values else 0.0

    # --- the rules ----------------------------------------------------------------------------------------------------

    def _rank(self, entrant: int) -> tuple[float, int]:
        return -self.score(entrant), self._order[entrant]

    @staticmethod
    def _keep(entrants: int) -> int:
        """How many of so many stay: half, but no fewer than two, who decide it over all cases."""
        return min(entrants, max(2, ceil(entrants / 2)))

    def _next(self, upto: int, entrants: int) -> int:
        """After how many cases the next round ends; those who are not halved any more are asked everything."""
        return min(2 * upto, self._cases) if self._keep(entrants) < entrants else self._cases

    def _asked(self, entrant: int) -> int:
        return sum(case < self._upto for case in self._points[entrant])

    @property
    def _complete(self) -> bool:
        return all(self._asked(entrant) == self._upto for entrant in self.active)

    def _bounds(self, entrant: int, upto: int) -> tuple[float, float]:
        """The least and the most that somebody can have after so many cases."""
        values = [value for case, value in self._points[entrant].items() if case < upto and value is not None]
        return sum(values), sum(values) + upto - len(values)

    def _drop(self, entrant: int, why: str) -> None:
        self.active.remove(entrant)
        self.out[entrant] = why

    @property
    def _alike(self) -> bool:
        """Whether nothing that was asked tells those who are still in it apart, and enough was asked."""
        rows = [self._points[entrant] for entrant in self.active]
        known = next((case for case in range(self._upto) if any(case not in row for row in rows)), self._upto)
        first, *others = ([row[case] for case in range(known)] for row in rows)
        return known >= ALIKE and bool(others) and all(points == first for points in others)

    def _settle(self) -> None:
        while self.active:
            self._drop_the_beaten()
            if self._alike and not self.over:
                self.decided = True
            if self.decided or not self._complete or self._upto == self._cases:
                return
            kept = sorted(self.active, key=self._rank)[: self._goal]
            for entrant in sorted(set(self.active) - set(kept), key=self._rank, reverse=True):
                self._drop(entrant, f"round {self.round}")
            self.round += 1
            self._goal = self._keep(len(self.active))
            self._upto = self._next(self._upto, len(self.active))

    def _drop_the_beaten(self) -> None:
        """Whoever is sure to be behind as many as go on, and in the end everybody but the first."""
        last = self._upto == self._cases
        goal = 1 if last else self._goal
        bounds = {entrant: self._bounds(entrant, self._upto) for entrant in self.active}
        for entrant in sorted(self.active, key=self._rank, reverse=True):
            ahead = sum(
                low > bounds[entrant][1] or (low == bounds[entrant][1] and self._order[other] < self._order[entrant])
                for other, (low, _) in bounds.items()
                if other != entrant
            )
            if ahead >= goal:
                self._drop(
                    entrant, f"round {self.round}, beaten early" if not self._complete else f"round {self.round}"
                )
        if len(self.active) == 1 < len(self._order) and not (last and self._complete):
            self.decided = True
