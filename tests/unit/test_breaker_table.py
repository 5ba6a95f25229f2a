"""Corners of the circuit breaker: every history of six steps, against a model of its table of states (R10.6)."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product

from tests.cases import every
from toolwire.upstream.pool.breaker import Breaker

STEPS = ("begin", "rest", "succeeded", "failed", "left")
OPEN_S = 10.0


def play(steps: Iterable[str], limit: int) -> None:
    """A history: requests begin where they may, and the oldest that runs ends. Checks the state after each step."""
    now, opened, in_a_row = 0.0, None, 0
    running: list[bool] = []
    breaker = Breaker(limit, OPEN_S, lambda: now)
    for step in steps:
        if step == "rest":
            now += OPEN_S
        elif step == "begin":
            if breaker.allows:
                running.append(breaker.enter())
        elif running:
            probe = running.pop(0)
            getattr(breaker, step)(probe)
            if step == "succeeded" and (probe or opened is None):
                opened, in_a_row = None, 0
            elif step == "failed" and (probe or opened is None):
                in_a_row += 1
                opened = now if probe or in_a_row == limit else None
        rested = opened is not None and now - opened >= OPEN_S
        assert breaker.state == ("closed" if opened is None else "half_open" if rested else "open")
        assert breaker.allows == (opened is None or (rested and not any(running)))
        assert sum(running) <= 1, "one probe at most"


@every("limit", [0, 1, 2])
def test_every_history_of_six_steps(limit: int) -> None:
    for steps in product(STEPS, repeat=6):
        play(steps, limit)
