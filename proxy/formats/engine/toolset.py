"""Lists of tools that come again: agents send the same tools, byte for byte, with every request of a conversation.

`KnownTools` finds such a list in a body before it is parsed, so its bytes are compared instead of read. What was made
of the list (the `ToolSet`, and by its notes the decision on it, the prompt segment, the offer) is kept with it and
found by identity: nothing is hashed (R3.9). Its weight in the cache is that of the list and of all its notes (R33.1).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from secrets import token_hex
from typing import Any, Final, TypeVar

from toolwire.fastparse import array_start, item_ends, json_marks
from toolwire.model import ToolSpec
from toolwire.support.cache import Cache, weight_of

T = TypeVar("T")

MAX_NOTES: Final = 16
"""More make a set forget the others: choices of tools can be combined without end."""
MAX_NOTES_BYTES: Final = 4 * 1024 * 1024
"""Bytes of notes beyond which a set forgets the others. A note that alone keeps more is not made."""
NOTE_BYTES: Final = 512
"""Weight of a note beside its key and what its maker says."""
SPEC_BYTES: Final = 700
"""Weight of a `ToolSpec` beside the parsed list that it refers to."""
NAME_BYTES: Final = 300
"""Weight of a tool's name in a note that maps or lists names."""
VALUE_BYTES: Final = 300
TEXT_COPIES: Final = 3
"""Memory of a parsed list: at most so many bytes for each JSON value, and for each byte of its text."""
HEAD_BYTES: Final = 96
"""A list is looked up by its beginning; shorter ones are not worth it."""
MAX_SAME_HEAD: Final = 8
TOOLS_KEY: Final = b'"tools"'
"""Without it a body has no list that is looked for."""


class _Room:
    """Bytes that a set and the sets made of it hold in notes. `grow` is told of changes; None: nobody asks any more."""

    __slots__ = ("grow", "held")

    def __init__(self, grow: Callable[[int], None] | None) -> None:
        self.grow = grow
        self.held = 0

    def add(self, by: int) -> None:
        """Hold `by` bytes more."""
        self.held += by
        if self.grow is not None:
            self.grow(by)


