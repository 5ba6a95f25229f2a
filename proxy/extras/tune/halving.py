"""Successive halving: all candidates answer a few cases, the better half twice as many, and so on, up to all cases.

Rules:

1. This module sends no requests: `next` returns the next question, `put` takes its result. Several questions may be in
   progress.
2. Candidates are compared by the same cases. A case goes to all remaining candidates before the next case begins. A
   candidate that can no longer reach the better half is dropped at once. The race ends early if no candidate can catch
   the first, or if all remaining ones got equal points in `ALIKE` cases.
3. An error of the model server (None) counts neither for nor against a candidate.
4. Of equal candidates the earlier one ranks higher.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, fsum
from typing import Final

FIRST: Final = 6
"""The number of cases in the first round."""

ALIKE: Final = 24

FAULTS: Final = 3
"""A candidate that begins with this many errors and no answer is dropped."""


class Race:
    """One run of halving. `entrants` are the candidates in their order; `cases` is the number of cases."""

    def __init__(self, entrants: Sequence[int], cases: int, *, first: int = FIRST) -> None:
        self.active = list(entrants)
        self.out: dict[int, str] = {}
        """Dropped candidates with the reason, in the order in which they were dropped."""
        self.round = 1
        self.decided = False
        """True if it ended before all cases because the winner was certain."""
        self._order = {entrant: place for place, entrant in enumerate(entrants)}
        self._cases = cases
        self._goal = self._keep(len(self.active))
        """The number of candidates that continue after this round; the last round has one winner."""
        self._upto = first if first < cases and self._goal < len(self.active) else cases
        self._points: dict[int, dict[int, float | None]] = {entrant: {} for entrant in entrants}
        self._given: set[tuple[int, int]] = set()

    @property
    def to_come(self) -> int:
        """The number of questions that remain if no candidate is dropped early."""
        entrants, upto = self._goal, self._upto
        total = sum(self._upto - self._asked(entrant) for entrant in self.active)
        while upto < self._cases:
            done, upto = upto, self._next(upto, entrants)
            total += entrants * (upto - done)
            entrants = self._keep(entrants)
        return 0 if self.over else total

    @property
    def over(self) -> bool:
        """True if there are no further questions."""
        return self.decided or not self.active or (self._upto == self._cases and self._complete)

    def next(self) -> tuple[int, int] | None:
        """Returns the next candidate and the number of its case; None if results must arrive first."""
        if self.over:
            return None
        for case in range(self._upto):
            for entrant in self.active:
                if (entrant, case) not in self._given:
                    self._given.add((entrant, case))
                    return entrant, case
        return None

    def put(self, entrant: int, case: int, points: float | None) -> None:
        """Adds the points of an answer, between 0 and 1; None if the model server failed. Earlier results may be added
        before they are requested."""
        self._given.add((entrant, case))
        self._points[entrant][case] = points
        if entrant in self.active:
            asked = [self._points[entrant][number] for number in sorted(self._points[entrant])]
            if len(asked) >= FAULTS and not any(value is not None for value in asked):
                self._drop(entrant, "the model server fails")
        self._settle()

    def ranking(self) -> list[int]:
        """Returns all candidates, best first: the remaining ones by score, then the dropped ones, the last dropped
        first."""
        gone = list(self.out)
        return [*self._ranked(), *reversed(gone)]

    def score(self, entrant: int) -> float:
        """Returns the mean points per answer, so far."""
        values = [value for value in self._points[entrant].values() if value is not None]
        return _mean(values)

    # --- the rules ----------------------------------------------------------------------------------------------------

    def _ranked(self) -> list[int]:
        """Returns the remaining candidates, best first, compared by the cases that all of them have answered."""
        rows = [self._points[entrant] for entrant in self.active]
        common = set.intersection(*map(set, rows)) if rows else set()
        scores = {
            entrant: _mean([value for case in common if (value := row[case]) is not None])
            for entrant, row in zip(self.active, rows, strict=True)
        }
        return sorted(self.active, key=lambda entrant: (-scores[entrant], self._order[entrant]))

    @staticmethod
    def _keep(entrants: int) -> int:
        """Returns how many of this many candidates continue: half, but at least two, who are compared in all cases."""
        return min(entrants, max(2, ceil(entrants / 2)))

    def _next(self, upto: int, entrants: int) -> int:
        """Returns the number of cases after which the next round ends; candidates that are not halved any more get all
        cases."""
        return min(2 * upto, self._cases) if self._keep(entrants) < entrants else self._cases

    def _asked(self, entrant: int) -> int:
        return sum(case < self._upto for case in self._points[entrant])

    @property
    def _complete(self) -> bool:
        return all(self._asked(entrant) == self._upto for entrant in self.active)

    def _bounds(self, entrant: int, upto: int) -> tuple[float, float]:
        """Returns the least and the most points that a candidate can have after this many cases, whatever the order in
        which its answers came."""
        values = [value for case, value in self._points[entrant].items() if case < upto and value is not None]
        return fsum(values), fsum((*values, upto - len(values)))

    def _drop(self, entrant: int, why: str) -> None:
        self.active.remove(entrant)
        self.out[entrant] = why

    @property
    def _alike(self) -> bool:
        """True if the remaining candidates got equal points in at least `ALIKE` cases."""
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
            for entrant in reversed(self._ranked()[self._goal :]):
                self._drop(entrant, f"round {self.round}")
            self.round += 1
            self._goal = self._keep(len(self.active))
            self._upto = self._next(self._upto, len(self.active))

    def _drop_the_beaten(self) -> None:
        """Drops candidates that are certain to rank behind those that continue; in the last round, all certain
        losers."""
        last = self._upto == self._cases
        goal = 1 if last else self._goal
        bounds = {entrant: self._bounds(entrant, self._upto) for entrant in self.active}
        for entrant in reversed(self._ranked()):
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


def _mean(values: Sequence[float]) -> float:
    return fsum(values) / len(values) if values else 0.0
