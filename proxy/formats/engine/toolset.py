"""Cache of tool lists: agents send the same tools, byte for byte, with every request of a conversation.

`KnownTools` finds such a list in a body before it is parsed, so its bytes are compared instead of parsed. Results
derived from the list (the `ToolSet`, and as its notes the decision about it, the prompt segment, the offer) are kept
with it and found by identity, without hashing (R3.9). The cache counts the memory of the list and all its notes
(R33.1).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from secrets import token_hex
from typing import Any, Final, NamedTuple, TypeVar

from ...fastparse import array_start, item_ends, json_marks
from ...model import ToolSpec
from ...support.cache import BudgetedCache, weight_of

T = TypeVar("T")

MAX_NOTES: Final = 16
"""Maximum number of notes (derived values) of a `ToolSet`; one more drops all others. Limited because a client can
choose ever new subsets of its tools."""
MAX_NOTES_BYTES: Final = 12 * 1024 * 1024
"""Maximum bytes of the notes of a `ToolSet`; a note beyond that drops all others. A single larger note is not stored.
The compiled schemas of a tool take 20 to 40 kB, so this is enough for some 350 tools."""
NOTE_BYTES: Final = 512
"""Memory of a note in bytes, without its key and value."""
SPEC_BYTES: Final = 700
"""Memory of a `ToolSpec` in bytes, without the parsed list that it refers to."""
NAME_BYTES: Final = 300
"""Memory in bytes of a tool's name in a note that maps or lists names."""
PARSED_VALUE_BYTES: Final = 300
TEXT_COPIES: Final = 3
"""Maximum memory of a parsed list of tools in bytes: `PARSED_VALUE_BYTES` per JSON value plus `TEXT_COPIES` times the
bytes of its text."""
HEAD_BYTES: Final = 96
"""Number of first bytes by which a list of tools is looked up. Shorter lists are not cached."""
MAX_SAME_HEAD: Final = 8
TOOLS_KEY: Final = b'"tools"'
"""The key of the tools in a request body. Bodies without it have no list to look up."""


class _Room:
    """The bytes that a set, and the sets derived from it, hold in notes, at most `most`. `grow` is called with every
    change (None: the owner no longer counts)."""

    __slots__ = ("grow", "held", "most")

    def __init__(self, grow: Callable[[int], None] | None, most: int) -> None:
        self.grow = grow
        self.held = 0
        self.most = most

    def add(self, by: int) -> None:
        """Adds `by` bytes."""
        self.held += by
        if self.grow is not None:
            self.grow(by)


class ToolSet(tuple[ToolSpec, ...]):
    """The tools of a request. `notes` are values derived from them, by key; see `note_of`.

    `of`: the set from which these tools were chosen, which keeps this one in a note. `grow` is called with the number
    of bytes by which the notes grow; they may have `most` bytes, and never more than `MAX_NOTES_BYTES`.
    """

    notes: dict[Hashable, Any]
    _room: _Room
    _own: int
    _is_root: bool

    def __new__(
        cls,
        tools: Iterable[ToolSpec] = (),
        *,
        of: Sequence[ToolSpec] | None = None,
        grow: Callable[[int], None] | None = None,
        most: int = MAX_NOTES_BYTES,
    ) -> ToolSet:
        """Creates a set without notes."""
        self = super().__new__(cls, tools)
        self.notes = {}
        self._room = of._room if isinstance(of, ToolSet) else _Room(grow, min(most, MAX_NOTES_BYTES))
        self._own = 0
        self._is_root = not isinstance(of, ToolSet)
        return self

    @property
    def noted_bytes(self) -> int:
        """Bytes held by the notes of this set and of the sets derived from it."""
        return self._room.held if self._is_root else self._own

    def note(self, key: Hashable, value: object, weight: int) -> None:
        """Stores a note, see the function `note`."""
        weight += NOTE_BYTES + weight_of(key)
        most = self._room.most
        if weight > most:
            return
        if len(self.notes) >= MAX_NOTES or self.noted_bytes + weight > most:
            self._forget()
        self.notes[key] = value
        self._own += weight
        self._room.add(weight)

    def _forget(self) -> None:
        self.notes.clear()
        room = self._room
        if self._is_root:  # derived sets in the notes are dropped too, and those still in use no longer count
            self._room = _Room(room.grow, room.most)
            room.add(-room.held)
            room.grow = None
        else:
            room.add(-self._own)
        self._own = 0


def note_of(tools: Sequence[ToolSpec], key: Hashable) -> Any:
    """Returns the note under `key` of exactly these tools, or None."""
    return tools.notes.get(key) if isinstance(tools, ToolSet) else None


