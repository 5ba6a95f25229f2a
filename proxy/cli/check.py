"""The command `toolwire check`."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import click

from .common import USUAL_FILE, exit_on_error, say, usual_file
from .tools import list_tools


@click.command("check")
@click.argument("file", type=click.Path(dir_okay=False), required=False, envvar="TOOLWIRE_CONFIG")
@click.option("--schema", is_flag=True, help="Print the JSON Schema of the file and exit.")
@click.option(
    "--probe",
    is_flag=True,
    help="Also ask each route's servers for a small tool call, and show how they handle tools.",
)
def command(file: str | None, schema: bool, probe: bool) -> None:
    """Check a configuration, and show what it means.

    FILE (default: toolwire.yaml) is shown as its routes, middlewares and server-side tools, or as all its mistakes.
    Plug-ins and tool modules are imported and run. Model and MCP servers are contacted only with --probe.

    The exit status is 1 if there is a mistake or a source of tools that cannot be used. `toolwire doctor` also examines
    the machine and the servers.
    """
    if schema:
        from ..configuration.first_file import schema_text

        say(schema_text(), nl=False)
        return
    file = file or usual_file("checking")
    if file is None:
        raise click.UsageError(f"Say which FILE. There is no {USUAL_FILE} here (`toolwire init` writes one).")
    from ..configuration.positions import with_lines
    from ..registry import registries
    from ..startup.description import describe
    from ..startup.examination import examined

    with exit_on_error():
        config, mistakes = examined(file, registries())
    if mistakes.lines:
        say("Error: " + "\n".join(with_lines(mistakes.lines, Path(file).read_text("utf-8"))), err=True)
    else:
        say(f"{file}: valid")
        say(describe(config, registries()))
        if probe:
            from ..startup.probe_report import probe_lines

            for line in probe_lines(config, registries()):
                say(line)
    for line in mistakes.warnings:
        say(f"Warning: {line}", err=True)
    tools = config.tools if probe else replace(config.tools, mcp=())
    if (tools.folder is not None or tools.mcp) and not mistakes.below("tools"):
        list_tools(tools, as_json=False)
    sys.exit(1 if mistakes.lines else 0)
