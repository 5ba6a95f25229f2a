"""The implementation of `toolwire bench`: measures, prints, writes files."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, TextIO

from ...config import GatewayConfig
from ...support.legible import visible_json
from . import gateway
from .parse import MeasurePlan, Report, measure, names_of_formats
from .plot import svg
from .report import as_json, as_text

OWN: Final = ("compiled", "python")
"""Names of the gateway's two scanners. `bench` fails if one of them finds wrong calls."""


def run(
    plan: MeasurePlan,
    *,
    say: Callable[[str], object],
    tell: Callable[[str], object],
    json_file: TextIO | None,
    plot_file: TextIO | None,
) -> int:
    """Measures; `say` prints the tables, `tell` progress messages. JSON for standard output replaces the tables.

    Returns the exit status: 1 if no parser could be measured or a scanner found wrong calls. Raises `ConfigError` and
    `RecordingError` like `measure`.
    """
    report = measure(plan, tell)
    _show(as_text(report), as_json(report), say, json_file)
    if plot_file is not None:
        plot_file.write(svg(report))
    return _status(report)


def run_gateway(
    config: GatewayConfig, requests: int, *, say: Callable[[str], object], json_file: TextIO | None
) -> None:
    """Measures a gateway and prints the result. Raises `ConfigError` like `gateway.measure`."""
    results = gateway.measure(config, requests)
    _show(gateway.as_text(results), gateway.as_json(results), say, json_file)


def _show(
    lines: Iterable[str], document: Mapping[str, Any], say: Callable[[str], object], json_file: TextIO | None
) -> None:
    """Prints tables and writes JSON to the file, or prints only JSON if the file is standard output."""
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
    """Returns the names of the formats; `all` becomes every known one."""
    return list(dict.fromkeys(known for name in names for known in (names_of_formats() if name == "all" else [name])))
