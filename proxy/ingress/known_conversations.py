"""Known conversations: messages that came in an earlier request are not parsed again.

An agent sends its whole conversation with every turn. `KnownConversations` caches the latest conversations of each
client: the bytes and the parsed items (messages). A new body is compared with them byte by byte. Items at its beginning
with equal bytes are cut out before the rest is parsed, and the cached objects are put in their place. These are the
same objects as before, so later code can reuse its results for them (`toolwire.known.past`).

Rules of this module:

1. Only whole items are reused: the comma or bracket after the item must follow in the body too, else equal bytes could
   be the beginning of another value.
2. Errors describe the whole body: if the rest cannot be parsed, the whole body is parsed (`toolwire.ingress.bodies`).
3. Clients (`owner`) and protocols share nothing. Everything else that a result depends on (route, format, tools) is in
   the key under which `past` stores it.
4. A continued conversation replaces its earlier version. A conversation that branches off is stored beside it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from ..fastparse import array_start, bytes_of, common_length, item_ends, json_marks
from ..known.past import SIGNS, KnownItems, Past
from ..support.cache import BudgetedCache

LEAST_BYTES: Final = 16 * 1024
"""Shorter bodies are parsed as a whole, because the comparison would take as long."""
HEAD_BYTES: Final = 256
"""The lookup key has this many bytes from both ends of the first items."""
HEAD_ITEMS: Final = 2
"""Number of first items in the lookup key: usually the instructions and the user's task."""
SIDE_BY_SIDE: Final = 16
"""Maximum number of cached conversations with the same first items."""
GOES_ON: Final = 8
"""A body continues a conversation if it has at least as many items and at most this many of the last ones differ."""
ITEM_BYTES: Final = 100
"""Bytes of memory that are counted for an item, besides its value."""
_BLANKS: Final = b" \t\r\n"
_NO_SIGNS: Final = frozenset[bytes]()


@dataclass(slots=True, eq=False)
class KnownConversation:
    """The items of a `body`: the position of the first one (`start`), the distance from there to the end of each item
    (`ends`), and the parsed `items`. The body is cached as a whole, because copying a part of it takes longer. Of the
    first `n + 1` items, `weights[n]` is the approximate memory, `marks[n]` are the numbers of opening brackets and
    of commas, and `signs[n]` those of `SIGNS` that occur. `past` holds results for the items. `mark` identifies the
    conversation without keeping it in memory."""

    body: bytes
    start: int
    ends: list[int]
    items: list[Any]
    weights: list[int]
    marks: list[tuple[int, int]]
    signs: list[frozenset[bytes]]
    past: Past
    mark: object = field(default_factory=object)

    @property
    def weight(self) -> int:
        """Approximate memory of the conversation in bytes."""
        return len(self.body) + self.weights[-1] + self.past.weight


class TrimmedBody:
    """A body, and the `rest` of it without the known items, which are the first `known` items of `conversation`.
    `start` is the position after the opening bracket of the items."""

    __slots__ = ("body", "conversation", "known", "rest", "start")

    def __init__(self, body: bytes, start: int) -> None:
        self.body = self.rest = body
        self.start = start
        self.known = 0
        self.conversation: KnownConversation | None = None

    @property
    def marks(self) -> tuple[int, int]:
        """The numbers of opening brackets and of commas in what was cut out."""
        if self.conversation is None:
            return 0, 0
        openers, commas = self.conversation.marks[self.known - 1]
        return openers, commas + (self.body[self.start + self.conversation.ends[self.known - 1]] == ord(","))


class ConversationLookup(NamedTuple):
    """Where to look up the conversation of a request: the cache, the name of the field with the items (in quotes, as in
    the body), the client, and the protocol."""

    known: KnownConversations
    key: bytes
    owner: str
    protocol: str


