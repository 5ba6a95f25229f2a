"""The results of `make engines`: the file that is kept, and the page that is made from it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
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

MANNERS: Final = (", whole", ", streamed")
"""Ends of titles of situations that differ only in this. Equal results of both are one row."""

INTRODUCTION: Final = """\
# Real engines

`make engines` installs these engines, starts each with a small model, and sends the same situations through toolwire to it
([how to run it](../../CONTRIBUTING.md#real-engines)). A situation tests what the gateway promises, not what the model says.
"""

LEGEND: Final = """\
Lists: every engine had this result, and the client got what is promised. Tables: ✓ the client got what is promised, a right
answer or a named error; – skipped. The last column has the usual result, an engine's column the result that differs.
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
    ran = {name: one for name, one in results.items() if one["situations"]}
    yield INTRODUCTION
    yield "| Engine | Version | Date | Situations | Kept | Broken | Skipped |"
    yield "| --- | --- | --- | ---: | ---: | ---: | ---: |"
    for engine in results.values():
        about, said = engine["about"], engine["situations"].values()
        if "skipped" in about:
            yield f"| {about['title']} | skipped: {_cell(about['skipped'])} | | | | | |"
            continue
        date = " to ".join(sorted({min(one["date"] for one in said), max(one["date"] for one in said)}))
        broken, skipped = (sum(bool(one.get(key)) for one in said) for key in ("gateway", "skipped"))
        counts = (len(said), len(said) - broken - skipped, broken, skipped)
        yield f"| {about['title']} | {about['version']} | {date} | {' | '.join(map(str, counts))} |"
    models = sorted({one["about"]["model"] for one in ran.values()})
    yield f"\nModel: {', '.join(models)}.\n"
    yield "## Mistakes\n"
    yield from _mistakes(results) or ["None in these runs."]
    yield f"\n## Situations\n\n{LEGEND}"
    for group, heading in GROUPS.items():
        yield f"### {heading}\n"
        yield from _table(ran, [one for one in ordered() if one.group == group])


def _mistakes(results: Mapping[str, Any]) -> list[str]:
    """Broken promises of the gateway, mistakes of the engines, and missing abilities, each with its number."""
    counts: dict[str, int] = {}
    for engine in results.values():
        title = engine["about"]["title"]
        for name, one in engine["situations"].items():
            if one.get("gateway") and name in SITUATIONS:
                counts[f"Gateway, with {title}, {SITUATIONS[name].title}: {one['gateway']}"] = 1
            for mistake in one.get("engine", ()):
                counts[f"{title} {mistake}"] = counts.get(f"{title} {mistake}", 0) + 1
            if "skipped" in one:
                skipped = f"{title}, skipped: {one['skipped']}"
                counts[skipped] = counts.get(skipped, 0) + 1
    return [f"- {what}{f' ({count} situations)' if count > 1 else ''}." for what, count in counts.items()]


def _table(engines: Mapping[str, Any], of_group: Iterable[Situation]) -> Iterator[str]:
    """A list of the situations in which every engine had the same result, and a table of the others, with a column for
    each engine. Neighbouring situations with equal results are one."""
    rows: list[tuple[str, list[str]]] = []
    for situation in of_group:
        title, cells = situation.title, _cells([one["situations"].get(situation.name) for one in engines.values()])
        base = next((title.removesuffix(end) for end in MANNERS if title.endswith(end)), "")
        if base and rows and rows[-1] == (base + MANNERS[0], cells):
            rows[-1] = (base, cells)
        else:
            rows.append((title, cells))
    equal = [(title, cells[-1]) for title, cells in rows if set(cells[:-1]) == {"✓"}]
    yield from (f"- {title}: {result}" if result else f"- {title}" for title, result in equal)
    if equal:
        yield ""
    if len(equal) < len(rows):
        yield f"| Situation | {' | '.join(one['about']['title'] for one in engines.values())} | Result |"
        yield f"| --- |{' --- |' * (len(engines) + 1)}"
        yield from (
            f"| {' | '.join(map(_cell, (title, *cells)))} |" for title, cells in rows if (title, cells[-1]) not in equal
        )
        yield ""


def _cells(results: Sequence[Mapping[str, Any] | None]) -> list[str]:
    """The results of a situation by engine, and the result that most of them have."""
    seen = [one.get("seen", "") if one else "" for one in results]
    counts = Counter(text for text in seen if text)
    usual, count = counts.most_common(1)[0] if counts else ("", 0)
    if count == 1 < len(counts):
        usual = ""
    return [
        *(f"{_mark(one)} {text if text != usual else ''}".strip() for one, text in zip(results, seen, strict=True)),
        usual,
    ]


def _mark(result: Mapping[str, Any] | None) -> str:
    if not result:
        return "not run"
    if result.get("gateway"):
        return "**broken**"
    return "–" if "skipped" in result else "✓"


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").replace("<", "&lt;").split())
