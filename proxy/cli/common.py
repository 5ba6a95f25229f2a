"""What several commands share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import click

from toolwire.support.conversion import ConfigError
from toolwire.support.legible import visible, visible_json, visible_lines

FORMATS: Final = "sentinel, auto, hermes, mistral and others (docs/reference/formats.md), or a plug-in's name"
"""For the help of `--format`."""

USUAL_FILE: Final = "toolwire.yaml"
"""What `init` writes, and what is taken where no file is named."""

CHUNKS: Final = ("recorded", "tokens", "bytes", "whole")


def usual_file(why: str) -> str | None:
    """The configuration of the current folder, if there is one, for who has named none; `why` it is taken is said."""
    if not Path(USUAL_FILE).is_file():
        return None
    say(f"{why} {USUAL_FILE} of this folder", err=True)
    return USUAL_FILE


def say(text: str = "", *, err: bool = False, nl: bool = True) -> None:
    """Print lines: the only way of a command to the terminal, and no text of a server, a model or a file is obeyed
    there."""
    click.echo(visible_lines(text), err=err, nl=nl)


def say_json(text: str) -> None:
    """Print JSON text, in which nothing is obeyed either."""
    click.echo(visible_json(text))


@contextmanager
def legible_errors() -> Iterator[None]:
    """Makes click's usage errors printable: they quote the command line."""
    try:
        yield
    except click.ClickException as error:
        shown = {"message": visible_lines(error.message)}
        if isinstance(error, click.FileError):
            shown["ui_filename"] = visible(error.ui_filename)
        vars(error).update(shown)  # click calls them final
        raise


@contextmanager
def reported() -> Iterator[None]:
    """A mistake in a configuration or a recording ends the program with status 1 and no traceback."""
    from toolwire.extras.capture.recording import RecordingError

    try:
        yield
    except (ConfigError, RecordingError) as error:
        raise click.ClickException(str(error)) from error


def formats(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """For the shell: formats that begin so, plug-ins' as well."""
    from toolwire.registry import registries

    try:
        return [name for name in registries().formats.names() if name.startswith(incomplete)]
    except ConfigError:
        return []


def presets(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """For the shell: presets that begin so."""
    from toolwire.upstream.servers.presets import AUTO, PRESETS

    return [name for name in (AUTO, *PRESETS) if name.startswith(incomplete)]


def chunkings(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """For the shell: words for `chunks_of` that begin so."""
    return [word for word in CHUNKS if word.startswith(incomplete)]


def chunks_of(context: click.Context, parameter: click.Parameter, value: str | None) -> str | int | None:
    """A `toolwire.extras.capture.recording.Chunks`."""
    if value is None or value in CHUNKS:
        return value
    if value.isdecimal() and int(value) > 0:
        return int(value)
    raise click.BadParameter(f"{value!r} is not recorded, tokens, bytes, whole or a number above 0")
