"""Calls while they come in as deltas, from servers that number and repeat things as they please (R4.5).

Rules:

1. Which call a delta belongs to is decided in `CallDeltas.of` and nowhere else.
2. Whether arguments are a fragment or everything so far is decided in `CallDelta.take` and nowhere else; the same of a
   name in `CallDelta.take_name`.
3. A call without a name is none (R29.2).
"""

from __future__ import annotations

import re
from typing import Final
from uuid import uuid4

from toolwire.model import EMPTY, CallKind, Extra
from toolwire.scan._grammar import SPACE
from toolwire.support.bounded_json import is_json

_MARKS: Final = re.compile(r'["\\{}\[\]]')


def new_call_id() -> str:
    """An id for a call that came without one (C1)."""
    return f"call_{uuid4().hex}"


class CallDelta:
    """One call that is not finished. `id` and `name` are empty until a server gives them; `block` is the reader's, and
    so is `extra`, what was said beside and not given out."""

    __slots__ = (
        *("_blank", "_broken", "_cumulative", "_fresh", "_length", "_nesting", "_pieces"),
        *("block", "call_id", "extra", "id", "kind", "name", "slot"),
    )

    def __init__(self, slot: int) -> None:
        self.slot = slot
        self.id = ""
        self.name = ""
        self.kind: CallKind = "function"
        self.block: int | None = None
        self.call_id = ""
        self.extra: Extra = EMPTY
        self._pieces: list[str] = []
        self._length = 0
        self._cumulative = self._broken = False
        self._blank = True
        self._fresh: list[str] = []
        self._nesting = _Nesting()

    @property
    def arguments(self) -> str:
        """What has come so far."""
        if len(self._pieces) > 1:
            self._pieces = ["".join(self._pieces)]
        return self._pieces[0] if self._pieces else ""

    @property
    def is_blank(self) -> bool:
        """No arguments so far, or only whitespace."""
        return self._blank

    @property
    def is_whole(self) -> bool:
        """The arguments so far are a JSON text."""
        return is_json(self.arguments)

    @property
    def has_ended(self) -> bool:
        """The arguments so far are a whole object or list. For whoever asks after every piece: each character is looked
        at once, and parsed at most once more."""
        for text in self._fresh:
            self._nesting.feed(text)
        self._fresh.clear()
        if not self._nesting.has_closed or self._broken:
            return False
        self._broken = not self.is_whole  # what stands behind a closed value never mends it
        return not self._broken

    def take_name(self, name: str) -> None:
        """Add a name, or a piece of one. What repeats it says nothing new; in a block that is open none counts."""
        if self.block is None and name != self.name:
            self.name = name if name.startswith(self.name) else self.name + name

    def take(self, text: str) -> str:
        """Add arguments and give back what of them is new: all, or what follows if they repeat all that came before.

        Repetition is taken for certain only where the two joined could not be JSON: an object right after something
        that is no place for a value. So a nested object that begins like its parent stays a fragment. The test is made
        only for text at least as long as everything before it, so a stream of small fragments stays linear.
        """
        if self._length and len(text) >= self._length and self.kind == "function":
            so_far = self.arguments
            if text.startswith(so_far):
                self._cumulative = self._cumulative or _repeats(so_far, text)
                if self._cumulative:
                    text = text[self._length :]
        if text:
            self._blank = self._blank and not text.strip(SPACE)
            self._pieces.append(text)
            self._fresh.append(text)
            self._length += len(text)
        return text


class _Nesting:
    """How deep a JSON text that comes in pieces is nested, cut anywhere."""

    __slots__ = ("_depth", "_in_string", "_opened", "_skip")

    def __init__(self) -> None:
        self._depth = self._skip = 0
        self._in_string = self._opened = False

    @property
    def has_closed(self) -> bool:
        """An object or a list began, and all are closed."""
        return self._opened and not (self._depth or self._in_string)

    def feed(self, text: str) -> None:
        """More of it."""
        skip = self._skip
        for mark in _MARKS.finditer(text):
            at, sign = mark.start(), mark[0]
            if at < skip:
                pass  # escaped
            elif sign == '"':
                self._in_string = not self._in_string
            elif sign == "\\":
                skip = at + 2
            elif not self._in_string:
                self._opened = True
                self._depth += 1 if sign in "{[" else -1
        self._skip = max(0, skip - len(text))


def _repeats(so_far: str, text: str) -> bool:
    """Whether `text`, which begins with `so_far`, cannot be a fragment that follows it."""
    bare = so_far.strip(SPACE)
    if not bare.startswith("{") or bare.endswith((":", ",", "[")):
        return False
    # `{"` may be followed by `{":`, where the key is a brace.
    return not (bare == '{"' and text.lstrip(SPACE)[2:3] in (":", " "))


class CallDeltas:
    """The calls of one answer, in order of appearance."""

    def __init__(self) -> None:
        self.drafts: list[CallDelta] = []
        self._slots: dict[int, CallDelta] = {}
        self._ids: dict[str, CallDelta] = {}
        self._names: set[str] = set()
        self._last: CallDelta | None = None

    def of(self, index: int | None, place: int | None, call_id: str, name: str, text: str = "") -> CallDelta:
        """The call that a delta belongs to; a new one if it can be none of the known. It gets the id and the name.

        `index` says which slot; without one a known id does, else `place`, the position in the delta's array, or None
        for a delta that comes alone: without a name that goes on with the call before it, if this can go on. In a slot
        another id with a name begins another call, and without one does behind arguments that are whole. So does a
        name behind these, unless all that the delta says has been said; `text` are its arguments.
        """
        draft = self._known(index, place, call_id, name, text)
        if draft is None:
            slot = (place or 0) if index is None else index
            draft = self._slots[slot] = CallDelta(slot)
            self.drafts.append(draft)
        if call_id and not draft.id:
            draft.id = call_id
        if call_id and call_id == draft.id:
            self._ids[call_id] = draft
        draft.take_name(name)
        self._last = draft
        return draft

    def name(self, draft: CallDelta) -> str:
        """The id under which a call of these is given out: the server's, unless there is none or another call has
        it."""
        name = draft.id if draft.id and draft.id not in self._names else new_call_id()
        self._names.add(name)
        return name

    def _known(self, index: int | None, place: int | None, call_id: str, name: str, text: str) -> CallDelta | None:
        if index is not None:
            known = self._slots.get(index)
        elif call_id in self._ids:
            known = self._ids[call_id]
        else:
            known = self._slots.get(place or 0)
            last = self._last
            if place is None and not name and last is not None and (known is None or not last.has_ended):
                known = last
        if known is None or not (name or call_id):
            return known
        another_id = bool(call_id and known.id and call_id != known.id)
        if another_id and (name or (index is None and place is not None)):
            return None
        is_behind = (another_id or (name and known.name)) and known.kind == "function" and known.has_ended
        return None if is_behind and not _is_repeated(known, call_id, name, text) else known

    def clear(self) -> None:
        """Forget all calls: their answer ended."""
        self.drafts.clear()
        self._slots.clear()
        self._ids.clear()
        self._names.clear()
        self._last = None


def _is_repeated(known: CallDelta, call_id: str, name: str, text: str) -> bool:
    """Whether a delta with an id or a name, behind whole arguments, says no more than is known of their call."""
    if name != known.name or call_id != known.id:
        return False
    if not call_id:
        return text == known.arguments
    return text.startswith(known.arguments) or not text.lstrip(SPACE).startswith(("{", "["))
