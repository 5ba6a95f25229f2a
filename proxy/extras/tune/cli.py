"""The command `toolwire tune`."""

from __future__ import annotations

from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any, TextIO

import click

from ...cli.common import exit_on_error, formats, output_file_option, presets, say


@click.command("tune")
@click.option("--backend", "url", metavar="URL", required=True, help="URL of the model server, with or without /v1.")
@click.option(
    "--backend-key",
    "key",
    metavar="KEY",
    envvar="MODEL_SERVER_KEY",
    help="Key sent to it. Safer: set MODEL_SERVER_KEY.",
)
@click.option(
    "--preset",
    metavar="NAME",
    shell_complete=presets,
    default="auto",
    help="Type of the server; see `toolwire serve`.",
)
@click.option("--model", metavar="NAME", help="Model name sent to it.  [default: the only model it serves]")
@click.option(
    "--cases",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Your own test cases, JSON or YAML.  [default: built-in cases]",
)
@click.option("-n", "--number", type=click.IntRange(1), metavar="N", help="Use only N cases, spread over all topics.")
@click.option(
    "--choice",
    type=click.Choice(["auto", "required"]),
    default="auto",
    show_default=True,
    help="The requests' `tool_choice`.",
)
@click.option(
    "--format",
    "formats",
    multiple=True,
    metavar="NAME",
    shell_complete=formats,
    help="Try only this format, or native; may be repeated.",
)
@click.option("--wording", "wordings", multiple=True, metavar="NAME", help="Try only this wording; may be repeated.")
@click.option(
    "--template",
    "templates",
    multiple=True,
    type=click.Path(dir_okay=False, path_type=Path),
    help="Also try your own prompt template; may be repeated.",
)
@click.option(
    "--candidates",
    "most",
    type=click.IntRange(2),
    default=16,
    show_default=True,
    metavar="N",
    help="The most candidates to begin with.",
)
@click.option(
    "--concurrency", type=click.IntRange(1), default=1, show_default=True, metavar="N", help="Simultaneous requests."
)
@click.option(
    "--max-tokens", type=click.IntRange(1), default=160, show_default=True, metavar="N", help="Limit for each answer."
)
@click.option(
    "--temperature",
    type=click.FloatRange(0, 2),
    default=0.0,
    show_default=True,
    metavar="T",
    help="Sampling temperature.",
)
@click.option("--seed", type=int, default=0, show_default=True, metavar="N", help="Sampling seed.")
@click.option(
    "--timeout",
    "timeout_s",
    type=click.FloatRange(0, min_open=True),
    default=120.0,
    show_default=True,
    metavar="SECONDS",
    help="Time limit for an answer.",
)
@click.option(
    "--write", type=click.Path(dir_okay=False, path_type=Path), help="Write a configuration with the best settings."
)
@output_file_option("--json", "Write all figures and answers; - prints them.")
@output_file_option("--plot", "Write a chart (SVG).")
@click.pass_context
def command(context: click.Context, /, json_file: TextIO | None, plot_file: TextIO | None, **options: Any) -> None:
    """Find the settings with which a model calls tools best.

    Tries formats, wordings, constrained decoding and a reminder with questions whose answers are known. The result is a
    table, and with --write a configuration for `toolwire serve`. Ctrl-C keeps the results so far (exit status 130).
    """
    from .command import TuningPlan, command_line, run
    from .gateway import QuestionSettings

    ask = QuestionSettings(**{field.name: options.pop(field.name) for field in fields(QuestionSettings)})
    plan = TuningPlan(**options, ask=ask, command=command_line(context))
    with exit_on_error():
        status = run(plan, say=say, tell=partial(say, err=True), json_file=json_file, plot_file=plot_file)
    context.exit(status)
