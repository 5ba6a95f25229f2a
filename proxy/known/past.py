"""Results that stages keep for the next request of a conversation.

An agent sends its whole conversation with every turn. A stage is any loop over all messages: reading, checking,
escaping, writing. It is written as a step for `fold`, which keeps in the `Past` of the request how far it came: the
items, the result, and the state behind the last item (`carried`). In the next request `fold` finds the longest kept
place whose items are the same objects as those at the beginning now, and the stage goes on from there.

Rules of this module:

1. A step is a pure function of its state and of the items that follow. Counts and warnings are part of the state, so
   that they are told again. Everything else that the result depends on is in the key of the stage.
2. Items are compared by identity, never by value. `toolwire.ingress.conversations` has compared the bytes, and stages
   return the same objects for the same beginning. A middleware that changes messages needs to know nothing of this:
   its messages are new objects, so stages behind it do their work again.
3. Each request has its own `Past`, which begins with what the request before kept. A stream lets it go when its answer
   begins (R34.3).

Law: `fold` returns the same with and without a `Past`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from operator import is_
from sys import getsizeof
from typing import Any, Final, NamedTuple, TypeVar
from weakref import ref

from ..fastparse import same_items

Item = TypeVar("Item")
Made = TypeVar("Made")
Carried = TypeVar("Carried")

Step = Callable[[Carried, Sequence[Item], int, list[Made]], Carried | None]
"""Goes on: with what is carried, the items that follow, and how many stand before them. Puts what it makes into the
list, and returns what is carried then. None: it cannot go on from here, because of one of these items."""

MOST: Final = 3
"""Places in a list that are kept: the end of the last request, one before, and the end of the one before that."""
LISTS: Final = 3
"""Lists of items of one stage: messages as they came, and with what the gateway writes into them."""
MOST_KEYS: Final = 64
"""Stages. More make a conversation forget the others."""
LEFT_BYTES: Final = 300
"""Weight of a place, beside what was made."""
ITEM_BYTES: Final = 64
"""The same for each item: its places in two lists, and what is carried of it."""
VALUE_BYTES: Final = 120
"""Weight of a value of the model beside its fields."""


class KnownItems(list[Any]):
    """The items (messages) of a conversation as a body brings them; read only. `past` holds the results of earlier
    requests; None after `let_go`, unless the conversation is still in the cache."""

    __slots__ = ("_past",)

    def __init__(self, items: Sequence[Any], past: Past) -> None:
        super().__init__(items)
        self._past: Past | ref[Past] = past

    @property
    def past(self) -> Past | None:
        return self._past() if isinstance(self._past, ref) else self._past

    def let_go(self) -> None:
        """Keep only a weak reference to the past."""
        if not isinstance(self._past, ref):
            self._past = ref(self._past)


def past_of(items: object) -> Past | None:
    """The results of earlier requests for these items; None if there are none."""
    return items.past if isinstance(items, KnownItems) else None


class _Left(NamedTuple):
    """How far a stage came: the items, what it made of them, its state, and the weight of all that."""

    items: tuple[Any, ...]
    made: list[Any]
    carried: Any
    weight: int


class Past:
    """The places that stages came to. `new` is how many bytes of its body are new in this request. `weight` is about
    how many bytes are kept; `grown` is called with each increase."""

    __slots__ = ("__weakref__", "_left", "grown", "new", "weight")

    def __init__(self, new: int, before: Past | None = None) -> None:
        self.new = new
        self._left: dict[Hashable, tuple[tuple[_Left, ...], ...]] = {} if before is None else dict(before._left)
        self.weight: int = 0 if before is None else before.weight
        self.grown: Callable[[int], None] | None = None

    def places(self, key: Hashable) -> list[_Left]:
        """The places of a stage, the latest list first, and in each the latest place."""
        return [left for places in self._left.get(key, ()) for left in places]

    def leave(self, key: Hashable, left: _Left) -> None:
        """Keep a place of a stage."""
        lists = self._left.get(key, ())
        before = _weight(lists)
        if not lists and len(self._left) >= MOST_KEYS:
            before = sum(map(_weight, self._left.values()))
            self._left.clear()
        own = next((places for places in lists if _akin(places[0].items, left.items)), ())
        kept = (left, *(other for other in own if len(other.items) != len(left.items)))[:MOST]
        self._left[key] = lists = (kept, *(places for places in lists if places is not own))[:LISTS]
        by = _weight(lists) - before
        self.weight += by
        if self.grown is not None:
            self.grown(by)


def _akin(one: tuple[object, ...], other: tuple[object, ...]) -> bool:
    """Whether both are the same list at different times: at least half of the shorter one is also in the longer one."""
    return 2 * same_items(one, other) >= min(len(one), len(other))


def _weight(lists: Iterable[Sequence[_Left]]) -> int:
    """Returns the size in bytes of the places of one stage. Most values of one list are the same, so only the largest
    weight counts."""
    return sum(
        sum(ITEM_BYTES * len(left.items) + LEFT_BYTES for left in places) + max(left.weight for left in places)
        for places in lists
    )


def fold(
    past: Past | None,
    key: Hashable,
    items: Sequence[Item],
    carried: Carried,
    step: Step[Carried, Item, Made],
    fits: Callable[[Sequence[Item], int], int] = lambda items, at: at,
) -> tuple[list[Made], Carried]:
    """Returns what a stage makes of the items, and its state at the end; do not change either. `carried` is the state
    at the beginning, `key` identifies the stage. From the beginning `step` never returns None.

    Two places are kept: the end, and the place before the last items that differed this time, because clients move a
    mark or a note to the end with every turn. `fits` moves the second place forward to where `step` can go on.
    """
    if past is not None and items:
        whole = tuple(items)
        places = past.places(key)
        shared = [same_items(left.items, whole) for left in places]
        last = next((at for at, left in enumerate(places) if _akin(left.items, whole)), None)
        others = 1 if last is None else len(places[last].items) - shared[last]  # of the last request, not in this one
        between = fits(whole, max(0, len(whole) - others))
        known = [left for left, same in zip(places, shared, strict=True) if same == len(left.items)]
        known.sort(key=lambda left: -len(left.items))
        for left in (*known, _Left((), [], carried, 0)):
            found = _go_on(past, key, whole, left, step, between) or _go_on(past, key, whole, left, step, 0)
            if found is not None:
                return found
    made: list[Made] = []
    end = step(carried, items, 0, made)
    assert end is not None
    return made, end


def _go_on(
    past: Past,
    key: Hashable,
    items: tuple[Item, ...],
    left: _Left,
    step: Step[Carried, Item, Made],
    between: int,
) -> tuple[list[Made], Carried] | None:
    """From a place to the end. What was made is kept there, and in a place between."""
    start = len(left.items)
    if start == len(items):
        return left.made, left.carried
    carried: Carried = left.carried
    made: list[Made] = list(left.made)
    weight = left.weight
    for stop in (between, len(items)) if start < between < len(items) else (len(items),):
        done = len(made)
        after = step(carried, items[start:stop], start, made)
        if after is None:
            return None
        carried, start = after, stop
        if len(made) > done:
            weight += bytes_of(made[done:], items[len(left.items) : stop])
        past.leave(key, _Left(items[:stop], list(made), carried, weight))
    return made, carried


def each(
    past: Past | None, key: Hashable, items: tuple[Item, ...], change: Callable[[Item], Item | None]
) -> tuple[Item, ...]:
    """Returns the items as `change` has them, without those of which it makes None; the same object if all stay as they
    are. `key` as in `fold`."""

    def step(same: bool, several: Sequence[Item], start: int, made: list[Item]) -> bool:
        changed = [change(item) for item in several]
        made += [item for item in changed if item is not None]
        return same and all(map(is_, changed, several))

    made: list[Item] = []
    if past is None:
        same = step(True, items, 0, made)
    else:
        made, same = fold(past, key, items, True, step)
    return items if same else tuple(made)


def once(
    past: Past | None, key: Hashable, items: Sequence[object], make: Callable[[], Made], text: str | bytes = ""
) -> Made:
    """Returns what `make` makes of these few items and of `text`: the very same object as in the request before, if
    they are the same."""
    if past is None:
        return make()
    for left in past.places(key):
        if len(left.items) == len(items) == same_items(left.items, tuple(items)) and left.carried == text:
            known: Made = left.made[0]
            return known
    made = make()
    past.leave(key, _Left(tuple(items), [made], text, bytes_of([made, text])))
    return made


def bytes_of(values: Iterable[object], of: Iterable[object] = ()) -> int:
    """About how many bytes these values keep: texts, numbers, containers, and values of the model. Texts that are also
    in the values `of` which they were made are not counted: somebody else keeps them."""
    seen: set[int] = set()
    _add_up(of, seen)
    return _add_up(values, seen)


def _add_up(values: Iterable[object], seen: set[int]) -> int:
    total = 0
    todo = list(values)
    while todo:
        value = todo.pop()
        if not value:  # one object for all
            continue
        kind = type(value)
        if kind is str or kind is bytes:
            if id(value) not in seen:
                seen.add(id(value))
                total += getsizeof(value)
        elif kind is tuple or kind is list:
            total += getsizeof(value)
            todo += value  # type: ignore[arg-type]
        elif kind is dict:
            total += getsizeof(value)
            todo += value  # type: ignore[arg-type]
            todo += value.values()  # type: ignore[attr-defined]
        elif kind is int or kind is float or kind is bool:
            total += 32
        elif (fields := getattr(kind, "_values", None)) is not None:
            total += VALUE_BYTES
            todo += fields(value)
        elif isinstance(value, Mapping):
            total += getsizeof(value)
            todo += value.keys()
            todo += value.values()
        else:
            total += 32
    return total
