"""Numbers in grammars: ranges are exact, both ways, and what is open is open."""

from __future__ import annotations

import json
from decimal import Decimal
from random import Random
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.formats.gbnf.notation import Inexpressible
from proxy.formats.gbnf.numbers import End, integers, numbers
from proxy.formats.gbnf.numeric import number
from proxy.formats.gbnf.rules import Bounds, Rules
from tests.formats.sampler import Acceptor, Grammar


def written(kind: str, schema: dict[str, Any], bounds: Bounds = Bounds()) -> Grammar:  # noqa: B008
    rules = Rules(bounds)
    return Grammar(rules.text(rules.name("number", number(kind, schema, rules))))


@given(st.integers(-3000, 3000), st.integers(0, 3000), st.integers(0, 2**32))
def test_integer_ranges_are_exact(low: int, width: int, seed: int) -> None:
    high = low + width
    grammar = Grammar(f"root ::= {integers(low, high)}\n")
    random = Random(seed)
    values = {int(grammar.sample(random)) for _ in range(30)}
    assert all(low <= value <= high for value in values)


@pytest.mark.parametrize(
    ("low", "high"),
    [(-3, 12), (0, 0), (95, 105), (-1, 0), (7, 7), (-12, -9), (0, 120), (None, 5), (None, -7), (5, None), (0, None), (1, None), (-8, None), (100, None), (None, None)],
)  # fmt: skip
def test_integer_ranges_are_complete(low: int | None, high: int | None) -> None:
    acceptor = Acceptor(Grammar(f"root ::= {integers(low, high)}\n"))
    for value in (*range(-130, 131), 999, 1000, 10**18, 10**80 + 7, -(10**80)):
        fits = (low is None or value >= low) and (high is None or value <= high)
        assert acceptor.accepts(str(value)) is fits, value
    for text in ("", "-", "-0", "007", "1.0", "+1"):
        assert not acceptor.accepts(text)


@pytest.mark.parametrize(
    ("low", "high", "ends"),
    [
        (None, None, (-999, 999)), (5, None, (5, 999)), (None, 5, (-999, 5)), (5000, None, (5000, 5000)),
        (None, -5000, (-5000, -5000)), (-(10**300), 10**300, (-999, 999)), (5000, 5003, (5000, 5003)),
    ],
)  # fmt: skip
def test_open_and_far_ends_have_few_digits_where_digits_are_bounded(
    low: int | None, high: int | None, ends: tuple[int, int]
) -> None:
    assert integers(low, high, 3) == integers(*ends, 3)
    assert numbers(end(low), end(high), 3) == numbers(end(ends[0]), end(ends[1]), 3)


def end(value: int | None) -> End | None:
    return None if value is None else End(Decimal(value))


ENDS = st.decimals(min_value=-30, max_value=30, places=2)
NUMBERS = st.decimals(min_value=-40, max_value=40, places=3)


@given(ENDS, ENDS, st.booleans(), st.booleans(), st.lists(NUMBERS, max_size=20))
def test_decimal_ranges_are_exact(
    one: Decimal, other: Decimal, strict_low: bool, strict_high: bool, tried: list[Decimal]
) -> None:
    low, high = sorted((one, other))
    try:
        acceptor = Acceptor(Grammar(f"root ::= {numbers(End(low, strict_low), End(high, strict_high))}\n"))
    except Inexpressible:
        assert low == high
        return
    step = Decimal("0.001")
    for value in (*tried, low - step, low, low + step, high - step, high, high + step):
        fits = (value > low if strict_low else value >= low) and (value < high if strict_high else value <= high)
        if value == 0 and str(value).startswith("-"):
            continue
        shown = f"{value:f}"
        for text in {shown, shown + "00", shown.rstrip("0").rstrip(".") if "." in shown else shown}:
            if text != "-0":
                assert acceptor.accepts(text) is fits, (text, low, high)


@given(ENDS, st.booleans(), st.booleans(), NUMBERS)
def test_open_decimal_ranges_are_exact(bound: Decimal, strict: bool, upper: bool, value: Decimal) -> None:
    one = End(bound, strict)
    acceptor = Acceptor(Grammar(f"root ::= {numbers(None, one) if upper else numbers(one, None)}\n"))
    fits = (value != bound and (value < bound) is upper) or (value == bound and not strict)
    if value:
        assert acceptor.accepts(f"{value:f}") is fits


