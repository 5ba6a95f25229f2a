"""The command line: flags, exit statuses, and the generated references."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import jsonschema
import pytest
import yaml
from click.testing import CliRunner, Result

import toolwire.extras.demo.walkthrough
import toolwire.server.serving
from docs.generate import ROOT, pages
from tests.options import IDLE
from toolwire.cli import main
from toolwire.config import DEFAULT_CHAIN, BackendConfig, GatewayConfig, KeyConfig, MiddlewareConfig, RouteOptions
from toolwire.configuration.config_schema import schema
from toolwire.configuration.settings import load
from toolwire.extras.bench.recorded import scanned
from toolwire.fastparse import IMPLEMENTATION
from toolwire.formats.base import builtin_formats
from toolwire.server.starting import log_start_notes

Run = Callable[..., Result]
BACKEND = "http://127.0.0.1:9/v1"


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """Run a command in an empty folder, without settings from the environment."""
    for name in [name for name in os.environ if name.startswith("TOOLWIRE_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    return lambda *args, **kwargs: CliRunner().invoke(main, args, **kwargs)


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[GatewayConfig]:
    """What `serve` was started with."""
    configs: list[GatewayConfig] = []

    def serve(config: GatewayConfig, *, load: Callable[[], GatewayConfig]) -> int:
        assert load() == config  # what a reload would read
        configs.append(config)
        return 7

    monkeypatch.setattr(toolwire.server.serving, "serve", serve)
    return configs


def test_serve_needs_no_file(run: Run, served: list[GatewayConfig]) -> None:
    result = run("serve", "--backend", BACKEND)
    assert result.exit_code == 7
    defaults = RouteOptions(mode="text")
    assert served == [GatewayConfig(backends={"default": BackendConfig(url=BACKEND)}, defaults=defaults)]


@pytest.mark.parametrize(
    ("args", "env", "mode"),
    [
        (("--backend", BACKEND), {}, "text"),
        ((), {"TOOLWIRE_BACKENDS__MAIN__URL": BACKEND}, "text"),
        (("--backend", BACKEND, "--mode", "prompt"), {}, "prompt"),
        (("--backend", BACKEND), {"TOOLWIRE_DEFAULTS__MODE": "native"}, "native"),
        (("--backend", BACKEND), {"TOOLWIRE_DEFAULTS": "{format: hermes}"}, "prompt"),
        (("--config", "c.yaml"), {}, "prompt"),
    ],
)
def test_the_default_mode_is_text_where_nobody_configures_one(
    run: Run, served: list[GatewayConfig], tmp_path: Path, args: tuple[str, ...], env: dict[str, str], mode: str
) -> None:
    (tmp_path / "c.yaml").write_text("backends: {gpu: {url: 'http://old:1'}}")
    run("serve", *args, env=env)
    assert served[0].defaults.mode == mode


def test_every_flag_of_serve_arrives(run: Run, served: list[GatewayConfig]) -> None:
    run(
        *("serve", "--backend", BACKEND, "--backend-key", "bk", "--preset", "vllm", "--model", "m", "--mode", "native"),
        *("--format", "hermes", "--host", "0.0.0.0", "--port", "0", "--workers", "3", "--insecure-public"),
        *("--api-key", "k", "--log-level", "debug", "--log-format", "json"),
    )
    (config,) = served
    assert config.backends == {"default": BackendConfig(url=BACKEND, api_key="bk", preset="vllm")}
    assert [(r.model, r.backend, r.upstream_model) for r in config.routes] == [("*", "default", "m")]
    assert (config.defaults.mode, config.defaults.format) == ("native", "hermes")
    assert config.auth.keys == (KeyConfig(key="k"),)
    assert config.routes[0].options == config.defaults
    server = config.server
    assert (server.host, server.port, server.workers, server.insecure_public) == ("0.0.0.0", 0, 3, True)
    assert (server.log_level, server.log_format) == ("debug", "json")


def test_serve_with_a_file_and_flags(run: Run, served: list[GatewayConfig], tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text("backends: {gpu: {url: 'http://old:1', preset: vllm}}\nserver: {port: 5}")
    run("serve", "--config", "c.yaml", "--backend", BACKEND, "--workers", "2")
    run("serve", env={"TOOLWIRE_CONFIG": "c.yaml", "TOOLWIRE_SERVER__PORT": "6"})
    first, second = served
    assert (first.backends["gpu"].url, first.server.port, first.server.workers) == (BACKEND, 5, 2)
    assert (second.backends["gpu"].url, second.server.port) == ("http://old:1", 6)


@pytest.mark.parametrize(
    ("args", "status", "message"),
    [
        (["serve"], 2, "Say where the model is"),
        (["serve", "--backend", BACKEND, "--port", "70000"], 2, "--port"),
        (["serve", "--backend", BACKEND, "--workers", "0"], 2, "--workers"),
        (["serve", "--backend", BACKEND, "--mode", "magic"], 2, "--mode"),
        (["serve", "--config", "c.yaml", "--model", "m"], 2, "upstream_model"),
        (["serve", "--backend", BACKEND, "--prot", "1"], 2, "--port"),
        (["serve", "--backend", "nowhere"], 1, "backends.default.url: expected an address"),
        (["serve", "--backend", BACKEND, "--host", "0.0.0.0"], 1, "--insecure-public"),
        (["serve", "--config", "none.yaml"], 1, "none.yaml: No such file"),
        (["check", "none.yaml"], 1, "none.yaml: No such file"),
        (["check"], 2, "There is no toolwire.yaml here"),
        (["doctor"], 2, "There is no toolwire.yaml here"),
        (["replay", "none.txt"], 2, "none.txt"),
        (["replay", "-", "--chunks", "0"], 2, "--chunks"),
        (["nonsense"], 2, "nonsense"),
    ],
)
def test_wrong_use_is_2_and_a_bad_configuration_1(
    run: Run, served: list[GatewayConfig], args: list[str], status: int, message: str
) -> None:
    result = run(*args)
    assert result.exit_code == status, result.output
    assert message in result.output
    assert served == []


def test_check_shows_what_a_file_means(run: Run, tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text(
        f"""
