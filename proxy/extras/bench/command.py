"""The implementation of `toolwire bench`: measures, prints, writes files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TextIO

from ...cli.common import show_report
from ...config import GatewayConfig
from ...registry import registries
from . import gateway
from .parse import MeasurePlan, Report, measure
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
    show_report(as_text(report), as_json(report), say, json_file)
    if plot_file is not None:
        plot_file.write(svg(report))
    return _status(report)


def run_gateway(
    config: GatewayConfig, requests: int, *, say: Callable[[str], object], json_file: TextIO | None
) -> None:
    """Measures a gateway and prints the result. Raises `ConfigError` like `gateway.measure`."""
    results = gateway.measure(config, requests)
    show_report(gateway.as_text(results), gateway.as_json(results), say, json_file)


def _status(report: Report) -> int:
    entries = [entry for group in report.groups for entry in group.entries]
    wrong = any(entry.contestant in OWN and entry.status in ("different", "failed") for entry in entries)
    return int(wrong or not any(entry.status == "measured" for entry in entries))


def formats_of(names: Sequence[str]) -> list[str]:
    """Returns the names of the formats; `all` becomes every known one."""
    every = registries().formats.names()
    return list(dict.fromkeys(known for name in names for known in (every if name == "all" else [name])))
