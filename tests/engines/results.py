"""The results of `make engines`: the file that is kept, and the page that is made from it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
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
"""Ends of titles of situations that differ only in this. Equal results of both are named once."""

LOOK: Final = re.compile(r"`look_\w+`")
"""Tools whose names differ only so that an engine forgets nothing between two situations."""

HEAD: Final = re.compile(r"(`[^`]+`|\w+): (.*)|(.*), (chat|messages|responses|`mode: \w+`)")
"""A title that begins or ends with a mode or a protocol. Titles that differ only in this are named once."""

DETAIL: Final = re.compile(r" \(enforced by `\w+`\)|(?<=`): .*")
"""What the page leaves out of a result: the feature that enforced a call, and the words of an error."""

PLAIN: Final = re.compile(r"^200(, (text|call `\w+`))*, end `[\w ]+`([,;] |$)")
"""The beginning of a result that says what the model wrote."""

PROMISED: Final = "as promised"
BROKEN: Final = "**broken**"

INTRODUCTION: Final = """\
# Real engines

`make engines` starts each engine with a small model and sends the same situations through toolwire to it
([how to run it](../../CONTRIBUTING.md#real-engines)). A situation is kept if the client gets what is promised: a right answer or
a named error.
"""

LEGEND: Final = """\
Situations whose result differs, each with the result of most engines and then the engines with another one.
`tests/engines/results.json` has all.
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
    yield f"\n## Differences\n\n{LEGEND}"
    for group, heading in GROUPS.items():
        if rows := list(_table(ran, [one for one in ordered() if one.group == group])):
            yield from (f"### {heading}\n", *rows, "")


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
    """A line for each result that differs between engines, with the situations that had it."""
    lines: dict[str, list[str]] = {}
    for situation in of_group:
        title = situation.title
        results = _results({one["about"]["title"]: one["situations"].get(situation.name) for one in engines.values()})
        titles = lines.setdefault(results, [])
        base = next((title.removesuffix(end) for end in MANNERS if title.endswith(end)), "")
        if base and titles and titles[-1] == base + MANNERS[0]:
            titles[-1] = base
        else:
            titles.append(title)
    lines.pop("", None)
    yield from (f"- **{_text(_joined(titles))}.** {_text(results)}".rstrip() for results, titles in lines.items())


def _joined(titles: Iterable[str]) -> str:
    """The titles in one text. Those that differ only in their mode or protocol share the rest."""
    heads: dict[str, list[str]] = {}
    for title in titles:
        head, end, start, tail = match.groups() if (match := HEAD.fullmatch(title)) else (None, title, None, None)
        heads.setdefault(end or start[:1].lower() + start[1:], []).extend(filter(None, (head or tail,)))
    return "; ".join(f"{', '.join(those)}: {rest}" if those else rest for rest, those in heads.items())


def _results(outcomes: Mapping[str, Mapping[str, Any] | None]) -> str:
    """The result that most engines had, and the engines with another one. Empty if there is no difference."""
    engines: dict[str, list[str]] = {}
    for title, outcome in outcomes.items():
        if outcome and "skipped" not in outcome:
            engines.setdefault(_result(outcome), []).append(title)
    if not engines:
        return "skipped. " if any(outcomes.values()) else "not run. "
    usual, those = max(engines.items(), key=lambda item: len(item[1]))
    if len(engines) == 1 and BROKEN not in usual:
        return ""
    if len(those) == 1 < len(engines):
        usual = ""
    others = [f"{' and '.join(titles)}: {result}" for result, titles in engines.items() if result != usual]
    return "".join(f"{part}. " for part in (usual, *others) if part)


def _result(outcome: Mapping[str, Any]) -> str:
    seen = DETAIL.sub("", LOOK.sub("`look`", outcome.get("seen", ""))).rstrip(".")
    if outcome.get("gateway"):
        return f"{BROKEN} {seen}".rstrip()
    return PLAIN.sub("", seen, count=1) or PROMISED


def _text(text: str) -> str:
    return " ".join(text.replace("<", "&lt;").split())


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").replace("<", "&lt;").split())
