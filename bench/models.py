"""Measures how well a model calls tools through the gateway, in every format, with `tool_choice` auto, required and by
name, in one turn and in two.

    python -m bench.models                        # the embedded model, the formats that `toolwire tune` tries
    python -m bench.models --formats all          # every format
    python -m bench.models --formats hermes --choices auto -n 20
    python -m bench.models --backend http://127.0.0.1:8000 --formats default    # any server, with no settings
    python -m bench.models --publish              # also writes the table into bench/models.md

The cases are those of `toolwire tune`; requests go through the real gateway. A journal (`--journal`) stores the model
server's answer to each request, because at temperature 0 the same request has the same answer. So an interrupted run
continues where it was, and after a change to the gateway only changed requests reach the model server.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import shlex
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from importlib import metadata
from pathlib import Path
from typing import Any, Final

from aiohttp import web

from bench.relay import Recorded, Relay
from toolwire._version import __version__
from toolwire.config import BackendConfig, RouteOptions, Timeouts
from toolwire.extras.bench.report import table
from toolwire.extras.demo.engine import ENGINE_PACKAGE, Engine, EngineError, find_weights
from toolwire.extras.tune.cases import Case, load_cases, own_cases
from toolwire.extras.tune.gateway import QuestionSettings, identify_server, tuning_gateway
from toolwire.extras.tune.scoring import ClientAnswer, Figures, score_answer
from toolwire.extras.tune.space import FORMATS as USUAL
from toolwire.formats.base import builtin_formats
from toolwire.formats.model_families import format_for
from toolwire.registry import Registries, registries
from toolwire.support.conversion import ConfigError
from toolwire.upstream.servers.presets import AUTO

ROOT: Final = Path(__file__).parents[1]
PAGE: Final = ROOT / "bench" / "models.md"
JOURNAL: Final = ROOT / ".benchmarks" / "models.jsonl"
CHOICES: Final = ("auto", "required", "named")
TURNS: Final = (1, 2)
DEFAULT: Final = "(default)"
"""The row of a gateway without settings, as `toolwire serve --backend URL` starts it."""

MAX_TOKENS: Final = 200
ANSWER_S: Final = 600.0


# --- the journal ------------------------------------------------------------------------------------------------------


class Journal:
    """Stores answers by request, one line each, in the file `path`, which is created if needed. Incomplete lines are
    ignored."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._bodies: dict[str, str] = {}
        self._path = path
        if path.exists():
            for line in path.read_text("utf-8").splitlines():
                with contextlib.suppress(ValueError, KeyError):
                    entry = json.loads(line)
                    self._bodies[entry["key"]] = entry["body"]

    def find(self, key: str) -> str | None:
        """Returns the body of a stored answer, or None."""
        return self._bodies.get(key)

    def keep(self, key: str, body: str) -> None:
        """Stores an answer."""
        self._bodies[key] = body
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"key": key, "body": body}) + "\n")


class JournalingRelay(Relay):
    """A relay in front of a model server that answers from the journal if it has the answer. `about` identifies server
    and model in the journal."""

    def __init__(self, url: str, key: str | None, journal: Journal, about: str) -> None:
        super().__init__(
            url.rstrip("/").removesuffix("/v1"), None if key is None else {"Authorization": f"Bearer {key}"}
        )
        self.asked = self.known = 0
        self._journal = journal
        self._about = about

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """See `Relay`. Other requests than for answers, such as for the type of the server, are only forwarded."""
        body = await request.read()
        if request.path not in ("/v1/chat/completions", "/v1/completions"):
            return await self.forward(request, body, Recorded())
        key = blake2b(f"{self._about}\0{request.path}\0".encode() + body, digest_size=16).hexdigest()
        known = self._journal.find(key)
        if known is not None:
            self.known += 1
            return _response(known)
        recorded = Recorded()
        response = await self.forward(request, body, recorded)
        self.asked += 1
        if recorded.status == 200 and recorded.ended:  # errors are not stored, so that they are retried
            self._journal.keep(key, recorded.data.decode())
        return response


def _response(text: str) -> web.Response:
    """Returns an answer from the journal, which has all lines of a stream."""
    kind = "text/event-stream" if text.startswith("data:") else "application/json"
    return web.Response(text=text, content_type=kind)


# --- requests --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Cell:
    """One column: a `tool_choice`, and a number of turns."""

    choice: str
    turns: int

    def takes(self, case: Case) -> bool:
        """Returns True if a case fits: required calls need a case with calls, a named call one with a single call."""
        if case.turns != self.turns:
            return False
        return self.choice == "auto" or len(case.calls) == 1 or (self.choice == "required" and len(case.calls) > 1)

    @property
    def title(self) -> str:
        """The title of the column."""
        return f"{self.choice}, {'one turn' if self.turns == 1 else 'after a result'}"


