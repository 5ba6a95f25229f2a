"""The command line. It has no logic: each command turns its flags into one call, and has its own file.

Importing it is cheap, because each command imports its modules when it runs.

Exit status (R17.1): 0 success, 1 failure (including a bad configuration), 2 wrong use of the command line.
"""

from __future__ import annotations

import platform
from typing import Any

import click

from toolwire.cli import bench, check, completion, demo, doctor, init, inspect, keys, replay, serve, tools, tune
from toolwire.cli.common import legible_errors, say


def _version(context: click.Context, parameter: click.Parameter, wanted: bool) -> None:
    if not wanted:
        return
    import aiohttp

    from toolwire._version import __version__
    from toolwire.fastparse import IMPLEMENTATION

    say(f"toolwire {__version__}")
    say(f"scanner: {IMPLEMENTATION}")
    say(f"Python {platform.python_version()}, aiohttp {aiohttp.__version__}")
    context.exit()


class _Commands(click.Group):
    """A command group whose error messages are printable on a terminal."""

    def make_context(self, *args: Any, **named: Any) -> click.Context:
        with legible_errors():
            return super().make_context(*args, **named)

    def invoke(self, ctx: click.Context) -> Any:
        with legible_errors():
            return super().invoke(ctx)


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.option(
    "--version", is_flag=True, expose_value=False, is_eager=True, callback=_version, help="Show the versions and exit."
)
def main() -> None:
    """A gateway that turns the text of models into exact OpenAI tool calls."""


for _command in (serve, check, init, inspect, replay, keys, bench, tools, demo, tune, doctor, completion):
    main.add_command(_command.command)
