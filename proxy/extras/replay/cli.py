"""The command `toolwire replay`."""

from __future__ import annotations

import sys
from typing import Any, BinaryIO

import click

from ...cli.common import FORMATS, exit_on_error, formats, say
from ...support.legible import visible_json
from .chunks_option import chunkings, chunks_of


@click.command("replay")
@click.argument("file", type=click.File("rb"))
@click.option(
    "--format",
    "format_",
    metavar="NAME",
    shell_complete=formats,
    help=f"How calls are written: {FORMATS}.  [default: sentinel; for a capture, its own]",
)
@click.option(
    "--chunks",
    callback=chunks_of,
    shell_complete=chunkings,
    metavar="recorded|tokens|bytes|whole|N",
    default="recorded",
    show_default=True,
    help="How the answer arrives: by frame (text: by line), token, byte, at once, or N bytes each.",
)
@click.option("--json", "as_json", is_flag=True, help="Print lines of JSON.")
def command(file: BinaryIO, format_: str | None, chunks: Any, as_json: bool) -> None:
    """Show step by step how a recorded answer is read. A step has the bytes in, the scanner's state, the text it holds
    back, and the events out.

    FILE is a stream of Chat chunks, a model's plain text, or captures; - reads standard input. At the end the calls are
    printed, and whether they are the same however the recording is split; for a capture also whether the client would
    get the same response again. If not, the exit status is 1.
    """
    from ..capture.files import is_capture, read_captures
    from ..capture.recording import RecordingError
    from .replay_capture import Outcome, show_captures
    from .steps import Summary, show, show_json

    recording, found, outcome = file.read(), Summary(), Outcome()
    with exit_on_error(RecordingError):
        if is_capture(recording):
            captures = [captured for captured, _ in read_captures(recording)]
            lines = show_captures(captures, format=format_, chunks=chunks, outcome=outcome, as_json=as_json)
        else:
            lines = (show_json if as_json else show)(
                recording, format=format_ or "sentinel", chunks=chunks, found=found
            )
        for line in lines:
            say(visible_json(line) if as_json else line)
    if found.different or found.broken or outcome.failed:
        sys.exit(1)
