"""Dataclasses from mappings and back: both ways, and every message."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any, Literal

import pytest

from tests.cases import every
from toolwire.config import GatewayConfig
from toolwire.configuration.settings import load
from toolwire.support.conversion import ConfigError, ConversionRules, EnvText, from_mapping, hints_of, to_mapping


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


@dataclass(frozen=True, kw_only=True)
class Inner:
    size: int = 1
    ratio: float = 0.5


@dataclass(frozen=True, kw_only=True)
class Sample:
    name: str
    on: bool = False
    limit: int | None = 5
    either: int | str = 0
    word: Literal["true", "off", "x"] = "off"
    colour: Colour = Colour.RED
    pair: tuple[str, int] = ("a", 1)
    items: tuple[Inner, ...] = ()
    names: frozenset[str] = frozenset()
    numbers: list[int] = field(default_factory=list)
    inner: Inner = field(default_factory=Inner)
    by_name: Mapping[str, Inner] = field(default_factory=dict)
    free: Any = None
    api_key: str | None = None

    def __post_init__(self) -> None:
        if self.name == "forbidden":
            raise ValueError("this name is forbidden")


FULL = Sample(
    name="x",
    on=True,
    limit=None,
    either="seven",
    word="true",
    colour=Colour.BLUE,
    pair=("b", 2),
    items=(Inner(size=2), Inner()),
    names=frozenset("ba"),
    numbers=[1, 2],
    inner=Inner(ratio=0.25),
    by_name={"a": Inner(size=3)},
    free=[None, {"deep": True}],
    api_key="k",
)  # type: ignore[arg-type]
EXAMPLE = Path(__file__).parents[2] / "proxy" / "configuration" / "example.yaml"


@every("value", [FULL, Sample(name="x"), GatewayConfig(), load(EXAMPLE, {})])
def test_what_is_written_reads_back(value: Any) -> None:
    assert from_mapping(type(value), to_mapping(value)) == value


@every(
    ("mapping", "problem"),
    [
        ({}, "at.name: required, text"),
        ({"name": 5}, "at.name: expected text, got 5"),
        ({"name": "a\ud800"}, "at.name: not valid UTF-8 at character 1"),
        ({"name": "x", "nam": 1}, "at.nam: unknown key, did you mean 'name'?"),
        ({"name": "x", "limit": True}, "at.limit: expected an integer, got true"),
        ({"name": "x", "limit": "5"}, 'at.limit: expected an integer, got "5"'),
        ({"name": "x", "limit": 5.0}, "at.limit: expected an integer, got 5.0"),
        ({"name": "x", "on": 1}, "at.on: expected true or false, got 1"),
        ({"name": "x", "either": []}, "at.either: expected an integer or text, got []"),
        ({"name": "x", "word": "of"}, 'at.word: expected one of "true", "off", "x", got "of", did you mean \'off\'?'),
        ({"name": "x", "word": False}, 'at.word: expected one of "true", "off", "x", got false'),
        ({"name": "x", "on": None}, "at.on: expected true or false, got null"),
        ({"name": "x", "colour": "green"}, 'at.colour: expected one of "red", "blue", got "green"'),
        ({"name": "x", "pair": ["a"]}, 'at.pair: expected a list of 2 × text, got ["a"]'),
        ({"name": "x", "items": {}}, "at.items: expected a list of a mapping, got {}"),
        ({"name": "x", "items": [{"size": 1}, {"size": ""}]}, 'at.items[1].size: expected an integer, got ""'),
        ({"name": "x", "inner": []}, "at.inner: expected a mapping, got []"),
        ({"name": "x", "inner": {"ratio": float("nan")}}, "at.inner.ratio: expected a number, got null"),
        ({"name": "x", "by_name": {"a": {"siz": 1}}}, "at.by_name.a.siz: unknown key, did you mean 'size'?"),
        ({"name": "x", "by_name": {1: {}}}, "at.by_name.1: keys are text, write '1' in quotes"),
        ({"name": "x", "api_key": 12345}, "at.api_key: expected text, got a value that is not shown here"),
        ({"name": "forbidden"}, "at: this name is forbidden"),
        ("text", 'at: expected a mapping, got "text"'),
    ],
)
def test_every_mistake_is_named_with_its_path(mapping: Any, problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        from_mapping(Sample, mapping, "at")
    assert caught.value.problems == (problem,)


def test_all_mistakes_are_reported_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        from_mapping(Sample, {"on": 1, "numbers": [1, "a", None], "x": 1})
    said = [problem.split(":")[0] for problem in caught.value.problems]
    assert said == ["on", "numbers[1]", "numbers[2]", "x", "name"]


def test_null_is_an_empty_section_but_no_value() -> None:
    sample = from_mapping(Sample, {"name": "x", "inner": None, "items": None, "by_name": None, "limit": None})
    assert sample == Sample(name="x", limit=None)


def test_true_stands_for_the_word() -> None:
    assert from_mapping(Sample, {"name": "x", "word": True}).word == "true"


@every(
    ("key", "text", "value"),
    [
        ("name", "0123", "0123"),
        ("on", "yes", True),
        ("on", "0", False),
        ("limit", "12", 12),
        ("limit", "null", None),
        ("limit", "", None),
        ("either", "7", 7),
        ("either", "seven", "seven"),
        ("word", "true", "true"),
        ("colour", "blue", Colour.BLUE),
        ("numbers", "[1, 2]", [1, 2]),
        ("numbers", "3", [3]),
        ("names", "123", frozenset({"123"})),
        ("names", "", frozenset()),
        ("inner", "{size: 4}", Inner(size=4)),
        ("by_name", "{a: {size: 4}}", {"a": Inner(size=4)}),
        ("free", "[1]", "[1]"),
    ],
)
def test_text_from_the_environment_is_read_as_what_is_wanted(key: str, text: str, value: Any) -> None:
    sample = from_mapping(Sample, {"name": "x", key: EnvText(text, "VARIABLE")})
    assert getattr(sample, key) == value
    assert from_mapping(Sample, to_mapping(sample)) == sample


def test_shorthand_and_base() -> None:
    rules = ConversionRules(shorthand={Sample: "name"}, bases={Inner: Inner(size=7, ratio=2.0)})
    assert from_mapping(Sample, "short", rules=rules).name == "short"  # type: ignore[arg-type]  # the shorthand's point
    sample = from_mapping(Sample, {"name": "x", "items": [{"size": 1}, {}]}, rules=rules)
    assert sample.items == (Inner(size=1, ratio=2.0), Inner(size=7, ratio=2.0))
    assert sample.inner == Inner(size=7, ratio=2.0)


def test_a_type_that_cannot_be_configured_is_the_authors_mistake() -> None:
    @dataclass
    class Odd:
        when: complex = 0j

    hints_of.cache_clear()
    with pytest.raises(TypeError, match="cannot have the type"):
        from_mapping(Odd, {"when": 1})


def test_a_configuration_can_be_sent_to_another_process() -> None:
    text = EnvText("v", "VARIABLE")
    sample = from_mapping(Sample, {"name": text, "free": {"deep": [text]}})
    sent = pickle.loads(pickle.dumps(sample))
    assert sent == sample
    assert sent.free["deep"][0].origin == "VARIABLE"
