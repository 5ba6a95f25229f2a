"""The command `toolwire completion`."""

from __future__ import annotations

import os
from collections.abc import Callable

import click

from .common import say
from .shells import PLACES, install, script, shell_of, uninstall


def _shell(context: click.Context, parameter: click.Parameter, value: str | None) -> str:
    found = value or shell_of(os.environ)
    if found is None:
        raise click.BadParameter(f"the variable SHELL is not one of {', '.join(PLACES)}: name the shell")
    return found


_of_shell: Callable[[Callable[..., None]], Callable[..., None]] = click.argument(
    "shell", type=click.Choice(tuple(PLACES)), required=False, callback=_shell
)


@click.group("completion")
def command() -> None:
    """Set up the shell's completion of commands, options and names."""


@command.command("install")
@_of_shell
@click.pass_context
def install_(context: click.Context, shell: str) -> None:
    """Write the script where the SHELL looks for it. Prints its path; running it again changes nothing. SHELL is by
    default the one you use."""
    try:
        for line in install(shell, context.find_root().command, os.environ):
            say(line)
    except OSError as error:
        raise click.ClickException(_message(error)) from error


@command.command("show")
@_of_shell
@click.pass_context
def show_(context: click.Context, shell: str) -> None:
    """Print the script for the SHELL (default: the one you use)."""
    say(script(shell, context.find_root().command), nl=False)


@command.command("uninstall")
@_of_shell
def uninstall_(shell: str) -> None:
    """Remove what `install` has written. SHELL is by default the one you use."""
    try:
        for line in uninstall(shell, os.environ):
            say(line)
    except OSError as error:
        raise click.ClickException(_message(error)) from error


def _message(error: OSError) -> str:
    return f"cannot write {error.filename}: {error.strerror}" if error.strerror else str(error)
