"""The transitions between the scanner's states as data.

The twins do not read this table. A test records the transitions of the Python twin over the texts of the property tests
and requires exactly the rows of this table; the compiled twin must show the same state after every character.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from ._grammar import BODY, BROKEN, DONE, HELD, KEY, LEAD, REASONING, TAIL, TEXT

OUTSIDE: Final = (TEXT, REASONING)
"""States outside blocks: at the start of an answer (reasoning if `preopened`) and after a block."""

INSIDE: Final = (LEAD, KEY, BODY, TAIL, BROKEN, HELD)
"""States inside a block."""


@dataclass(frozen=True, slots=True)
class Transition:
    """Possible transitions from each of `sources`, on event `on`, to each of `targets`. A step ends where the scanner
    checks its state again; one character may cause several steps."""

    sources: tuple[int, ...]
    on: str
    targets: tuple[int, ...]

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return ((source, target) for source in self.sources for target in self.targets)


TRANSITIONS: Final = (
    Transition((TEXT,), "an opening tag of reasoning", (REASONING,)),
    Transition((REASONING,), "its closing tag", (TEXT,)),
    Transition(OUTSIDE, "an opener, or a body that begins without one", (LEAD,)),
    Transition((LEAD, TAIL), "a field begins whose first key tells whether this is a call", (KEY,)),
    Transition((LEAD, TAIL), "another field begins, or the last one goes on after all", (BODY,)),
    Transition((KEY,), "a key that calls begin with", (BODY,)),
    Transition((BODY,), "the field is whole", (TAIL,)),
    Transition((BODY, TAIL), "that field was no part of a call, as if nothing had been read yet", (LEAD,)),
    Transition((BODY, TAIL), "something that the syntax does not allow", (BROKEN,)),
    Transition((LEAD, BODY, TAIL), "no body follows the opener, and a strict tool is on offer", (HELD,)),
    Transition(INSIDE, "the block is judged, or is none, and the text goes on", OUTSIDE),
    Transition(INSIDE, "the call policy gives an error", (DONE,)),
    Transition(OUTSIDE, "the answer ends", (DONE,)),
)
"""All transitions between the scanner's states. From `reasoning`, blocks begin only with the option `scan_calls`."""
