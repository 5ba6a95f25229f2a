"""`toolwire bench` behind its flags: measure, print, write."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, TextIO

from toolwire.config import GatewayConfig
from toolwire.extras.bench import gateway
from toolwire.extras.bench.contestants import CONTESTANTS
from toolwire.extras.bench.corpus import CASES
from toolwire.extras.bench.parse import Plan, Report, measure, names_of_formats
from toolwire.extras.bench.plot import svg
from toolwire.extras.bench.report import as_json, as_text
from toolwire.support.legible import visible_json

OWN: Final = ("compiled", "python")
"""The scanner's twins: they must find the right calls."""


def unknown(names: Sequence[str], known: Sequence[str]) -> str | None:
    """What to say of the first name that is not known; None if all are."""
    wrong = next((name for name in names if name not in known), None)
    return None if wrong is None else f"{wrong!r} is none of {', '.join(known)}"


def unknown_case(names: Sequence[str]) -> str | None:
    """See `unknown`, for `corpus.CASES`."""
    return unknown(names, tuple(CASES))


def unknown_contestant(names: Sequence[str]) -> str | None:
    """See `unknown`, for `contestants.CONTESTANTS`."""
    return unknown(names, tuple(CONTESTANTS))


def run(
    plan: Plan,
    *,
    say: Callable[[str], object],
    tell: Callable[[str], object],
    json_file: TextIO | None,
    plot_file: TextIO | None,
) -> int:
    """Measure; `say` prints the tables, `tell` what is being done. JSON that goes to standard output replaces the
    tables.

    Gives the exit status: 1 if nobody could be measured or a twin of the scanner found something else. Raises
    `ConfigError` and `RecordingError` as `measure` does.
    """
    report = measure(plan, tell)
    _show(as_text(report), as_json(report), say, json_file)
    if plot_file is not None:
        plot_file.write(svg(report))
    return _status(report)


def run_gateway(
    config: GatewayConfig, requests: int, *, say: Callable[[str], object], json_file: TextIO | None
) -> None:
    """Measure a gateway and show it. Raises `ConfigError` as `gateway.measure` does."""
    results = gateway.measure(config, requests)
    _show(gateway.as_text(results), gateway.as_json(results), say, json_file)


def _show(
    lines: Iterable[str], document: Mapping[str, Any], say: Callable[[str], object], json_file: TextIO | None
) -> None:
    """Tables, and JSON into a file; or JSON alone to standard output."""
    if json_file is None or json_file.name != "<stdout>":
        for line in lines:
            say(line)
    if json_file is not None:
        json_file.write(visible_json(json.dumps(document, ensure_ascii=False, indent=1)))
        json_file.write("\n")


def _status(report: Report) -> int:
    entries = [entry for group in report.groups for entry in group.entries]
    wrong = any(entry.contestant in OWN and entry.status in ("different", "failed") for entry in entries)
    return int(wrong or not any(entry.status == "measured" for entry in entries))


def formats_of(names: Sequence[str]) -> list[str]:
    """The formats that are meant; `all` is every known one."""
    return list(dict.fromkeys(known for name in names for known in (names_of_formats() if name == "all" else [name])))
