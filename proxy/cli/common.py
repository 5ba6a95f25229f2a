"""What several commands share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import click

from ..support.conversion import ConfigError

FORMATS: Final = "sentinel, auto, hermes, mistral and others (docs/reference/formats.md), or a plug-in's name"
"""For the help of `--format`."""


@contextmanager
def reported() -> Iterator[None]:
    """A mistake in a configuration or a recording ends the program with status 1 and no traceback."""
    from ..capture.recording import RecordingError

    try:
        yield
    except (ConfigError, RecordingError) as error:
        raise click.ClickException(str(error)) from error


def chunks_of(context: click.Context, parameter: click.Parameter, value: str | None) -> str | int | None:
    """A `proxy.capture.recording.Chunks`."""
    if value is None or value in ("recorded", "tokens", "bytes", "whole"):
        return value
    if value.isdecimal() and int(value) > 0:
        return int(value)
    raise click.BadParameter(f"{value!r} is not recorded, tokens, bytes, whole or a number above 0")
