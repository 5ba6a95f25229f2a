"""The command line. No logic: each command turns its flags into one call, and has a file of its own.

Importing it is cheap: what a command needs is imported when it is run.

Exit status (R17.1): 0, 1 failure (a bad configuration is one), 2 wrong use of the command line.
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
    """Commands whose complaints can be shown on a terminal."""

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
    """A gateway that gives exact OpenAI tool calls from models that only write text."""


for _command in (serve, check, init, inspect, replay, keys, bench, tools, demo, tune, doctor, completion):
    main.add_command(_command.command)
