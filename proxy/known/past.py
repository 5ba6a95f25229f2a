"""Results that are kept for the next request of a conversation.

An agent sends its whole conversation with every turn. A *fold* is a loop over all messages: reading, checking, escaping
or writing them. It is a step function given to `fold`. `fold` saves a *checkpoint* in the request's `Past`: the items
processed so far, the results, and the state after the last item (`carried`). In the next request `fold` continues from
the longest checkpoint whose items are the same objects as the request's first items.

Rules of this module:

1. A step is a pure function of its state and the next items. Counts and warnings are part of the state, so they are
   reported again. The key of the fold contains everything else that the result depends on.
2. Items are compared by identity, never by value. `toolwire.ingress.conversations` has compared the bytes, and a fold
   returns the same objects for the same first items. A middleware that changes messages needs no code for this: its
   messages are new objects, so the folds after it process all of them.
3. Each request has its own `Past`, which begins as a copy of the previous request's. A streamed request drops it when
   its answer begins (R34.3).

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
"""Called with the state, the next items, the number of items before them, and a list to which it appends the results.
Returns the new state, or None if these items change results made before them, so that an earlier checkpoint is
needed."""

MOST: Final = 3
"""Maximum number of checkpoints of one fold in one list of items."""
LISTS: Final = 3
"""Maximum number of lists of items of one fold: some folds run over the received messages and over the prompt's."""
MOST_KEYS: Final = 64
"""Maximum number of folds in one conversation. One more clears the checkpoints of all others."""
LEFT_BYTES: Final = 300
"""Weight of a checkpoint without its items and results."""
ITEM_BYTES: Final = 64
"""Weight of an item in a checkpoint: its references in two lists, and its share of the state."""
VALUE_BYTES: Final = 120
"""Weight of a model object without its fields."""
REPORTED_BYTES: Final = 4096
"""Growth is reported in steps of at least this many bytes, because each report costs as much as a small fold."""


class KnownItems(list[Any]):
    """The items (messages) of a conversation in a request body; must never be changed. `past` holds the results of
    earlier requests; after `release` it is None unless the conversation is still cached."""

    __slots__ = ("_past",)

    def __init__(self, items: Sequence[Any], past: Past) -> None:
        super().__init__(items)
        self._past: Past | ref[Past] = past

    @property
    def past(self) -> Past | None:
        return self._past() if isinstance(self._past, ref) else self._past

    def release(self) -> None:
        """Replaces the reference to the past with a weak one, so that only the cache keeps it."""
        if not isinstance(self._past, ref):
            self._past = ref(self._past)


def past_of(items: object) -> Past | None:
    """Returns the results of earlier requests for these items; None if the items are not `KnownItems`, or their results
    are no longer cached."""
    return items.past if isinstance(items, KnownItems) else None


class _Checkpoint(NamedTuple):
    """The progress of a fold: the items processed, the results (`made`), the state (`carried`), and the weight of these
    in bytes."""

    items: tuple[Any, ...]
    made: list[Any]
    carried: Any
    weight: int


_Lists = tuple[tuple[_Checkpoint, ...], ...]


class _Saved(NamedTuple):
    """The checkpoints of one fold, and their weight in bytes."""

    lists: _Lists
    weight: int


_NONE: Final = _Saved((), 0)


class Past:
    """The checkpoints of all folds of one conversation. `new` is the number of bytes that came with this request for
    the first time. `weight` is the approximate memory of the checkpoints in bytes; `grown` is called with its changes,
    in steps of `REPORTED_BYTES`."""

    __slots__ = ("__weakref__", "_checkpoints", "_unreported", "grown", "new", "weight")

    def __init__(self, new: int, before: Past | None = None) -> None:
        self.new = new
        self._checkpoints: dict[Hashable, _Saved] = {} if before is None else dict(before._checkpoints)
        self.weight: int = 0 if before is None else before.weight
        self._unreported = 0
        self.grown: Callable[[int], None] | None = None

    def latest(self, key: Hashable) -> _Checkpoint | None:
        """Returns the checkpoint of the fold `key` that was saved last, or None."""
        saved = self._checkpoints.get(key)
        return None if saved is None else saved.lists[0][0]

    def places(self, key: Hashable) -> list[_Checkpoint]:
        """Returns the checkpoints of the fold `key`, grouped by list. The latest list, and in it the latest checkpoint,
        comes first."""
        return [checkpoint for places in self._checkpoints.get(key, _NONE).lists for checkpoint in places]

    def save(self, key: Hashable, saved: _Checkpoint) -> None:
        """Saves a checkpoint of the fold `key`, and drops those over the limits `MOST`, `LISTS` and `MOST_KEYS`."""
        lists: _Lists
        lists, before = self._checkpoints.get(key, _NONE)
        if not lists and len(self._checkpoints) >= MOST_KEYS:
            before = sum(each.weight for each in self._checkpoints.values())
            self._checkpoints.clear()
        own = next((places for places in lists if _is_same_list(places[0].items, saved.items)), ())
        kept = (saved, *[other for other in own if len(other.items) != len(saved.items)])[:MOST]
        lists = (kept, *[places for places in lists if places is not own])[:LISTS]
        weight = _weight(lists)
        self._checkpoints[key] = _Saved(lists, weight)
        self.weight += weight - before
        self._unreported += weight - before
        if self.grown is not None and abs(self._unreported) >= REPORTED_BYTES:
            by, self._unreported = self._unreported, 0
            self.grown(by)


def _is_same_list(one: tuple[object, ...], other: tuple[object, ...]) -> bool:
    """Returns True if both are versions of one list: at least half of the shorter one begins the longer one."""
    return 2 * same_items(one, other) >= min(len(one), len(other))


