"""How well a model calls tools through the gateway: every format, with `tool_choice` auto, required and by name, in one
turn and in two.

    python -m bench.models                        # the embedded model, the formats that `toolwire tune` tries
    python -m bench.models --formats all          # every format
    python -m bench.models --formats hermes --choices auto -n 20
    python -m bench.models --backend http://127.0.0.1:8000 --formats default    # any server, with no settings
    python -m bench.models --publish              # also writes them into bench/models.md

The cases are those of `toolwire tune`; the questions go through the gateway as it is served. What the model server
answered is kept by what it was asked (`--journal`), since at temperature 0 the same request has the same answer. So a
run that was interrupted goes on where it was, and after a change to the gateway only those requests are asked again
that changed themselves.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import shlex
import sys
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from importlib import metadata
from pathlib import Path
from typing import Any, Final

import aiohttp
from aiohttp import web

from proxy._version import __version__
from proxy.backends.presets import AUTO
from proxy.config import BackendConfig, RouteOptions, Timeouts
from proxy.dev.engine import ENGINE_PACKAGE, Engine, EngineError, find_weights
from proxy.dev.measure.report import table
from proxy.formats.families import format_for
from proxy.registry import FORMATS, Registries, registries
from proxy.support.conversion import ConfigError
from proxy.tuning.asking import Ask, Gateway, look_at
from proxy.tuning.cases import Case, load_cases, own_cases
from proxy.tuning.report import COLUMNS, row
from proxy.tuning.scoring import Answer, Figures, mark
from proxy.tuning.space import FORMATS as USUAL

ROOT: Final = Path(__file__).parents[1]
PAGE: Final = ROOT / "bench" / "models.md"
JOURNAL: Final = ROOT / ".benchmarks" / "models.jsonl"
CHOICES: Final = ("auto", "required", "named")
TURNS: Final = (1, 2)
DEFAULT: Final = "(default)"
"""The row of a gateway with no settings at all, as `toolwire serve --backend URL` starts it."""

MAX_TOKENS: Final = 200
ANSWER_S: Final = 600.0


# --- the model server's answers, kept ---------------------------------------------------------------------------------


class Journal:
    """What was asked and answered, a line each; `path` is made if it is not there. A line that was cut off is passed
    over."""

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
        """The body of the answer."""
        return self._bodies.get(key)

    def keep(self, key: str, body: str) -> None:
        """One more."""
        self._bodies[key] = body
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"key": key, "body": body}) + "\n")


class Keeper:
    """Stands in front of a model server and answers for it what is in the journal."""

    def __init__(self, url: str, key: str | None, journal: Journal, about: str) -> None:
        self.asked = self.known = 0
        self._url = url.rstrip("/").removesuffix("/v1")
        self._headers = {"Content-Type": "application/json", **({"Authorization": f"Bearer {key}"} if key else {})}
        self._journal = journal
        self._about = about
        self._client: aiohttp.ClientSession | None = None

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncIterator[str]:
        """Its base URL."""
        app = web.Application(client_max_size=64 * 1024 * 1024)
        app.router.add_post("/v1/chat/completions", self._answer)
        app.router.add_post("/v1/completions", self._answer)
        app.router.add_route("*", "/{path:.*}", self._pass)
        runner = web.AppRunner(app, access_log=None, handler_cancellation=True)
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=None)) as self._client:
            await runner.setup()
            try:
                await web.TCPSite(runner, "127.0.0.1", 0).start()
                yield f"http://127.0.0.1:{runner.addresses[0][1]}"
            finally:
                await runner.cleanup()

    async def _pass(self, request: web.Request) -> web.Response:
        """Questions of other kinds, such as what the server is: only it can say that."""
        assert self._client is not None
        url = f"{self._url}{request.path_qs}"
        async with self._client.request(
            request.method, url, data=await request.read() or None, headers=self._headers
        ) as answer:
            return web.Response(status=answer.status, body=await answer.read(), content_type=answer.content_type)

    async def _answer(self, request: web.Request) -> web.Response:
        body = await request.read()
        key = blake2b(f"{self._about}\0{request.path}\0".encode() + body, digest_size=16).hexdigest()
        found = self._journal.find(key)
        if found is not None:
            self.known += 1
            return _response(200, found)
        assert self._client is not None
        async with self._client.post(f"{self._url}{request.path}", data=body, headers=self._headers) as answer:
            status, text = answer.status, await answer.text()
        self.asked += 1
        if status == 200:  # a fault is asked for again
            self._journal.keep(key, text)
        return _response(status, text)


def _response(status: int, text: str) -> web.Response:
    """An answer as the server gave it: of a stream the journal has all lines."""
    kind = "text/event-stream" if text.startswith("data:") else "application/json"
    return web.Response(status=status, text=text, content_type=kind)


# --- what is asked ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Cell:
    """One table: how calls are asked for, and in which turn."""

    choice: str
    turns: int

    def takes(self, case: Case) -> bool:
        """Whether a case belongs here: where calls are demanded, only those that want some; by name, just one."""
        if case.turns != self.turns:
            return False
        return self.choice == "auto" or len(case.calls) == 1 or (self.choice == "required" and len(case.calls) > 1)

    @property
    def title(self) -> str:
        """For people."""
        how = {"auto": "`tool_choice: auto`", "required": "`tool_choice: required`", "named": "a tool demanded by name"}
        return f"{how[self.choice]}, {'one turn' if self.turns == 1 else 'second turn, with a result in the history'}"


@dataclass(slots=True)
class Results:
    """Figures by table and format."""

    formats: Sequence[str]
    cells: Sequence[Cell]
    figures: dict[tuple[Cell, str], Figures] = field(default_factory=dict)

    def add(self, cell: Cell, format: str, case: Case, answer: Answer) -> None:
        """One more answer."""
        marks = None if answer.fault is not None else mark(case, answer)
        self.figures.setdefault((cell, format), Figures()).add(answer, marks)

    def lines(self) -> Iterator[str]:
        """All tables."""
        for cell in self.cells:
            rows = [
                [name, *row(self.figures[cell, name])[:-1]] for name in self.formats if (cell, name) in self.figures
            ]
            if rows:
                yield ""
                yield f"### {cell.title[0].upper()}{cell.title[1:]}"
                yield ""
                yield from table(["format", *COLUMNS[:-1]], rows)  # no times: answers may be kept ones


async def measure(
    backend: BackendConfig,
    model: str,
    formats: Sequence[str],
    cells: Sequence[Cell],
    cases: Sequence[Case],
    max_tokens: int,
) -> Results:
    """Ask everything, one request at a time. Case by case, so that a server with a prefix cache reads tools once."""
    results = Results(formats, cells)
    routes = [
        RouteOptions(mode="text") if name == DEFAULT else RouteOptions(mode="prompt", format=name) for name in formats
    ]
    asks = {cell: Ask(choice=cell.choice, max_tokens=max_tokens, timeout_s=ANSWER_S) for cell in cells}
    todo = [(case, cell) for case in cases for cell in cells if cell.takes(case)]
    started = time.monotonic()
    async with contextlib.AsyncExitStack() as stack:
        gateways = {
            choice: await stack.enter_async_context(Gateway(backend, model, routes, ask, registries()))
            for choice, ask in {cell.choice: ask for cell, ask in asks.items()}.items()
        }
        for place, (case, cell) in enumerate(todo):
            for number, name in enumerate(formats):
                results.add(cell, name, case, await gateways[cell.choice].ask(number, case))
            done = (place + 1) / len(todo)
            left = (time.monotonic() - started) * (1 - done) / done
            print(
                f"\r{100 * done:3.0f} %, {case.id} {cell.choice}, about {left / 60:.0f} min left ",
                end="",
                file=sys.stderr,
            )
    print(file=sys.stderr)
    return results


# --- what is said -----------------------------------------------------------------------------------------------------


HEAD: Final = f"""<!-- Generated by bench/models.py. Do not edit. -->

