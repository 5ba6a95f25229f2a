"""A circuit breaker: stop asking a server that fails, and find out when it works again (R10.6).

| state | requests | changes |
| --- | --- | --- |
| closed | pass | `failures` failures in a row: open |
| open | none pass | after `open_s`: half open |
| half open | one at once passes, the probe | it succeeds: closed; it fails: open again |

What ends neither well nor badly, because the client went away, changes nothing; a probe then makes way for another.
What a request does that was sent before the breaker opened does not count: only the probe can close it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Literal

State = Literal["closed", "open", "half_open"]


class Breaker:
    """One breaker. `failures` 0: it never opens. For one event loop: nothing here waits."""

    def __init__(self, failures: int, open_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._limit = failures
        self._open_s = open_s
        self._clock = clock
        self._failed = 0
        self._opened: float | None = None
        self._probing = False
        self.untroubled = True
        """Closed, and the last request was no failure: then a success is no news, and a request no probe."""

    @property
    def state(self) -> State:
        """Which row of the table it is in now."""
        if self._opened is None:
            return "closed"
        return "half_open" if self._clock() - self._opened >= self._open_s else "open"

    @property
    def allows(self) -> bool:
        """Whether a request may be sent now."""
        state = self.state
        return state == "closed" or (state == "half_open" and not self._probing)

    @property
    def wait_s(self) -> float:
        """How long until a request may be sent, as far as can be told."""
        return 0.0 if self._opened is None else max(0.0, self._opened + self._open_s - self._clock())

    def enter(self) -> bool:
        """A request is sent; only if `allows`. Gives whether it is the probe, which has to be said when it ends."""
        probe = self._opened is not None
        self._probing = self._probing or probe
        return probe

    def succeeded(self, probe: bool) -> None:
        """The server did what it was asked."""
        if probe:
            self._probing = False
            self._opened = None
        if self._opened is None:
            self._failed = 0
            self.untroubled = True

    def failed(self, probe: bool) -> None:
        """The server failed."""
        self.untroubled = False
        if probe:
            self._probing = False
            self._opened = self._clock()
        elif self._opened is None:
            self._failed += 1
            if self._failed == self._limit:
                self._opened = self._clock()

    def left(self, probe: bool) -> None:
        """The request ended and says nothing about the server."""
        if probe:
            self._probing = False
