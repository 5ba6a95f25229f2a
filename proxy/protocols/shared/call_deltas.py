"""Assembly of calls from deltas, for servers that number and repeat calls inconsistently (R4.5).

Rules:

1. Only `CallDeltas.of` decides which call a delta belongs to.
2. Only `CallDelta.take` decides whether arguments are a fragment or everything so far; `CallDelta.take_name` does the
   same for names.
3. A call without a name is dropped (R29.2).
"""

from __future__ import annotations

import re
from typing import Final
from uuid import uuid4

from ...model import EMPTY, CallKind, Extra
from ...scan._grammar import SPACE
from ...support.bounded_json import is_json

_MARKS: Final = re.compile(r'["\\{}\[\]]')


def new_call_id() -> str:
    """Returns a new id for a call that came without one (C1)."""
    return f"call_{uuid4().hex}"


class CallDelta:
    """One unfinished call. `id` and `name` are empty until a server sends them. The reader sets `block`, and `extra`:
    fields that were received but not yet sent."""

    __slots__ = (
        "_blank",
        "_broken",
        "_cumulative",
        "_fresh",
        "_length",
        "_nesting",
        "_pieces",
        "block",
        "call_id",
        "extra",
        "id",
        "kind",
        "name",
        "slot",
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
        """The arguments received so far."""
        if len(self._pieces) > 1:
            self._pieces = ["".join(self._pieces)]
        return self._pieces[0] if self._pieces else ""

    @property
    def is_blank(self) -> bool:
        """True if the arguments so far are empty or whitespace."""
        return self._blank

    @property
    def is_whole(self) -> bool:
        """True if the arguments so far are valid JSON."""
        return is_json(self.arguments)

    @property
    def has_ended(self) -> bool:
        """True if the arguments so far are a complete object or list. Cheap to ask after every piece: each character is
        scanned once, and the whole is parsed at most once after that."""
        for text in self._fresh:
            self._nesting.feed(text)
        self._fresh.clear()
        if not self._nesting.has_closed or self._broken:
            return False
        self._broken = not self.is_whole  # text after a closed value cannot make it valid again
        return not self._broken

    def take_name(self, name: str) -> None:
        """Adds a name or a piece of one. A repetition changes nothing; after the block is open all names are
        ignored."""
        if self.block is None and name != self.name:
            self.name = name if name.startswith(self.name) else self.name + name

    def take(self, text: str) -> str:
        """Adds arguments and returns the new part of them: all of `text`, or its end if `text` repeats everything
        before it.

        `text` counts as a repetition only if the old and new text joined could not be JSON: an object where no value
        can stand. So a nested object that begins like its parent stays a fragment. The test runs only for text at least
        as long as everything before it, so a stream of small fragments takes linear time.
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
    """Nesting depth of a JSON text that arrives in pieces, which may be cut anywhere."""

    __slots__ = ("_depth", "_in_string", "_opened", "_skip")

    def __init__(self) -> None:
        self._depth = self._skip = 0
        self._in_string = self._opened = False

    @property
    def has_closed(self) -> bool:
        """True if an object or a list began and all are closed."""
        return self._opened and not (self._depth or self._in_string)

    def feed(self, text: str) -> None:
        """Adds the next piece."""
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
    """True if `text`, which begins with `so_far`, cannot be a fragment that follows it."""
    bare = so_far.strip(SPACE)
    if not bare.startswith("{") or bare.endswith((":", ",", "[")):
        return False
    # In `{"` + `{":` the second brace is part of a key.
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
        """Returns the call that a delta belongs to, a new one if it fits no known call, and adds the id and the name to
        it.

        The slot is `index`, if given; otherwise the slot of a known id; otherwise `place`, the position in the delta's
        array, or None for a delta that is alone: without a name it continues the latest call, if its arguments are
        incomplete. So does one without id and name on a new index, and a known id counts more than an index where
        another call is, because some servers number the pieces. Another id begins a new call if it comes with a name,
        or after complete arguments. Another name after complete arguments begins a new call too, unless the delta only
        repeats known values; `text` are its arguments.
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
        """Returns the id under which the client gets a call: the server's, or a new one if it is missing or another
        call uses it."""
        name = draft.id if draft.id and draft.id not in self._names else new_call_id()
        self._names.add(name)
        return name

    def _known(self, index: int | None, place: int | None, call_id: str, name: str, text: str) -> CallDelta | None:
        last = self._last
        if index is not None:
            known = self._slots.get(index)
            if not name and call_id and (known is None or known.id != call_id):
                known = self._ids.get(call_id, known)
            elif known is None and not name and last is not None and not (text and last.has_ended):
                known = last
        elif call_id in self._ids:
            known = self._ids[call_id]
        else:
            known = self._slots.get(place or 0)
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
        """Forgets all calls, at the end of their answer."""
        self.drafts.clear()
        self._slots.clear()
        self._ids.clear()
        self._names.clear()
        self._last = None


def _is_repeated(known: CallDelta, call_id: str, name: str, text: str) -> bool:
    """True if a delta with an id or a name, after complete arguments, only repeats what is known of their call."""
    if name != known.name or call_id != known.id:
        return False
    if not call_id:
        return text == known.arguments
    return text.startswith(known.arguments) or not text.lstrip(SPACE).startswith(("{", "["))
