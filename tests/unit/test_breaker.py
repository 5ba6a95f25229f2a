"""The circuit breaker against its table of states (R10.6)."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from toolwire.upstream.pool.breaker import Breaker


class BreakerMachine(RuleBasedStateMachine):
    """Requests that begin when they may and end as they like, while time passes: against a model that keeps the whole
    history."""

    @initialize(failures=st.integers(0, 3))
    def begin(self, failures: int) -> None:
        self.now = 0.0
        self.limit = failures
        self.breaker = Breaker(failures, 10.0, lambda: self.now)
        self.running: list[bool] = []
        self.in_a_row = 0
        self.opened: float | None = None

    @rule(seconds=st.sampled_from([1.0, 5.0, 10.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    @precondition(lambda self: self.breaker.allows)
    @rule()
    def a_request_begins(self) -> None:
        self.running.append(self.breaker.enter())

    @precondition(lambda self: self.running)
    @rule(number=st.integers(0, 100), end=st.sampled_from(["succeeded", "failed", "left"]))
    def a_request_ends(self, number: int, end: str) -> None:
        probe = self.running.pop(number % len(self.running))
        getattr(self.breaker, end)(probe)
        if probe:
            if end == "succeeded":
                self.opened, self.in_a_row = None, 0
            elif end == "failed":
                self.opened = self.now
        elif self.opened is None:
            if end == "succeeded":
                self.in_a_row = 0
            elif end == "failed":
                self.in_a_row += 1
                if self.in_a_row == self.limit:
                    self.opened = self.now

    @invariant()
    def it_is_in_the_state_of_the_table(self) -> None:
        if self.opened is None:
            assert self.breaker.state == "closed"
            assert self.breaker.allows
            assert self.breaker.wait_s == 0
        else:
            rested = self.now - self.opened >= 10.0
            assert self.breaker.state == ("half_open" if rested else "open")
            assert self.breaker.allows == (rested and not any(self.running))
            assert self.breaker.wait_s == max(0.0, self.opened + 10.0 - self.now)

    @invariant()
    def there_is_one_probe_at_most(self) -> None:
        assert sum(self.running) <= 1


BreakerMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=30)
TestBreaker = BreakerMachine.TestCase


def test_it_never_opens_without_a_limit() -> None:
    breaker = Breaker(0, 10.0)
    for _ in range(100):
        breaker.failed(breaker.enter())
    assert breaker.allows