class KnownConversations:
    """The latest conversations, as many as `cache` has room for. Large bodies are read in threads, so calls may be
    concurrent."""

    def __init__(self, cache: BudgetedCache[tuple[KnownConversation, ...]]) -> None:
        self._cache = cache
        self.least = LEAST_BYTES
        """Size of the shortest body that is looked up (`LEAST_BYTES`)."""

    def cut(self, body: bytes, lookup: ConversationLookup) -> TrimmedBody | None:
        """Returns the body with its known items cut out, possibly none of them. Returns None if the body is too short,
        has no items, or may be invalid at the cut. The body need not be valid JSON."""
        start = array_start(body, lookup.key) if len(body) >= self.least else -1
        if start < 0:
            return None
        cut = TrimmedBody(body, start)
        for one in self._cache.get(_head(body, start, lookup)) or ():
            same = bisect_right(one.ends, common_length(one.body, one.start, body, start))
            if same and body[(end := start + one.ends[same - 1]) : end + 1] not in (b",", b"]"):
                same -= 1  # the item is longer here, or blanks follow it
            if same > cut.known:
                cut.known, cut.conversation = same, one
        if cut.conversation is not None:
            end = start + cut.conversation.ends[cut.known - 1]
            if body[end] == ord(","):
                end += 1
                if not (following := body[end : end + 64].lstrip(_BLANKS)) or following.startswith(b"]"):
                    return None  # maybe a trailing comma, which the parser has to report
            cut.rest = body[:start] + body[end:]
        return cut

    def keep(self, cut: TrimmedBody, value: dict[str, Any], lookup: ConversationLookup, new: int) -> None:
        """Puts the known items back into `value`, the parsed `rest` of a valid body, and stores the conversation for
        the next request. `new`: the number of bytes that were parsed."""
        name = lookup.key.strip(b'"').decode()
        before, known, start = cut.conversation, cut.known, cut.start
        items, ends, weights, marks, signs = value[name], [], [], [], []
        end, weight, (openers, commas), found = 0, 0, (0, 0), _NO_SIGNS
        if before is not None:
            items = [*before.items[:known], *items]
            ends, weights, marks = before.ends[:known], before.weights[:known], before.marks[:known]
            signs = before.signs[:known]
            end, weight, (openers, commas), found = ends[-1], weights[-1], marks[-1], signs[-1]
        past = Past(new, None if before is None else before.past, found | _signs(cut.rest))
        value[name] = KnownItems(items, past)
        for item, stop in zip(items[known:], item_ends(cut.body, start + end), strict=True):
            text = cut.body[start + end : stop]
            more_openers, more_commas, _ = json_marks(text)
            found |= _signs(text)
            end = stop - start
            weight += ITEM_BYTES + bytes_of([item])
            openers, commas = openers + more_openers, commas + more_commas
            ends.append(end)
            weights.append(weight)
            marks.append((openers, commas))
            signs.append(found)
        if not ends:
            return
        conversation = KnownConversation(cut.body, start, ends, items, weights, marks, signs, past)
        head = _head(cut.body, start, lookup)
        earlier = self._cache.get(head) or ()
        if before is not None and len(items) >= len(before.items) <= known + GOES_ON:
            earlier = tuple(one for one in earlier if one is not before)
        conversations = (conversation, *earlier)[:SIDE_BY_SIDE]

        # `past` must not refer to `conversation`: this would be a reference cycle, which only the garbage collector
        # frees, and requests, which hold `past`, would keep the body.
        mark = conversation.mark

        def grown(by: int) -> None:
            if any(one.mark is mark for one in self._cache.get(head) or ()):
                self._cache.grow(head, by)

        past.grown = grown
        if not self._cache.put(head, conversations, sum(one.weight for one in conversations)):
            self._cache.put(head, conversations[:1], conversation.weight)


def _signs(text: bytes) -> frozenset[bytes]:
    found = [sign for sign in SIGNS if sign in text]
    return frozenset(found) if found else _NO_SIGNS


def _head(body: bytes, start: int, lookup: ConversationLookup) -> Hashable:
    """Returns the lookup key of a conversation: client, protocol, and the ends of the first items."""
    ends = item_ends(body, start, HEAD_ITEMS)
    last = ends[-1] if ends else start
    sizes = tuple(end - start for end in ends)
    return (
        lookup.owner,
        lookup.protocol,
        sizes,
        body[start : min(last, start + HEAD_BYTES)],
        body[max(start, last - HEAD_BYTES) : last],
    )
