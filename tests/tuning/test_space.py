"""The settings that `toolwire tune` tries."""

from __future__ import annotations

from itertools import combinations, product
from typing import Any

import pytest

from tests.cases import every
from toolwire.config import RouteOptions
from toolwire.extras.tune.space import TuningCandidate, build_space, neighbours, thinned
from toolwire.extras.tune.wordings import WORDINGS
from toolwire.prompting.prompt import check_template
from toolwire.registry import registries
from toolwire.support.conversion import ConfigError, from_mapping
from toolwire.upstream.servers.presets import PRESETS

PLUGINS = registries()


def space(
    *, choice: str = "auto", preset: str = "llamacpp", model: str = "m", **more: Any
) -> tuple[TuningCandidate, ...]:
    return build_space(PLUGINS, choice=choice, capabilities=PRESETS[preset], model=model, **more)


def test_the_defaults_come_first_and_nothing_twice() -> None:
    found = space()
    assert found[0].options == RouteOptions()
    assert found[0].overrides == {}
    assert [candidate.number for candidate in found] == list(range(len(found)))
    for a, b in combinations(found, 2):
        assert a.options != b.options
        assert a.name != b.name


def test_every_candidate_is_what_its_overrides_say() -> None:
    for candidate in space(choice="required"):
        assert from_mapping(RouteOptions, candidate.overrides) == candidate.options


@every("name", WORDINGS)
@every("format", ["sentinel", "hermes", "pythonic", "harmony"])
def test_wordings_are_templates_that_load(name: str, format: str) -> None:
    tool_format = PLUGINS.formats.get(format)
    told = WORDINGS[name](tool_format)
    template = told.get("prompt.template")
    assert template is None or check_template(template) == []
    if name == "example":
        assert tool_format.grammar.syntaxes[0].opener in told["prompt.examples"]


def test_every_format_meets_every_wording() -> None:
    found = {(c.levels["format"], c.levels["wording"]) for c in space(formats=("hermes", "bare_json"))}
    assert set(product(("hermes", "bare_json"), WORDINGS)) <= found


def test_the_models_own_form_is_tried_first() -> None:
    found = space(model="unsloth/gemma-4-27b-it-GGUF")
    assert found[1].levels["format"] == "gemma4"


def test_native_is_one_candidate_without_wordings() -> None:
    (found,) = [c for c in space() if c.options.mode == "native"]
    assert found.overrides == {"mode": "native"}


def test_the_models_own_template_is_a_candidate() -> None:
    found = [c for c in space(choice="required", model="qwen3-8b") if c.options.mode == "template"]
    assert {c.levels["format"] for c in found} == {"template"}
    assert {c.levels["wording"] for c in found} == {"standard", "no policy"}
    assert {"mode": "template"} in [c.overrides for c in found]
    assert {"mode": "template", "decoding": {"constrain": "off"}} in [c.overrides for c in found]
    assert {c.levels["wording"] for c in space(wordings={"standard": WORDINGS["standard"]})} == {"standard"}


def test_where_the_template_teaches_by_default_that_comes_first_and_is_written() -> None:
    first, *others = space(by_template=True)
    assert (first.name, first.overrides, first.options.mode) == ("auto (template)", {"mode": "template"}, "template")
    assert all(other.options != first.options for other in others)


def test_an_unknown_format_is_a_mistake() -> None:
    with pytest.raises(ConfigError, match="did you mean 'hermes'"):
        space(formats=("hermse",))


def test_constraints_are_tried_where_they_can_be_met() -> None:
    def constrained(found: tuple[TuningCandidate, ...]) -> set[str]:
        return {c.levels["format"] for c in found if c.options.decoding.constrain == "off"}

    assert constrained(space(choice="required")) >= {"sentinel", "hermes", "pythonic"}
    assert constrained(space(choice="required", preset="ollama")) == {"bare_json"}
    assert constrained(space(choice="required", preset="generic")) == set()
    assert constrained(space(choice="auto")) == set()


def test_constraints_and_reminders_are_tried_together() -> None:
    found = space(formats=("hermes",))
    overrides = [candidate.overrides for candidate in found]
    assert {"format": "hermes", "decoding": {"constrain_auto": "on"}, "prompt": {"reminder": True}} in overrides
    assert {"format": "hermes", "decoding": {"constrain_auto": "off"}} in overrides
    assert len([c for c in found if c.levels["format"] == "hermes"]) == len(WORDINGS) * 3 * 2


# --- fewer ------------------------------------------------------------------------------------------------------------


def grid(*sizes: int) -> list[TuningCandidate]:
    """Candidates with every combination of levels."""
    named = [{f"d{d}": f"l{level}" for d, level in enumerate(levels)} for levels in product(*map(range, sizes))]
    return [TuningCandidate(number, levels, {}, RouteOptions()) for number, levels in enumerate(named)]


def pairs(candidates: Any) -> set[Any]:
    return {pair for candidate in candidates for pair in combinations(sorted(candidate.levels.items()), 2)}


def test_a_small_space_stays_whole() -> None:
    assert thinned(grid(3, 2), 6) == tuple(grid(3, 2))


def test_what_is_left_of_a_large_space_has_the_first_and_every_level() -> None:
    candidates = grid(8, 5, 3, 2)
    few = thinned(candidates, 24)
    assert len(few) == 24
    assert few[0] is candidates[0]
    assert {level for c in few for level in c.levels.items()} == {
        level for c in candidates for level in c.levels.items()
    }
    assert len(pairs(few)) > 0.7 * len(pairs(candidates))


def test_all_pairs_meet_where_there_is_room() -> None:
    candidates = grid(4, 3, 2)
    assert pairs(thinned(candidates, 14)) == pairs(candidates)


def test_neighbours_differ_in_one_level() -> None:
    candidates = grid(3, 3, 2)
    assert len(list(neighbours(candidates, candidates[0]))) == 2 + 2 + 1
