"""The results of `make engines`: the file that is kept, and the page that is made from it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from tests.engines import restarts, situations  # noqa: F401  # they register
from tests.engines.suite import SITUATIONS, Outcome, Situation

FILE: Final = Path(__file__).with_name("results.json")

GROUPS: Final[Mapping[str, str]] = {
    "facts": "What the gateway knows",
    "modes": "Modes",
    "choices": "Tool choices",
    "constraints": "Constraints",
    "protocols": "Client protocols",
    "ends": "Ends",
    "usage": "Usage",
    "refusals": "Refusals",
    "oddities": "Odd requests",
    "restarts": "Restarts",
}
"""The headings of the page, by the first word of a situation's name."""

INTRODUCTION: Final = """\
# Real engines

`make engines` installs these engines, starts each with a small model, and sends the same situations through toolwire over it.
[Contribute](../../CONTRIBUTING.md#real-engines) says how to run it.

A situation asserts what the gateway promises, not what the model says. Its result has two sides:

- **Gateway**: `kept` means that the client got what is promised: a right answer, or a named error. Otherwise the cell says which promise was broken.
- **Engine**: a mistake of the engine that the gateway met in this situation. An empty cell means that none was seen.
"""


def ordered() -> list[Situation]:
    """Every situation in the order in which they are played and shown."""
    groups = list(GROUPS)
    return sorted(SITUATIONS.values(), key=lambda one: groups.index(one.group))


def load(file: Path = FILE) -> dict[str, Any]:
    """The kept results by engine; empty if there are none."""
    return json.loads(file.read_text("utf-8")) if file.exists() else {}


def keep(engine: str, about: Mapping[str, str], outcomes: Mapping[str, Outcome], date: str, file: Path = FILE) -> None:
    """Write outcomes of one engine into the file. Those of other situations stay if `about` is the same."""
    known = load(file)
    before = known.get(engine, {})
    said = before.get("situations", {}) if before.get("about") == dict(about) else {}
    said |= {name: {"date": date, **_told(outcome)} for name, outcome in outcomes.items()}
    in_order = {one.name: said[one.name] for one in ordered() if one.name in said}
    _write({**known, engine: {"about": dict(about), "situations": in_order}}, file)


def skip(engine: str, title: str, reason: str, file: Path = FILE) -> None:
    """Note why an engine could not be run, unless it was once."""
    known = load(file)
    if not known.get(engine, {}).get("situations"):
        _write({**known, engine: {"about": {"title": title, "skipped": reason}, "situations": {}}}, file)


def _write(results: Mapping[str, Any], file: Path) -> None:
    file.write_text(json.dumps(dict(sorted(results.items())), indent=1, ensure_ascii=False) + "\n", "utf-8")


def _told(outcome: Outcome) -> dict[str, Any]:
    return {key: value for key, value in asdict(outcome).items() if value}


def page(results: Mapping[str, Any]) -> str:
    """The page `docs/reference/engines.md`."""
    return "\n".join(_lines(results)).rstrip() + "\n"


def _lines(results: Mapping[str, Any]) -> Iterator[str]:
    yield INTRODUCTION
    yield "| Engine | Version | Date | Model | Situations | Kept | Broken by the gateway | With a mistake of the engine | Skipped |"
    yield "| --- | --- | --- | --- | ---: | ---: | ---: | ---: | ---: |"
    for engine in results.values():
        about, said = engine["about"], engine["situations"].values()
        counts = (
            len(said),
            sum(not one.get("gateway") and not one.get("skipped") for one in said),
            sum(bool(one.get("gateway")) for one in said),
            sum(bool(one.get("engine")) for one in said),
            sum(bool(one.get("skipped")) for one in said),
        )
        if "skipped" in about:
            yield f"| {about['title']} | skipped: {_cell(about['skipped'])} | | | | | | | |"
            continue
        date = " to ".join(sorted({min(one["date"] for one in said), max(one["date"] for one in said)}))
        yield f"| {about['title']} | {about['version']} | {date} | {about['model']} | {' | '.join(map(str, counts))} |"
    yield ""
    yield from _mistakes(results)
    for group, heading in GROUPS.items():
        yield f"## {heading}\n"
        for engine in results.values():
            yield from _table(engine, group)


def _mistakes(results: Mapping[str, Any]) -> Iterator[str]:
    yield "## What the gateway gets wrong\n"
    wrong = [
        f"- {engine['about']['title']}, {SITUATIONS[name].title}: {one['gateway']}"
        for engine in results.values()
        for name, one in engine["situations"].items()
        if one.get("gateway") and name in SITUATIONS
    ]
    yield from wrong or ["Nothing in these runs."]
    yield "\n## What the engines get wrong\n"
    for engine in results.values():
        places: dict[str, int] = {}
        for one in engine["situations"].values():
            for mistake in one.get("engine", ()):
                places[mistake] = places.get(mistake, 0) + 1
        for mistake, count in places.items():
            yield f"- {engine['about']['title']} {mistake}{f' ({count} situations)' if count > 1 else ''}."
    yield ""


def _table(engine: Mapping[str, Any], group: str) -> Iterator[str]:
    said = engine["situations"]
    names = [one.name for one in ordered() if one.group == group]
    if not said:
        return
    yield f"### {heading_of(engine, group)}\n"
    yield "| Situation | Gateway | Engine | Seen |"
    yield "| --- | --- | --- | --- |"
    for name in names:
        one = said.get(name, {})
        if not one:
            gateway, seen = "not run", ""
        elif "skipped" in one:
            gateway, seen = "skipped", f"Missing: {one['skipped']}."
        else:
            gateway, seen = f"**broken**: {one['gateway']}" if one.get("gateway") else "kept", one.get("seen", "")
        cells = (SITUATIONS[name].title, gateway, "; ".join(one.get("engine", ())), seen)
        yield f"| {' | '.join(map(_cell, cells))} |"
    yield ""


def heading_of(engine: Mapping[str, Any], group: str) -> str:
    """A heading that occurs once on the page."""
    return f"{GROUPS[group]}: {engine['about']['title']}"


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").replace("<", "&lt;").split())