@dataclass(slots=True)
class Results:
    """The figures by column and format."""

    formats: Sequence[str]
    cells: Sequence[Cell]
    figures: dict[tuple[Cell, str], Figures] = field(default_factory=dict)

    def add(self, cell: Cell, format: str, case: Case, answer: ClientAnswer) -> None:
        """Adds an answer."""
        marks = None if answer.fault is not None else score_answer(case, answer)
        self.figures.setdefault((cell, format), Figures()).add(answer, marks)

    def lines(self) -> Iterator[str]:
        """Yields the lines of the table: a row for each format."""
        cells = [cell for cell in self.cells if any((cell, name) in self.figures for name in self.formats)]
        rows = []
        for name in self.formats:
            figures = [self.figures[cell, name] for cell in cells]
            rows.append([name, *map(_shares, figures), str(sum(each.printed for each in figures))])
        asked = [self.figures[cell, self.formats[0]].asked for cell in cells]
        head = [f"{cell.title} ({count})" for cell, count in zip(cells, asked, strict=True)]
        yield from table(["format", *head, "printed"], rows)


def _shares(figures: Figures) -> str:
    """Returns a cell: the percentages of cases with a call, with the right values, and with a call that none wanted,
    then the number of cases that failed."""
    parts = [(figures.called, figures.wanted), (figures.right, figures.wanted), (figures.false_calls, figures.unwanted)]
    shares = ", ".join(f"{100 * part / whole:.0f}" for part, whole in parts if whole)
    return shares + (f" +{figures.faults}!" if figures.faults else "")


async def measure(
    backend: BackendConfig,
    model: str,
    formats: Sequence[str],
    cells: Sequence[Cell],
    cases: Sequence[Case],
    max_tokens: int,
) -> Results:
    """Sends all requests one at a time and returns the results. It goes case by case, so that a server with a prefix
    cache reads the tools once."""
    results = Results(formats, cells)
    routes = [
        RouteOptions(mode="text") if name == DEFAULT else RouteOptions(mode="prompt", format=name) for name in formats
    ]
    asks = {cell: QuestionSettings(choice=cell.choice, max_tokens=max_tokens, timeout_s=ANSWER_S) for cell in cells}
    todo = [(case, cell) for case in cases for cell in cells if cell.takes(case)]
    started = time.monotonic()
    async with contextlib.AsyncExitStack() as stack:
        gateways = {
            choice: await stack.enter_async_context(tuning_gateway(backend, model, routes, ask, registries()))
            for choice, ask in {cell.choice: ask for cell, ask in asks.items()}.items()
        }
        for place, (case, cell) in enumerate(todo):
            for number, name in enumerate(formats):
                results.add(cell, name, case, await gateways[cell.choice](number, case))
            done = (place + 1) / len(todo)
            left = (time.monotonic() - started) * (1 - done) / done
            print(
                f"\r{100 * done:3.0f} %, {case.id} {cell.choice}, about {left / 60:.0f} min left ",
                end="",
                file=sys.stderr,
            )
    print(file=sys.stderr)
    return results


# --- the page ---------------------------------------------------------------------------------------------------------


HEAD: Final = f"""<!-- Generated by bench/models.py. Do not edit. -->

# How well models call tools

A row is a format, described to the model in a prompt; `{DEFAULT}` is a gateway without settings. A column is a
`tool_choice` (*named*: a tool by name) and the number of cases, in the first turn or with a result in the history.

The figures of a cell are percentages: of the cases that want a call, those that got one and those with the right values;
under `auto` also, of the cases that want none, those with a false call. *printed* counts answers in which a valid call
stayed text, and should be 0.
"""


def with_section(page: str, model: str, section: str) -> str:
    """Returns the page with the section of a model, which replaces its last one or is added at the end."""
    _, *known = page.split("\n## ")
    sections = {text.partition("\n")[0]: text.partition("\n")[2].strip() for text in known}
    sections[model] = section.partition("\n")[2].strip()
    return "\n".join([HEAD, *(f"## {name}\n\n{text}\n" for name, text in sections.items())])


def section(results: Results, model: str, cases: int, max_tokens: int, command: str) -> str:
    """Returns the section of a model."""
    lines = [
        f"## {model}",
        "",
        f"toolwire {__version__}, {cases} cases, temperature 0, at most {max_tokens} tokens an answer:",
        "",
        "```sh",
        command,
        "```",
        "",
        *results.lines(),
    ]
    return "\n".join(lines) + "\n"


def chosen_formats(words: Sequence[str], model: str, plugins: Registries) -> list[str]:
    """Returns the names of the formats: `usual` means those that `toolwire tune` tries, `all` every built-in one once,
    `default` none. The row without settings comes first. Raises `ConfigError` for an unknown format."""
    names: list[str] = [DEFAULT]
    for word in words:
        if word == "usual":
            names += filter(None, (format_for(model), *USUAL))
        elif word == "all":
            by_form: dict[int, str] = {}
            for name in builtin_formats():
                by_form.setdefault(id(plugins.formats.get(name)), name)
            names += by_form.values()
        elif word == "default":
            continue
        else:
            plugins.formats.get(word)
            names.append(word)
    return list(dict.fromkeys(names))


