"""Compares values with expected ones as a person would: `oslo` is Oslo, 5.0 is 5.

An expectation is JSON. Text is compared without letter case, amount of white space, and punctuation at its ends;
numbers by value; lists item by item; objects by the named keys only. An object with one key that begins with `$` is a
rule (`RULES`).
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeVar

A = TypeVar("A")
B = TypeVar("B")

_MISSING: Final = object()
_EDGES: Final = " \t\r\n.,;:!?\"'“”„‘’«»。、！？"


def fits(expected: Any, found: Any) -> bool:
    """Returns True if the value `found` fits the expectation."""
    if isinstance(expected, Mapping):
        if (rule := _rule(expected)) is not None:
            return rule(expected[next(iter(expected))], found)
        return isinstance(found, Mapping) and all(
            fits(value, found.get(key, _MISSING)) for key, value in expected.items()
        )
    if isinstance(expected, list):
        return (
            isinstance(found, list)
            and len(found) == len(expected)
            and all(fits(a, b) for a, b in zip(expected, found, strict=True))
        )
    if isinstance(expected, str):
        return isinstance(found, str) and plain(found) == plain(expected)
    return same(expected, found)


def same(a: Any, b: Any) -> bool:
    """Returns True if two JSON values are equal. Numbers are compared by value, but `true` is not 1."""
    if isinstance(a, bool) or isinstance(b, bool) or a is None or b is None:
        return a is b
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(same, a, b))
    return bool(a == b)


def plain(text: str) -> str:
    """Returns a text in normalized form: letter case, white space and outer punctuation removed."""
    return re.sub(r"\s+", " ", unicodedata.normalize("NFKC", text).casefold()).strip(_EDGES)


def pairs_up(wanted: Sequence[A], found: Sequence[B], fit: Callable[[A, B], bool]) -> bool:
    """Returns True if each wanted item can be assigned to a found item of its own, in any order, and none is
    left over."""
    if len(wanted) != len(found):
        return False
    takes: dict[int, int] = {}  # found -> wanted

    def place(index: int, tried: set[int]) -> bool:
        for other, value in enumerate(found):
            if other not in tried and fit(wanted[index], value):
                tried.add(other)
                if other not in takes or place(takes[other], tried):
                    takes[other] = index
                    return True
        return False

    return all(place(index, set()) for index in range(len(wanted)))


def problem(expected: Any) -> str | None:
    """Returns what is wrong with an expectation in a file of cases; None if it is valid."""
    if isinstance(expected, Mapping):
        marked = [key for key in expected if isinstance(key, str) and key.startswith("$")]
        if not marked:
            return next(filter(None, map(problem, expected.values())), None)
        if len(expected) > 1:
            return f"{marked[0]} must be the only key of its object"
        if marked[0] not in RULES:
            return f"unknown rule {marked[0]}; known: {', '.join(RULES)}"
        return RULES[marked[0]][1](expected[marked[0]])
    if isinstance(expected, list):
        return next(filter(None, map(problem, expected)), None)
    return None


# --- rules ------------------------------------------------------------------------------------------------------------

_Rule = Callable[[Any, Any], bool]


def _rule(expected: Mapping[str, Any]) -> _Rule | None:
    if len(expected) != 1:
        return None
    rule = RULES.get(next(iter(expected)))
    return None if rule is None else rule[0]


def _any(options: Any, found: Any) -> bool:
    return any(fits(option, found) for option in options)


def _contains(texts: Any, found: Any) -> bool:
    wanted = texts if isinstance(texts, list) else [texts]
    return isinstance(found, str) and all(plain(text) in plain(found) for text in wanted)


def _matches(pattern: Any, found: Any) -> bool:
    return isinstance(found, str) and re.search(pattern, found) is not None


def _near(bounds: Any, found: Any) -> bool:
    value, tolerance = bounds
    return isinstance(found, int | float) and not isinstance(found, bool) and abs(found - value) <= tolerance


def _set(items: Any, found: Any) -> bool:
    return isinstance(found, list) and pairs_up(items, found, fits)


def _exact(value: Any, found: Any) -> bool:
    return same(value, found)


def _given(wanted: Any, found: Any) -> bool:
    return (found is not _MISSING) is wanted


def _list_of_rules(value: Any) -> str | None:
    if not isinstance(value, list) or not value:
        return "expected a list that is not empty"
    return problem(value)


def _texts(value: Any) -> str | None:
    texts = value if isinstance(value, list) else [value]
    return (
        None if texts and all(isinstance(text, str) for text in texts) else "$contains: expected text, or a list of it"
    )


def _pattern(value: Any) -> str | None:
    try:
        re.compile(value)
    except (re.error, TypeError) as error:
        return f"$matches: not a regular expression: {error}"
    return None


def _bounds(value: Any) -> str | None:
    fine = (
        isinstance(value, list)
        and len(value) == 2
        and all(isinstance(number, int | float) and not isinstance(number, bool) for number in value)
    )
    return None if fine else "$near: expected [number, tolerance]"


def _nothing(value: Any) -> str | None:
    return None


def _boolean(value: Any) -> str | None:
    return None if isinstance(value, bool) else "$given: expected true or false"


RULES: Final[Mapping[str, tuple[_Rule, Callable[[Any], str | None]]]] = {
    "$any": (_any, _list_of_rules),
    "$contains": (_contains, _texts),
    "$matches": (_matches, _pattern),
    "$near": (_near, _bounds),
    "$set": (_set, _list_of_rules),
    "$exact": (_exact, _nothing),
    "$given": (_given, _boolean),
}
"""The rules by name: the comparison, and the check of its argument. `$any`: one of these. `$contains`: a text that
contains this, or all of these. `$matches`: a regular expression matches in the text. `$near`: a number, and its
tolerance. `$set`: a list with these items in any order. `$exact`: exactly equal. `$given`: whether there is a value."""
