"""Conversations that came before: known by the bytes of their beginning, so that only what is new is read.

An agent sends its whole conversation with every turn. `KnownConversations` finds, for a body, the latest conversation
of the same owner and protocol with which it has most of its items (messages) in common, byte by byte. These items are
cut out before the rest is parsed, and put back as the very same objects. What later stages made of them is kept beside
(`proxy.known.past`).

Rules of this module:

1. Whole items are known, with the comma or bracket behind them. So where the bytes are the same, so is what a parser
   makes of them, and what may follow.
2. What is wrong with a body is said of the whole of it: whoever cannot read the rest reads all
   (`proxy.ingress.bodies`).
3. Nothing is shared between owners. What stages make depends on route, format and tools, which stand in their keys.
4. A conversation that goes on takes the place of what it goes on from; one that branches off stands beside it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Hashable
from typing import Any, Final, NamedTuple

from ..fastparse import array_start, common_length, item_ends
from ..known.past import KnownItems, Past, bytes_of
from ..support.cache import Cache

LEAST_BYTES: Final = 16 * 1024
"""In a shorter body nothing is looked for, and of it nothing is kept: it is read as fast."""
HEAD_BYTES: Final = 256
"""So much of the first items, at their ends, is what a conversation is looked up by."""
HEAD_ITEMS: Final = 2
"""Instructions, and what the user wants."""
SIDE_BY_SIDE: Final = 4
"""Conversations with the same first items that are kept."""
GOES_ON: Final = 8
"""A body goes on from a conversation if it is no shorter, and no more than so many of its last items are others."""
ITEM_BYTES: Final = 100
"""Weight of an item beside its value."""
_BLANKS: Final = b" \t\r\n"


class Conversation:
    """The items of a body: their text, from the first one on, the places in it behind each, and their values. `weights`
    are the bytes that so many of the values keep."""

    __slots__ = ("ends", "items", "mark", "past", "text", "weights")

    def __init__(self, text: bytes, ends: list[int], items: list[Any], weights: list[int], past: Past) -> None:
        self.text = text
        self.ends = ends
        self.items = items
        self.weights = weights
        self.past = past
        self.mark = object()
        """Tells it from others."""

    @property
    def weight(self) -> int:
        """How many bytes it keeps."""
        return len(self.text) + self.weights[-1] + self.past.weight


class Cut:
    """A body without the items that are known: `rest`. `known` says how many those are, the first ones of
    `conversation`. `start` is where the first item may begin."""

    __slots__ = ("body", "conversation", "known", "rest", "start")

    def __init__(self, body: bytes, start: int) -> None:
        self.body = self.rest = body
        self.start = start
        self.known = 0
        self.conversation: Conversation | None = None


class Whose(NamedTuple):
    """The conversations that may be known to one request: those of its owner, in its protocol, whose array `key` holds
    the items (with its quotes)."""

    known: KnownConversations
    key: bytes
    owner: str
    protocol: str


class KnownConversations:
    """Conversations that came lately, as far as `cache` has room for them. Large bodies are read in threads, so several
    may ask at once."""

    def __init__(self, cache: Cache[tuple[Conversation, ...]]) -> None:
        self._cache = cache
        self.least = LEAST_BYTES
        """See there."""

    def cut(self, body: bytes, whose: Whose) -> Cut | None:
        """The body without the items that are known; None if nothing is to be known of it. The body may be
        anything."""
        start = array_start(body, whose.key) if len(body) >= self.least else -1
        if start < 0:
            return None
        cut = Cut(body, start)
        for one in self._cache.get(_head(body, start, whose)) or ():
            same = bisect_right(one.ends, common_length(one.text, body, start))
            if same and body[(end := start + one.ends[same - 1]) : end + 1] not in (b",", b"]"):
                same -= 1  # it goes on there, or stands before a blank
            if same > cut.known:
                cut.known, cut.conversation = same, one
        if cut.conversation is not None:
            end = start + cut.conversation.ends[cut.known - 1]
            if body[end] == ord(","):
                end += 1
                if not (following := body[end : end + 64].lstrip(_BLANKS)) or following.startswith(b"]"):
                    return None  # a comma with nothing behind it, perhaps: the parser is to say so
            cut.rest = body[:start] + body[end:]
        return cut

    def keep(self, cut: Cut, value: dict[str, Any], whose: Whose) -> None:
        """Put the known items into `value`, the parsed `rest` of a body that is known to be valid, and keep the
        conversation that it is now for the next request."""
        name = whose.key.strip(b'"').decode()
        before, known, start = cut.conversation, cut.known, cut.start
        items = value[name] if before is None else [*before.items[:known], *value[name]]
        ends = [] if before is None else before.ends[:known]
        ends += [end - start for end in item_ends(cut.body, start + (ends[-1] if ends else 0))]
        past = Past(len(cut.rest), None if before is None else before.past)
        value[name] = KnownItems(items, past)
        if not ends:
            return
        weights = [] if before is None else before.weights[:known]
        for item in items[known:]:
            weights.append((weights[-1] if weights else 0) + ITEM_BYTES + bytes_of([item]))
        conversation = Conversation(cut.body[start : start + ends[-1]], ends, items, weights, past)
        head = _head(cut.body, start, whose)
        others = self._cache.get(head) or ()
        if before is not None and len(items) >= len(before.items) <= known + GOES_ON:
            others = tuple(other for other in others if other is not before)
        kept = (conversation, *others)[:SIDE_BY_SIDE]

        # What it keeps must not know it: only the collector could free a circle. Nor may a request keep its text.
        mark = conversation.mark

        def grown(by: int) -> None:
            if any(one.mark is mark for one in self._cache.get(head) or ()):
                self._cache.grow(head, by)

        past.grown = grown
        if not self._cache.put(head, kept, sum(one.weight for one in kept)):
            self._cache.put(head, kept[:1], conversation.weight)


def _head(body: bytes, start: int, whose: Whose) -> Hashable:
    """What a conversation is looked up by."""
    ends = item_ends(body, start, HEAD_ITEMS)
    last = ends[-1] if ends else start
    sizes = tuple(end - start for end in ends)
    return (
        whose.owner,
        whose.protocol,
        sizes,
        body[start : min(last, start + HEAD_BYTES)],
        body[max(start, last - HEAD_BYTES) : last],
    )
