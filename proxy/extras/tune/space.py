"""What can be tried: formats, wordings, constraints, reminders, and their combinations.

Rules of this module:

1. A candidate is a handful of route options over the defaults. Whether an option exists, and takes a value, is asked of
   the configuration itself: what it does not know is not offered, and said to be missing.
2. The first candidate is always what `toolwire serve --backend URL` does, so that what tuning gains is known: the
   defaults, by the model's own chat template where a probe has shown that it can teach tools.
3. A space that is too large is thinned so that any two levels of different dimensions still meet as often as possible.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations, product
from typing import Any, Final

from toolwire.config import RouteOptions
from toolwire.extras.tune.wordings import WORDINGS, Wording
from toolwire.formats.model_families import format_for
from toolwire.registry import Registries
from toolwire.support.conversion import ConfigError, from_mapping
from toolwire.upstream.servers.base import Capabilities
from toolwire.upstream.servers.presets import SCHEMA_CONSTRAINTS

FORMATS: Final = ("sentinel", "hermes", "fenced_json", "bare_json", "llama3_json", "pythonic", "qwen3_coder")
"""Those that are tried where nobody says which: of each kind one. That of the model's family comes before them."""

NATIVE: Final = "native"
"""In place of a format: the model server does tools by itself."""

TEMPLATE: Final = "template"
"""In place of a format: the model's own chat template teaches the tools, in the format of its family."""


@dataclass(frozen=True, slots=True)
class Level:
    """One value of one dimension. `options` by key path."""

    dimension: str
    name: str
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A way to teach tools. `levels` by dimension; `overrides`: its route options as they stand in a file."""

    number: int
    levels: Mapping[str, str]
    overrides: Mapping[str, Any]
    options: RouteOptions

    @property
    def name(self) -> str:
        """Its levels, without those that say nothing."""
        return ", ".join(name for name in self.levels.values() if name not in ("standard", "-"))


@dataclass(frozen=True, slots=True)
class Space:
    """All candidates, and the options that would make more of them, if this version had them."""

    candidates: tuple[Candidate, ...]
    missing: tuple[str, ...]


def build_space(
    plugins: Registries,
    *,
    choice: str,
    capabilities: Capabilities,
    model: str,
    formats: Sequence[str] = (),
    wordings: Mapping[str, Wording] = WORDINGS,
    by_template: bool = False,
) -> Space:
    """The candidates for a model behind a backend with these capabilities, asked with this `tool_choice` (`auto` or
    `required`). `formats`: only these. `by_template`: by default the model's chat template teaches the tools. Raises
    `ConfigError` for a format that does not exist."""
    family = format_for(model)
    names = tuple(formats) or tuple(dict.fromkeys(filter(None, (family, TEMPLATE, *FORMATS, NATIVE))))
    missing: list[str] = []
    others = [
        _offered(levels, missing) for levels in (_constraints(choice, capabilities), _reminders()) if len(levels) > 1
    ]
    start = {"mode": TEMPLATE} if by_template else {}
    default = from_mapping(RouteOptions, start)
    name = f"{default.format} ({default.mode})" if by_template else default.format
    levels = {"format": name, "wording": "standard", **{group[0].dimension: "-" for group in others}}
    found = [Candidate(0, levels, start, default)]
    for name in names:
        own = plugins.formats.get(name) if name not in (NATIVE, TEMPLATE) else None
        told = {key: wording(own) for key, wording in wordings.items()} if own is not None else {"standard": {}}
        if name == TEMPLATE and wordings is WORDINGS:
            told["no policy"] = {"prompt.beside_template": ""}
        kind = Level("format", name, {"format": name} if own is not None else {"mode": name})
        groups = [_offered([Level("wording", key, options) for key, options in told.items()], missing)]
        groups += [group[:1] for group in others] if name == NATIVE else others
        for chosen in product([kind], *groups):
            if (own is None or not own.json_answer) and _useless(chosen, capabilities):
                continue
            overrides = nested({path: value for level in chosen for path, value in level.options.items()})
            options = _read(overrides)
            if options is not None and all(options != known.options for known in found):
                named = {level.dimension: level.name for level in chosen}
                found.append(Candidate(len(found), named, overrides, options))
    return Space(tuple(found), tuple(dict.fromkeys(missing)))


def nested(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options by key path as they stand in a file."""
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


def _reminders() -> Sequence[Level]:
    return (Level("reminder", "-"), Level("reminder", "reminder", {"prompt.reminder": True}))


def _offered(levels: Iterable[Level], missing: list[str]) -> list[Level]:
    """Those that this version's configuration knows."""
    out = []
    for level in levels:
        if _read(nested(level.options)) is not None:
            out.append(level)
        else:
            missing += level.options
    return out


def _useless(levels: Iterable[Level], capabilities: Capabilities) -> bool:
    """Whether a level changes nothing: a backend that takes JSON Schemas cannot enforce a format with tags."""
    return capabilities.constrain in SCHEMA_CONSTRAINTS and any(
        level.dimension == "constraint" and level.name != "-" for level in levels
    )


def _read(overrides: Mapping[str, Any]) -> RouteOptions | None:
    try:
        return from_mapping(RouteOptions, overrides)
    except ConfigError:
        return None


# --- fewer ------------------------------------------------------------------------------------------------------------


def thinned(candidates: Sequence[Candidate], most: int) -> tuple[Candidate, ...]:
    """At most so many, the first one among them: again and again the one with the most pairs of levels that have not
    met."""
    rest = list(candidates)
    if len(rest) <= most:
        return tuple(rest)
    chosen = [rest.pop(0)]
    met = set(_pairs(chosen[0]))
    while rest and len(chosen) < most:
        best = max(rest, key=lambda candidate: len(set(_pairs(candidate)) - met))  # the first of equals
        rest.remove(best)
        chosen.append(best)
        met.update(_pairs(best))
    return tuple(sorted(chosen, key=lambda candidate: candidate.number))


def _pairs(candidate: Candidate) -> Iterator[tuple[Any, Any]]:
    yield from combinations(sorted(candidate.levels.items()), 2)
    yield from ((level, None) for level in candidate.levels.items())  # a level by itself counts as well


def neighbours(candidates: Sequence[Candidate], of: Candidate) -> Iterator[Candidate]:
    """Those that differ from one in a single dimension."""
    for candidate in candidates:
        if sum(candidate.levels.get(key) != name for key, name in of.levels.items()) == 1:
            yield candidate
