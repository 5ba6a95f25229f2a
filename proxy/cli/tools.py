"""The command `toolwire tools`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from .common import exit_on_error, say, say_json, usual_file

if TYPE_CHECKING:
    from ..config import ToolsConfig


def list_tools(config: ToolsConfig, *, as_json: bool) -> None:
    from ..servertools.joined import has_failures, status_lines, tools_status

    shown = tools_status(config)
    data = {"modules": shown["modules"], "mcp": shown["mcp"]} if "mcp" in shown else shown["modules"]
    if as_json:
        say_json(data)
    else:
        for line in status_lines(shown):
            say(line)
    if has_failures(shown):
        sys.exit(1)


@click.group("tools")
def command() -> None:
    """Show server-side tools."""


@command.command("list")
@click.option(
    "--folder", metavar="FOLDER", type=click.Path(file_okay=False, exists=True), help="Folder with tool modules."
)
@click.option(
    "--config",
    "file",
    type=click.Path(dir_okay=False),
    envvar="TOOLWIRE_CONFIG",
    help="YAML file that names the folder and MCP servers.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def list_(folder: str | None, file: str | None, as_json: bool) -> None:
    """Show tool modules and MCP servers, their states and their tools. Modules and server commands are run.

    The exit status is 1 if a module cannot be used or a server cannot be reached.
    """
    from ..config import ToolsConfig
    from ..configuration.settings import load
    from ..support.environment import NO_TOOLS, has_groups

    if folder is not None:
        if not has_groups():
            raise click.ClickException(NO_TOOLS)
        config = ToolsConfig(folder=folder)
    else:
        file = file or usual_file("reading")
        with exit_on_error():
            config = ToolsConfig() if file is None else load(file).tools
    if config.folder is None and not config.mcp:
        raise click.UsageError("Name the tools: --folder FOLDER, or --config FILE with `tools.folder` or `tools.mcp`.")
    list_tools(config, as_json=as_json)
