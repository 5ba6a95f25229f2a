"""Calls while they come in as deltas, from servers that number and repeat things as they please (R4.5).

Rules:

1. Which call a delta belongs to is decided in `CallDrafts.of` and nowhere else.
2. Whether arguments are a fragment or everything so far is decided in `CallDraft.take` and nowhere else.
"""

from __future__ import annotations

import orjson

from .._grammar import SPACE
from ..model import CallKind


class CallDraft:
    """One call that is not finished. `id` and `name` are empty until a server gives them; `block` is the reader's."""

    __slots__ = ("_cumulative", "_length", "_pieces", "block", "call_id", "id", "kind", "name", "slot")

    def __init__(self, slot: int) -> None:
        self.slot = slot
        self.id = ""
        self.name = ""
        self.kind: CallKind = "function"
        self.block: int | None = None
        self.call_id = ""
        self._pieces: list[str] = []
        self._length = 0
        self._cumulative = False

    @property
    def arguments(self) -> str:
        """What has come so far."""
        if len(self._pieces) > 1:
            self._pieces = ["".join(self._pieces)]
        return self._pieces[0] if self._pieces else ""

    @property
    def is_blank(self) -> bool:
        """No arguments so far, or only whitespace."""
        return not self.arguments.strip(SPACE)

    @property
    def is_whole(self) -> bool:
        """The arguments so far are a JSON text."""
        try:
            orjson.loads(self.arguments)
        except orjson.JSONDecodeError:
            return False
        return True

    def take(self, text: str) -> str:
        """Add arguments and give back what of them is new: all, or what follows if they repeat all that came before.

        Repetition is taken for certain only where the two joined could not be JSON: an object right after something that
        is no place for a value. So a nested object that begins like its parent stays a fragment. The test is made only
        for text at least as long as everything before it, so a stream of small fragments stays linear.
        """
        if self._length and len(text) >= self._length and self.kind == "function":
            so_far = self.arguments
            if text.startswith(so_far):
                self._cumulative = self._cumulative or _repeats(so_far, text)
                if self._cumulative:
                    text = text[self._length :]
        if text:
            self._pieces.append(text)
            self._length += len(text)
        return text


def _repeats(so_far: str, text: str) -> bool:
    """Whether `text`, which begins with `so_far`, cannot be a fragment that follows it."""
    bare = so_far.strip(SPACE)
    if not bare.startswith("{") or bare.endswith((":", ",", "[")):
        return False
    # `{"` may be followed by `{":`, where the key is a brace.
    return not (bare == '{"' and text.lstrip(SPACE)[2:3] in (":", " "))


class CallDrafts:
    """The calls of one answer, in order of appearance."""

    def __init__(self) -> None:
        self.drafts: list[CallDraft] = []
        self._slots: dict[int, CallDraft] = {}

    def of(self, index: object, place: int, call_id: str, name: str) -> CallDraft:
        """The call that a delta belongs to; a new one if it can be none of the known. It gets the id and the name.

        `index` says which slot; without one a known id does, else `place`, the position in the delta's array. In a slot
        another id begins another call; so does a name after arguments that are whole, for servers that give no ids.
        """
        draft = self._known(index, place, call_id, name)
        if draft is None:
            slot = index if isinstance(index, int) else place
            draft = self._slots[slot] = CallDraft(slot)
            self.drafts.append(draft)
        draft.id = draft.id or call_id
        draft.name = draft.name or name
        return draft

    def _known(self, index: object, place: int, call_id: str, name: str) -> CallDraft | None:
        if not isinstance(index, int) and call_id:
            for draft in self.drafts:
                if draft.id == call_id:
                    return draft
        known = self._slots.get(index if isinstance(index, int) else place)
        if known is None or (call_id and known.id and call_id != known.id):
            return None
        if name and not call_id and not known.id and known.is_whole:
            return None
        return known

    def clear(self) -> None:
        """Forget all calls: their answer ended."""
        self.drafts.clear()
        self._slots.clear()