class ToolSet(tuple[ToolSpec, ...]):
    """The tools of a request. `notes` is what was made of them, by whom and what for; see `note_of`.

    `of`: the set that these tools were chosen from, which keeps this one in a note. `grow` is told by how many bytes
    the notes grow.
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
    ) -> ToolSet:
        """A set without notes."""
        self = super().__new__(cls, tools)
        self.notes = {}
        self._room = of._room if isinstance(of, ToolSet) else _Room(grow)
        self._own = 0
        self._is_root = not isinstance(of, ToolSet)
        return self

    @property
    def noted_bytes(self) -> int:
        """Bytes that the notes of this set, and of the sets that they hold, keep."""
        return self._room.held if self._is_root else self._own

    def note(self, key: Hashable, value: object, weight: int) -> None:
        """See `note`."""
        weight += NOTE_BYTES + weight_of(key)
        if weight > MAX_NOTES_BYTES:
            return
        if len(self.notes) >= MAX_NOTES or self.noted_bytes + weight > MAX_NOTES_BYTES:
            self._forget()
        self.notes[key] = value
        self._own += weight
        self._room.add(weight)

    def _forget(self) -> None:
        self.notes.clear()
        room = self._room
        if self._is_root:  # sets in the notes are gone as well; those still in use count for nothing
            self._room = _Room(room.grow)
            room.add(-room.held)
            room.grow = None
        else:
            room.add(-self._own)
        self._own = 0


def note_of(tools: Sequence[ToolSpec], key: Hashable) -> Any:
    """What was noted about these very tools under `key`; None if nothing was."""
    return tools.notes.get(key) if isinstance(tools, ToolSet) else None


def note(tools: Sequence[ToolSpec], key: Hashable, value: T, weight: int) -> T:
    """Note `value`, which must be a function of the tools and the key, and never be changed. Gives it back.

    `weight` is how many bytes `value` keeps alive that the tools do not.
    """
    if isinstance(tools, ToolSet):
        tools.note(key, value, weight)
    return value


class KnownList(list[Any]):
    """The parsed `tools` of a body, to be shared by all bodies that have the same bytes there: never changed.

    `values` is how many JSON values it holds at most. `sets` are the `ToolSet`s that the protocols made of it, by name.
    `weight` is how many bytes all of it keeps; `grown` is called with itself and a number after it has grown by that.
    """

    def __init__(
        self, tools: list[Any], text: bytes, grown: Callable[[KnownList, int], None] = lambda known, by: None
    ) -> None:
        super().__init__(tools)
        self.text = text
        openers, commas, _ = json_marks(text)
        self.values = openers + commas
        self.sets: dict[str, ToolSet] = {}
        self.weight = TEXT_COPIES * len(text) + VALUE_BYTES * self.values
        self._grown = grown

    def grow(self, by: int) -> None:
        """It keeps `by` bytes more."""
        self.weight += by
        self._grown(self, by)


def known_set(listed: Any, protocol: str) -> tuple[ToolSpec, ...] | None:
    """What `protocol` made of the `tools` of a body when they came before; nothing at all if there are none."""
    if isinstance(listed, KnownList):
        return listed.sets.get(protocol)
    return () if listed is None or (isinstance(listed, list) and not listed) else None


def new_set(listed: Any, protocol: str, tools: Iterable[ToolSpec]) -> ToolSet:
    """The set of these tools, kept for those who send the same list again."""
    if not isinstance(listed, KnownList):
        return ToolSet(tools)
    made = listed.sets[protocol] = ToolSet(tools, grow=listed.grow)
    listed.grow(SPEC_BYTES * len(made))
    return made


class KnownTools:
    """The lists of tools that came lately, as far as `cache` has room for them. Large bodies are read in threads, so
    several may ask at once."""

    def __init__(self, cache: Cache[tuple[KnownList, ...]]) -> None:
        self._known = cache
        self._mark = token_hex(
            16
        )  # Not to be guessed, so that no text of the client can look like a list that was cut out.
        self._mark_text = b'"%b"' % self._mark.encode()

    def cut(self, body: bytes) -> tuple[KnownList, bytes] | None:
        """The known list that `body` holds, and the body with a mark in its place; None if it holds none.

        The body may be anything: only `put_back` can say whether it was the `tools` of the request.
        """
        start = array_start(body, TOOLS_KEY) - 1
        if start < 0:
            return None
        for known in self._known.get(body[start : start + HEAD_BYTES]) or ():
            if body.startswith(known.text, start):
                return known, body[:start] + self._mark_text + body[start + len(known.text) :]
        return None

    def put_back(self, value: Any, known: KnownList) -> bool:
        """Put the list where the mark stands in the parsed body; False if it does not stand where the tools belong."""
        if isinstance(value, dict) and value.get("tools") == self._mark:
            value["tools"] = known
            return True
        return False

    def learn(self, body: bytes, value: dict[str, Any]) -> None:
        """Remember the tools of `value`, the parsed JSON of `body`, in which no object has a key twice."""
        tools = value.get("tools")
        if not tools or not isinstance(tools, list):
            return
        start = array_start(body, TOOLS_KEY) - 1
        if start < 0:  # its key is written with an escape
            return
        text = body[start : item_ends(body, start + 1)[-1] + 1]
        if len(text) < HEAD_BYTES:
            return
        head = text[:HEAD_BYTES]
        known = value["tools"] = KnownList(tools, text, self._grown)
        others = (self._known.get(head) or ())[: MAX_SAME_HEAD - 1]
        self._known.put(head, (known, *others), sum(one.weight for one in (known, *others)))

    def _grown(self, known: KnownList, by: int) -> None:
        head = known.text[:HEAD_BYTES]
        if any(one is known for one in self._known.get(head) or ()):
            self._known.grow(head, by)
