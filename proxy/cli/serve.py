"""The command `toolwire serve`."""

from __future__ import annotations

import sys
from functools import partial

import click

from .common import FORMATS, USUAL_FILE, exit_on_error, formats, presets, usual_file

MODES = ("prompt", "template", "text", "native", "hybrid", "auto")


@click.command("serve")
@click.option("--config", "file", type=click.Path(dir_okay=False), envvar="TOOLWIRE_CONFIG", help="YAML file.")
@click.option(
    "--backend", metavar="URL", help="URL of the model server, with or without /v1. Enough to start without a file."
)
@click.option(
    "--backend-key",
    metavar="KEY",
    help="Key sent to the model server. Safer: set TOOLWIRE_BACKENDS__DEFAULT__API_KEY.",
)
@click.option(
    "--preset",
    metavar="NAME",
    shell_complete=presets,
    help="Type of the server, which decides what is sent to it: vllm, sglang, llamacpp, ollama, lmstudio, transformers, openai, anthropic, generic.  [default: the server is asked]",
)
@click.option("--model", metavar="NAME", help="Model name sent to the server in place of the client's.")
@click.option(
    "--mode",
    type=click.Choice(MODES),
    help="Who describes the tools and reads the calls.  [default without a file: text]",
)
@click.option("--format", "format_", metavar="NAME", shell_complete=formats, help=f"How calls are written: {FORMATS}.")
@click.option("--host", metavar="ADDRESS", help="Address to listen on.  [default: 127.0.0.1]")
@click.option("--port", type=click.IntRange(0, 65535), help="Port; 0 takes a free one.  [default: 8665]")
@click.option("--workers", type=click.IntRange(1), metavar="N", help="Processes that share the port.  [default: 1]")
@click.option("--api-key", metavar="KEY", help="Key that clients must send. Safer: set TOOLWIRE_AUTH__KEYS.")
@click.option("--insecure-public", is_flag=True, default=None, help="Allow a public address without a client key.")
@click.option("--inspect", is_flag=True, default=None, help="Serve the inspector at /inspect.")
@click.option("--log-level", type=click.Choice(["debug", "info", "warning", "error"]), help="[default: info]")
@click.option("--log-format", type=click.Choice(["auto", "text", "json"]), help="[default: auto]")
def command(
    file: str | None,
    backend: str | None,
    backend_key: str | None,
    preset: str | None,
    model: str | None,
    mode: str | None,
    format_: str | None,
    host: str | None,
    port: int | None,
    workers: int | None,
    api_key: str | None,
    insecure_public: bool | None,
    inspect: bool | None,
    log_level: str | None,
    log_format: str | None,
) -> None:
    """Run the gateway.

    Without --config, and if neither --backend nor a variable names a model server, toolwire.yaml in the current folder
    is used.

    Flags override TOOLWIRE_... variables, and variables the file. With a file, --backend, --backend-key and --preset
    apply to its only backend, or to the one called `default`; --format and --mode set `defaults`.
    """
    from ..configuration.settings import has_backends, is_set, load
    from ..server.serving import serve as run

    if not (backend or file or has_backends()):
        file = usual_file("using")
        if file is None:
            raise click.UsageError(
                f"Say where the model is: --backend URL, or --config FILE. There is no {USUAL_FILE} here either "
                "(`toolwire init` writes one)."
            )
    if model and file:
        raise click.UsageError("--model is for a start without a file; use `upstream_model` of a route in the file.")
    overrides = {
        "backends.*.url": backend,
        "backends.*.api_key": backend_key,
        "backends.*.preset": preset,
        "routes": [{"upstream_model": model}] if model else None,
        "defaults.mode": mode or (None if file or is_set("defaults.mode") else "text"),
        "defaults.format": format_,
        "server.host": host,
        "server.port": port,
        "server.workers": workers,
        "server.insecure_public": insecure_public,
        "inspect.on": inspect,
        "server.log_level": log_level,
        "server.log_format": log_format,
        "auth.keys": [api_key] if api_key else None,
    }
    read = partial(load, file, overrides=overrides)
    with exit_on_error():
        config = read()
    sys.exit(run(config, load=read))