async def run(given: argparse.Namespace) -> int:
    """Measures, prints the results, and returns the exit status."""
    cases = own_cases() if given.cases is None else load_cases(given.cases)
    cases = cases[: given.number]
    cells = [Cell(choice, turns) for choice in given.choices for turns in given.turns]
    plugins = registries()
    journal = Journal(given.journal)
    async with contextlib.AsyncExitStack() as stack:
        backend, model, about = await _server(given, plugins, stack)
        formats = chosen_formats(given.formats, model, plugins)
        relay = JournalingRelay(backend.url or "", backend.api_key, journal, about)
        await stack.enter_async_context(relay.serving())
        journaled = replace(backend, url=relay.url, api_key=None)
        results = await measure(journaled, model, formats, cells, cases, given.max_tokens)
    text = section(results, model, len(cases), given.max_tokens, given.command)
    print(text)
    print(f"{relay.asked} answers of the model, {relay.known} from {given.journal}", file=sys.stderr)
    if given.publish:
        before = PAGE.read_text("utf-8") if PAGE.exists() else ""
        PAGE.write_text(with_section(before, model, text), "utf-8")
    faults = {fault for figures in results.figures.values() for fault in figures.fault_texts}
    for fault in sorted(faults):
        print(f"fault of the model server: {fault}", file=sys.stderr)
    return int(bool(faults))


async def _server(
    given: argparse.Namespace, plugins: Registries, stack: contextlib.AsyncExitStack
) -> tuple[BackendConfig, str, str]:
    """Returns the model server, its model, and the text that identifies both in the journal."""
    limits = Timeouts(first_byte_s=ANSWER_S, idle_s=ANSWER_S)
    if given.backend is not None:
        backend = BackendConfig(url=given.backend, api_key=given.backend_key, preset=given.preset, timeouts=limits)
        _, _, model = await identify_server(backend, plugins, given.model)
        model = Path(model).stem if model.endswith(".gguf") else model  # llama.cpp names the file
        return backend, model, f"{given.backend} {model}"
    weights = find_weights(given.weights, given.sha256)
    engine = await stack.enter_async_context(Engine(weights, threads=given.threads))
    backend = BackendConfig(url=engine.url, api_key=engine.key, preset="llamacpp", timeouts=limits)
    return backend, weights.model, f"{weights.path.name} {metadata.version(ENGINE_PACKAGE)}"


def _words(known: Sequence[Any]) -> Any:
    def read(text: str) -> list[Any]:
        words = [type(known[0])(word) for word in text.split(",")]
        if wrong := [word for word in words if word not in known]:
            raise argparse.ArgumentTypeError(f"{wrong[0]} is not one of {', '.join(map(str, known))}")
        return words

    return read


def main(argv: Sequence[str] | None = None) -> int:
    """The command line. Returns 1 if the model server failed for some requests."""
    parser = argparse.ArgumentParser(prog="python -m bench.models", description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument(
        "--formats", type=lambda text: text.split(","), default=["usual"], help="names, usual, all, or default"
    )
    parser.add_argument("--choices", type=_words(CHOICES), default=list(CHOICES), help=f"of {','.join(CHOICES)}")
    parser.add_argument("--turns", type=_words(TURNS), default=list(TURNS), help="of 1,2")
    parser.add_argument("--cases", type=Path, help="a file with cases, as for `toolwire tune`")
    parser.add_argument("-n", "--number", type=int, help="use only N cases, spread over all topics")
    parser.add_argument("--max-tokens", type=int, default=MAX_TOKENS)
    parser.add_argument("--backend", metavar="URL", help="a model server in place of the embedded model")
    parser.add_argument("--backend-key", metavar="KEY")
    parser.add_argument("--preset", default=AUTO, help="default: detected")
    parser.add_argument("--model", metavar="NAME", help="default: the only model of the server")
    parser.add_argument("--weights", help="a GGUF file for the embedded engine")
    parser.add_argument("--sha256", help="its hash")
    parser.add_argument("--threads", type=int, help="of the embedded engine; default: half the cores")
    parser.add_argument("--journal", type=Path, default=JOURNAL, help="file that stores the answers of the model")
    parser.add_argument("--publish", action="store_true", help="write bench/models.md")
    given = parser.parse_args(argv)
    given.command = shlex.join(["python", "-m", "bench.models", *_public(sys.argv[1:] if argv is None else argv)])
    try:
        return asyncio.run(run(given))
    except (ConfigError, EngineError) as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nstopped; the same command continues here", file=sys.stderr)
        return 130


def _public(words: Sequence[str]) -> Iterator[str]:
    """Yields the words of a command line without keys and paths of this machine."""
    hidden: Mapping[str, str] = {"--backend-key": "KEY", "--journal": "FILE", "--weights": "FILE"}
    previous = ""
    for word in words:
        yield hidden.get(previous, word)
        previous = word


if __name__ == "__main__":
    sys.exit(main())
