"""The circuit breaker: every short history, against a model of its table of states (R10.6)."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product

from tests.cases import every
from toolwire.upstream.pool.breaker import Breaker

STEPS = ("begin", "rest", "succeeded", "failed", "ended")
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
        assert breaker.wait_s == (0 if opened is None else max(0, opened + OPEN_S - now))
        assert sum(running) <= 1, "one probe at most"


@every("limit", [0, 1, 2])
def test_every_history(limit: int) -> None:
    """Of five steps, from the start and from the moment in which a probe is out. With the limit 0 it never opens."""
    for steps in product(STEPS, repeat=5):
        play(steps, limit)
        play(("begin", "failed") * limit + ("rest", "begin", *steps), limit)
