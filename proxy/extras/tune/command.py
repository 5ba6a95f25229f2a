"""The implementation of `toolwire tune`: identifies the model server, compares the candidates, prints the result."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, TextIO

import click
from click.core import ParameterSource

from ...cli.common import show_report
from ...config import Timeouts
from ...configuration.settings import load
from ...prompting.prompt import check_template
from ...registry import registries
from ...startup.names import check_names
from ...support.conversion import ConfigError
from .cases import Case, load_cases, own_cases
from .gateway import QuestionSettings, identify_server, tuning_gateway, uses_template, without_password
from .plot import svg
from .report import ReportHeader, as_json, as_text, as_yaml
from .show import LiveProgress, PlainProgress, view
from .space import build_space
from .tuner import Progress, Tuner
from .wordings import WORDINGS, Wording, from_template

INTERRUPTED: Final = 130
"""The exit status after Ctrl-C, as in shells."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TuningPlan:
    """The values of the flags, by the names that `toolwire.extras.tune.cli` gives them. `number`: how many cases; None:
    all. `formats`, `wordings` and `templates` restrict the candidates. `command` is the command line, without keys."""

    url: str
    key: str | None
    preset: str
    model: str | None
    cases: Path | None
    number: int | None
    formats: tuple[str, ...]
    wordings: tuple[str, ...]
    templates: tuple[Path, ...]
    most: int
    concurrency: int
    ask: QuestionSettings
    write: Path | None
    command: tuple[str, ...]


def run(
    plan: TuningPlan,
    *,
    say: Callable[[str], object],
    tell: Callable[[str], object],
    json_file: TextIO | None,
    plot_file: TextIO | None,
) -> int:
    """Tunes and prints the result; `say` prints the table, `tell` progress messages. JSON for standard output replaces
    the table. Returns the exit status: 1 if no candidate got an answer or the model server failed, 130 after Ctrl-C.
    Raises `ConfigError`."""
    if plan.write is not None and plan.write.exists():
        raise ConfigError(f"{plan.write} exists and is not overwritten: choose another name, or move it away")
    if plan.write is not None and not plan.write.absolute().parent.is_dir():
        raise ConfigError(f"cannot write {plan.write}: there is no such folder")
    shown = view(tell, terminal=sys.stderr.isatty() and os.environ.get("TERM") != "dumb")
    progress, about = asyncio.run(_tune(plan, shown, tell))
    show_report(as_text(progress, about), as_json(progress, about), say, json_file)
    if plot_file is not None:
        plot_file.write(svg(progress, about))
    winner = progress.winner
    if winner is not None and plan.write is not None:
        _write(plan.write, as_yaml(progress, about, winner))
        tell(f"wrote {plan.write}; start with: toolwire serve --config {plan.write}")
    return INTERRUPTED if progress.stopped else int(winner is None or bool(progress.trouble))


async def _tune(
    plan: TuningPlan, shown: PlainProgress | LiveProgress, tell: Callable[[str], object]
) -> tuple[Progress, ReportHeader]:
    plugins = registries()
    settings = {"url": plan.url, "api_key": plan.key, "preset": plan.preset}
    config = load(None, env={}, overrides={f"backends.default.{key}": value for key, value in settings.items()})
    check_names(config, plugins)
    limit = plan.ask.timeout_s
    limits = Timeouts(first_byte_s=limit, idle_s=limit, total_s=limit)
    backend = replace(config.backends["default"], timeouts=limits)
    wordings = _wordings(plan)
    cases = chosen_cases(plan)
    backend, capabilities, model = await identify_server(backend, plugins, plan.model)
    candidates = build_space(
        plugins,
        choice=plan.ask.choice,
        capabilities=capabilities,
        model=model,
        formats=plan.formats,
        wordings=wordings,
        by_template=await uses_template(backend, plugins, model),
    )
    about = ReportHeader(backend, model, plan.ask, plan.command)
    tell(f"tuning {model} at {about.server}; Ctrl-C stops and keeps the results so far")
    routes = [candidate.options for candidate in candidates]
    async with tuning_gateway(backend, model, routes, plan.ask, plugins) as ask:
        tuner = Tuner(ask, candidates, cases, shown.update, most=plan.most, concurrency=plan.concurrency)
        with _interruptible(tuner.stop), shown.shown():
            return await tuner.run(), about


def chosen_cases(plan: TuningPlan) -> tuple[Case, ...]:
    """Returns the cases to use. If calls are required, cases without an expected call are left out. Raises
    `ConfigError`."""
    cases = own_cases() if plan.cases is None else load_cases(plan.cases)
    if plan.ask.choice == "required":
        cases = tuple(case for case in cases if case.calls)
    if not cases:
        raise ConfigError(f"{plan.cases}: no case expects a call, so none can be used with tool_choice required")
    return cases if plan.number is None else cases[: plan.number]


def _wordings(plan: TuningPlan) -> Mapping[str, Wording]:
    known: dict[str, Wording] = {}
    for name in plan.wordings or WORDINGS:
        if name not in WORDINGS:
            raise ConfigError(f"unknown wording {name!r}; known: {', '.join(WORDINGS)}")
        known[name] = WORDINGS[name]
    for path in plan.templates:
        try:
            text = path.read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from error
        if missing := check_template(text):
            raise ConfigError(f"{path}: the template lacks {', '.join(missing)}")
        known[path.name if path.stem in known else path.stem] = from_template(text)
    return known


@contextlib.contextmanager
def _interruptible(stop: Callable[[], None]) -> Iterator[None]:
    """The first Ctrl-C calls `stop`; a second one has the usual effect."""
    loop = asyncio.get_running_loop()

    def interrupted(*_: object) -> None:
        signal.signal(signal.SIGINT, before)
        loop.call_soon_threadsafe(stop)

    try:
        before = signal.signal(signal.SIGINT, interrupted)
    except ValueError:  # not in the main thread
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def command_line(context: click.Context) -> tuple[str, ...]:
    """Returns the command line without the key and the output files."""
    words = ["toolwire", "tune"]
    for parameter in context.command.params:
        name = parameter.name or ""
        is_given = context.get_parameter_source(name) is ParameterSource.COMMANDLINE
        if not is_given or name in ("key", "write", "json_file", "plot_file"):
            continue
        value = context.params[name]
        for item in value if isinstance(value, tuple) else (value,):
            words += [parameter.opts[0], without_password(str(item)) if name == "url" else str(item)]
    return tuple(words)


def _write(path: Path, text: str) -> None:
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise ConfigError(f"cannot write {path}: {error.strerror or error}") from error