# How well models call tools

`{DEFAULT}` is a gateway without settings; each format is described to the model in a prompt.

*called*, *right tool*, *fits* (the tool's schema) and *right values* are shares of the cases that want calls, *false calls* of
those that want none. *printed* counts answers in which a valid call stayed text, and should be 0. *score* is what
`toolwire tune` compares; *tokens* are those of an answer.
"""


def with_section(page: str, model: str, section: str) -> str:
    """The page with the section of a model, in place of its last one or behind those of others."""
    _, *known = page.split("\n## ")
    sections = {text.partition("\n")[0]: text.partition("\n")[2].strip() for text in known}
    sections[model] = section.partition("\n")[2].strip()
    return "\n".join([HEAD, *(f"## {name}\n\n{text}\n" for name, text in sections.items())])


def section(results: Results, model: str, cases: int, max_tokens: int, command: str) -> str:
    """What the page says of a model."""
    lines = [
        f"## {model}",
        "",
        "Made by",
        "",
        "```sh",
        command,
        "```",
        "",
        f"with toolwire {__version__}: {cases} cases, temperature 0, at most {max_tokens} tokens an answer.",
        *results.lines(),
    ]
    return "\n".join(lines) + "\n"


def chosen_formats(words: Sequence[str], model: str, plugins: Registries) -> list[str]:
    """The formats that are meant: `usual` those that `toolwire tune` tries, `all` every built-in one once, `default`
    none. The row without any settings comes first. Raises `ConfigError` for an unknown one."""
    names: list[str] = [DEFAULT]
    for word in words:
        if word == "usual":
            names += filter(None, (format_for(model), *USUAL))
        elif word == "all":
            by_form: dict[int, str] = {}
            for name in FORMATS:
                by_form.setdefault(id(plugins.formats.get(name)), name)
            names += by_form.values()
        elif word == "default":
            continue
        else:
            plugins.formats.get(word)
            names.append(word)
    return list(dict.fromkeys(names))


async def run(given: argparse.Namespace) -> int:
    """Measure and tell; the exit status."""
    cases = own_cases() if given.cases is None else load_cases(given.cases)
    cases = cases[: given.number]
    cells = [Cell(choice, turns) for choice in given.choices for turns in given.turns]
    plugins = registries()
    journal = Journal(given.journal)
    async with contextlib.AsyncExitStack() as stack:
        backend, model, about = await _server(given, plugins, stack)
        formats = chosen_formats(given.formats, model, plugins)
        keeper = Keeper(backend.url or "", backend.api_key, journal, about)
        url = await stack.enter_async_context(keeper.serving())
        kept = replace(backend, url=url, api_key=None)
        results = await measure(kept, model, formats, cells, cases, given.max_tokens)
    text = section(results, model, len(cases), given.max_tokens, given.command)
    print(text)
    print(f"{keeper.asked} answers of the model, {keeper.known} from {given.journal}", file=sys.stderr)
    if given.publish:
        before = PAGE.read_text("utf-8") if PAGE.exists() else ""
        PAGE.write_text(with_section(before, model, text), "utf-8")
    faults = {fault for figures in results.figures.values() for fault in figures.faults_said}
    for fault in sorted(faults):
        print(f"fault of the model server: {fault}", file=sys.stderr)
    return int(bool(faults))


async def _server(
    given: argparse.Namespace, plugins: Registries, stack: contextlib.AsyncExitStack
) -> tuple[BackendConfig, str, str]:
    """The model server, its model, and what tells it from others in the journal."""
    limits = Timeouts(first_byte_s=ANSWER_S, idle_s=ANSWER_S)
    if given.backend is not None:
        backend = BackendConfig(url=given.backend, api_key=given.backend_key, preset=given.preset, timeouts=limits)
        _, _, model = await look_at(backend, plugins, given.model)
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
            raise argparse.ArgumentTypeError(f"{wrong[0]} is none of {', '.join(map(str, known))}")
        return words

    return read


def main(argv: Sequence[str] | None = None) -> int:
    """The command line. Status 1 if the model server owes answers."""
    parser = argparse.ArgumentParser(prog="python -m bench.models", description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument(
        "--formats", type=lambda text: text.split(","), default=["usual"], help="names, usual, all, or default"
    )
    parser.add_argument("--choices", type=_words(CHOICES), default=list(CHOICES), help=f"of {','.join(CHOICES)}")
    parser.add_argument("--turns", type=_words(TURNS), default=list(TURNS), help="of 1,2")
    parser.add_argument("--cases", type=Path, help="a file with cases, as for `toolwire tune`")
    parser.add_argument("-n", "--number", type=int, help="only the first N cases, of all topics")
    parser.add_argument("--max-tokens", type=int, default=MAX_TOKENS)
    parser.add_argument("--backend", metavar="URL", help="a model server in place of the embedded model")
    parser.add_argument("--backend-key", metavar="KEY")
    parser.add_argument("--preset", default=AUTO, help="default: the server is asked what it is")
    parser.add_argument("--model", metavar="NAME", help="default: the only one that the server has")
    parser.add_argument("--weights", help="a GGUF file for the embedded engine")
    parser.add_argument("--sha256", help="its hash")
    parser.add_argument("--threads", type=int, help="of the embedded engine; default: half the cores")
    parser.add_argument("--journal", type=Path, default=JOURNAL, help="where answers of the model are kept")
    parser.add_argument("--publish", action="store_true", help="write bench/models.md")
    given = parser.parse_args(argv)
    given.command = shlex.join(["python", "-m", "bench.models", *_public(sys.argv[1:] if argv is None else argv)])
    try:
        return asyncio.run(run(given))
    except (ConfigError, EngineError) as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nstopped; the same command goes on from here", file=sys.stderr)
        return 130


def _public(words: Sequence[str]) -> Iterator[str]:
    """A command line without keys and places of this machine."""
    hidden: Mapping[str, str] = {"--backend-key": "KEY", "--journal": "FILE", "--weights": "FILE"}
    previous = ""
    for word in words:
        yield hidden.get(previous, word)
        previous = word


if __name__ == "__main__":
    sys.exit(main())
