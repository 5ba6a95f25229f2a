"""Runs a tuning: who is asked what comes from `halving`, the answers from `asking`, the marks from `scoring`.

Rules of this module:

1. Nothing is asked twice: what a candidate answered once counts in every race that it takes part in.
2. Whatever ends it early (`stop`, a cancellation), what was measured stays, in the order in which it stands then.
3. A model server that fails again and again ends it as well; if nobody has had an answer, with a `ConfigError`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from toolwire.extras.tune.asking import cancelled
from toolwire.extras.tune.cases import Case
from toolwire.extras.tune.halving import FIRST, Race
from toolwire.extras.tune.scoring import Answer, Figures, Marks, added_up, mark
from toolwire.extras.tune.space import Candidate, neighbours, thinned
from toolwire.support.conversion import ConfigError

FAULTS_IN_A_ROW: Final = 12
"""So many answers with a fault, and it is the model server that is in trouble, not the candidates."""

ROUNDS_OF_NEIGHBOURS: Final = 2
"""How often those beside the winner are tried, where the space was thinned."""


class Asks(Protocol):
    """Who answers. `toolwire.extras.tune.asking.Gateway` is one."""

    async def ask(self, route: int, case: Case) -> Answer:
        """The answer of a candidate, by its number, to a case."""


@dataclass(frozen=True, slots=True)
class Result:
    """One answer; without marks it is a fault of the model server."""

    answer: Answer
    marks: Marks | None

    @property
    def points(self) -> float | None:
        """What it is worth."""
        return None if self.marks is None else self.marks.points


@dataclass(slots=True)
class Progress:
    """Where a tuning is. `results` by candidate and case. `best` has the numbers of the candidates, the best first;
    `out` says of those who are out when and why."""

    candidates: Sequence[Candidate]
    cases: Sequence[Case]
    results: dict[int, dict[str, Result]] = field(default_factory=dict)
    best: list[int] = field(default_factory=list)
    out: dict[int, str] = field(default_factory=dict)
    stage: str = ""
    asked: int = 0
    to_come: int = 0
    seconds: float = 0.0
    decided: bool = False
    stopped: bool = False
    trouble: str = ""
    """What the model server said last, if it stopped answering."""

    def figures(self, number: int, cases: Sequence[str] | None = None) -> Figures:
        """The figures of a candidate, of all its answers or of those to some cases."""
        results = self.results.get(number, {})
        return added_up((r.answer, r.marks) for case, r in results.items() if cases is None or case in cases)

    @property
    def winner(self) -> Candidate | None:
        """The best of those who have had an answer."""
        by_number = {candidate.number: candidate for candidate in self.candidates}
        return next((by_number[number] for number in self.best if self.figures(number).answered), None)


class Sees(Protocol):
    """Who is told how it goes."""

    def update(self, progress: Progress) -> None:
        """Something has changed."""


class Tuner:
    """Finds the best of `candidates`. At most `most` of them take part in the first race; see `halving` for the
    rest."""

    def __init__(
        self,
        asks: Asks,
        candidates: Sequence[Candidate],
        cases: Sequence[Case],
        sees: Sees,
        *,
        most: int,
        first: int = FIRST,
        concurrency: int = 1,
    ) -> None:
        self.progress = Progress(candidates, cases)
        self._asks = asks
        self._sees = sees
        self._most = most
        self._first = first
        self._concurrency = concurrency
        self._faults = 0
        self._ending = asyncio.Event()

    def stop(self) -> None:
        """End it; what is under way is given up."""
        self.progress.stopped = True
        self._ending.set()

    async def run(self) -> Progress:
        """Race the candidates, then, where not all of them took part, those beside the winner, until it stays the
        winner. Raises `ConfigError` where nothing can be measured."""
        progress = self.progress
        entrants = thinned(progress.candidates, self._most)
        progress.stage = f"{len(entrants)} of {len(progress.candidates)} candidates"
        await self._race(entrants)
        for _ in range(ROUNDS_OF_NEIGHBOURS):
            winner = progress.winner
            if winner is None or self._ending.is_set():
                break
            beside = [c for c in neighbours(progress.candidates, winner) if c.number not in progress.results]
            if not beside:
                break
            beside = list(thinned([winner, *beside], self._most))
            progress.stage = f"{len(beside) - 1} beside the best"
            await self._race(sorted(beside, key=lambda candidate: candidate.number))
            if progress.winner is winner:
                break
        progress.to_come = 0
        return progress

    async def _race(self, entrants: Sequence[Candidate]) -> None:
        """One race, to its end or until it is stopped."""
        cases = self.progress.cases
        race = Race([candidate.number for candidate in entrants], len(cases), first=self._first)
        places = {case.id: place for place, case in enumerate(cases)}
        for number in list(race.active):
            self.progress.out.pop(number, None)
            for known, result in self.progress.results.get(number, {}).items():
                race.put(number, places[known], result.points)
        started = time.monotonic() - self.progress.seconds
        running: dict[asyncio.Task[Result], tuple[int, Case]] = {}
        ending = asyncio.ensure_future(self._ending.wait())
        try:
            self._tell(race, started)
            while not self._ending.is_set():
                while len(running) < self._concurrency and (what := race.next()) is not None:
                    number, place = what
                    running[asyncio.ensure_future(self._result(number, cases[place]))] = (number, cases[place])
                if not running:
                    break
                done, _ = await asyncio.wait({*running, ending}, return_when=asyncio.FIRST_COMPLETED)
                for task in [task for task in running if task in done]:
                    number, case = running.pop(task)
                    self._keep(race, number, case, places[case.id], task.result())
                self._tell(race, started)
        finally:
            ending.cancel()
            await cancelled([*running])

    async def _result(self, number: int, case: Case) -> Result:
        answer = await self._asks.ask(number, case)
        return Result(answer, None if answer.fault is not None else mark(case, answer))

    def _keep(self, race: Race, number: int, case: Case, place: int, result: Result) -> None:
        self.progress.results.setdefault(number, {})[case.id] = result
        self.progress.asked += 1
        race.put(number, place, result.points)
        self._faults = self._faults + 1 if result.marks is None else 0
        if self._faults >= FAULTS_IN_A_ROW:
            self.progress.trouble = result.answer.fault or "no reason given"
            if all(r.marks is None for results in self.progress.results.values() for r in results.values()):
                raise ConfigError(f"the model server fails: {self.progress.trouble}")
            self._ending.set()

    def _tell(self, race: Race, started: float) -> None:
        progress = self.progress
        leading = race.ranking()[: len(race.active)]
        progress.best = [*leading, *sorted(set(progress.results) - set(leading), key=self._rank_of_others)]
        progress.out = {**progress.out, **race.out}
        progress.to_come = race.to_come
        progress.decided = race.decided
        progress.seconds = time.monotonic() - started
        self._sees.update(progress)

    def _rank_of_others(self, number: int) -> tuple[int, float, int]:
        """By how far they came, then by score."""
        figures = self.progress.figures(number)
        return -figures.answered, -(figures.score or 0.0), number


def common_cases(progress: Progress, a: int, b: int) -> list[str]:
    """The cases that both have answered without a fault."""

    def answered(number: int) -> Mapping[str, Result]:
        return {case: r for case, r in progress.results.get(number, {}).items() if r.marks is not None}

    return [case for case in answered(a) if case in answered(b)]
