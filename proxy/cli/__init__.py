"""The command line. It has no logic: each command turns its flags into one call, and has its own file.

Importing it is cheap, because each command imports its modules when it runs.

Exit status (R17.1): 0 success, 1 failure (including a bad configuration), 2 wrong use of the command line.
"""

from __future__ import annotations

import os
import platform
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Final

import click

from .common import legible_errors, say

DOCUMENTATION: Final = "https://toolwire.github.io/toolwire/"

COMMANDS: Final = {
    "serve": "toolwire.cli.serve",
    "check": "toolwire.cli.check",
    "init": "toolwire.cli.init",
    "inspect": "toolwire.extras.inspector.cli",
    "replay": "toolwire.extras.replay.cli",
    "keys": "toolwire.cli.keys",
    "formats": "toolwire.cli.formats",
    "bench": "toolwire.extras.bench.cli",
    "tools": "toolwire.cli.tools",
    "demo": "toolwire.extras.demo.cli",
    "tune": "toolwire.extras.tune.cli",
    "doctor": "toolwire.extras.doctor.cli",
    "completion": "toolwire.cli.completion",
}
"""The module of each command, imported when the command is used. Its attribute `command` is the command."""


def _version(context: click.Context, parameter: click.Parameter, wanted: bool) -> None:
    if not wanted:
        return
    from importlib.metadata import version

    from .._version import __version__

    # `toolwire.fastparse` decides the same by an import, which costs more than the rest of this command.
    compiled = not os.environ.get("TOOLWIRE_NO_EXTENSIONS") and _is_installed("toolwire._fastparse")
    say(f"toolwire {__version__}")
    say(f"scanner: {'compiled' if compiled else 'python'}")
    say(f"Python {platform.python_version()}, aiohttp {version('aiohttp')}")
    context.exit()


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False


class _Commands(click.Group):
    """The commands of `COMMANDS`. Their error messages are printable on a terminal."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Returns the names of the installed commands, sorted."""
        return sorted(name for name, module in COMMANDS.items() if _is_installed(module))

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Returns the command; None for an unknown name. Raises `click.UsageError` if it is not installed."""
        if (module := COMMANDS.get(cmd_name)) is None:
            return None
        if not _is_installed(module):
            raise click.UsageError(f"{cmd_name!r} is not a part of this installation: there is no {module}.")
        command: click.Command = import_module(module).command
        return command

    def make_context(self, *args: Any, **named: Any) -> click.Context:
        with legible_errors():
            return super().make_context(*args, **named)

    def invoke(self, ctx: click.Context) -> Any:
        with legible_errors():
            return super().invoke(ctx)


@click.group(
    cls=_Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog=f"A first start: toolwire serve --backend URL. Documentation: {DOCUMENTATION}",
)
@click.option(
    "--version", is_flag=True, expose_value=False, is_eager=True, callback=_version, help="Show the versions and exit."
)
def main() -> None:
    """A gateway that turns the text of models into exact tool calls."""