def note(tools: Sequence[ToolSpec], key: Hashable, value: T, weight: int) -> T:
    """Stores `value` as a note and returns it. It must depend only on the tools and the key, and must never be changed.

    `weight` is the number of bytes that `value` keeps alive in addition to the tools.
    """
    if isinstance(tools, ToolSet):
        tools.note(key, value, weight)
    return value


class KnownList(list[Any]):
    """The parsed `tools` of a body, shared by all bodies with the same bytes there. It must never be changed.

    `marks` are the numbers of opening brackets and of commas in its `text`. `sets` are the `ToolSet`s that the
    protocols derived from it, by name. `weight` is its memory in bytes, of which the cache takes `most`; `grown` is
    called with this list and the number of bytes it has grown by.
    """

    def __init__(
        self,
        tools: list[Any],
        text: bytes,
        grown: Callable[[KnownList, int], None] = lambda known, by: None,
        most: int = MAX_NOTES_BYTES,
    ) -> None:
        super().__init__(tools)
        self.text = text
        openers, commas, _ = json_marks(text)
        self.marks = (openers, commas)
        self.sets: dict[str, ToolSet] = {}
        self.weight = TEXT_COPIES * len(text) + PARSED_VALUE_BYTES * (openers + commas)
        self.most = most
        self._grown = grown

    def grow(self, by: int) -> None:
        """Adds `by` bytes to `weight` and calls `grown`."""
        self.weight += by
        self._grown(self, by)


def known_set(listed: Any, protocol: str) -> tuple[ToolSpec, ...] | None:
    """Returns the tools that `protocol` derived from this `tools` value earlier; an empty tuple if there are no tools;
    None if the list is new."""
    if isinstance(listed, KnownList):
        return listed.sets.get(protocol)
    return () if listed is None or (isinstance(listed, list) and not listed) else None


def new_set(listed: Any, protocol: str, tools: Iterable[ToolSpec]) -> ToolSet:
    """Returns the set of these tools, cached for later requests with the same list."""
    if not isinstance(listed, KnownList):
        return ToolSet(tools)
    specs = tuple(tools)
    listed.grow(SPEC_BYTES * len(specs))
    made = listed.sets[protocol] = ToolSet(specs, grow=listed.grow, most=listed.most - listed.weight)
    return made


class CutTools(NamedTuple):
    """The known `tools` of a body, and the `rest` of the body with a mark in their place."""

    tools: KnownList
    rest: bytes


class KnownTools:
    """The recent lists of tools, as far as `cache` has room. Large bodies are read in threads, so calls may be
    concurrent."""

    def __init__(self, cache: BudgetedCache[tuple[KnownList, ...]]) -> None:
        self._known = cache
        self._mark = token_hex(16)  # random, so that no text of a client can look like the mark
        self._mark_text = b'"%b"' % self._mark.encode()

    def cut(self, body: bytes) -> CutTools | None:
        """Returns the known list in `body`, and the rest of it; None if there is none.

        The body need not be valid JSON: only `put_back` can tell whether the list was the `tools` of the request.
        """
        start = array_start(body, TOOLS_KEY) - 1
        if start < 0:
            return None
        for known in self._known.get(body[start : start + HEAD_BYTES]) or ():
            if body.startswith(known.text, start):
                return CutTools(known, body[:start] + self._mark_text + body[start + len(known.text) :])
        return None

    def put_back(self, value: Any, known: KnownList) -> bool:
        """Puts the list in place of the mark in the parsed body. Returns False if the mark is not at `tools`."""
        if isinstance(value, dict) and value.get("tools") == self._mark:
            value["tools"] = known
            return True
        return False

    def learn(self, body: bytes, value: dict[str, Any]) -> None:
        """Stores the tools of `value`, the parsed JSON of `body`. The body must have no duplicate keys."""
        tools = value.get("tools")
        if not tools or not isinstance(tools, list):
            return
        start = array_start(body, TOOLS_KEY) - 1
        if start < 0:  # the key is written with a JSON escape, which is not looked up
            return
        text = body[start : item_ends(body, start + 1)[-1] + 1]
        if len(text) < HEAD_BYTES:
            return
        head = text[:HEAD_BYTES]
        known = value["tools"] = KnownList(tools, text, self._grown, self._known.most)
        others = (self._known.get(head) or ())[: MAX_SAME_HEAD - 1]
        self._known.put(head, (known, *others), sum(one.weight for one in (known, *others)))

    def _grown(self, known: KnownList, by: int) -> None:
        head = known.text[:HEAD_BYTES]
        if any(one is known for one in self._known.get(head) or ()):
            self._known.grow(head, by)
