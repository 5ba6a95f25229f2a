"""`toolwire init`."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

import click


@click.command("init")
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path), default="toolwire.yaml")
def command(file: Path) -> None:
    """Write a commented example configuration to FILE (default: toolwire.yaml). An existing file is left alone."""
    try:
        with file.open("x", encoding="utf-8") as target:
            target.write(resources.files("proxy.configuration").joinpath("example.yaml").read_text("utf-8"))
    except OSError as error:
        raise click.ClickException(f"cannot write {file}: {error.strerror or error}") from error
    click.echo(f"wrote {file}; start with: toolwire serve --config {file}")
