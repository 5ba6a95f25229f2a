"""The command line. No logic: each command turns its flags into one call.

Exit status (R17.1): 0, 1 failure (a bad configuration is one), 2 wrong use of the command line.
"""

from __future__ import annotations

import json
import platform
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, TextIO

import click

from .support.conversion import ConfigError
from .tuning.options import tune

if TYPE_CHECKING:
    from .config import ToolsConfig

MODES = ("prompt", "native", "hybrid", "auto")
FORMATS = "sentinel, auto, hermes, mistral and others (docs/reference/formats.md), or a plug-in's name"


@contextmanager
def _reported() -> Iterator[None]:
    """A mistake in a configuration or a recording ends the program with status 1 and no traceback."""
    from .capture.recording import RecordingError

    try:
        yield
    except (ConfigError, RecordingError) as error:
        raise click.ClickException(str(error)) from error


def _version(context: click.Context, parameter: click.Parameter, wanted: bool) -> None:
    if not wanted:
        return
    import aiohttp

    from ._version import __version__
    from .fastparse import IMPLEMENTATION

    click.echo(f"toolwire {__version__}")
    click.echo(f"scanner: {IMPLEMENTATION}")
    click.echo(f"Python {platform.python_version()}, aiohttp {aiohttp.__version__}")
    context.exit()


def _chunks(context: click.Context, parameter: click.Parameter, value: str | None) -> str | int | None:
    """A `proxy.capture.recording.Chunks`."""
    if value is None or value in ("recorded", "tokens", "bytes", "whole"):
        return value
    if value.isdecimal() and int(value) > 0:
        return int(value)
    raise click.BadParameter(f"{value!r} is not recorded, tokens, bytes, whole or a number above 0")


