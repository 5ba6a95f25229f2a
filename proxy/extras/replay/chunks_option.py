"""The option `--chunks` of commands that read recordings."""

from __future__ import annotations

from typing import Final

import click

CHUNKS: Final = ("recorded", "tokens", "bytes", "whole")


def chunkings(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """Completes values of the option for the shell: those that begin with `incomplete`."""
    return [word for word in CHUNKS if word.startswith(incomplete)]


def chunks_of(context: click.Context, parameter: click.Parameter, value: str | None) -> str | int | None:
    """Returns the option's value as a `toolwire.extras.capture.recording.Chunks`. Raises `click.BadParameter`."""
    if value is None or value in CHUNKS:
        return value
    if value.isdecimal() and int(value) > 0:
        return int(value)
    raise click.BadParameter(f"{value!r} is not recorded, tokens, bytes, whole or a number above 0")
