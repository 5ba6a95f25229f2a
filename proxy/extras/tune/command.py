"""`toolwire tune` behind its flags: look at the model server, race the candidates, tell what came of it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, TextIO

import click
from click.core import ParameterSource

from toolwire.config import Timeouts
from toolwire.configuration.settings import load
from toolwire.extras.tune.asking import Ask, Gateway, look_at, teaches, without_password
from toolwire.extras.tune.cases import Case, load_cases, own_cases
from toolwire.extras.tune.plot import svg
from toolwire.extras.tune.report import About, as_json, as_text, as_yaml
from toolwire.extras.tune.show import View, view
from toolwire.extras.tune.space import build_space
from toolwire.extras.tune.tuner import Progress, Tuner
from toolwire.extras.tune.wordings import WORDINGS, Wording, from_template
from toolwire.prompting.prompt import check_template
from toolwire.registry import registries
from toolwire.startup.names import check_names
from toolwire.support.conversion import ConfigError
from toolwire.support.legible import visible_json

INTERRUPTED: Final = 130
"""Exit status after Ctrl-C, as shells have it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What the flags say. `number`: so many of the cases; None: all. `formats`, `wordings`, `templates` narrow the
    space, where they are given. `command` is the command line, without keys."""

    url: str
    key: str | None = None
    preset: str = "auto"
    model: str | None = None
    cases: Path | None = None
    number: int | None = None
    formats: tuple[str, ...] = ()
    wordings: tuple[str, ...] = ()
    templates: tuple[Path, ...] = ()
    most: int = 16
    concurrency: int = 1
    ask: Ask = field(default_factory=Ask)
    write: Path | None = None
    command: tuple[str, ...] = ()


def run(
    plan: Plan,
    *,
    say: Callable[[str], object],
    tell: Callable[[str], object],
    json_file: TextIO | None,
    plot_file: TextIO | None,
) -> int:
    """Tune, and show what came of it; `say` prints the table, `tell` what is being done. JSON that goes to standard
    output replaces the table. The exit status: 1 if no candidate had an answer or the model server went away, 130 after
    Ctrl-C. Raises `ConfigError`."""
    if plan.write is not None and plan.write.exists():
        raise ConfigError(f"{plan.write} exists and is left alone: choose another name, or move it away")
    if plan.write is not None and not plan.write.absolute().parent.is_dir():
        raise ConfigError(f"cannot write {plan.write}: there is no such folder")
    shown = view(tell, terminal=sys.stderr.isatty() and os.environ.get("TERM") != "dumb")
    progress, about = asyncio.run(_tune(plan, shown, tell))
    if json_file is None or json_file.name != "<stdout>":
        for line in as_text(progress, about):
            say(line)
    if json_file is not None:
        json_file.write(visible_json(json.dumps(as_json(progress, about), ensure_ascii=False, indent=1)))
        json_file.write("\n")
    if plot_file is not None:
        plot_file.write(svg(progress, about))
    winner = progress.winner
    if winner is not None and plan.write is not None:
        _write(plan.write, as_yaml(progress, about, winner))
        tell(f"wrote {plan.write}; start with: toolwire serve --config {plan.write}")
    return INTERRUPTED if progress.stopped else int(winner is None or bool(progress.trouble))


async def _tune(plan: Plan, shown: View, tell: Callable[[str], object]) -> tuple[Progress, About]:
    plugins = registries()
    given = {"url": plan.url, "api_key": plan.key, "preset": plan.preset}
    config = load(None, env={}, overrides={f"backends.default.{key}": value for key, value in given.items()})
    check_names(config, plugins)
    limit = plan.ask.timeout_s
    limits = Timeouts(first_byte_s=limit, idle_s=limit, total_s=limit)
    backend = replace(config.backends["default"], timeouts=limits)
    wordings = _wordings(plan)
    cases = chosen_cases(plan)
    backend, capabilities, model = await look_at(backend, plugins, plan.model)
    space = build_space(
        plugins,
        choice=plan.ask.choice,
        capabilities=capabilities,
        model=model,
        formats=plan.formats,
        wordings=wordings,
        by_template=await teaches(backend, plugins, model),
    )
    about = About(backend, model, plan.ask, plan.command, space.missing)
    tell(f"tuning {model} at {about.server}; Ctrl-C ends it and keeps what was measured")
    routes = [candidate.options for candidate in space.candidates]
    async with Gateway(backend, model, routes, plan.ask, plugins) as gateway:
        tuner = Tuner(gateway, space.candidates, cases, shown, most=plan.most, concurrency=plan.concurrency)
        with _interruptible(tuner.stop), shown.shown():
            return await tuner.run(), about


def chosen_cases(plan: Plan) -> tuple[Case, ...]:
    """The cases that are asked. Where calls are demanded, those that want none are left out. Raises `ConfigError`."""
    cases = own_cases() if plan.cases is None else load_cases(plan.cases)
    if plan.ask.choice == "required":
        cases = tuple(case for case in cases if case.calls)
    if not cases:
        raise ConfigError(f"{plan.cases}: no case wants a call, so none can be asked with tool_choice required")
    return cases if plan.number is None else cases[: plan.number]


def _wordings(plan: Plan) -> Mapping[str, Wording]:
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
    """Ctrl-C stops once; the second one is as always."""
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
    """The command as it was given, without the key and without the files that it writes."""
    words = ["toolwire", "tune"]
    for parameter in context.command.params:
        name = parameter.name or ""
        given = context.get_parameter_source(name) is ParameterSource.COMMANDLINE
        if not given or name in ("backend_key", "write", "json_file", "plot_file"):
            continue
        value = context.params[name]
        for item in value if isinstance(value, tuple) else (value,):
            words += [parameter.opts[0], without_password(str(item)) if name == "backend" else str(item)]
    return tuple(words)


def _write(path: Path, text: str) -> None:
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise ConfigError(f"cannot write {path}: {error.strerror or error}") from error
