"""Results that are kept for the next request of a conversation.

An agent sends its whole conversation with every turn. A *fold* is a loop over all messages: reading, checking, escaping
or writing them. It is a step function given to `fold_items`. `fold_items` saves a *checkpoint* in the request's `Past`:
the items processed so far, the results, and the state after the last item (`carried`). In the next request `fold_items`
continues from the longest checkpoint whose items are the same objects as the request's first items.

Rules of this module:

1. A step is a pure function of its state and the next items. Counts and warnings are part of the state, so they are
   reported again. The key of the fold contains everything else that the result depends on.
2. Items are compared by identity, never by value. `toolwire.ingress.known_conversations` has compared the bytes, and a
   fold returns the same objects for the same first items. A middleware that changes messages needs no code for this:
   its messages are new objects, so the folds after it process all of them.
3. Each request has its own `Past`, which begins as a copy of the previous request's. A streamed request drops it when
   its answer begins (R34.3).

Law: `fold_items` returns the same with and without a `Past`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from operator import is_, itemgetter
from typing import Any, Final, NamedTuple, TypeVar
from weakref import ref

from ..fastparse import bytes_of, same_items
from ..support.seals import BEGINNING

Item = TypeVar("Item")
Made = TypeVar("Made")
Carried = TypeVar("Carried")

Step = Callable[[Carried, Sequence[Item], int, list[Made]], Carried | None]
"""Called with the state, the next items, the number of items before them, and a list to which it appends the results.
Returns the new state, or None if these items change results made before them, so that an earlier checkpoint is
needed."""

SEALED: Final = BEGINNING[:-1].encode()
"""Bytes that occur in every body with a text that the gateway sealed or signed, in any version."""
NUMBERED: Final = b"--"
"""Bytes that occur in every body with a call id to which the gateway has appended a number."""
SIGNS: Final = (SEALED, NUMBERED)
"""Bytes that are searched for in bodies. In a known conversation, each item is searched once (`Past.signs`)."""
MOST: Final = 3
"""Maximum number of checkpoints of one fold in one list of items."""
LISTS: Final = 3
"""Maximum number of lists of items of one fold: some folds run over the received messages and over the prompt's."""
MOST_KEYS: Final = 64
"""Maximum number of folds in one conversation. One more clears the checkpoints of all others."""
LEFT_BYTES: Final = 300
"""Estimated memory of a checkpoint in bytes, without its items and results."""
ITEM_BYTES: Final = 64
"""Estimated memory of an item in a checkpoint in bytes: its references in two lists, and its share of the state."""
REPORTED_BYTES: Final = 16 * 1024
"""Growth is reported in steps of at least this many bytes, because each report costs as much as a small fold. The next
request of a conversation weighs all of it."""


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
        """Replaces the reference to `past` with a weak one, so that only the cache keeps it alive."""
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


class _List(NamedTuple):
    """The checkpoints of one fold in one list of items, the latest first, and their weight in bytes. They share their
    values, so only the heaviest one counts for these."""

    places: tuple[_Checkpoint, ...]
    weight: int


_UNKNOWN: Final = _List((), 0)
_ITEMS: Final = itemgetter(_Checkpoint._fields.index("items"))
_WEIGHT: Final = itemgetter(_Checkpoint._fields.index("weight"))


class Past:
    """The checkpoints of all folds of one conversation. `new` is the number of bytes that came with this request for
    the first time, `signs` are those of `SIGNS` in its body. `weight` is the approximate memory of the checkpoints in
    bytes; `grown` is called with its changes, in steps of `REPORTED_BYTES`."""

    __slots__ = ("__weakref__", "_lists", "_unreported", "grown", "new", "signs", "weight")

    def __init__(self, new: int, before: Past | None = None, signs: frozenset[bytes] = frozenset()) -> None:
        self.new = new
        self.signs = signs
        self._lists: dict[Hashable, tuple[_List, ...]] = {} if before is None else dict(before._lists)
        """The lists of each fold, the latest first."""
        self.weight: int = 0 if before is None else before.weight
        self._unreported = 0
        self.grown: Callable[[int], None] | None = None

    def latest(self, key: Hashable) -> _Checkpoint | None:
        """Returns the checkpoint of the fold `key` that was saved last, or None."""
        lists = self._lists.get(key)
        return None if lists is None else lists[0].places[0]

    def places(self, key: Hashable) -> list[_Checkpoint]:
        """Returns the checkpoints of the fold `key`, grouped by list. The latest list, and in it the latest checkpoint,
        comes first."""
        return [checkpoint for each in self._lists.get(key, ()) for checkpoint in each.places]

    def save(self, key: Hashable, saved: _Checkpoint) -> None:
        """Saves a checkpoint of the fold `key`, and drops those over the limits `MOST`, `LISTS` and `MOST_KEYS`."""
        own = next(
            (each for each in self._lists.get(key, ()) if _is_same_list(each.places[0].items, saved.items)), _UNKNOWN
        )
        self.save_in(key, own, saved)

    def save_in(self, key: Hashable, own: _List, saved: _Checkpoint) -> _List:
        """Saves a checkpoint as the latest of the list `own`, or in a new list if that is `_UNKNOWN`. Returns the
        list."""
        lists = self._lists.get(key, ())
        if not lists and len(self._lists) >= MOST_KEYS:
            self._lists.clear()
            grown = -self.weight
        else:
            grown = -own.weight
        places = own.places
        if places and len(places[0].items) >= len(saved.items):
            places = tuple([each for each in places if len(each.items) != len(saved.items)])
        places = (saved, *places[: MOST - 1])
        references = ITEM_BYTES * sum(map(len, map(_ITEMS, places)))
        new = _List(places, LEFT_BYTES * len(places) + references + max(map(_WEIGHT, places)))
        if len(lists) == 1 and lists[0] is own:
            self._lists[key] = (new,)
        else:
            newest = (new, *[each for each in lists if each is not own])
            grown -= sum([each.weight for each in newest[LISTS:]])
            self._lists[key] = newest[:LISTS]
        grown += new.weight
        self.weight += grown
        self._unreported += grown
        if self.grown is not None and abs(self._unreported) >= REPORTED_BYTES:
            by, self._unreported = self._unreported, 0
            self.grown(by)
        return new


