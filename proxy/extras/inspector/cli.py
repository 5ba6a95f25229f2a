"""The command `toolwire inspect`."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO

import click

from ...cli.common import exit_on_error, say

HOST = "127.0.0.1"


@click.command("inspect")
@click.argument("file", type=click.File("rb"))
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="Port on 127.0.0.1.  [default: a free one]")
@click.option(
    "--html",
    type=click.File("wb", lazy=True),
    metavar="OUT",
    help="Write the page with the captures into this file; - is standard output.",
)
def command(file: BinaryIO, port: int, html: BinaryIO | None) -> None:
    """Show captures in the inspector.

    FILE holds captures from the inspector or `GET /admin/captures/ID`; - reads standard input. For a running gateway
    use `toolwire serve --inspect`.
    """
    from ..capture.files import CapturedExchange, is_capture, read_captures
    from ..capture.recording import RecordingError
    from .offline import offline, show
    from .sharing import share

    def captures() -> list[tuple[CapturedExchange, bytes]]:
        content = file.read()
        if not is_capture(content):
            raise click.ClickException(f"{file.name} is not a capture of a toolwire gateway")
        return read_captures(content)

    with exit_on_error(RecordingError):
        if html is not None:
            html.write(share(captures()))
            return
        with _listening(port) as sockets:  # first, so that a browser waits while a large file is read
            show(offline(captures()), sockets, announce=say)


@contextmanager
def _listening(port: int) -> Iterator[list[socket.socket]]:
    """Yields sockets that listen on this port. Raises `click.ClickException` if that is not possible."""
    from ...server.port_in_use import why_not_listening
    from ...server.sockets import bind, close

    sockets: list[socket.socket] = []
    try:
        try:
            sockets = bind(HOST, port)
        except OSError as error:
            why = " ".join(why_not_listening(error, port, configured=False))
            raise click.ClickException(f"cannot listen on port {port}: {error.strerror or error}. {why}") from error
        yield sockets
    finally:
        close(sockets)
