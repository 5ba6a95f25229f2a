"""Lists of tools that come again: agents send the same tools, byte for byte, with every request of a conversation.

`KnownTools` finds such a list in a body before it is parsed, so its bytes are compared instead of read. What was made
of the list (the `ToolSet`, and by its notes the decision on it, the prompt segment, the offer) is kept with it and
found by identity: nothing is hashed (R3.9).
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Hashable, Iterable, Sequence
from secrets import token_hex
from typing import Any, Final, TypeVar

import orjson

from ..model import ToolSpec
from ..support.cache import BoundedCache

T = TypeVar("T")

MAX_NOTES: Final = 16
"""More make a set forget the others: choices of tools can be combined without end."""
HEAD_BYTES: Final = 96
"""A list is looked up by its beginning; shorter ones are not worth it."""
MAX_SAME_HEAD: Final = 8
LEARN_BYTES: Final = 256 * 1024
"""In larger bodies no new list is looked for: finding its end means reading it a second time."""

TOOLS_KEY: Final = b'"tools":'
"""Without it a body has no list that is looked for."""
_BLANKS: Final = re.compile(rb"[ \n]*")
_DECODER: Final = json.JSONDecoder()


class ToolSet(tuple[ToolSpec, ...]):
    """The tools of a request. `notes` is what was made of them, by whom and what for; see `note_of`."""

    notes: dict[Hashable, Any]

    def __new__(cls, tools: Iterable[ToolSpec] = ()) -> ToolSet:
        """A set without notes."""
        self = super().__new__(cls, tools)
        self.notes = {}
        return self


def note_of(tools: Sequence[ToolSpec], key: Hashable) -> Any:
    """What was noted about these very tools under `key`; None if nothing was."""
    return tools.notes.get(key) if isinstance(tools, ToolSet) else None


def note(tools: Sequence[ToolSpec], key: Hashable, value: T) -> T:
    """Note `value`, which must be a function of the tools and the key, and never be changed. Gives it back."""
    if isinstance(tools, ToolSet):
        if len(tools.notes) >= MAX_NOTES:
            tools.notes.clear()
        tools.notes[key] = value
    return value


class KnownList(list[Any]):
    """The parsed `tools` of a body, to be shared by all bodies that have the same bytes there: never changed.

    `values` is how many JSON values it holds at most. `sets` are the `ToolSet`s that the protocols made of it, by name.
    """

    def __init__(self, tools: list[Any], text: bytes) -> None:
        super().__init__(tools)
        self.text = text
        self.values = text.count(b",") + text.count(b"[") + text.count(b"{")
        self.sets: dict[str, ToolSet] = {}


def known_set(listed: Any, protocol: str) -> tuple[ToolSpec, ...] | None:
    """What `protocol` made of the `tools` of a body when they came before; nothing at all if there are none."""
    if isinstance(listed, KnownList):
        return listed.sets.get(protocol)
    return () if listed is None or (isinstance(listed, list) and not listed) else None


def new_set(listed: Any, protocol: str, tools: Iterable[ToolSpec]) -> ToolSet:
    """The set of these tools, kept for those who send the same list again."""
    made = ToolSet(tools)
    if isinstance(listed, KnownList):
        listed.sets[protocol] = made
    return made


class KnownTools:
    """The lists of tools that came lately: at most `entries`, of at most `weight` bytes together. Large bodies are read
    in threads, so several may ask at once."""

    def __init__(self, entries: int = 256, weight: int = 2 * 1024 * 1024) -> None:
        self._known: BoundedCache[tuple[KnownList, ...]] = BoundedCache(entries, weight)
        self._lock = threading.Lock()
        self._mark = token_hex(
            16
        )  # Not to be guessed, so that no text of the client can look like a list that was cut out.
        self._mark_text = b'"%b"' % self._mark.encode()

    def cut(self, body: bytes) -> tuple[KnownList, bytes] | None:
        """The known list that `body` holds, and the body with a mark in its place; None if it holds none.

        The list may stand anywhere: only `put_back` can say whether it was the `tools` of the request.
        """
        start = _start(body)
        with self._lock:
            same = self._known.get(body[start : start + HEAD_BYTES]) or ()
        for known in same:
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
        """Remember the tools of `value`, the parsed JSON of `body`."""
        tools = value.get("tools")
        if not tools or not isinstance(tools, list) or len(body) > LEARN_BYTES:
            return
        start = _start(body)
        head = body[start : start + HEAD_BYTES]
        text = _array(body[start:])
        if len(text) < HEAD_BYTES:
            return
        known = KnownList(tools, text)
        # A key that only looks like the right one, at another depth or twice: parsing with the mark tells.
        if not self.put_back(orjson.loads(body[:start] + self._mark_text + body[start + len(text) :]), known):
            return
        value["tools"] = known
        with self._lock:
            others = (self._known.get(head) or ())[: MAX_SAME_HEAD - 1]
            self._known.put(head, (known, *others), sum(len(one.text) for one in (known, *others)))


def _start(body: bytes) -> int:
    """Where the value of the first key `tools` begins; somewhere without an array if there is none."""
    blanks = _BLANKS.match(body, body.find(TOOLS_KEY) + len(TOOLS_KEY))
    return 0 if blanks is None else blanks.end()


def _array(text: bytes) -> bytes:
    """The JSON array at the beginning of `text`; empty if there is none."""
    if not text.startswith(b"["):
        return b""
    try:
        shown = text.decode()
        return shown[: _DECODER.raw_decode(shown)[1]].encode()
    except (ValueError, RecursionError):
        return b""
