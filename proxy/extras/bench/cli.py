"""The command `toolwire bench`."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from functools import partial
from typing import Any, BinaryIO, TextIO

import click

from ...cli.common import FORMATS, exit_on_error, formats, output_file_option, say
from ..replay.chunks_option import chunkings, chunks_of


def _case(context: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> tuple[str, ...]:
    from .corpus import CASES

    return _known_names(values, CASES)


def _contestant(context: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> tuple[str, ...]:
    from .contestants import CONTESTANTS

    return _known_names(values, CONTESTANTS)


def _contestants(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    from .contestants import CONTESTANTS

    return [name for name in CONTESTANTS if name.startswith(incomplete)]


def _known_names(names: tuple[str, ...], known: Iterable[str]) -> tuple[str, ...]:
    for name in names:
        if name not in known:
            raise click.BadParameter(f"{name!r} is not one of {', '.join(known)}")
    return names


@click.group("bench")
def command() -> None:
    """Measure speed on this machine."""


@command.command()
@click.option(
    "--format",
    "formats",
    multiple=True,
    metavar="NAME|all",
    shell_complete=formats,
    help="How calls are written; may be repeated.  [default: sentinel; with --input that of the recording]",
)
@click.option(
    "--input",
    "file",
    metavar="FILE",
    type=click.File("rb"),
    help="A recording in place of the built-in texts: Chat chunks, a Chat answer, or plain text; - is standard input.",
)
@click.option(
    "--chunks",
    callback=chunks_of,
    shell_complete=chunkings,
    metavar="recorded|tokens|bytes|whole|N",
    help="What a delta is: as recorded, 3 to 6 characters, one byte, all, or N bytes.  [default: tokens; with --input recorded]",
)
@click.option(
    "--case",
    "cases",
    multiple=True,
    callback=_case,
    metavar="NAME",
    help="Measure only this built-in text: prose, calls, mixed, 10 KB, 100 KB, unfinished; may be repeated.",
)
@click.option(
    "--implementation",
    "contestants",
    multiple=True,
    callback=_contestant,
    shell_complete=_contestants,
    metavar="NAME",
    help="Measure only this parser: compiled, python, buffering, rescanning, jiter, partial-json-parser, json-repair, sglang; may be"
    " repeated.  [default: all that are installed]",
)
@click.option(
    "--seed",
    type=int,
    default=20,
    show_default=True,
    metavar="N",
    help="Random seed for texts and chunks.",
)
@click.option(
    "--repeat", type=click.IntRange(1), default=5, show_default=True, metavar="N", help="Runs of each parser."
)
@click.option(
    "--budget",
    "budget_s",
    type=click.FloatRange(0, min_open=True),
    default=2.0,
    show_default=True,
    metavar="SECONDS",
    help="Time limit of one parser for one text.",
)
@click.option(
    "--growth",
    type=click.IntRange(0),
    default=100_000,
    show_default=True,
    metavar="N",
    help="Compare 1,000 deltas, 10,000 and so on up to N; 0 skips this.",
)
@output_file_option("--json", "Write all figures; - prints them.")
@output_file_option("--plot", "Write a chart (SVG).")
def parse(file: BinaryIO | None, json_file: TextIO | None, plot_file: TextIO | None, **options: Any) -> None:
    """Measure the time to find calls in streamed deltas.

    The compiled scanner, its Python twin, naive parsers and other libraries are compared, if they find the right calls.
    The exit status is 1 if no parser could be measured, or if the two scanners disagree.
    """
    from ..capture.recording import RecordingError
    from .command import formats_of, run
    from .parse import MeasurePlan
    from .recorded import Recording

    if options["chunks"] == "recorded" and file is None:
        raise click.UsageError("--chunks recorded is for a recording: give --input FILE.")
    if options["cases"] and file is not None:
        raise click.UsageError("--case is for the built-in texts, --input for a recording: give one of them.")
    options["formats"] = formats_of(options["formats"])
    with exit_on_error(RecordingError):
        plan = MeasurePlan(**options, recording=None if file is None else Recording(file.read()))
        status = run(plan, say=say, tell=partial(say, err=True), json_file=json_file, plot_file=plot_file)
    sys.exit(status)


@command.command()
@click.option("--config", "file", metavar="FILE", type=click.Path(dir_okay=False), help="Configuration to measure.")
@click.option("--format", "format_", metavar="NAME", shell_complete=formats, help=f"How calls are written: {FORMATS}.")
@click.option(
    "--requests", type=click.IntRange(1), default=400, show_default=True, metavar="N", help="Requests of each kind."
)
@output_file_option("--json", "Write all figures; - prints them.")
def gateway(file: str | None, format_: str | None, requests: int, json_file: TextIO | None) -> None:
    """Measure the time that the gateway adds to requests and frames.

    Requests go alternately to a scripted model server and through the gateway. Only the configuration's first route is
    measured; its backends are not contacted.
    """
    from ...configuration.settings import load
    from .command import run_gateway

    overrides = {"defaults.format": format_, "backends.*.url": None if file else "http://127.0.0.1"}
    with exit_on_error():
        run_gateway(load(file, overrides=overrides), requests, say=say, json_file=json_file)
