"""What the scanner's states lead to, as data: what `docs/drawings.py` draws.

The twins do not read it, they are it: a test watches the specification over the texts of the laws, and the table is
just what it did, no row missing and none too many; the compiled twin shows the same state behind every character.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from toolwire.scan._grammar import BODY, BROKEN, DONE, HELD, KEY, LEAD, REASONING, TAIL, TEXT

OUTSIDE: Final = (TEXT, REASONING)
"""Where an answer begins, inside reasoning if it is `preopened`, and where it goes on behind a block."""

INSIDE: Final = (LEAD, KEY, BODY, TAIL, BROKEN, HELD)
"""In a block."""


@dataclass(frozen=True, slots=True)
class Transition:
    """From each of these states, `on` this, to each of those. A step ends where the scanner looks again in which state
    it is: within one character there may be several."""

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
"""All of them. Of `reasoning` holds that it leads into blocks only under `scan_calls`."""
