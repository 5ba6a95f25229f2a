"""Lessons: what one server has refused of requests, which is left out of later ones (docs/adr/0061).

Rules:

1. A lesson is learned from a refusal only if the same request was taken without what was refused.
2. It counts for requests of the same owner for the same model, since a refusal may follow from what that client sent
   besides. When requests of a second owner have taught the same, it counts for all (R33.6).
3. It is forgotten after `seconds`, and with the server: whoever finds that it is another one makes new lessons.
4. Of a client's text nothing is kept: a value is a number, a known word or a hash.
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
"""What can be refused: images, files, names beyond 64 characters, roles of messages, answers beyond a length, words for
the effort of reasoning, fields of sampling, a `tool_choice` that is an object, one constraint on calls, and all of
them."""

MOST: Final = 1024
"""Lessons that are kept of a server, each owner's counted."""

OPINIONS: Final = 2
"""So many owners make a lesson one for all."""


class Lessons:
    """Those of one server. Without any it is false."""

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.seconds = seconds
        self.takes_constraints = False
        """It took a constraint on calls, of whatever owner."""
        self._clock = clock
        self._known: dict[tuple[str, Kind], dict[Hashable, dict[str, float]]] = {}
        """By model and kind: the values, and until when each counts for which owners."""
        self._number = 0

    def __bool__(self) -> bool:
        return bool(self._known)

    def learn(self, owner: str, model: str, kind: Kind, value: Hashable = None) -> None:
        """A request of `owner` was refused for this, and taken without."""
        if self._number >= MOST:
            self._make_room()
        owners = self._known.setdefault((model, kind), {}).setdefault(value, {})
        self._number += owner not in owners
        owners[owner] = self._clock() + self.seconds

    def knows(self, owner: str, model: str, kind: Kind, value: Hashable = None) -> bool:
        """Whether requests of `owner` are sent without this."""
        owners = self._known.get((model, kind), {}).get(value)
        return owners is not None and self._counts(owners, owner)

    def values(self, owner: str, model: str, kind: Kind) -> list[Hashable]:
        """All of this kind that requests of `owner` are sent without, the newest last."""
        known = self._known.get((model, kind), {})
        return [value for value, owners in known.items() if self._counts(owners, owner)]

    def shown(self) -> dict[str, dict[str, str]]:
        """By model and kind: whether requests of `all` keys or of `some` are sent without this."""
        out: dict[str, dict[str, str]] = {}
        for (model, kind), values in sorted(self._known.items()):
            opinions = max(map(self._opinions, values.values()))
            if opinions:
                out.setdefault(model, {})[kind] = "all" if opinions >= OPINIONS else "some"
        return out

    def _counts(self, owners: dict[str, float], owner: str) -> bool:
        return owners.get(owner, 0.0) > self._clock() or self._opinions(owners) >= OPINIONS

    def _opinions(self, owners: dict[str, float]) -> int:
        """Returns how many owners say so now."""
        now = self._clock()
        opinions = (
            1 if owner else OPINIONS for owner, until in owners.items() if until > now
        )  # none: there are no keys
        return sum(opinions)

    def _make_room(self) -> None:
        """Forget what has had its time; if that was not enough, the oldest value of the kind with the most values."""
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
