"""The command `toolwire doctor`."""

from __future__ import annotations

import os
import sys
from functools import partial

import click

from ...cli.common import USUAL_FILE, say, say_json, usual_file


@click.command("doctor")
@click.argument("file", type=click.Path(dir_okay=False), required=False, envvar="TOOLWIRE_CONFIG")
@click.option("--backend", metavar="URL", help="URL of the model server, with or without /v1.")
@click.option("--backend-key", metavar="KEY", help="Key sent to it. Safer: set TOOLWIRE_BACKENDS__DEFAULT__API_KEY.")
@click.option("--probe/--no-probe", default=True, help="Ask each model for a small tool call.  [default: --probe]")
@click.option(
    "--timeout",
    type=click.FloatRange(0, min_open=True),
    default=30.0,
    show_default=True,
    metavar="SECONDS",
    help="Time limit for such a call.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(
    file: str | None, backend: str | None, backend_key: str | None, probe: bool, timeout: float, as_json: bool
) -> None:
    """Find problems of an installation, and say what to do.

    Examines the configuration FILE (default: toolwire.yaml), the installed package, the machine, files, the server-side
    tools (their modules are run), and each model server, which gets requests. Changes nothing.

    The exit status is 1 if there is a problem, not only advice or warnings.
    """
    from ...configuration.settings import has_backends
    from ...registry import registries
    from .command import examine_all
    from .finding import as_json as json_of
    from .finding import as_text, count

    if not (file or backend or has_backends()):
        file = usual_file("examining")
        if file is None:
            raise click.UsageError(f"Name a FILE, or a --backend URL. There is no {USUAL_FILE} here.")
    overrides = {"backends.*.url": backend, "backends.*.api_key": backend_key}
    found = examine_all(
        file, overrides, registries(), os.environ, probe_s=timeout if probe else None, tell=partial(say, err=True)
    )
    if as_json:
        say_json(json_of(found))
    else:
        for line in as_text(found):
            say(line)
    sys.exit(1 if count(found)["problem"] else 0)
