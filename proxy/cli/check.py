"""`toolwire check`."""

from __future__ import annotations

import sys
from importlib import resources

import click

from .common import reported
from .tools import list_tools


@click.command("check")
@click.argument("file", type=click.Path(dir_okay=False), required=False)
@click.option("--schema", is_flag=True, help="Print the JSON Schema of the file and exit.")
@click.option(
    "--probe",
    is_flag=True,
    help="Also ask each route's servers for a tool call, with one small request each, and show who has to do tools.",
)
def command(file: str | None, schema: bool, probe: bool) -> None:
    """Check a configuration FILE and show its routes and chains, and its server-side tools, whose modules are run. All
    mistakes are named at once: keys, types, values, variables, files, and what plug-ins say, which are imported and
    made. Nothing is contacted, but with --probe. The exit status is 1 if there is a mistake, or a module of the tools
    that cannot be used."""
    if schema:
        click.echo(resources.files("proxy.configuration").joinpath("config.schema.json").read_text("utf-8"), nl=False)
        return
    if file is None:
        raise click.UsageError("Missing argument 'FILE'.")
    from ..configuration.settings import examine
    from ..registry import registries
    from ..server.circles import leading_back
    from ..startup.description import describe
    from ..startup.names import name_mistakes

    with reported():
        config, mistakes = examine(file)
        mistakes.add(name_mistakes(config, registries(), mistakes, make_middlewares=True))
        mistakes.add(leading_back(config, config.server.port))
    if mistakes.lines:
        click.ClickException("\n".join(mistakes.lines)).show()
    else:
        click.echo(f"{file}: valid")
        click.echo(describe(config, registries()))
        if probe:
            from ..startup.probed import probed

            for line in probed(config, registries()):
                click.echo(line)
    for line in mistakes.moved:
        click.echo(f"Warning: {line}", err=True)
    if config.tools.folder is not None and not mistakes.below("tools"):
        list_tools(config.tools, as_json=False)
    sys.exit(1 if mistakes.lines else 0)
