"""Keys that have moved (docs/adr/0027): what is given at a former place is put where it stands now, and means the same.

Rules of this module:

1. Each source (the file, the environment, flags) is brought up to date by itself, before it overrides those before it.
   So a later source wins over an earlier one, whichever places they know.
2. Both places in one source are a mistake that names both: nobody can know which was meant.
3. What is given is copied, never changed: it belongs to somebody else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from ..config import MOVED_OPTIONS
from ..support.conversion import EnvText, join
from ..support.plainyaml import parse_yaml
from .mistakes import Mistakes

_MAPPINGS: Final[Mapping[tuple[str, ...], tuple[str, ...]]] = {
    (): ("defaults", "routes"),
    ("routes", "*"): ("options",),
}
"""Sections above the options of routes, and where it goes on in them."""

_OPTIONS: Final = (("defaults",), ("routes", "*", "options"))
"""Where the options of routes stand."""


class Moved:
    """Brings what is given up to date. `found`: the former places that were used, each with the present one."""

    def __init__(self, mistakes: Mistakes) -> None:
        self.found: dict[str, str] = {}
        self._mistakes = mistakes
        self._formerly: dict[str, str] = {}

    @property
    def lines(self) -> list[str]:
        """What to tell who wrote them."""
        return [f"`{former}` is now `{now}`" for former, now in self.found.items()]

    def value(self, given: Any, segments: Sequence[str] = ()) -> Any:
        """`given`, which is to stand at this path, with all that is below it at its present places."""
        place = tuple("*" if at == 1 else segment for at, segment in enumerate(segments))
        if place not in (*_MAPPINGS, *_OPTIONS, ("routes",)):
            return given
        plain = _parsed(given)
        if place == ("routes",) and isinstance(plain, list):
            items = [self.value(item, ("routes", str(index))) for index, item in enumerate(plain)]
            return items if any(new is not old for new, old in zip(items, plain, strict=True)) else given
        if not isinstance(plain, Mapping):
            return given
        if place in _OPTIONS:
            return self._options(plain, segments) if MOVED_OPTIONS.keys() & plain.keys() else given
        now = {key: self.value(plain[key], (*segments, key)) for key in _MAPPINGS.get(place, ()) if key in plain}
        return {**plain, **now} if any(now[key] is not plain[key] for key in now) else given

    def place(self, segments: Sequence[str], name: str, given: Mapping[str, Any], prefix: str = "") -> list[str]:
        """Where the value goes that one of the names of a source gives for this path. `given` is all that the source
        gives, by name; `prefix` begins the names of variables."""
        at = {"defaults": 1, "routes": 3}.get(segments[0], 0)
        key = segments[at] if 0 < at < len(segments) and (at == 1 or segments[2] == "options") else ""
        if key not in MOVED_OPTIONS:
            return list(segments)
        now = [*segments[:at], *MOVED_OPTIONS[key].split("."), *segments[at + 1 :]]
        present = prefix + "__".join(now).upper() if prefix else ".".join(now)
        if given.get(present) is not None:
            self._mistakes.add([_both(name, present)])
        else:
            self.found[name] = present
        return now

    def told(self, line: str) -> str:
        """A line about a mistake; if it is about a value that was given at a former place, with that place."""
        former = self._formerly.get(line.partition(": ")[0])
        return line if former is None else f"{line} (it stands at `{former}`)"

    def _options(self, options: Mapping[str, Any], segments: Sequence[str]) -> dict[str, Any]:
        path = segments[0] if len(segments) == 1 else f"routes[{segments[1]}].options"
        out = {key: value for key, value in options.items() if key not in MOVED_OPTIONS}
        for key in filter(MOVED_OPTIONS.__contains__, options):
            section, _, name = MOVED_OPTIONS[key].partition(".")
            former, now = join(path, key), join(path, MOVED_OPTIONS[key])
            below = _parsed(out.get(section))
            if below is not None and not isinstance(below, Mapping):
                continue  # that is the mistake to begin with
            if name in (below or {}):
                self._mistakes.add([_both(former, now)])
                continue
            out[section] = {**(below or {}), name: options[key]}
            self.found[former] = now
            self._formerly[now] = former
        return out


def _both(former: str, now: str) -> str:
    return f"{former}: is now `{now}`, and both are given; keep `{now}`"


def _parsed(given: Any) -> Any:
    """What a text from the environment says; itself if it is no YAML: that will be said where it is read."""
    if not isinstance(given, EnvText):
        return given
    try:
        return parse_yaml(given)
    except ValueError:
        return given
