"""Runs a tuning: `halving` chooses the questions, `gateway` gets the answers, `scoring` gives points.

Rules:

1. No question is repeated: an answer of a candidate counts in every race that it takes part in.
2. If it ends early (`stop`, a cancellation), the results and their current order stay.
3. It also ends if the model server fails repeatedly; if there is no answer at all, with a `ConfigError`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from ...support.conversion import ConfigError
from ...support.tasks import cancel_all
from .cases import Case
from .halving import Race
from .scoring import ClientAnswer, Figures, Score, added_up, score_answer
from .space import TuningCandidate, neighbours, thinned

FAULTS_IN_A_ROW: Final = 12
"""After this many consecutive errors the model server has a problem, not the candidates."""

ROUNDS_OF_NEIGHBOURS: Final = 2
"""How often the neighbours of the winner are tried, if the candidates were thinned out."""


@dataclass(frozen=True, slots=True)
class TuningResult:
    """One answer with its score; without `marks` it is an error of the model server."""

    answer: ClientAnswer
    marks: Score | None

    @property
    def points(self) -> float | None:
        """Its points; None for an error of the model server."""
        return None if self.marks is None else self.marks.points


@dataclass(slots=True)
class Progress:
    """The state of a tuning. `results` by candidate and case; `best` has the numbers of the candidates, best first;
    `out` has the dropped ones, with round and reason."""

    candidates: Sequence[TuningCandidate]
    cases: Sequence[Case]
    results: dict[int, dict[str, TuningResult]] = field(default_factory=dict)
    best: list[int] = field(default_factory=list)
    out: dict[int, str] = field(default_factory=dict)
    stage: str = ""
    asked: int = 0
    to_come: int = 0
    seconds: float = 0.0
    decided: bool = False
    stopped: bool = False
    trouble: str = ""
    """The last error of the model server, if it stopped answering."""

    def figures(self, number: int, cases: Sequence[str] | None = None) -> Figures:
        """Returns the figures of a candidate, for all its answers or for some cases."""
        results = self.results.get(number, {})
        return added_up((r.answer, r.marks) for case, r in results.items() if cases is None or case in cases)

    @property
    def winner(self) -> TuningCandidate | None:
        """The best candidate that has an answer; None if there is none."""
        by_number = {candidate.number: candidate for candidate in self.candidates}
        return next((by_number[number] for number in self.best if self.figures(number).answered), None)


class Tuner:
    """Finds the best of `candidates`. At most `most` of them take part in the first race; see `halving`. `ask` returns
    the answer of a candidate, by its number, to a case; `update` is called after each change."""

    def __init__(
        self,
        ask: Callable[[int, Case], Awaitable[ClientAnswer]],
        candidates: Sequence[TuningCandidate],
        cases: Sequence[Case],
        update: Callable[[Progress], object],
        *,
        most: int,
        concurrency: int = 1,
    ) -> None:
        self.progress = Progress(candidates, cases)
        self._ask = ask
        self._update = update
        self._most = most
        self._concurrency = concurrency
        self._faults = 0
        self._ending = asyncio.Event()

    def stop(self) -> None:
        """Ends the tuning; cancels questions in progress."""
        self.progress.stopped = True
        self._ending.set()

    async def run(self) -> Progress:
        """Compares the candidates. If not all took part in the first race, also tries those that differ from the winner
        in one setting, until no better one is found. Returns the results. Raises `ConfigError` if nothing can be
        measured."""
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

    async def _race(self, entrants: Sequence[TuningCandidate]) -> None:
        """Runs one race, to its end or until it is stopped."""
        cases = self.progress.cases
        race = Race([candidate.number for candidate in entrants], len(cases))
        places = {case.id: place for place, case in enumerate(cases)}
        for number in list(race.active):
            self.progress.out.pop(number, None)
            for known, result in self.progress.results.get(number, {}).items():
                race.put(number, places[known], result.points)
        started = time.monotonic() - self.progress.seconds
        running: dict[asyncio.Task[TuningResult], tuple[int, Case]] = {}
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
            await cancel_all(running)

    async def _result(self, number: int, case: Case) -> TuningResult:
        answer = await self._ask(number, case)
        return TuningResult(answer, None if answer.fault is not None else score_answer(case, answer))

    def _keep(self, race: Race, number: int, case: Case, place: int, result: TuningResult) -> None:
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
        self._update(progress)

    def _rank_of_others(self, number: int) -> tuple[int, float, int]:
        """Returns the rank of a candidate that is not in the race: by number of answers, then by score."""
        figures = self.progress.figures(number)
        return -figures.answered, -(figures.score or 0.0), number


def common_cases(progress: Progress, a: int, b: int) -> list[str]:
    """Returns the cases that both candidates have answered without an error."""

    def answered(number: int) -> Mapping[str, TuningResult]:
        return {case: r for case, r in progress.results.get(number, {}).items() if r.marks is not None}

    return [case for case in answered(a) if case in answered(b)]
