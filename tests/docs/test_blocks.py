"""Every fenced block of every page says what it is, and is looked at: run, loaded, or at the least parsed.

What cannot be run stands in a list with the reason, and a test says when the reason is none any longer. Shell commands:
`test_shell.py`. Blocks that are run as they are printed: `tests/unit/test_docs_links.py`.
"""

from __future__ import annotations

import ast
import contextlib
import io
import re
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import kubernetes_validate
import pytest
import yaml
from aiohttp.test_utils import TestClient, TestServer

from tests.cases import every
from tests.docs.data import documents, faults
from tests.docs.pages import FENCE, PAGES, ROOT, Block, blocks, pages_with, read, write_files
from tests.inspector.browser import Gateway
from tests.optional import NODE, program
from tests.waiting import GUARD_S
from toolwire.app import create_app
from toolwire.configuration.settings import load
from toolwire.extras.tune.cases import load_cases
from toolwire.registry import registries
from toolwire.support.conversion import ConfigError

KINDS: Final = {
    "sh": {"client", ""},
    "python": {"run", "gateway", "file", ""},
    "yaml": {"config", "cases", "file", ""},
    "text": {"", "output", "file"},
    "json": {"file", ""},
    "toml": {"file", ""},
    "js": {"file"},
    "nginx": {""},
}
"""The languages, and what a block in one may be for; `""` is to be read."""

NOT_RUN: Final = {
    ("docs/how-to/clients/libraries.md", "from langchain_openai import ChatOpenAI"): "langchain-openai",
    ("docs/how-to/clients/libraries.md", "from langchain_anthropic import ChatAnthropic"): "langchain-anthropic",
    ("docs/how-to/clients/libraries.md", "from anthropic import AsyncAnthropic"): "pydantic-ai",
    ("docs/how-to/clients/libraries.md", "import litellm"): "litellm",
    ("docs/how-to/clients/goose.md", "from goose import anthropic_provider, openai_provider"): "goose-sdk",
    ("docs/how-to/clients.md", "from gateway_client import AuthenticatedClient"): "openapi-python-client",
}
"""Python that is only compiled, by its page and first line, and the distribution that it needs and that the extra `dev`
does not bring. `tests/clients` runs these clients in environments of their own, where they can be had."""

FOREIGN: Final = {
    ("docs/how-to/scale-out.md", "# values of prometheus-adapter"): "values of another project's chart",
    ("docs/how-to/clients/continue.md", "name: local"): "the configuration of Continue",
}
"""YAML that is neither ours nor an object of Kubernetes or compose, by its page and first line, and what it is."""

UNPARSED: Final = {"nginx": "crossplane"}
"""Languages for which the extra `dev` brings no parser, and the one that there would be: their braces are counted."""

ALL: Final = [(page, block) for page in PAGES for block in blocks(page)]


def _kind(block: Block) -> str:
    return "file" if block.file else " ".join(block.info[1:])


def _key(page: Path, block: Block) -> tuple[str, str]:
    return page.as_posix(), block.text.splitlines()[0] if block.text else ""


def _of(language: str, kind: str = "") -> list[Any]:
    return [
        pytest.param(page, block, id=f"{page}:{block.line}")
        for page, block in ALL
        if block.info[:1] == [language] and _kind(block) == kind
    ]


