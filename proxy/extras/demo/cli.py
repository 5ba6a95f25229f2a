"""The command `toolwire demo`."""

from __future__ import annotations

import sys

import click


@click.command("demo")
@click.option("--once", is_flag=True, help="Exit after one call, with status 0 only if it was valid.")
@click.option("--host", metavar="ADDRESS", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option(
    "--port", type=click.IntRange(0, 65535), default=8665, show_default=True, help="Port; 0 takes a free one."
)
def command(once: bool, host: str, port: int) -> None:
    """Show tool calls of a small real model behind the gateway. Each is shown as the model writes it and as the client
    gets it."""
    from .walkthrough import run

    sys.exit(run(host=host, port=port, once=once))