def _is_same_list(one: tuple[object, ...], other: tuple[object, ...]) -> bool:
    """Returns True if both are versions of one list: at least half of the shorter one begins the longer one."""
    return 2 * same_items(one, other) >= min(len(one), len(other))


def fold_items(
    past: Past | None,
    key: Hashable,
    items: Sequence[Item],
    carried: Carried,
    step: Step[Carried, Item, Made],
    fits: Callable[[Sequence[Item], int], int] | None = None,
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
        lists = past._lists.get(key, ())
        for own in lists:
            latest = own.places[0]
            if len(latest.items) == same_items(latest.items, whole):
                if len(latest.items) == len(whole):
                    return latest.made, latest.carried  # the same fold runs several times in one request
                second = len(whole) if fits is None else fits(whole, len(whole))
                done = _continue_from(past, key, own, whole, latest, step, second)
                if done is not None:
                    return done
                break
        return _continue(past, key, lists, whole, carried, step, fits)
    made: list[Made] = []
    end = step(carried, items, 0, made)
    assert end is not None
    return made, end


def _continue(
    past: Past,
    key: Hashable,
    lists: tuple[_List, ...],
    whole: tuple[Item, ...],
    carried: Carried,
    step: Step[Carried, Item, Made],
    fits: Callable[[Sequence[Item], int], int] | None,
) -> tuple[list[Made], Carried]:
    """Runs the step on all items after the longest checkpoint from which it can continue."""
    own = next((each for each in lists if _is_same_list(each.places[0].items, whole)), _UNKNOWN)
    # number of items of the previous request that are not in this one
    changed = len(own.places[0].items) - same_items(own.places[0].items, whole) if own.places else 1
    between = max(0, len(whole) - changed)
    if fits is not None:
        between = fits(whole, between)
    places = [saved for each in lists for saved in each.places]
    known = [saved for saved in places if same_items(saved.items, whole) == len(saved.items)]
    known.sort(key=lambda saved: -len(saved.items))
    for saved in (*known, _Checkpoint((), [], carried, 0)):
        for second in (between, 0):
            done = _continue_from(past, key, own, whole, saved, step, second)
            if done is not None:
                return done
    raise AssertionError("a step refuses its initial state")


def _continue_from(
    past: Past,
    key: Hashable,
    own: _List,
    items: tuple[Item, ...],
    saved: _Checkpoint,
    step: Step[Carried, Item, Made],
    between: int,
) -> tuple[list[Made], Carried] | None:
    """Runs the step on all items after the checkpoint `saved` and returns the results and the state; None if the step
    cannot continue from there. Saves checkpoints in the list `own` at the end and at position `between`, if that is
    ahead."""
    start = len(saved.items)
    if start == len(items):
        return saved.made, saved.carried
    carried: Carried = saved.carried
    made: list[Made] = list(saved.made)
    weight = saved.weight
    checkpoints: list[_Checkpoint] = []
    for stop in (between, len(items)) if start < between < len(items) else (len(items),):
        done = len(made)
        after = step(carried, items[start:stop], start, made)
        if after is None:
            return None
        carried, start = after, stop
        if len(made) > done:
            weight += bytes_of(made[done:], items[len(saved.items) : stop])
        last = stop == len(items)
        checkpoints.append(_Checkpoint(items[:stop], made if last else made.copy(), carried, weight))
    for checkpoint in checkpoints:
        own = past.save_in(key, own, checkpoint)
    return made, carried


def map_items(
    past: Past | None, key: Hashable, items: tuple[Item, ...], change: Callable[[Item], Item | None]
) -> tuple[Item, ...]:
    """Returns the results of `change` for all items, without those that are None; the same object if no item changes.
    `key` identifies this fold, as in `fold_items`."""

    def step(same: bool, several: Sequence[Item], start: int, made: list[Item]) -> bool:
        changed = [change(item) for item in several]
        made += [item for item in changed if item is not None]
        return same and all(map(is_, changed, several))

    made: list[Item] = []
    if past is None:
        same = step(True, items, 0, made)
    else:
        made, same = fold_items(past, key, items, True, step)
    return items if same else tuple(made)


def make_once(
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


def build_on_earlier(past: Past, key: Hashable, items: Sequence[object], make: Callable[[list[Made]], Made]) -> Made:
    """Returns the result of `make`, and saves it for these items. `make` is called with the results of earlier requests
    whose items are the first of these, the one with most items first. Only for values that the gateway does not send,
    because they may depend on earlier requests."""
    whole = tuple(items)
    known = [saved for saved in past.places(key) if same_items(saved.items, whole) == len(saved.items)]
    known.sort(key=lambda saved: -len(saved.items))
    made = make([saved.carried for saved in known])
    past.save(key, _Checkpoint(whole, [], made, bytes_of([made])))
    return made


def reuse_equal(past: Past | None, key: Hashable, items: Iterable[Item]) -> tuple[Item, ...]:
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