def _weight(lists: _Lists) -> int:
    """Returns the weight of the checkpoints of one fold. Checkpoints of one list share their values, so only the
    heaviest one counts for these."""
    total = 0
    for places in lists:
        heaviest = 0
        for saved in places:
            total += ITEM_BYTES * len(saved.items) + LEFT_BYTES
            heaviest = max(heaviest, saved.weight)
        total += heaviest
    return total


def fold(
    past: Past | None,
    key: Hashable,
    items: Sequence[Item],
    carried: Carried,
    step: Step[Carried, Item, Made],
    fits: Callable[[Sequence[Item], int], int] = lambda items, at: at,
) -> tuple[list[Made], Carried]:
    """Returns the results of `step` for all items, and the state after the last one. Neither must be changed.

    `carried` is the initial state. `key` identifies the fold. `step` must not return None if called with the initial
    state.

    Saves two checkpoints: one at the end, and one before the last items, as many as differ from the previous request:
    clients move a mark or a note to the end with every turn. `fits` may move the second checkpoint to an earlier
    position from which `step` can continue.
    """
    if past is not None and items:
        whole = tuple(items)
        latest = past.latest(key)
        if latest is not None and len(latest.items) == len(whole) == same_items(latest.items, whole):
            return latest.made, latest.carried  # the same fold runs several times in one request
        places = past.places(key)
        shared = [same_items(saved.items, whole) for saved in places]
        last = next((at for at, saved in enumerate(places) if _is_same_list(saved.items, whole)), None)
        # number of items of the previous request that are not in this one
        changed = 1 if last is None else len(places[last].items) - shared[last]
        between = fits(whole, max(0, len(whole) - changed))
        known = [saved for saved, same in zip(places, shared, strict=True) if same == len(saved.items)]
        known.sort(key=lambda saved: -len(saved.items))
        for saved in (*known, _Checkpoint((), [], carried, 0)):
            done = _continue_from(past, key, whole, saved, step, between)
            done = done or _continue_from(past, key, whole, saved, step, 0)
            if done is not None:
                return done
    made: list[Made] = []
    end = step(carried, items, 0, made)
    assert end is not None
    return made, end


def _continue_from(
    past: Past,
    key: Hashable,
    items: tuple[Item, ...],
    saved: _Checkpoint,
    step: Step[Carried, Item, Made],
    between: int,
) -> tuple[list[Made], Carried] | None:
    """Runs the step on all items after the checkpoint `saved` and returns the results and the state; None if the step
    cannot continue from there. Saves checkpoints at the end and at position `between`, if that is ahead."""
    start = len(saved.items)
    if start == len(items):
        return saved.made, saved.carried
    carried: Carried = saved.carried
    made: list[Made] = list(saved.made)
    weight = saved.weight
    for stop in (between, len(items)) if start < between < len(items) else (len(items),):
        done = len(made)
        after = step(carried, items[start:stop], start, made)
        if after is None:
            return None
        carried, start = after, stop
        if len(made) > done:
            weight += bytes_of(made[done:], items[len(saved.items) : stop])
        past.save(key, _Checkpoint(items[:stop], list(made), carried, weight))
    return made, carried


def each(
    past: Past | None, key: Hashable, items: tuple[Item, ...], change: Callable[[Item], Item | None]
) -> tuple[Item, ...]:
    """Returns the results of `change` for all items, without those that are None; the same object if no item changes.
    `key` identifies this fold, as in `fold`."""

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
    """Returns the result of `make`, which must depend only on the key, these few items and `text`. If an earlier
    request of the conversation had the same items and text, returns its object without calling `make`."""
    if past is None:
        return make()
    for saved in past.places(key):
        if len(saved.items) == len(items) == same_items(saved.items, tuple(items)) and saved.carried == text:
            known: Made = saved.made[0]
            return known
    made = make()
    past.save(key, _Checkpoint(tuple(items), [made], text, bytes_of([made, text])))
    return made


def after(past: Past, key: Hashable, items: Sequence[object], make: Callable[[list[Made]], Made]) -> Made:
    """Returns the result of `make`, and saves it for these items. `make` is called with the results of earlier requests
    for the first of the items; the one for most items comes first. They may hold what earlier requests have left
    elsewhere, so the result is no part of what the gateway sends."""
    whole = tuple(items)
    known = [saved for saved in past.places(key) if same_items(saved.items, whole) == len(saved.items)]
    known.sort(key=lambda saved: -len(saved.items))
    made = make([saved.carried for saved in known])
    past.save(key, _Checkpoint(whole, [], made, VALUE_BYTES))
    return made


def same_as_before(past: Past | None, key: Hashable, items: Iterable[Item]) -> tuple[Item, ...]:
    """Returns the items. An item that is equal to the one at its position in the previous request is replaced by that
    object, so that folds can continue behind it. For loops that create objects anew for every request."""
    now = tuple(items)
    if past is None:
        return now
    before = past.latest(key)
    if before is not None:
        same = zip(now, before.items, strict=False)
        now = (*(old if new is not old and new == old else new for new, old in same), *now[len(before.items) :])
    past.save(key, _Checkpoint(now, [], None, 0))
    return now


def bytes_of(values: Iterable[object], of: Iterable[object] = ()) -> int:
    """Returns the approximate memory of these values: texts, numbers, containers, and model objects. Texts that occur
    in the values `of` as well are not counted: they are counted where those values are stored."""
    seen: set[int] = set()
    _add_up(of, seen)
    return _add_up(values, seen)


def _add_up(values: Iterable[object], seen: set[int]) -> int:
    total = 0
    todo = list(values)
    while todo:
        value = todo.pop()
        if not value:  # empty values are shared objects
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
