"""The command `toolwire inspect`."""

from __future__ import annotations

from typing import BinaryIO

import click

from ...cli.common import reported, say


@click.command("inspect")
@click.argument("file", type=click.File("rb"))
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="Port on 127.0.0.1.  [default: a free one]")
def command(file: BinaryIO, port: int) -> None:
    """Show a capture in the inspector: the prompt, the model's output and the client's response.

    FILE is a capture, downloaded from the inspector or from `GET /admin/captures/ID`; - reads standard input. Nothing
    is sent to any server. Ctrl-C ends it. To see the exchanges of a running gateway, use `toolwire serve --inspect`.
    """
    from ..capture.files import is_capture, read_capture
    from ..capture.recording import RecordingError
    from .offline import offline, show

    content = file.read()
    with reported(RecordingError):
        if not is_capture(content):
            raise click.ClickException(f"{file.name} is not a capture of a toolwire gateway")
        app = offline(read_capture(content), content)
    try:
        show(app, host="127.0.0.1", port=port, announce=say)
    except OSError as error:
        raise click.ClickException(f"cannot listen on port {port}: {error.strerror or error}") from error
