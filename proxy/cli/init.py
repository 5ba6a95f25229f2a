"""The command `toolwire init`."""

from __future__ import annotations

from pathlib import Path

import click

from .common import USUAL_FILE, say


@click.command("init")
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path), default=USUAL_FILE)
def command(file: Path) -> None:
    """Write a commented example configuration. It goes to FILE (default: toolwire.yaml), which is not overwritten.
    Beside it, toolwire.schema.json lets editors with a YAML language server complete and check the file."""
    from ..configuration.first_file import write_first_file

    try:
        schema = write_first_file(file)
    except OSError as error:
        raise click.ClickException(f"cannot write {error.filename or file}: {error.strerror or error}") from error
    say(f"wrote {file}; start with: toolwire serve{'' if file == Path(USUAL_FILE) else f' --config {file}'}")
    say(f"wrote {schema}, for editors; after an upgrade: toolwire check --schema > {schema}")