def _dev() -> set[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    named = [*project["dependencies"], *project["optional-dependencies"]["dev"]]
    return {re.split(r"[^\w.-]", name)[0].lower() for name in named}


# --- what there is --------------------------------------------------------------------------------------------------


def test_every_block_says_what_it_is() -> None:
    wrong = [
        f"{page}:{b.line} {b.info}"
        for page in PAGES
        for b in blocks(page)
        if not b.info or _kind(b) not in KINDS.get(b.info[0], ())
    ]
    assert wrong == []


def test_no_block_is_without_a_fence() -> None:
    """One by indentation alone has no language. In lists, indented paragraphs belong to their items."""
    for page in PAGES:
        outside = FENCE.sub("", read(page))
        assert re.findall(r"^[ ]*(?:```|~~~).*$", outside, re.MULTILINE) == [], page
        in_list = False
        for paragraph in re.split(r"\n{2,}", outside):
            in_list = bool(re.match(r"(?:[-*]|\d+\.) ", paragraph)) or (in_list and paragraph.startswith(" "))
            assert in_list or not paragraph.startswith("    "), f"{page}: {paragraph}"


# --- Python ---------------------------------------------------------------------------------------------------------


@every(("page", "block"), _of("python") + _of("python", "run") + _of("python", "gateway"))
def test_python_compiles(page: Path, block: Block) -> None:
    ast.parse(block.text)


@pytest.mark.parametrize(("page", "block"), _of("python"))
def test_python_that_is_not_run_has_a_reason(page: Path, block: Block) -> None:
    assert _key(page, block) in NOT_RUN, "say `python run` or `python gateway`, or give the reason in NOT_RUN"


def test_the_reasons_still_hold() -> None:
    shown = {_key(page, block) for page, block in ALL}
    assert set(NOT_RUN) <= shown
    assert set(FOREIGN) <= shown
    assert not set(NOT_RUN.values()) & _dev()
    assert not set(UNPARSED.values()) & _dev()
    assert set(UNPARSED) <= {block.info[0] for _, block in ALL}


SCRIPT: Final = [
    {"when": "clear", "text": "It is clear in Oslo."},
    {"text": '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Oslo"}}\n</tool_call>'},
]


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    config = {"backends": {"m": {"kind": "mock", "script": SCRIPT}}, "store": {"kind": "memory"}, "inspect": False}
    running = Gateway(tmp_path_factory.mktemp("gateway"), {**config, "defaults": {"format": "hermes"}})
    yield running.url
    running.close()


def _printed_before_a_gateway(page: Path, url: str) -> str:
    namespace: dict[str, Any] = {"__name__": "page"}
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        for block in blocks(page):
            if block.info[:2] == ["python", "gateway"]:
                text = block.text.replace("http://127.0.0.1:8665", url)
                exec(compile("\n" * block.line + text, str(page), "exec"), namespace)
    if "client" in namespace:
        namespace["client"].close()
    return printed.getvalue()


@pytest.mark.parametrize("page", pages_with("python", "gateway"), ids=str)
def test_programs_run_before_a_gateway(page: Path, gateway: str) -> None:
    assert _printed_before_a_gateway(page, gateway)


def test_the_tour_makes_the_call_that_it_speaks_of(gateway: str) -> None:
    printed = _printed_before_a_gateway(Path("README.md"), gateway)
    assert "name='get_weather'" in printed
    assert printed.endswith("It is clear in Oslo.\n")


TOOLS: Final = [page for page, block in ALL if (block.file or "").startswith("tools/")]


@pytest.mark.parametrize("page", TOOLS, ids=str)
async def test_tools_of_examples_are_loaded(page: Path, tmp_path: Path) -> None:
    write_files(page, tmp_path)
    config = {"backends": {"m": {"kind": "mock"}}, "tools": {"folder": str(tmp_path / "tools")}}
    async with TestClient(TestServer(create_app(config))) as client:
        listed = await (await client.get("/admin/tools")).json()
    assert [module["state"] for module in listed["modules"]] == ["LOADED_WITH_TOOLS"]


# --- data -----------------------------------------------------------------------------------------------------------


@every(("page", "block"), _of("json") + _of("json", "file"))
def test_json_is_what_it_looks_like(page: Path, block: Block) -> None:
    values = list(documents(block.text))
    assert values
    assert [fault for value in values for fault in faults(value)] == []


@pytest.mark.parametrize(("page", "block"), _of("yaml", "cases"))
def test_cases_are_read(page: Path, block: Block, tmp_path: Path) -> None:
    file = tmp_path / "cases.yaml"
    file.write_text(block.text, "utf-8")
    assert load_cases(file)


@pytest.mark.parametrize(("page", "block"), _of("yaml", "file"))
def test_yaml_of_examples_parses(page: Path, block: Block) -> None:
    assert yaml.safe_load(block.text)


def _stands_for_itself(block: Block) -> bool:
    """Objects of Kubernetes, which are held against its schemas where they are its own, or a compose file."""
    values = list(yaml.safe_load_all(block.text))
    for value in values:
        match value:
            case {"apiVersion": str(version), "kind": str(), "metadata": {"name": str()}}:
                if "." not in version.partition("/")[0] or version.partition("/")[0].endswith(".k8s.io"):
                    kubernetes_validate.validate(value, kubernetes_validate.latest_version(), strict=True)
            case {"services": dict(services)}:
                assert all("image" in service or "build" in service for service in services.values())
            case _:
                return False
    return bool(values)


@pytest.mark.parametrize(("page", "block"), _of("yaml"))
def test_yaml_is_a_configuration_or_says_what_else(page: Path, block: Block, tmp_path: Path) -> None:
    if _key(page, block) not in FOREIGN:
        assert _stands_for_itself(block), "say `yaml config`, or in FOREIGN what it is"
        return
    file = tmp_path / "page.yaml"
    file.write_text(block.text, "utf-8")
    assert yaml.safe_load(block.text)
    with pytest.raises(ConfigError):
        load(file, env={}, overrides={"backends": {"m": {"kind": "mock"}}})


@pytest.mark.parametrize(("page", "block"), _of("toml") + _of("toml", "file"))
def test_toml_parses_and_names_groups_that_are_read(page: Path, block: Block) -> None:
    groups = tomllib.loads(block.text).get("project", {}).get("entry-points", {})
    own = {registry.group for registry in _registries()}
    assert len(own) >= 5
    assert set(groups) <= own


def _registries() -> list[Any]:
    found = registries()
    return [found.middlewares, found.formats, found.backends, found.clients, found.servers]


@pytest.mark.parametrize(("page", "block"), _of("js", "file"))
def test_javascript_can_be_read(page: Path, block: Block) -> None:
    node = program(NODE)
    done = subprocess.run(
        [node, "--input-type=module", "--check"], input=block.text, capture_output=True, text=True, timeout=GUARD_S
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(("page", "block"), _of("nginx"))
def test_nginx_blocks_are_closed(page: Path, block: Block) -> None:
    """See UNPARSED."""
    code = re.sub(r"#.*", "", block.text)
    assert code.count("{") == code.count("}")
    assert all(re.search(r"[;{}]$", line.rstrip()) for line in code.splitlines() if line.strip())


@every(("page", "block"), _of("text", "output"))
def test_output_stands_behind_what_is_run(page: Path, block: Block) -> None:
    before = [b for b in blocks(page) if b.line < block.line][-1]
    assert before.info[:2] == ["python", "run"]
