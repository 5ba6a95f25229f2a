"""Every shell command in the pages can be given: what it names is there, and none is shown that nobody knows."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import tomllib
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import orjson
import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request

from tests.cases import every
from tests.docs.data import request_faults
from tests.docs.pages import PAGES, ROOT, blocks, pages_with, read
from tests.docs.shell import Command, parsed, simple_commands
from tests.optional import BASH, program
from toolwire.app import create_app
from toolwire.configuration.settings import load
from toolwire.support.conversion import ConfigError

GATEWAY: Final = "127.0.0.1:8665"
ELSEWHERE: Final = frozenset(
    (
        "claude",
        "cline",
        "codex",
        "copilot",
        "docker",
        "export",
        "gh",
        "goose",
        "helm",
        "install",
        "kubectl",
        "llama-server",
        "n8n",
        "ollama",
        "open-webui",
        "openapi-python-client",
        "opencode",
        "pi",
        "pkill",
        "printf",
        "pytest",
        "qwen",
        "systemctl",
        "systemd-sysusers",
        "vllm",
    )
)
"""Commands that are not ours: only those words are looked at that name a file of the repository. A test says when
nobody shows one any longer."""
CHECKED: Final = frozenset(("toolwire", "make", "pip", "python", "python3", "curl"))
OWN_FILE: Final = re.compile(r"(?:bench|deploy|docs|examples|middlewares|proxy|tests)/[\w./-]+")
VARIABLE: Final = re.compile(r"\bTOOLWIRE_[A-Z][A-Z0-9_]*")
SOURCES: Final = (".py", ".yaml", ".toml", "Makefile", ".sh", ".service", "Containerfile")


def _name(command: Command) -> str:
    return command.words[0].rpartition("/")[2]


def _shown() -> Iterator[tuple[Path, Command]]:
    for page in PAGES:
        for block in blocks(page):
            if block.info[:1] == ["sh"]:
                yield from ((page, command) for command in simple_commands(block.text))


# --- our own commands -----------------------------------------------------------------------------------------------


def _toolwire(words: Sequence[str]) -> str | None:
    return parsed(words) if words else None


def _make(words: Sequence[str]) -> str | None:
    phony = re.search(r"^\.PHONY: (.+)$", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)
    assert phony is not None
    unknown = {word for word in words if "=" not in word} - set(phony[1].split())
    return f"no target {sorted(unknown)}" if unknown else None


def _pip(words: Sequence[str]) -> str | None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    for word in words[1:]:
        if (named := re.fullmatch(r"(toolwire|\.|\./)\[([\w,-]+)\](?:==.+)?", word)) and (
            unknown := set(named[2].split(",")) - set(project["optional-dependencies"])
        ):
            return f"no extra {sorted(unknown)}"
    return None if words[0] in ("install", "download", "wheel") else f"no command {words[0]}"


def _python(words: Sequence[str]) -> str | None:
    if words[:1] != ["-m"]:
        return None if (ROOT / words[0]).is_file() else f"no file {words[0]}"
    if words[1] == "pip":
        return _pip(words[2:])
    return None if importlib.util.find_spec(words[1]) else f"no module {words[1]}"


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> web.Application:
    """A gateway in which every path is served that can be switched on."""
    folder = tmp_path_factory.mktemp("tools")
    config = {"backends": {"m": {"kind": "mock"}}, "capture": {"keep": 1}, "inspect": True}
    return create_app({**config, "tools": {"folder": str(folder)}, "store": {"kind": "memory"}})


async def _curl(words: Sequence[str], app: web.Application) -> str | None:
    (url,) = (urlsplit(word) for word in words if word.startswith("http"))
    options = dict(pairwise(words))
    data = options.get("-d", options.get("--data"))
    method = options.get("-X", "GET" if data is None else "POST")
    if data is not None and not data.startswith("@"):
        faults = request_faults(orjson.loads(data), url.path)
        if faults:
            return faults
    if url.netloc == GATEWAY or data is not None:
        match = await app.router.resolve(make_mocked_request(method, url.path))
        if match.http_exception is not None:
            return f"{method} {url.path}: {match.http_exception.reason}"
    return None


CHECKS: Final[dict[str, Callable[[Sequence[str]], str | None]]] = {
    "toolwire": _toolwire,
    "make": _make,
    "pip": _pip,
    "python": _python,
    "python3": _python,
}


@pytest.mark.parametrize("page", pages_with("sh"), ids=str)
async def test_commands_can_be_given(
    page: Path, app: web.Application, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    wrong = []
    for shown, command in _shown():
        if shown != page:
            continue
        name, words = _name(command), command.words[1:]
        fault = None
        if name == "curl":
            fault = await _curl(words, app)
        elif name in CHECKS:
            fault = CHECKS[name](words)
        elif name not in ELSEWHERE:
            fault = "nobody knows this command"
        files = [found[0] for word in words if (found := OWN_FILE.match(word))]
        missing = [file for file in files if not (ROOT / file).exists()]
        if fault or missing:
            wrong.append((" ".join(command.words), fault or f"not there: {missing}"))
    assert wrong == []


def test_no_command_is_excepted_that_nobody_shows() -> None:
    shown = {_name(command) for _, command in _shown()}
    assert shown >= ELSEWHERE
    assert shown <= ELSEWHERE | CHECKED


@every("page", pages_with("sh"))
def test_the_shell_can_read_them(page: Path) -> None:
    bash = program(BASH)
    for block in blocks(page):
        if block.info[:1] == ["sh"]:
            done = subprocess.run([bash, "-n"], input=block.text, capture_output=True, text=True)
            assert (done.returncode, done.stderr) == (0, ""), block.text


# --- variables ------------------------------------------------------------------------------------------------------


def _known(name: str) -> bool:
    """Whether it is a key of the configuration, or named by a source that is no document."""
    if "__" in name:
        try:
            load(None, env={name.rstrip("_"): "x"}, overrides={"backends": {"m": {"kind": "mock"}}})
        except ConfigError as error:
            return "unknown key" not in str(error)
        return True
    return name in _sources()


@cache
def _sources() -> str:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    texts = (ROOT / file for file in listed if file.endswith(SOURCES) and not file.startswith("tests/docs/"))
    return "\n".join(file.read_text("utf-8") for file in texts if file.is_file())


def test_variables_are_known() -> None:
    named = {name for page in PAGES for name in VARIABLE.findall(read(page))}
    assert {"TOOLWIRE_NO_EXTENSIONS", "TOOLWIRE_SERVER__PORT"} <= named
    assert [name for name in sorted(named) if not _known(name)] == []
    assert not _known("TOOLWIRE_SERVER__PROT")
    assert not _known("TOOLWIRE_NONSENSE")