def test_numbers_without_bounds() -> None:
    acceptor = Acceptor(Grammar(f"root ::= {numbers(None, None)}\n"))
    for text in (
        "0",
        "-0.5",
        "1e10",
        "1.5E-300",
        "12345678901234567890.123456789012345678901234567890",
        "-0",
        "9.75e307",
        "12e34",
    ):
        assert acceptor.accepts(text), text
    for text in ("", ".5", "1.", "01", "1e", "+1", "NaN", "1e9999", "12e307", "--1"):
        assert not acceptor.accepts(text), text


@pytest.mark.parametrize(
    "schema",
    [
        {"minimum": 0, "maximum": 1}, {"exclusiveMinimum": 0, "maximum": 1}, {"minimum": 0.1, "maximum": 0.9}, {"exclusiveMinimum": 0},
        {"minimum": -0.5, "exclusiveMaximum": 0.5}, {"maximum": 1e308}, {"minimum": 1e-7, "maximum": 2e-7}, {"exclusiveMaximum": 0},
    ],
    ids=json.dumps,
)  # fmt: skip
def test_probabilities_and_the_like_can_be_written(schema: dict[str, Any]) -> None:
    acceptor = Acceptor(written("number", schema))
    fits = jsonschema.Draft202012Validator(schema)
    for text in (
        "0",
        "1",
        "0.5",
        "0.05",
        "0.1",
        "0.9",
        "-0.25",
        "0.999999999",
        "0.95",
        "2.5",
        "1.0",
        "-3",
        "0.00000015",
        "100000000000",
    ):
        assert acceptor.accepts(text) is fits.is_valid(float(text)), text


@pytest.mark.parametrize("kind", ["integer", "number"])
@pytest.mark.parametrize(
    "schema",
    [
        {"multipleOf": 5}, {"multipleOf": 7, "minimum": 3}, {"multipleOf": 100, "minimum": 0}, {"multipleOf": 60, "minimum": 60, "maximum": 3600},
        {"multipleOf": 3, "maximum": -2}, {"multipleOf": 4, "minimum": -20}, {"multipleOf": 250, "exclusiveMinimum": 0, "maximum": 5000},
    ],
    ids=json.dumps,
)  # fmt: skip
def test_whole_multiples_are_exact(kind: str, schema: dict[str, Any]) -> None:
    acceptor = Acceptor(written(kind, schema))
    fits = jsonschema.Draft202012Validator(schema)
    for value in (*range(-60, 61), 100, 105, 700, 1000, 3600, 4000, 7 * 10**20, 10**20 + 100, 60 * 10**15, -(10**20)):
        assert acceptor.accepts(str(value)) is fits.is_valid(value), value


@pytest.mark.parametrize(
    ("schema", "fitting", "others"),
    [
        ({"multipleOf": 0.01}, ["0", "0.05", "12345678901234.99", "-3.5", "7"], ["0.001", "1.234"]),
        ({"multipleOf": 0.25, "minimum": 0.25, "maximum": 2}, ["0.25", "1.75", "2", "1"], ["0", "0.1", "2.25"]),
        ({"multipleOf": 0.5, "exclusiveMinimum": -1}, ["-0.5", "0", "100.5"], ["-1", "0.25"]),
        ({"multipleOf": 1000}, ["1000", "123456"], ["1.5"]),  # too large to be reckoned: any integer
        ({"multipleOf": 1.5}, ["1.5", "4"], []),  # not a part of 1: any number
    ],
    ids=repr,
)
def test_other_multiples_are_exact_or_open(schema: dict[str, Any], fitting: list[str], others: list[str]) -> None:
    acceptor = Acceptor(written("number", schema))
    assert all(map(acceptor.accepts, fitting))
    assert not any(map(acceptor.accepts, others))


@pytest.mark.parametrize("schema", [{"minimum": 5, "maximum": 4}, {"exclusiveMinimum": 1, "maximum": 1}])
def test_where_nothing_fits_nothing_is_written(schema: dict[str, Any]) -> None:
    for kind in ("integer", "number"):
        with pytest.raises(Inexpressible):
            written(kind, schema)
