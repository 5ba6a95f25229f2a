"""A tuning from beginning to end, with somebody who answers by rule."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from tests.waiting import GUARD_S
from toolwire.config import RouteOptions
from toolwire.extras.tune.cases import Case, read_cases
from toolwire.extras.tune.scoring import ClientAnswer, ClientCall
from toolwire.extras.tune.space import TuningCandidate, thinned
from toolwire.extras.tune.tuner import FAULTS_IN_A_ROW, Progress, Tuner, common_cases
from toolwire.support.conversion import ConfigError

TOOL = {"name": "f", "parameters": {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}}
CASES = read_cases(
    {
        "cases": [
            {"id": f"c{n}", "topic": "t", "ask": "Hi", "tools": [TOOL], "calls": [{"name": "f", "arguments": {"n": n}}]}
            for n in range(40)
        ]
    },
    "x",
)
RIGHT = {
    case.id: ClientAnswer((ClientCall("f", f'{{"n": {case.id[1:]}}}'),), output_tokens=7, seconds=0.5) for case in CASES
}
SILENT = ClientAnswer(text="Hello.")


def grid(*sizes: int) -> list[TuningCandidate]:
    found: list[dict[str, str]] = [{}]
    for dimension, size in enumerate(sizes):
        found = [{**levels, f"d{dimension}": f"l{level}"} for levels in found for level in range(size)]
    return [TuningCandidate(number, levels, {"n": number}, RouteOptions()) for number, levels in enumerate(found)]


class Model:
    """Answers by rule, and remembers what it was asked."""

    def __init__(self, rule: Callable[[int, Case], ClientAnswer]) -> None:
        self.rule = rule
        self.asked: list[tuple[int, str]] = []
        self.running = self.most = 0

    async def ask(self, route: int, case: Case) -> ClientAnswer:
        self.asked.append((route, case.id))
        self.running += 1
        self.most = max(self.most, self.running)
        await asyncio.sleep(0)
        self.running -= 1
        return self.rule(route, case)


async def tune(model: Any, candidates: list[TuningCandidate], **more: Any) -> Progress:
    return await Tuner(model.ask, candidates, CASES, lambda progress: None, **{"most": 24, **more}).run()


async def test_the_best_is_found() -> None:
    model = Model(lambda route, case: RIGHT[case.id] if route == 3 else SILENT)
    progress = await tune(model, grid(6))
    assert progress.winner is not None
    assert progress.winner.number == 3
    assert progress.best[0] == 3
    assert progress.figures(3).right == progress.figures(3).answered == len(progress.results[3])
    assert len(model.asked) == len(set(model.asked)) == progress.asked
    assert progress.to_come == 0


async def test_several_are_asked_at_once_but_no_more() -> None:
    model = Model(lambda route, case: SILENT if route else RIGHT[case.id])
    await tune(model, grid(8), concurrency=5)
    assert model.most == 5


async def test_a_combination_that_was_thinned_out_is_found_beside_the_best() -> None:
    candidates = grid(6, 6)
    there = {candidate.number for candidate in thinned(candidates, 8)}
    target = next(c for c in candidates if c.number not in there and c.levels["d0"] == "l0")
    levels = target.levels

    def rule(route: int, case: Case) -> ClientAnswer:
        """The nearer to the target, the more is right."""
        near = sum(candidates[route].levels[key] == value for key, value in levels.items())
        return RIGHT[case.id] if int(case.id[1:]) % 3 < near + (near == 2) else SILENT

    progress = await tune(Model(rule), candidates, most=8)
    assert progress.winner is target
    assert len(progress.results) < len(candidates)


async def test_nobody_is_asked_the_same_twice_in_a_second_race() -> None:
    model = Model(lambda route, case: RIGHT[case.id] if (route + int(case.id[1:])) % 3 else SILENT)
    await tune(model, grid(5, 5), most=6)
    assert len(model.asked) == len(set(model.asked))


async def test_faults_are_counted_apart_and_do_not_stop_it() -> None:
    def rule(route: int, case: Case) -> ClientAnswer:
        if route == 1 and int(case.id[1:]) % 4 == 0:
            return ClientAnswer(fault="503 overloaded: busy")
        return RIGHT[case.id] if route == 1 else SILENT

    progress = await tune(Model(rule), grid(3))
    assert progress.best[0] == 1
    figures = progress.figures(1)
    assert figures.faults > 0
    assert figures.score == 1
    assert not progress.trouble


async def test_a_server_that_only_fails_is_a_mistake() -> None:
    model = Model(lambda route, case: ClientAnswer(fault="502 upstream_error: it burns"))
    with pytest.raises(ConfigError, match="the model server fails: 502 upstream_error: it burns"):
        await tune(model, grid(8))
    assert len(model.asked) == FAULTS_IN_A_ROW


async def test_a_server_that_goes_away_ends_it_and_what_was_measured_stays() -> None:
    count = 0

    def rule(route: int, case: Case) -> ClientAnswer:
        nonlocal count
        count += 1
        return ClientAnswer(fault="gone") if count > 30 else RIGHT[case.id] if route == 2 else SILENT

    progress = await tune(Model(rule), grid(8))
    assert progress.trouble == "gone"
    assert count == 30 + FAULTS_IN_A_ROW
    assert progress.best[0] == 2


async def test_stopping_keeps_what_was_measured_and_gives_up_the_rest() -> None:
    hanging = asyncio.Event()
    cancelled = 0

    class Hangs(Model):
        async def ask(self, route: int, case: Case) -> ClientAnswer:
            nonlocal cancelled
            if len(self.asked) >= 10:
                hanging.set()
                try:
                    await asyncio.Event().wait()
                except asyncio.CancelledError:
                    cancelled += 1
                    raise
            return await super().ask(route, case)

    model = Hangs(lambda route, case: RIGHT[case.id])
    tuner = Tuner(model.ask, grid(4), CASES, lambda progress: None, most=24, concurrency=3)
    task = asyncio.ensure_future(tuner.run())
    await asyncio.wait_for(hanging.wait(), GUARD_S)
    tuner.stop()
    progress = await asyncio.wait_for(task, GUARD_S)
    assert progress.stopped
    assert progress.asked == 10
    assert progress.winner is not None
    assert cancelled > 0


async def test_a_mistake_in_a_case_ends_it() -> None:
    def rule(route: int, case: Case) -> ClientAnswer:
        raise ConfigError("the case 'c0' cannot be asked")

    with pytest.raises(ConfigError, match="c0"):
        await tune(Model(rule), grid(3), concurrency=2)


async def test_candidates_are_compared_by_what_both_were_asked() -> None:
    progress = await tune(Model(lambda route, case: RIGHT[case.id] if route == 5 else SILENT), grid(8))
    common = common_cases(progress, 5, 0)
    assert common == [case for case in progress.results[5] if case in progress.results[0]] != []
    assert progress.figures(5, common).answered == len(common)