backends: {{gpu: {{url: '{BACKEND}', preset: vllm}}}}
auth: {{keys: [hunter2]}}
store: {{kind: memory}}
routes:
  - {{model: 'gpt-*', aliases: [default], upstream_model: qwen, options: {{format: hermes}}}}
  - {{model: '*', chain: [validation, {{use: transformation, on_failure: skip}}, forwarding], options: {{mode: native}}}}
"""
    )
    result = run("check", "c.yaml")
    assert result.exit_code == 0, result.output
    assert result.output.splitlines() == [
        "c.yaml: valid",
        "listens on 127.0.0.1 port 8665, 1 worker, keys needed",
        "conversations are stored in the memory of this process, and lost with it: for 24 h, 10,000 responses at most",
        f"backend gpu: openai_chat at {BACKEND}, preset vllm",
        "route gpt-*, default -> gpu as qwen: prompt, hermes",
        "  " + " > ".join(name for name in DEFAULT_CHAIN if name not in IDLE),
        "route * -> gpu: native, auto",
        "  validation > transformation (skip) > forwarding",
    ]


def test_check_prints_the_schema(run: Run) -> None:
    assert json.loads(run("check", "--schema").output) == schema()


def test_init_writes_a_file_that_is_valid_and_is_never_overwritten(run: Run, tmp_path: Path) -> None:
    assert run("init").exit_code == 0
    written = tmp_path / "toolwire.yaml"
    assert load(written, {}) == GatewayConfig(backends={"main": BackendConfig(url="http://127.0.0.1:8000/v1")})
    written.write_text("mine")
    result = run("init")
    assert (result.exit_code, written.read_text()) == (1, "mine")
    assert "File exists" in result.output
    assert run("init", "other.yaml").exit_code == 0


def test_init_tells_editors_where_the_schema_is(run: Run, tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    assert run("init", "sub/my.yaml").exit_code == 0
    written = tmp_path / "sub" / "my.yaml"
    first = written.read_text().splitlines()[0]
    place = re.fullmatch(r"# yaml-language-server: \$schema=(\S+)", first)
    assert place is not None
    resolved = json.loads((written.parent / place[1]).read_text())
    assert resolved == schema()
    jsonschema.validate(yaml.safe_load(written.read_text()), resolved)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"server": {"prot": 1}}, resolved)
    # Of an earlier version it is brought up to date; what is something else stays.
    (tmp_path / "toolwire.schema.json").write_text(json.dumps({"title": schema()["title"]}))
    assert run("init").exit_code == 0
    assert json.loads((tmp_path / "toolwire.schema.json").read_text()) == schema()
    (tmp_path / "toolwire.yaml").unlink()
    (tmp_path / "toolwire.schema.json").write_text("{}")
    result = run("init")
    assert (result.exit_code, (tmp_path / "toolwire.schema.json").read_text()) == (1, "{}")
    assert "toolwire.schema.json: exists and is not the schema" in result.output
    assert not (tmp_path / "toolwire.yaml").exists()


def test_without_a_file_the_one_of_the_folder_is_taken(run: Run, served: list[GatewayConfig], tmp_path: Path) -> None:
    (tmp_path / "toolwire.yaml").write_text("backends: {gpu: {url: 'http://there:1'}}\ntools: {folder: .}")
    result = run("check")
    assert (result.exit_code, result.stderr) == (0, "checking toolwire.yaml of this folder\n")
    assert result.stdout.startswith("toolwire.yaml: valid\n")
    result = run("serve", "--port", "5")
    assert (result.exit_code, result.stderr) == (7, "using toolwire.yaml of this folder\n")
    assert (served[0].backends["gpu"].url, served[0].server.port) == ("http://there:1", 5)
    assert "no module in" in run("tools", "list").output
    # Whoever says where the model is gets no more than that.
    assert run("serve", "--backend", BACKEND).stderr == ""
    assert run("serve", env={"TOOLWIRE_BACKENDS__MAIN__URL": BACKEND}).stderr == ""
    assert [list(config.backends) for config in served[1:]] == [["default"], ["main"]]
    (tmp_path / "other.yaml").write_text("backends: {other: {kind: mock}}")
    assert run("check", env={"TOOLWIRE_CONFIG": "other.yaml"}).stdout.startswith("other.yaml: valid\n")


def test_what_is_commented_out_in_the_example_is_right_as_well(tmp_path: Path) -> None:
    example = (ROOT / "proxy" / "configuration" / "example.yaml").read_text("utf-8")
    path = tmp_path / "all.yaml"
    path.write_text(re.sub(r"^( *)#(?=\S)", r"\1", example, flags=re.MULTILINE), "utf-8")
    config = load(path, {})
    for section in ("server", "limits", "defaults", "chain"):
        assert getattr(config, section) == getattr(GatewayConfig(), section)
    assert config.backends == {"main": BackendConfig(url="http://127.0.0.1:8000/v1")}
    assert [(route.model, route.options.format) for route in config.routes] == [("gpt-*", "hermes")]


def test_version_says_which_scanner_is_in_use(run: Run) -> None:
    output = run("--version").output
    assert re.search(rf"^toolwire \d+\.\d+\.\d+\S*\nscanner: {IMPLEMENTATION}\nPython 3\.\d+", output)
    assert "aiohttp 3." in output


def test_the_version_imports_next_to_nothing() -> None:
    """R35.3: `--version`, and a shell that completes, wait for all that is imported. Modules are counted, not time."""
    program = (
        "import sys; from toolwire.cli import main\n"
        "try: main(['--version'])\n"
        "finally: print(sorted(name for name in sys.modules if name.split('.')[0] == 'toolwire'),"
        " sorted({'aiohttp', 'asyncio', 'dataclasses', 'orjson', 'rich', 'ssl', 'yaml'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT, check=True)
    own = ["toolwire", "toolwire._version", "toolwire.cli", "toolwire.cli.common", "toolwire.support"]
    assert done.stdout.splitlines()[-1] == f"{[*own, 'toolwire.support.legible']} []"


def test_every_format_is_listed_with_its_models_and_a_call_that_it_reads(run: Run) -> None:
    listed = json.loads(run("formats", "--json").output)
    names = [name for one in listed for name in (one["name"], *one["aliases"])]
    assert set(builtin_formats()) <= set(names)
    assert len(names) == len(set(names))
    for one in listed:
        if one["name"] in builtin_formats():
            (call,) = scanned(one["name"], [one["example"]], None).calls
            assert (call.name, set(call.arguments)) == ("get_weather", {"city", "days"}), one["name"]


def test_one_format_by_its_name_or_by_a_model(run: Run) -> None:
    text = run("formats", "hermes").output
    assert text.startswith("hermes: Qwen 2.5")
    assert '{"name":"get_weather"' in text
    (one,) = json.loads(run("formats", "--model", "org/Qwen3-Coder-30B-GGUF", "--json").output)
    assert (one["name"], one["aliases"]) == ("qwen3_coder", ["qwen_xml"])
    unknown = run("formats", "--model", "nothing-known")
    assert (unknown.exit_code, "teaches `hermes`" in unknown.output) == (1, True)
    assert "did you mean 'hermes'?" in run("formats", "hermse").output


def test_help_names_no_page_that_a_wheel_does_not_have(run: Run) -> None:
    for path, command in every_command(main, ()):
        text = run(*path, "--help").output
        assert not re.search(r"docs/|\.md\b", text), path
        assert "..." not in text.partition("\nCommands:\n")[2], "the first sentence of a command is cut"
        assert command.help or path == ()
    assert "https://toolwire.github.io/toolwire/" in run("--help").output
    texts = [json.dumps(schema()), (ROOT / "proxy/configuration/example.yaml").read_text("utf-8")]
    assert not [text for text in texts if "docs/" in text]


def every_command(command: click.Command, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """The command and all below it, with the words that name them."""
    yield path, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None
            yield from every_command(below, (*path, name))


def test_the_start_warns_of_what_cannot_work(caplog: pytest.LogCaptureFixture) -> None:
    chain = tuple(MiddlewareConfig(use=name) for name in ("validation", "transformation", "forwarding"))
    with caplog.at_level("WARNING", "toolwire.serving"):
        log_start_notes(GatewayConfig(backends={"m": BackendConfig(kind="mock")}, chain=chain))
    (line,) = [record.getMessage() for record in caplog.records if "cannot work" in record.getMessage()]
    assert line.startswith("this cannot work: chain[1]: `transformation` has no effect without `injection`")


def test_demo_delegates(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[dict[str, Any]] = []
    monkeypatch.setattr(toolwire.extras.demo.walkthrough, "run", lambda **asked: seen.append(asked) or 3)
    assert run("demo", "--once", "--port", "0").exit_code == 3
    assert seen == [{"host": "127.0.0.1", "port": 0, "once": True}]


# --- generated files ------------------------------------------------------------------------------------------------


def test_generated_files_are_current() -> None:
    stale = [path for path, text in pages().items() if (ROOT / path).read_text("utf-8") != text]
    assert not stale, "run `python -m docs.generate`"
