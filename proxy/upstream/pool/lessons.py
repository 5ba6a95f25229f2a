"""Lessons: parts of requests that a server has refused, which later requests leave out (docs/adr/0061).

Rules:

1. A lesson is learned only if the same request was accepted without the refused part.
2. It applies to requests of the same owner (API key) for the same model, because the refusal may depend on other parts
   of that client's request. After requests of a second owner have taught the same, it applies to all (R33.6).
3. It is forgotten after `seconds`, and when the server turns out to be another one.
4. It contains no text of a client: its value is a number, a known word or a hash.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable
from typing import Final, Literal

Kind = Literal[
    "images",
    "files",
    "long_names",
    "roles",
    "max_tokens",
    "effort",
    "sampling",
    "choice_objects",
    "constraint",
    "constraints",
]
"""Kinds of refused parts: images, files, tool names beyond 64 characters, uses of roles, answers beyond a length,
levels of reasoning effort, fields of `toolwire.upstream.servers.concessions.FIELDS` (`sampling`: a name, and behind it
what a request must have beside the field: `streamed tools`), `tool_choice` as an object, one constraint on calls, and
all of them."""

MOST: Final = 1024
"""Maximum number of lessons per server, counted separately for each owner."""

OPINIONS: Final = 2
"""Number of owners after which a lesson applies to all."""


class Lessons:
    """The lessons of one server. False in a boolean context if there are none."""

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.seconds = seconds
        self.takes_constraints = False
        """True if the server has accepted a constraint on calls, from any owner."""
        self._clock = clock
        self._known: dict[tuple[str, Kind], dict[Hashable, dict[str, float]]] = {}
        """By model and kind: for each value the owners, with the time until which it applies to each."""
        self._number = 0

    def __bool__(self) -> bool:
        return bool(self._known)

    def learn(self, owner: str, model: str, kind: Kind, value: Hashable = None) -> None:
        """Records that a request of `owner` was refused because of this part, and accepted without it."""
        if self._number >= MOST:
            self._make_room()
        owners = self._known.setdefault((model, kind), {}).setdefault(value, {})
        self._number += owner not in owners
        owners[owner] = self._clock() + self.seconds

    def knows(self, owner: str, model: str, kind: Kind, value: Hashable = None) -> bool:
        """True if requests of `owner` must leave out this part."""
        owners = self._known.get((model, kind), {}).get(value)
        return owners is not None and self._counts(owners, owner)

    def values(self, owner: str, model: str, kind: Kind) -> list[Hashable]:
        """Returns all values of this kind that apply to requests of `owner`, the newest last."""
        known = self._known.get((model, kind), {})
        return [value for value, owners in known.items() if self._counts(owners, owner)]

    def shown(self) -> dict[str, dict[str, str]]:
        """Returns the lessons for `/ready`: by model and kind, whether they apply to `all` owners or to `some`."""
        out: dict[str, dict[str, str]] = {}
        for (model, kind), values in sorted(self._known.items()):
            opinions = max(map(self._opinions, values.values()))
            if opinions:
                out.setdefault(model, {})[kind] = "all" if opinions >= OPINIONS else "some"
        return out

    def _counts(self, owners: dict[str, float], owner: str) -> bool:
        return owners.get(owner, 0.0) > self._clock() or self._opinions(owners) >= OPINIONS

    def _opinions(self, owners: dict[str, float]) -> int:
        """Returns how many owners count for a lesson now."""
        now = self._clock()
        opinions = (
            1 if owner else OPINIONS for owner, until in owners.items() if until > now
        )  # none: there are no keys
        return sum(opinions)

    def _make_room(self) -> None:
        """Removes expired lessons; if that is not enough, also the oldest value of the kind with the most values."""
        now = self._clock()
        for key, values in list(self._known.items()):
            for value, owners in list(values.items()):
                values[value] = {owner: until for owner, until in owners.items() if until > now}
                self._number -= len(owners) - len(values[value])
                if not values[value]:
                    del values[value]
            if not values:
                del self._known[key]
        if self._number >= MOST:
            key, values = max(self._known.items(), key=lambda known: len(known[1]))
            self._number -= len(values.pop(next(iter(values))))
            if not values:
                del self._known[key]
