"""A grammar as the scanners read it: bytes, and every branch where it is needed. Both twins begin with `plan`.

Rule: what can be said of a grammar before any text is there is said here, errors included.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Final

from ._grammar import END, LITERAL_BYTES, MAX_FIRSTS, Anchor, Branch, Field, Grammar, Place, Read, Shape

NOTHING: Final = 0
WORD: Final = 1
PROSE: Final = 2
JSON: Final = 3
CODE: Final = 4
BRACES: Final = 5
NAME: Final = 6
PRINTED: Final = 7

NAMED: Final = bytes(range(0x80, 0x100)) + b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-.:/"
"""What a `name` is made of, but for whitespace at its ends."""

TICK: Final = b"`"
"""What stands around inline code, and three of which begin a fence."""

_READS: Final[dict[Read, tuple[int, str]]] = {
    "nothing": (NOTHING, ""),
    "name": (NAME, ""),
    "word": (WORD, ""),
    "text": (PROSE, ""),
    "object": (JSON, "{"),
    "array": (JSON, "["),
    "list": (CODE, "["),
    "call": (CODE, ""),
    "braces": (BRACES, "{"),
    "printed": (PRINTED, ""),
}
"""The machine that reads a field, and the bracket that it begins with."""

_WRAPPERS: Final = (b"", b"await ", b"print(", b"print(await ")
"""What may stand before a call as Python writes it."""

SURE: Final = 0
LIKELY: Final = 1
UNLIKELY: Final = 2
"""Whether a value ends where something stands that may end it: surely; if what follows is what may follow; or, since the template
writes its end in another way, only if all that follows is as the template writes it."""


@dataclass(frozen=True, slots=True)
class Step:
    """A `Branch`: at `literal`, of which `taken` bytes are consumed, `read` a field and go to place `then` of `shape`."""

    literal: bytes
    taken: int
    read: int
    field: Field
    then: int
    shape: Shape


@dataclass(frozen=True, slots=True)
class Stop:
    """A `Place`. `otherwise` is the branch for anything that no literal fits. `ends`: the end of the answer may come. `free`: the block
    may end here whatever comes. `final`: only a closer is missing, unless another call comes. `more`: one argument more may come. `next`: what begins another
    block, if that may end this one."""

    steps: tuple[Step, ...]
    otherwise: Step | None
    ends: bool
    free: bool
    final: bool
    more: bool
    next: tuple[bytes, ...] = ()


@dataclass(frozen=True, slots=True)
class Opener:
    """A literal that opens a block. `shapes` are those that it may open, all of them `untaught` or none. `inner`: it stands in a
    section or ends one, so that whitespace between the last block and it is inside that section."""

    literal: bytes
    anchor: Anchor
    shapes: tuple[Shape, ...]
    first: Stop

    @property
    def untaught(self) -> bool:
        return self.shapes[0].untaught

    @property
    def inner(self) -> bool:
        return self.anchor == "after" or any(shape.ends_section for shape in self.shapes)


@dataclass(frozen=True, slots=True)
class Marker:
    """A literal to look for. `opens` a block, or the reasoning that ends with the tag of index `reasoning`; neither: ends it. The
    block of an opener that is empty begins with the literal."""

    literal: bytes
    anchor: Anchor = "anywhere"
    opens: Opener | None = None
    reasoning: int | None = None

    @property
    def untaught(self) -> bool:
        return self.opens is not None and self.opens.untaught


@dataclass(frozen=True, slots=True)
class Plan:
    """A grammar as the scanners read it. `text` are the markers of visible text, in the order in which they are tried, `inside` those of
    reasoning, one tuple for each pair of tags. `answer` is what may open an answer without an opener, and `begins` the bytes with which
    that may begin; `printed` the same, untaught, tried behind all markers. `stops` are the places of each shape, and behind them one
    where nothing but another block may follow, or nothing; `begun` are the openers that end a short field of an untaught shape; `firsts` the bytes with which markers begin, `longest` the length of the
    longest opener. `quotes`: there are untaught shapes, so that it matters what stands in inline code and fences. `native` is for the
    compiled scanner, which keeps its own form of the plan there."""

    text: tuple[Marker, ...]
    inside: tuple[tuple[Marker, ...], ...]
    answer: Opener | None
    begins: bytes
    printed: Opener | None
    stops: dict[Shape, tuple[Stop, ...]]
    begun: tuple[bytes, ...]
    firsts: bytes
    longest: int
    quotes: bool
    native: list[object] = field(default_factory=list, compare=False)


@lru_cache(maxsize=256)  # a pure function of frozen values, and run for every answer
def plan(grammar: Grammar, reasoning: tuple[tuple[str, str], ...], scan_calls: bool) -> Plan:
    """How to read `grammar`, with these pairs of tags around reasoning. Untaught shapes that would get in the way of others are left out.

    Raises `ValueError` for literals that would make the answer depend on where deltas are cut: one marker inside another
    one (but for its end), an opener inside its own closer where both are looked for, or two branches of which one begins like
    the other.
    """
    taught = [shape for shape in grammar.shapes if not shape.untaught]
    untaught = [shape for shape in grammar.shapes if shape.untaught]
    begins = _begun(taught)
    stops = {shape: _stops(shape, begins) for shape in taught}
    openers = _openers(taught, stops)
    marks = tuple(Marker(opener.literal, opener.anchor, opener) for opener in openers if opener.literal)
    if not all(opener and closer for opener, closer in reasoning):
        raise ValueError("reasoning tags must not be empty")
    tags = tuple(Marker(opener.encode(), reasoning=index) for index, (opener, _) in enumerate(reasoning))
    text = (*tags, *marks)
    inside = tuple((Marker(closer.encode()), *(marks if scan_calls else ())) for _, closer in reasoning)
    held = [
        (shape.opener.encode(), shape.closer.encode())
        for shape in taught
        if shape.opener and shape.closer and not shape.first_keys
    ]
    for literals in (*({marker.literal for marker in markers} for markers in (text, *inside)), *map(set, held)):
        for one in literals:
            # At the very end of another one it may stand: whatever begins first counts.
            if any(one in other[:-1] for other in literals if other != one):
                raise ValueError(f"{one.decode()!r} is part of another marker: {sorted(m.decode() for m in literals)}")
    if len({marker.literal for marker in text}) < len(text):
        raise ValueError("two markers are the same")
    apart = _apart(untaught, [marker.literal.decode() for marker in text])
    begun = tuple(dict.fromkeys((*begins, *_begun(apart))))
    stops |= {shape: _stops(shape, begun) for shape in apart}
    further = _openers(apart, stops)
    lines = tuple(
        Marker(step.literal, opener.anchor, opener)
        for opener in further
        if not opener.literal and opener.anchor == "margin"
        for step in opener.first.steps
    )
    text = (*text, *(Marker(opener.literal, opener.anchor, opener) for opener in further if opener.literal), *lines)
    firsts = bytes(dict.fromkeys(marker.literal[0] for markers in (text, *inside) for marker in markers))
    firsts = bytes(dict.fromkeys(firsts + TICK)) if apart else firsts
    if len(firsts) > MAX_FIRSTS:
        raise ValueError(f"the markers begin with more than {MAX_FIRSTS} different bytes")
    answer = _of_answers(openers)
    return Plan(
        text,
        inside,
        answer,
        _begins(answer.first) if answer is not None else b"",
        _of_answers(further),
        stops,
        tuple(opener.encode() for opener in begun),
        firsts,
        max((len(opener.literal) for opener in (*openers, *further)), default=0),
        quotes=bool(apart),
    )


def _begun(shapes: Sequence[Shape]) -> tuple[str, ...]:
    """The openers that end a block of which only closers are missing."""
    return tuple(dict.fromkeys(shape.opener for shape in shapes if shape.opener and shape.anchor != "line"))


def _openers(shapes: Sequence[Shape], stops: Mapping[Shape, tuple[Stop, ...]]) -> list[Opener]:
    by_opener: dict[tuple[str, Anchor], list[Shape]] = {}
    for shape in shapes:
        if not shape.opener and shape.anchor != "answer" and not (shape.untaught and shape.anchor == "margin"):
            raise ValueError("a shape without an opener needs anchor='answer'")
        if shape.opener and shape.anchor == "answer":
            raise ValueError("anchor='answer' is for shapes without an opener")
        by_opener.setdefault((shape.opener, shape.anchor), []).append(shape)
    return [
        Opener(opener.encode(), anchor, tuple(found), _merged([stops[shape][0] for shape in found]))
        for (opener, anchor), found in by_opener.items()
    ]


def _of_answers(openers: Sequence[Opener]) -> Opener | None:
    return next((opener for opener in openers if opener.anchor == "answer"), None)


def _apart(untaught: Sequence[Shape], markers: Sequence[str]) -> list[Shape]:
    """The untaught shapes that can be told from the `markers` of what is taught and of reasoning, and from each other. The first ones
    stay. A marker may begin with an untaught one, and be the same."""
    found: list[Shape] = []
    literals: dict[str, Anchor] = {}
    firsts: dict[tuple[str, Anchor], Stop] = {}
    for shape in untaught:
        opener = shape.opener
        if any(opener and (marker in opener[:-1] or opener in marker[1:-1]) for marker in markers):
            continue
        if opener and any(
            anchor != shape.anchor if other == opener else (other in opener[:-1] or opener in other[:-1])
            for other, anchor in literals.items()
        ):
            continue
        if (
            opener
            and shape.closer
            and not shape.first_keys
            and (opener in shape.closer[:-1] or shape.closer in opener[:-1])
        ):
            continue
        first = _stops(shape, ())[0]
        try:
            firsts[opener, shape.anchor] = _merged([*filter(None, [firsts.get((opener, shape.anchor))]), first])
        except ValueError:
            continue
        if opener:
            literals[opener] = shape.anchor
        found.append(shape)
    return found


def _begins(stop: Stop) -> bytes:
    """The bytes with which something may begin that a place takes."""
    named = stop.otherwise is not None and stop.otherwise.read == NAME
    return bytes(dict.fromkeys([*(step.literal[0] for step in stop.steps), *(NAMED if named else b"")]))


def _stops(shape: Shape, begins: Sequence[str]) -> tuple[Stop, ...]:
    """The places of a shape; a bracket behind a literal gets a place of its own, since whitespace may stand between."""
    places = list(shape.places)
    closing, over = _closing(shape.places), _over(shape.places)
    stops: list[Stop] = []
    for index, place in enumerate(places):  # grows while it is gone through
        steps: list[Step] = []
        otherwise: Step | None = None
        for branch in place:
            if branch.read == "end":
                continue
            read, bracket = _READS[branch.read]
            if branch.literal and bracket:
                places.append((Branch(read=branch.read, field=branch.field, then=branch.then),))
                steps.append(_step(branch.literal, len(branch.literal.encode()), NOTHING, "", len(places) - 1, shape))
            elif branch.literal:
                taken = 0 if branch.ahead else len(branch.literal.encode())
                steps.append(_step(branch.literal, taken, read, branch.field, branch.then, shape))
            elif bracket:
                steps.append(_step(bracket, 0, read, branch.field, branch.then, shape))
            else:
                otherwise = _step("", 0, read, branch.field, branch.then, shape)
            if branch.ahead and (branch.read != "nothing" or branch.then != END):
                raise ValueError(f"{branch.literal!r} is only looked at, so nothing can follow in {shape.opener!r}")
            if read in (NAME, WORD, PROSE) and (
                branch.then == END or not all(b.literal or _READS[b.read][1] for b in shape.places[branch.then])
            ):
                raise ValueError(f"nothing says where the {branch.read} of {shape.opener!r} ends")
        stop = _merged([_stop(steps, otherwise, ends=any(branch.read == "end" for branch in place))])
        stop = replace(stop, final=otherwise is None and _is_over(place, over))
        if index in closing:
            literals = [step.literal.decode() for step in steps]
            apart = [
                opener
                for opener in begins
                if not any(opener.startswith(literal) or literal.startswith(opener) for literal in literals)
            ]
            stop = replace(stop, next=tuple(opener.encode() for opener in apart))
        stops.append(stop)
    return (*stops, Stop((), None, ends=True, free=False, final=False, more=False, next=tuple(map(str.encode, begins))))


def _closing(places: Sequence[Place]) -> set[int]:
    """The places where a block may end without a further field."""
    return _grown(places, lambda place, found: any(b.read == "nothing" and b.then in (END, *found) for b in place))


def _over(places: Sequence[Place]) -> set[int]:
    """The places where nothing is left to come but closers, unless it is another call."""
    return _grown(places, _is_over)


def _is_over(place: Place, over: Collection[int]) -> bool:
    return all(
        branch.then in (END, *over) if branch.read == "nothing" else branch.field in ("call", "calls")
        for branch in place
        if branch.read != "end"
    )


def _grown(places: Sequence[Place], belongs: Callable[[Place, Collection[int]], bool]) -> set[int]:
    """The least set of places that holds all that belong to it."""
    found: set[int] = set()
    before = -1
    while before < len(found):
        before = len(found)
        found.update(index for index, place in enumerate(places) if belongs(place, found))
    return found


def _step(literal: str, taken: int, read: int, field: Field, then: int, shape: Shape) -> Step:
    if len(literal.encode()) > LITERAL_BYTES:
        raise ValueError(f"a literal is longer than {LITERAL_BYTES} bytes: {literal[:40]!r}...")
    return Step(literal.encode(), taken, read, field, then, shape)


def _stop(steps: Sequence[Step], otherwise: Step | None, *, ends: bool = False) -> Stop:
    return Stop(
        tuple(steps),
        otherwise,
        ends=ends or (not steps and otherwise is None),
        free=otherwise is not None and otherwise.read == NOTHING and otherwise.then == END,
        final=False,
        more=any(step.field == "key" for step in steps),
    )


def _merged(stops: Sequence[Stop]) -> Stop:
    """All branches of several places. Raises `ValueError` if they cannot be told apart."""
    steps = [step for stop in stops for step in stop.steps]
    for index, step in enumerate(steps):
        if any(other.literal.startswith(step.literal) for place, other in enumerate(steps) if place != index):
            raise ValueError(f"after {step.shape.opener!r}, {step.literal.decode()!r} may mean two things")
    others = [stop.otherwise for stop in stops if stop.otherwise is not None]
    if len(others) > 1:
        raise ValueError(f"after {others[0].shape.opener!r} anything may mean two things")
    return _stop(steps, others[0] if others else None, ends=any(stop.ends for stop in stops))


@lru_cache(maxsize=256)  # a pure function, asked for each byte of a first key
def heads(shape: Shape, names: tuple[str, ...]) -> frozenset[bytes]:
    """With what an object or a call begins that has one of the first keys, or `names`, a list's bracket aside. Only what nobody taught may be
    quoted as Python does it."""
    quotes = (b'"', b"'") if shape.untaught else (b'"',)
    keys = [b"{%b%b%b" % (quote, key.encode(), quote) for key in shape.first_keys for quote in quotes]
    calls = [b"%b%b(" % (wrapper, name.encode("utf-8", "replace")) for name in names for wrapper in _WRAPPERS]
    return frozenset((*keys, *calls))
