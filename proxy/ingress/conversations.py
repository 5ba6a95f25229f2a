"""Known conversations: the items of a body that came in an earlier request are not parsed again.

An agent sends its whole conversation with every turn. `KnownConversations` keeps the latest conversations of each
owner: their bytes and the parsed items (messages). A body is compared with them byte by byte. The items at its
beginning that are the same are cut out before the rest is parsed, and the kept objects are put in their place. Because
these are the very same objects, later stages can reuse their results for them (`toolwire.known.past`).

Rules of this module:

1. Only whole items are known, together with the comma or bracket behind them. Equal bytes then mean equal values.
2. Errors describe the whole body: if the rest cannot be read, all of it is read again (`toolwire.ingress.bodies`).
3. Owners and protocols share nothing. What else a result depends on (route, format, tools) is in the key of its stage.
4. A conversation that goes on replaces the one before; a conversation that branches off is kept beside it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Hashable
from typing import Any, Final, NamedTuple

from ..fastparse import array_start, common_length, item_ends
from ..known.past import KnownItems, Past, bytes_of
from ..support.cache import Cache

LEAST_BYTES: Final = 16 * 1024
"""Shorter bodies are read as before: looking for what is known would take as long."""
HEAD_BYTES: Final = 256
"""Bytes at both ends of the first items by which a conversation is looked up."""
HEAD_ITEMS: Final = 2
"""Items that tell conversations apart: the instructions, and the user's task."""
SIDE_BY_SIDE: Final = 4
"""Number of conversations with the same first items that are kept."""
GOES_ON: Final = 8
"""A body goes on from a conversation if it is no shorter and differs in at most so many of its last items."""
ITEM_BYTES: Final = 100
"""Weight of an item beside its value."""
_BLANKS: Final = b" \t\r\n"


class Conversation:
    """The items of a body: their text, the place behind each item in it, and their values. `weights[n]` is about how
    many bytes the first `n + 1` values take. `past` holds what stages made of them."""

    __slots__ = ("ends", "items", "mark", "past", "text", "weights")

    def __init__(self, text: bytes, ends: list[int], items: list[Any], weights: list[int], past: Past) -> None:
        self.text = text
        self.ends = ends
        self.items = items
        self.weights = weights
        self.past = past
        self.mark = object()
        """Identifies the conversation without a reference to it."""

    @property
    def weight(self) -> int:
        """About how many bytes the conversation takes."""
        return len(self.text) + self.weights[-1] + self.past.weight


class Cut:
    """A body, and its `rest` without the items that are known: the first `known` ones of `conversation`. `start` is
    where the first item may begin."""

    __slots__ = ("body", "conversation", "known", "rest", "start")

    def __init__(self, body: bytes, start: int) -> None:
        self.body = self.rest = body
        self.start = start
        self.known = 0
        self.conversation: Conversation | None = None


class Whose(NamedTuple):
    """The owner and the protocol of a request, and the key of the array that holds its items, with quotes."""

    known: KnownConversations
    key: bytes
    owner: str
    protocol: str


class KnownConversations:
    """The latest conversations, as far as `cache` has room for them. Several threads may use it at once."""

    def __init__(self, cache: Cache[tuple[Conversation, ...]]) -> None:
        self._cache = cache
        self.least = LEAST_BYTES
        """The shortest body that is looked at (`LEAST_BYTES`)."""

    def cut(self, body: bytes, whose: Whose) -> Cut | None:
        """Returns the body without the items that are known; None if it is too short or has no items. The body need
        not be valid JSON."""
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
        """Put the known items into `value`, the parsed `rest` of a valid body, and keep the conversation for the next
        request."""
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
    """The key by which a conversation is looked up."""
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
