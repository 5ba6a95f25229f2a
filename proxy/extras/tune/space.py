"""The candidates: combinations of formats, wordings, constraints and reminders.

Rules:

1. A candidate is a small set of route options over the defaults.
2. The first candidate is always the behaviour of `toolwire serve --backend URL`, so that the gain of tuning is known:
   the defaults, with the model's chat template if a test has shown that it can describe tools.
3. If there are too many candidates, they are thinned out so that as many pairs of levels as possible remain.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations, product
from typing import Any, Final

from ...config import RouteOptions
from ...formats.model_families import format_for
from ...registry import Registries
from ...support.conversion import from_mapping
from ...upstream.servers.base import Capabilities
from ...upstream.servers.presets import SCHEMA_CONSTRAINTS
from .wordings import WORDINGS, Wording

FORMATS: Final = ("sentinel", "hermes", "fenced_json", "bare_json", "llama3_json", "pythonic", "qwen3_coder")
"""The formats that are tried by default, one of each kind. The format of the model's family comes first."""

NATIVE: Final = "native"
"""Instead of a format: the model server handles tools itself."""

TEMPLATE: Final = "template"
"""Instead of a format: the model's chat template describes the tools, in the format of its family."""


@dataclass(frozen=True, slots=True)
class Level:
    """One value of one dimension, with its route options by key path."""

    dimension: str
    name: str
    options: Mapping[str, Any] = field(default_factory=dict)


_REMINDERS: Final = (Level("reminder", "-"), Level("reminder", "reminder", {"prompt.reminder": True}))


@dataclass(frozen=True, slots=True)
class TuningCandidate:
    """A combination of settings. `levels` by dimension; `overrides`: its route options as in a file."""

    number: int
    levels: Mapping[str, str]
    overrides: Mapping[str, Any]
    options: RouteOptions

    @property
    def name(self) -> str:
        """The names of its levels, without the default ones."""
        return ", ".join(name for name in self.levels.values() if name not in ("standard", "-"))


def build_space(
    plugins: Registries,
    *,
    choice: str,
    capabilities: Capabilities,
    model: str,
    formats: Sequence[str] = (),
    wordings: Mapping[str, Wording] = WORDINGS,
    by_template: bool = False,
) -> tuple[TuningCandidate, ...]:
    """Returns the candidates for a model behind a backend with these capabilities, with this `tool_choice` (`auto` or
    `required`). `formats`: only these. `by_template`: by default the model's chat template describes the tools.
    Raises `ConfigError` for an unknown format."""
    family = format_for(model)
    names = tuple(formats) or tuple(dict.fromkeys(filter(None, (family, TEMPLATE, *FORMATS, NATIVE))))
    others = [levels for levels in (_constraints(choice, capabilities), _REMINDERS) if levels]
    start = {"mode": TEMPLATE} if by_template else {}
    default = from_mapping(RouteOptions, start)
    name = f"{default.format} ({default.mode})" if by_template else default.format
    levels = {"format": name, "wording": "standard", **{group[0].dimension: "-" for group in others}}
    candidates = [TuningCandidate(0, levels, start, default)]
    for name in names:
        own = plugins.formats.get(name) if name not in (NATIVE, TEMPLATE) else None
        settings = {key: wording(own) for key, wording in wordings.items()} if own is not None else {"standard": {}}
        if name == TEMPLATE and wordings is WORDINGS:
            settings["no policy"] = {"prompt.beside_template": ""}
        kind = Level("format", name, {"format": name} if own is not None else {"mode": name})
        groups: list[Sequence[Level]] = [[Level("wording", key, options) for key, options in settings.items()]]
        groups += [group[:1] for group in others] if name == NATIVE else others
        for chosen in product([kind], *groups):
            if (own is None or not own.json_answer) and _has_no_effect(chosen, capabilities):
                continue
            overrides = nested({path: value for level in chosen for path, value in level.options.items()})
            options = from_mapping(RouteOptions, overrides)
            if all(options != known.options for known in candidates):
                named = {level.dimension: level.name for level in chosen}
                candidates.append(TuningCandidate(len(candidates), named, overrides, options))
    return tuple(candidates)


def nested(options: Mapping[str, Any]) -> dict[str, Any]:
    """Returns options by key path as nested mappings, as in a file."""
    out: dict[str, Any] = {}
    for path, value in options.items():
        *sections, key = path.split(".")
        place = out
        for section in sections:
            place = place.setdefault(section, {})
        place[key] = value
    return out


def _constraints(choice: str, capabilities: Capabilities) -> Sequence[Level]:
    if capabilities.constrain == "none":
        return ()
    if choice == "required":
        return (Level("constraint", "-"), Level("constraint", "unconstrained", {"decoding.constrain": "off"}))
    return (
        Level("constraint", "-"),
        Level("constraint", "constrained", {"decoding.constrain_auto": "on"}),
        Level("constraint", "unconstrained", {"decoding.constrain_auto": "off"}),
    )


def _has_no_effect(levels: Iterable[Level], capabilities: Capabilities) -> bool:
    """Returns True if a level has no effect: a backend that accepts JSON Schemas cannot enforce a format with tags."""
    return capabilities.constrain in SCHEMA_CONSTRAINTS and any(
        level.dimension == "constraint" and level.name != "-" for level in levels
    )


# --- fewer ------------------------------------------------------------------------------------------------------------


def thinned(candidates: Sequence[TuningCandidate], most: int) -> tuple[TuningCandidate, ...]:
    """Returns at most this many candidates, the first included: repeatedly the one with the most new pairs of
    levels."""
    rest = list(candidates)
    if len(rest) <= most:
        return tuple(rest)
    chosen = [rest.pop(0)]
    met = set(_pairs(chosen[0]))
    while rest and len(chosen) < most:
        best = max(rest, key=lambda candidate: len(set(_pairs(candidate)) - met))  # the first of equal ones
        rest.remove(best)
        chosen.append(best)
        met.update(_pairs(best))
    return tuple(sorted(chosen, key=lambda candidate: candidate.number))


def _pairs(candidate: TuningCandidate) -> Iterator[tuple[Any, Any]]:
    yield from combinations(sorted(candidate.levels.items()), 2)
    yield from ((level, None) for level in candidate.levels.items())  # a level alone counts too


def neighbours(candidates: Sequence[TuningCandidate], of: TuningCandidate) -> Iterator[TuningCandidate]:
    """Yields the candidates that differ from `of` in a single dimension."""
    for candidate in candidates:
        if sum(candidate.levels.get(key) != name for key, name in of.levels.items()) == 1:
            yield candidate
