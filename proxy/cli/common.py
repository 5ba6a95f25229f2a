"""Functions and options that several commands share."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TextIO, TypeVar

import click

from ..support.legible import visible, visible_json, visible_lines

Decorated = TypeVar("Decorated", bound=Callable[..., Any])

FORMATS: Final = "a name that `toolwire formats` lists, or auto"
"""Text about the known formats for the help of `--format`."""

USUAL_FILE: Final = "toolwire.yaml"
"""The file that `init` writes, and the default where no file is named."""


def usual_file(purpose: str) -> str | None:
    """Returns the default configuration file if the current folder has one, else None. Prints the `purpose`
    ("checking") with the file's name."""
    if not Path(USUAL_FILE).is_file():
        return None
    say(f"{purpose} {USUAL_FILE} of this folder", err=True)
    return USUAL_FILE


def say(text: str = "", *, err: bool = False, nl: bool = True) -> None:
    """Prints lines. All commands print through it, because it makes control characters of servers, models and files
    visible."""
    click.echo(visible_lines(text), err=err, nl=nl)


def say_json(value: Any) -> None:
    """Prints a value as JSON, with control characters made visible."""
    click.echo(visible_json(json.dumps(value, indent=2, ensure_ascii=False)))


def show_report(
    lines: Iterable[str], document: Mapping[str, Any], say: Callable[[str], object], json_file: TextIO | None
) -> None:
    """Prints tables and writes JSON to the file, or prints only JSON if the file is standard output."""
    if json_file is None or json_file.name != "<stdout>":
        for line in lines:
            say(line)
    if json_file is not None:
        json_file.write(visible_json(json.dumps(document, ensure_ascii=False, indent=1)))
        json_file.write("\n")


@contextmanager
def legible_errors() -> Iterator[None]:
    """Makes click's usage errors printable, because they quote the command line."""
    try:
        yield
    except click.ClickException as error:
        shown = {"message": visible_lines(error.message)}
        if isinstance(error, click.FileError):
            shown["ui_filename"] = visible(error.ui_filename)
        vars(error).update(shown)  # the attributes are declared final
        raise


@contextmanager
def exit_on_error(*others: type[Exception]) -> Iterator[None]:
    """Turns an error in a configuration, or of the types `others`, into a message and exit status 1."""
    from ..support.conversion import ConfigError

    kinds: tuple[type[Exception], ...] = (ConfigError, *others)
    try:
        yield
    except kinds as error:
        raise click.ClickException(str(error)) from error


def output_file_option(flag: str, help: str) -> Callable[[Decorated], Decorated]:
    """Returns the option `flag` for a file that the command writes, `-` for standard output. It is opened at once, so
    that a long measurement does not end with a file that cannot be written. The parameter is `json_file` for
    `--json`."""
    file = click.File("w", encoding="utf-8", lazy=False)
    return click.option(flag, f"{flag.removeprefix('--')}_file", metavar="FILE", type=file, help=help)


def formats(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """Completes names of formats for the shell, including plug-ins."""
    from ..registry import registries
    from ..support.conversion import ConfigError

    try:
        return [name for name in registries().formats.names() if name.startswith(incomplete)]
    except ConfigError:
        return []


def presets(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """Completes names of presets for the shell."""
    from ..upstream.servers.presets import AUTO, PRESETS

    return [name for name in (AUTO, *PRESETS) if name.startswith(incomplete)]
