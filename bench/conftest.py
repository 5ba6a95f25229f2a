"""Fixtures and options of the benchmarks, and the publication of results."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, Final

import pytest

from bench.measuring import Measure, Table, published

TABLES = pytest.StashKey[dict[str, Table]]()
README: Final = Path(__file__).with_name("README.md")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds the options of `make bench ARGS=...`."""
    parser.addoption("--million", action="store_true", help="growth up to 1,000,000 deltas; two minutes more")
    parser.addoption("--publish", action="store_true", help="put the tables of bench/README.md into it")


def pytest_configure(config: pytest.Config) -> None:
    """Refuses to publish a part of the tables."""
    if config.getoption("--publish") and (config.getoption("-k") or "::" in "".join(config.args)):
        raise pytest.UsageError("--publish is for whole files of benchmarks, or for all: leave out -k and `::`")


@pytest.fixture
def measure(benchmark: Any, request: pytest.FixtureRequest) -> Measure:
    """Returns the `Measure` of a test. See `bench.measuring`."""
    return Measure(benchmark, request.config.stash.setdefault(TABLES, {}))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Makes all benchmarks measure CPU time."""
    for item in items:
        item.add_marker(pytest.mark.benchmark(timer=time.process_time))


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Prints all tables as Markdown, and writes them into README.md if requested."""
    tables = config.stash.get(TABLES, {}).values()
    for table in tables:
        terminalreporter.write_line(f"\n**{table.title}**\n\n{table.text()}")
    if config.getoption("--publish"):
        README.write_text(published(README.read_text("utf-8"), tables), "utf-8")
