"""`toolwire completion`."""

from __future__ import annotations

import os
from collections.abc import Callable

import click

from toolwire.cli.common import say
from toolwire.cli.shells import PLACES, install, script, shell_of, uninstall


def _shell(context: click.Context, parameter: click.Parameter, value: str | None) -> str:
    found = value or shell_of(os.environ)
    if found is None:
        raise click.BadParameter(f"SHELL names none of {', '.join(PLACES)}: say which one with --shell.")
    return found


_of_shell: Callable[[Callable[..., None]], Callable[..., None]] = click.option(
    "--shell", type=click.Choice(tuple(PLACES)), callback=_shell, help="Which shell.  [default: that of SHELL]"
)


@click.group("completion")
def command() -> None:
    """Have the shell complete commands, options, formats and files."""


@command.command("install")
@_of_shell
@click.pass_context
def install_(context: click.Context, shell: str) -> None:
    """Write what the shell needs to where it looks for it, and say where that is. Twice is the same as once."""
    try:
        for line in install(shell, context.find_root().command, os.environ):
            say(line)
    except OSError as error:
        raise click.ClickException(_said(error)) from error


@command.command("show")
@_of_shell
@click.pass_context
def show_(context: click.Context, shell: str) -> None:
    """Print the script that `install` writes, and write nothing."""
    say(script(shell, context.find_root().command), nl=False)


@command.command("uninstall")
@_of_shell
def uninstall_(shell: str) -> None:
    """Remove what `install` has written, and nothing else."""
    try:
        for line in uninstall(shell, os.environ):
            say(line)
    except OSError as error:
        raise click.ClickException(_said(error)) from error


def _said(error: OSError) -> str:
    return f"cannot write {error.filename}: {error.strerror}" if error.strerror else str(error)
