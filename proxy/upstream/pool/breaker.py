"""A circuit breaker: stops using a server that fails, and finds out when it works again (R10.6).

| state | requests | changes |
| --- | --- | --- |
| closed | allowed | after `failures` failures in a row: open |
| open | none | after `open_s`: half open |
| half open | one at a time, the probe | it succeeds: closed; it fails: open again |

A request that neither succeeds nor fails, because the client disconnected, changes nothing; after such a probe another
may follow. The result of a request that was sent before the breaker opened is ignored: only a probe can close it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Literal

State = Literal["closed", "open", "half_open"]


class Breaker:
    """One breaker. With `failures` 0 it never opens. For use in one event loop; no method waits."""

    def __init__(self, failures: int, open_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._limit = failures
        self._open_s = open_s
        self._clock = clock
        self._failed = 0
        self._opened: float | None = None
        self._probing = False
        self.untroubled = True
        """Closed, and the last request did not fail. Then a success changes nothing, and a request is no probe."""

    @property
    def state(self) -> State:
        """The current state (see the table)."""
        if self._opened is None:
            return "closed"
        return "half_open" if self._clock() - self._opened >= self._open_s else "open"

    @property
    def allows(self) -> bool:
        """True if a request may be sent now."""
        state = self.state
        return state == "closed" or (state == "half_open" and not self._probing)

    @property
    def wait_s(self) -> float:
        """Estimated seconds until a request may be sent."""
        return 0.0 if self._opened is None else max(0.0, self._opened + self._open_s - self._clock())

    def enter(self) -> bool:
        """Called when a request is sent; only if `allows`. Returns True if it is the probe; pass that to the other
        methods."""
        probe = self._opened is not None
        self._probing = self._probing or probe
        return probe

    def succeeded(self, probe: bool) -> None:
        """Called when a request succeeded."""
        if probe:
            self._probing = False
            self._opened = None
        if self._opened is None:
            self._failed = 0
            self.untroubled = True

    def failed(self, probe: bool) -> None:
        """Called when a request failed."""
        self.untroubled = False
        if probe:
            self._probing = False
            self._opened = self._clock()
        elif self._opened is None:
            self._failed += 1
            if self._failed == self._limit:
                self._opened = self._clock()

    def ended(self, probe: bool) -> None:
        """Called when a request ended without a result."""
        if probe:
            self._probing = False
