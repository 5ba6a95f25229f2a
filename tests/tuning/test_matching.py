"""Values against expectations."""

from __future__ import annotations

from typing import Any

from tests.cases import every
from toolwire.extras.tune.matching import fits, pairs_up, problem

FITTING: list[tuple[Any, Any]] = [
    ("Oslo", "oslo"),
    ("Oslo", " Oslo. "),
    ("New York", "new  york"),
    ("ｃａｆé", "café"),
    (5, 5.0),
    (True, True),
    (None, None),
    ([1, "a"], [1, "A"]),
    ({"a": 1}, {"a": 1, "b": 2}),
    ({"a": {"b": "X"}}, {"a": {"b": "x"}}),
    ({"$any": ["c", "celsius"]}, "Celsius"),
    ({"$any": [True, {"$given": False}]}, True),
    ({"$contains": "tour"}, "Who won the Tour de France?"),
    ({"$contains": ["flour", "12 eggs"]}, "Flour, milk, 12  EGGS"),
    ({"$matches": r"^(\./)?src/?$"}, "./src"),
    ({"$near": [18.5, 0.01]}, 18.504),
    ({"$set": ["bug", "web"]}, ["web", "bug"]),
    ({"$set": [{"$any": ["a", "b"]}, "a"]}, ["a", "b"]),
    ({"$exact": "aB"}, "aB"),
    ({"$exact": [1, {"a": None}]}, [1.0, {"a": None}]),
    ({"a": {"$given": True}}, {"a": None}),
    ({"a": {"$given": False}}, {}),
    ({"a": {"$any": [{"$given": False}, "x"]}}, {}),
]
OTHERS: list[tuple[Any, Any]] = [
    ("Oslo", "Bergen"),
    ("5", 5),
    (5, "5"),
    (1, True),
    (0, False),
    (None, False),
    ([1, 2], [2, 1]),
    ([1], [1, 1]),
    ({"a": 1}, {"b": 1}),
    ({"a": 1}, [1]),
    ({"$any": ["c"]}, "f"),
    ({"$contains": ["flour", "salt"]}, "flour"),
    ({"$contains": "1"}, 1),
    ({"$matches": "a"}, "b"),
    ({"$near": [1, 0.5]}, True),
    ({"$near": [1, 0.5]}, "1"),
    ({"$near": [1, 0.5]}, 1.6),
    ({"$set": ["a", "a"]}, ["a", "b"]),
    ({"$set": ["a"]}, "a"),
    ({"$exact": "aB"}, "ab"),
    ({"$exact": {"a": 1}}, {"a": 1, "b": 2}),
    ({"a": {"$given": True}}, {}),
    ({"a": "x"}, {}),
    ({"a": None}, {}),
]


@every(("expected", "found"), FITTING)
def test_what_people_would_accept(expected: Any, found: Any) -> None:
    assert problem(expected) is None
    assert fits(expected, found)


@every(("expected", "found"), OTHERS)
def test_what_is_something_else(expected: Any, found: Any) -> None:
    assert problem(expected) is None
    assert not fits(expected, found)


@every(
    ("expected", "message"),
    [
        ({"$anny": [1]}, "unknown rule $anny; known: $any"),
        ({"$any": [1], "b": 2}, "$any must be the only key"),
        ({"$any": []}, "a list that is not empty"),
        ({"$any": "x"}, "a list that is not empty"),
        ({"$contains": 5}, "$contains: expected text"),
        ({"$matches": "("}, "$matches: not a regular expression"),
        ({"$near": 5}, "$near: expected [number, tolerance]"),
        ({"$near": [True, 1]}, "$near: expected"),
        ({"$given": "yes"}, "$given: expected true or false"),
        ({"a": [{"$set": [{"$matches": "["}]}]}, "$matches: not a regular expression"),
    ],
)
def test_a_mistake_in_an_expectation_is_told(expected: Any, message: str) -> None:
    assert message in (problem(expected) or "")


def test_pairs_are_found_in_whatever_order_and_never_shared() -> None:
    def fit(wanted: str, found: str) -> bool:
        return found in wanted

    assert pairs_up(["ab", "a"], ["a", "b"], fit)
    assert pairs_up(["abc", "ab", "a"], ["a", "b", "c"], fit)
    assert not pairs_up(["a", "a"], ["a", "b"], fit)
    assert not pairs_up(["ab"], ["a", "b"], fit)
    assert pairs_up([], [], fit)
