"""`toolwire tune`."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TextIO

import click

from toolwire.cli.common import formats, presets, reported, say


@click.command("tune")
@click.option("--backend", metavar="URL", required=True, help="Model server, with or without /v1.")
@click.option(
    "--backend-key", metavar="KEY", envvar="MODEL_SERVER_KEY", help="Key sent to it. Better: MODEL_SERVER_KEY."
)
@click.option(
    "--preset",
    metavar="NAME",
    shell_complete=presets,
    default="auto",
    help="What the server takes; see `toolwire serve`.",
)
@click.option("--model", metavar="NAME", help="Model name sent to it.  [default: the only one that it has]")
@click.option(
    "--cases",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Cases of your own, JSON or YAML.  [default: built in]",
)
@click.option("-n", "--number", type=click.IntRange(1), metavar="N", help="Only the first N cases, of all topics.")
@click.option(
    "--choice",
    type=click.Choice(["auto", "required"]),
    default="auto",
    show_default=True,
    help="The `tool_choice`: whether the model decides, or calls are demanded.",
)
@click.option(
    "--format",
    "formats_",
    multiple=True,
    metavar="NAME",
    shell_complete=formats,
    help="Only this format, or native; may be repeated.",
)
@click.option("--wording", "wordings", multiple=True, metavar="NAME", help="Only this wording; may be repeated.")
@click.option(
    "--template",
    "templates",
    multiple=True,
    type=click.Path(dir_okay=False, path_type=Path),
    help="A template of your own as one more wording; may be repeated.",
)
@click.option(
    "--candidates",
    "most",
    type=click.IntRange(2),
    default=16,
    show_default=True,
    metavar="N",
    help="So many at most begin; of a larger space those that differ most, and later those beside the best.",
)
@click.option(
    "--concurrency", type=click.IntRange(1), default=1, show_default=True, metavar="N", help="Requests at once."
)
@click.option("--max-tokens", type=click.IntRange(1), default=160, show_default=True, metavar="N", help="Of an answer.")
@click.option(
    "--temperature", type=click.FloatRange(0, 2), default=0.0, show_default=True, metavar="T", help="Of sampling."
)
@click.option("--seed", type=int, default=0, show_default=True, metavar="N", help="Of sampling.")
@click.option(
    "--timeout",
    type=click.FloatRange(0, min_open=True),
    default=120.0,
    show_default=True,
    metavar="SECONDS",
    help="For an answer.",
)
@click.option(
    "--write", type=click.Path(dir_okay=False, path_type=Path), help="Write a configuration with what is best."
)
@click.option(
    "--json",
    "json_file",
    metavar="FILE",
    type=click.File("w", encoding="utf-8", lazy=False),
    help="Write all figures and answers; - prints them.",
)
@click.option(
    "--plot",
    "plot_file",
    metavar="FILE",
    type=click.File("w", encoding="utf-8", lazy=False),
    help="Write a picture (SVG).",
)
@click.pass_context
def command(
    context: click.Context,
    backend: str,
    backend_key: str | None,
    preset: str,
    model: str | None,
    cases: Path | None,
    number: int | None,
    choice: str,
    formats_: tuple[str, ...],
    wordings: tuple[str, ...],
    templates: tuple[Path, ...],
    most: int,
    concurrency: int,
    max_tokens: int,
    temperature: float,
    seed: int,
    timeout: float,
    write: Path | None,
    json_file: TextIO | None,
    plot_file: TextIO | None,
) -> None:
    """Find out which way of teaching tools suits a model best: format, wording, constraint, reminder.

    Questions with known answers go through the gateway to the model server, first a few for all candidates, then more
    for the better half, and so on. What comes out is a table, and with --write a configuration that `toolwire serve`
    runs. Ctrl-C ends it and keeps what was measured (exit status 130).
    """
    from toolwire.extras.tune.asking import Ask
    from toolwire.extras.tune.command import Plan, command_line, run

    ask = Ask(choice=choice, max_tokens=max_tokens, temperature=temperature, seed=seed, timeout_s=timeout)
    plan = Plan(
        url=backend,
        key=backend_key,
        preset=preset,
        model=model,
        cases=cases,
        number=number,
        formats=formats_,
        wordings=wordings,
        templates=templates,
        most=most,
        concurrency=concurrency,
        ask=ask,
        write=write,
        command=command_line(context),
    )
    with reported():
        status = run(plan, say=say, tell=partial(say, err=True), json_file=json_file, plot_file=plot_file)
    context.exit(status)