def _case(context: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> tuple[str, ...]:
    from .dev.measure.command import unknown_case

    return _known(values, unknown_case(values) if values else None)


def _contestant(context: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> tuple[str, ...]:
    from .dev.measure.command import unknown_contestant

    return _known(values, unknown_contestant(values) if values else None)


def _known(values: tuple[str, ...], mistake: str | None) -> tuple[str, ...]:
    if mistake is not None:
        raise click.BadParameter(mistake)
    return values


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.option(
    "--version", is_flag=True, expose_value=False, is_eager=True, callback=_version, help="Show the versions and exit."
)
def main() -> None:
    """A gateway that gives exact OpenAI tool calls from models that only write text."""


@main.command()
@click.option("--config", "file", type=click.Path(dir_okay=False), envvar="TOOLWIRE_CONFIG", help="YAML file.")
@click.option("--backend", metavar="URL", help="Model server, with or without /v1. Enough to start without a file.")
@click.option("--backend-key", metavar="KEY", help="Key sent to the model server.")
@click.option(
    "--preset",
    metavar="NAME",
    help="What the server takes: vllm, sglang, llamacpp, ollama, lmstudio, openai, generic.  [default: the server is asked]",
)
@click.option("--model", metavar="NAME", help="Model name sent to the server, whatever the client asks for.")
@click.option("--mode", type=click.Choice(MODES), help="Who does tools: the gateway or the server.")
@click.option("--format", "format_", metavar="NAME", help=f"How calls are written: {FORMATS}.")
@click.option("--host", metavar="ADDRESS", help="Address to listen on.  [default: 127.0.0.1]")
@click.option("--port", type=click.IntRange(0, 65535), help="Port; 0 takes a free one.  [default: 8080]")
@click.option("--workers", type=click.IntRange(1), metavar="N", help="Processes that share the port.  [default: 1]")
@click.option("--api-key", metavar="KEY", help="Key that clients must send. Better: TOOLWIRE_AUTH__KEYS.")
@click.option("--insecure-public", is_flag=True, default=None, help="Allow a public address although no key is set.")
@click.option("--inspect", is_flag=True, default=None, help="Show the exchanges in a page, /inspect.")
@click.option("--log-level", type=click.Choice(["debug", "info", "warning", "error"]), help="[default: info]")
@click.option("--log-format", type=click.Choice(["auto", "text", "json"]), help="[default: auto]")
def serve(
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

    Flags win over TOOLWIRE_... variables, these over the file. With a file, --backend, --backend-key and --preset are
    for its only backend, or the one called `default`; --format and --mode set `defaults`, which a route may override.
    """
    from .configuration.settings import has_backends, load
    from .server.serving import serve as run

    if not (backend or file or has_backends()):
        raise click.UsageError("Say where the model is: --backend URL, or --config FILE (`toolwire init` writes one).")
    if model and file:
        raise click.UsageError("--model is for a start without a file; use `upstream_model` of a route in the file.")
    overrides = {
        "backends.*.url": backend,
        "backends.*.api_key": backend_key,
        "backends.*.preset": preset,
        "routes": [{"upstream_model": model}] if model else None,
        "defaults.mode": mode,
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
    moved: list[str] = []
    with _reported():
        config = read(warn=moved.append)
    sys.exit(run(config, load=read, warnings=moved))


@main.command()
@click.argument("file", type=click.Path(dir_okay=False), required=False)
@click.option("--schema", is_flag=True, help="Print the JSON Schema of the file and exit.")
@click.option(
    "--probe",
    is_flag=True,
    help="Also ask each route's servers for a tool call, with one small request each, and show who has to do tools.",
)
def check(file: str | None, schema: bool, probe: bool) -> None:
    """Check a configuration FILE and show its routes and chains, and its server-side tools, whose modules are run. All
    mistakes are named at once: keys, types, values, variables, files, and what plug-ins say, which are imported and
    made. Nothing is contacted, but with --probe. The exit status is 1 if there is a mistake, or a module of the tools
    that cannot be used."""
    if schema:
        click.echo(resources.files("proxy.configuration").joinpath("config.schema.json").read_text("utf-8"), nl=False)
        return
    if file is None:
        raise click.UsageError("Missing argument 'FILE'.")
    from .configuration.settings import examine
    from .registry import registries
    from .server.circles import leading_back
    from .startup.description import describe
    from .startup.names import name_mistakes

    with _reported():
        config, mistakes = examine(file)
        mistakes.add(name_mistakes(config, registries(), mistakes, make_middlewares=True))
        mistakes.add(leading_back(config, config.server.port))
    if mistakes.lines:
        click.ClickException("\n".join(mistakes.lines)).show()
    else:
        click.echo(f"{file}: valid")
        click.echo(describe(config, registries()))
        if probe:
            from .startup.probed import probed

            for line in probed(config, registries()):
                click.echo(line)
    for line in mistakes.moved:
        click.echo(f"Warning: {line}", err=True)
    if config.tools.folder is not None and not mistakes.below("tools"):
        _list_tools(config.tools, as_json=False)
    sys.exit(1 if mistakes.lines else 0)


@main.command()
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path), default="toolwire.yaml")
def init(file: Path) -> None:
    """Write a commented example configuration to FILE (default: toolwire.yaml). An existing file is left alone."""
    try:
        with file.open("x", encoding="utf-8") as target:
            target.write(resources.files("proxy.configuration").joinpath("example.yaml").read_text("utf-8"))
    except OSError as error:
        raise click.ClickException(f"cannot write {file}: {error.strerror or error}") from error
    click.echo(f"wrote {file}; start with: toolwire serve --config {file}")


@main.command()
@click.argument("file", type=click.File("rb"))
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="Port on 127.0.0.1.  [default: a free one]")
def inspect(file: BinaryIO, port: int) -> None:
    """Show a capture in the inspector's page: what the model was sent, what it wrote and what the client got.

    FILE is a capture of a gateway: the page's own download, or `GET /admin/captures/ID`; - reads standard input.
    Nothing is sent anywhere. Ctrl-C ends it. A running gateway shows its exchanges with `toolwire serve --inspect`.
    """
    from .capture.files import is_capture, read_capture
    from .inspector.offline import offline, show

    content = file.read()
    with _reported():
        if not is_capture(content):
            raise click.ClickException(f"{file.name} is no capture of a toolwire gateway")
        app = offline(read_capture(content), content)
    try:
        show(app, host="127.0.0.1", port=port, announce=click.echo)
    except OSError as error:
        raise click.ClickException(f"cannot listen on port {port}: {error.strerror or error}") from error


@main.command()
@click.argument("file", type=click.File("rb"))
@click.option(
    "--format",
    "format_",
    metavar="NAME",
    help=f"How calls are written: {FORMATS}.  [default: sentinel; of a capture, its own]",
)
@click.option(
    "--chunks",
    callback=_chunks,
    metavar="recorded|tokens|bytes|whole|N",
    default="recorded",
    show_default=True,
    help="How it arrives: frame by frame (text: line by line), in pieces like tokens, byte by byte, at once, N bytes each.",
)
@click.option(
    "--json", "as_json", is_flag=True, help="Print lines of JSON: one for each step, then one with the calls."
)
def replay(file: BinaryIO, format_: str | None, chunks: Any, as_json: bool) -> None:
    """Show step by step what becomes of a recorded answer: bytes in, the scanner's state, what it holds back, events
    out.

    FILE is a stream of server-sent events with Chat chunks, the plain text of a model, or a capture of a gateway; -
    reads standard input. At the end stand the calls, and whether they come out the same however the recording is cut;
    of a capture also, whether the client would get the same answer again. If not, which is a bug, the exit status is 1.
    """
    from .capture.files import is_capture, read_capture
    from .dev.replay import Summary, show, show_json
    from .dev.replay_capture import Outcome, show_capture

    recording, found, outcome = file.read(), Summary(), Outcome()
    with _reported():
        if is_capture(recording):
            captured = read_capture(recording)
            lines = show_capture(captured, format=format_, chunks=chunks, outcome=outcome, as_json=as_json)
        else:
            lines = (show_json if as_json else show)(
                recording, format=format_ or "sentinel", chunks=chunks, found=found
            )
        for line in lines:
            click.echo(line)
    if found.different or found.broken or outcome.failed:
        sys.exit(1)


@main.group()
def keys() -> None:
    """Make keys for clients."""


@keys.command("new")
def new_() -> None:
    """Print a new key for a client, and its hash for `auth.keys` or the key file."""
    from .ingress.auth import hash_key, new_key

    key = new_key()
    click.echo(key)
    click.echo(hash_key(key))


@keys.command("hash")
def hash_() -> None:
    """Print the hash of a key, for `auth.keys` or the key file. The key is read from standard input, not shown."""
    from .ingress.auth import hash_key

    with click.open_file("-") as piped:
        key = click.prompt("Key", hide_input=True, err=True) if piped.isatty() else piped.readline().strip()
    if not key:
        raise click.ClickException("there is no key on standard input")
    click.echo(hash_key(key))


@main.group()
def bench() -> None:
    """Measure on this machine."""


@bench.command()
@click.option(
    "--format",
    "formats",
    multiple=True,
    metavar="NAME|all",
    default=("sentinel",),
    help="How calls are written; may be repeated.  [default: sentinel]",
)
@click.option(
    "--input",
    "file",
    metavar="FILE",
    type=click.File("rb"),
    help="A recording in place of the built-in texts: events with Chat chunks, or plain text; - is standard input.",
)
@click.option(
    "--chunks",
    callback=_chunks,
    metavar="recorded|tokens|bytes|whole|N",
    help="What a delta is: as recorded, 3 to 6 characters, one byte, all, or N bytes.  [default: tokens; with --input recorded]",
)
@click.option(
    "--case",
    "cases",
    multiple=True,
    callback=_case,
    metavar="NAME",
    help="Only this of the built-in texts: prose, calls, mixed, 10 KB, 100 KB, unfinished; may be repeated.",
)
@click.option(
    "--implementation",
    "contestants",
    multiple=True,
    callback=_contestant,
    metavar="NAME",
    help="Only this parser: compiled, python, buffering, rescanning, jiter, partial-json-parser, json-repair, sglang; may be"
    " repeated.  [default: all that are installed]",
)
@click.option(
    "--seed", type=int, default=20, show_default=True, metavar="N", help="Of the built-in texts and the chunks."
)
@click.option(
    "--repeat", type=click.IntRange(1), default=5, show_default=True, metavar="N", help="Runs of each parser."
)
@click.option(
    "--budget",
    type=click.FloatRange(0, min_open=True),
    default=2.0,
    show_default=True,
    metavar="SECONDS",
    help="Time that one parser may take for one text; beyond, it is reported as too slow.",
)
@click.option(
    "--growth",
    type=click.IntRange(0),
    default=100_000,
    show_default=True,
    metavar="N",
    help="Compare 1,000 deltas with 10,000 and so on up to N; 0: do not.",
)
@click.option(
    "--json",
    "json_file",
    metavar="FILE",
    type=click.File("w", encoding="utf-8", lazy=False),
    help="Write all figures; - prints them.",
)
@click.option(
    "--plot",
    "plot_file",
    metavar="FILE",
    type=click.File("w", encoding="utf-8", lazy=False),
    help="Write a picture (SVG).",
)
def parse(
    formats: tuple[str, ...],
    file: BinaryIO | None,
    chunks: Any,
    cases: tuple[str, ...],
    contestants: tuple[str, ...],
    seed: int,
    repeat: int,
    budget: float,
    growth: int,
    json_file: TextIO | None,
    plot_file: TextIO | None,
) -> None:
    """Measure how long it takes to find calls, delta by delta: the scanner, its Python twin, naive parsers, other
    libraries.

    Each is measured only after it has found the right calls. Prints tables; the exit status is 1 if nobody could be
    measured or one of the scanner's twins found something else.
    """
    from .dev.measure.command import formats_of, run
    from .dev.measure.parse import Plan

    if chunks == "recorded" and file is None:
        raise click.UsageError("--chunks recorded is for a recording: give --input FILE.")
    if cases and file is not None:
        raise click.UsageError("--case is for the built-in texts, --input for a recording: give one of them.")
    with _reported():
        plan = Plan(
            formats=formats_of(formats),
            recording=None if file is None else file.read(),
            chunks=chunks,
            contestants=contestants,
            cases=cases,
            seed=seed,
            repeat=repeat,
            budget_s=budget,
            growth=growth,
        )
        status = run(plan, say=click.echo, tell=partial(click.echo, err=True), json_file=json_file, plot_file=plot_file)
    sys.exit(status)


@bench.command()
@click.option("--config", "file", metavar="FILE", type=click.Path(dir_okay=False), help="Configuration to measure.")
@click.option("--format", "format_", metavar="NAME", help=f"How calls are written: {FORMATS}.")
@click.option("--requests", type=click.IntRange(1), default=400, show_default=True, metavar="N", help="Of each kind.")
@click.option(
    "--json",
    "json_file",
    metavar="FILE",
    type=click.File("w", encoding="utf-8", lazy=False),
    help="Write all figures; - prints them.",
)
def gateway(file: str | None, format_: str | None, requests: int, json_file: TextIO | None) -> None:
    """Measure what the gateway adds to a request and to a streamed frame.

    The gateway as it is configured stands in front of a model server that answers by script; requests go directly and
    through it in turns. A configuration's first route is measured; no backend of it is contacted.
    """
    from .configuration.settings import load
    from .dev.measure.command import run_gateway

    overrides = {"defaults.format": format_, "backends.*.url": None if file else "http://127.0.0.1"}
    with _reported():
        run_gateway(load(file, overrides=overrides), requests, say=click.echo, json_file=json_file)


def _list_tools(config: ToolsConfig, *, as_json: bool) -> None:
    from .servertools.listing import failed, lines, look

    shown = look(config)
    for line in [json.dumps(shown["modules"], indent=2)] if as_json else lines(shown):
        click.echo(line)
    if failed(shown):
        sys.exit(1)


@main.group()
def tools() -> None:
    """Server-side tools."""


@tools.command("list")
@click.option("--folder", type=click.Path(file_okay=False, exists=True), help="Folder with the modules.")
@click.option(
    "--config", "file", type=click.Path(dir_okay=False), envvar="TOOLWIRE_CONFIG", help="YAML file that names one."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def list_tools(folder: str | None, file: str | None, as_json: bool) -> None:
    """Load the modules of a folder and show their states and tools. Their code is run.

    The exit status is 1 if a module cannot be used.
    """
    from .config import ToolsConfig
    from .configuration.settings import load

    if folder is not None:
        config = ToolsConfig(folder=folder)
    elif file is not None:
        with _reported():
            config = load(file).tools
    if (folder or file) is None or config.folder is None:
        raise click.UsageError("Say where the modules are: --folder FOLDER, or --config FILE with `tools.folder`.")
    _list_tools(config, as_json=as_json)


@main.command()
@click.option("--once", is_flag=True, help="End after the call; status 0 only if it was valid.")
@click.option("--host", metavar="ADDRESS", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option(
    "--port", type=click.IntRange(0, 65535), default=8080, show_default=True, help="Port; 0 takes a free one."
)
def demo(once: bool, host: str, port: int) -> None:
    """Start a small real model with the gateway in front of it and show one tool call from both sides."""
    from .dev.demo import run

    sys.exit(run(host=host, port=port, once=once))


main.add_command(tune)
