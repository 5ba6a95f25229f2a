"""`toolwire check` names every mistake in one run, of whatever kind, and says nothing that only follows from another
one."""

from __future__ import annotations

import json
import re
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tests.cases import every
from toolwire.cli import main
from toolwire.configuration.mistakes import Mistakes

GUARD = {"use": "prompt_guard", "options": {"tokens": 9}}
BASE: dict[str, Any] = {
    "server": {"port": 8080},
    "backends": {"a": {"url": "http://127.0.0.1:9"}, "b": {"url": "http://127.0.0.1:8"}, "m": {"kind": "mock"}},
    "auth": {"keys": [{"key": "one", "name": "ada"}, {"key": "two"}]},
    "store": {"kind": "memory"},
    "routes": [
        {"model": "x", "backend": "a"},
        {"model": "y", "backend": "b", "chain": ["validation", GUARD, "transformation", "injection", "forwarding"]},
        {"model": "z", "backend": "m"},
    ],
    "chain": ["validation", "arguments", "transformation", "injection", "forwarding"],
}
"""Nothing is wrong with it."""

MISTAKES: list[tuple[str, Any, str]] = [
    ("serverr", {}, "serverr: unknown key"),
    ("server.prot", 1, "server.prot: unknown key, did you mean 'port'?"),
    ("limits.tools_max", "many", 'limits.tools_max: expected an integer, got "many"'),
    ("telemetry", 5, "telemetry: expected a mapping, got 5"),
    ("defaults.mode", "promt", "defaults.mode: expected one of"),
    ("server.workers", 0, "server.workers: expected 1 to 1024, got 0"),
    ("server.host", "${NOT_SET_ANYWHERE}", "server.host: the variable NOT_SET_ANYWHERE is not set"),
    ("backends.a.url", "${NO_URL}", "backends.a.url: the variable NO_URL is not set"),
    ("backends.b.url", "nowhere", "backends.b.url: expected an address"),
    ("backends.m.kind", "mokc", "backends.m.kind: unknown backend 'mokc', did you mean 'mock'?"),
    ("backends.b.preset", "vlm", "backends.b.preset: unknown preset 'vlm', did you mean 'vllm'?"),
    ("backends.b.constrain", "gbfn", "backends.b.constrain: unknown constraint 'gbfn'"),
    (
        "routes.0.chain",
        ["validation", "forwarding"],
        "routes[0].chain: lacks `injection`: with `mode: prompt` it describes the tools",
    ),
    ("auth.keys.2", {"name": "x"}, "auth.keys[2].key: required, text"),
    ("routes.1.backend", "bb", "routes[1].backend: no backend 'bb'"),
    ("routes.2.options", {"format": "hermis"}, "routes[2].options.format: unknown format 'hermis'"),
    ("chain.1", "argumnts", "chain[1].use: unknown middleware 'argumnts'"),
    ("chain.2", "no_such_package:X", "chain[2].use: cannot import middleware 'no_such_package:X'"),
    ("chain.3", "broken_plugin:X", "chain[3].use: cannot import middleware 'broken_plugin:X': RuntimeError: no"),
    ("routes.1.chain.1.options.tokns", 1, "routes[1].chain[1].options.tokns: unknown key, did you mean 'tokens'?"),
    ("chain.5", {"use": "tool_filter"}, "chain[5]"),
    ("chain.0", "plain_plugin:needs", "chain[0]: middleware factory 'plain_plugin:needs' does not take"),
    (
        "defaults.prompt.template",
        "{tools}",
        "defaults.prompt.template: the template lacks {policy}, {format}, {examples}",
    ),
    (
        "routes.0.options",
        {"prompt": {"template_file": "none.txt"}},
        "routes[0].options.prompt.template_file: cannot read",
    ),
    ("auth.keys.0.key", "sha256:12", "auth: a key that starts with 'sha256:' must go on"),
    ("auth.keys_file", "no-keys", "auth.keys_file: cannot read"),
    ("auth.keys.1.routes", ["zz"], "no route 'zz'"),
    ("cors.origins", ["chat"], "cors.origins[0]: expected an origin"),
    ("tools.folder", "no-folder", "tools.folder: there is no folder"),
    ("store", {"kind": "sqlite", "path": "file.txt/deeper/x.sqlite3"}, "store.path: "),
    ("store", {"kind": "redis"}, "store.url: required"),
    ("store", {"kind": "redis", "url": "http://nowhere"}, "store.url: "),
    ("rate_limits", {"store": "redis"}, "rate_limits.url: required for the store 'redis'"),
    ("capture", {"keep": 1, "secrets": ["("]}, "capture.secrets[0]: '(' is not a regular expression"),
    ("capture", {"keep": 1, "folder": "file.txt/captures"}, "capture.folder: "),
    ("chain", ["validation"], "chain: no middleware in it calls a model server"),
    ("chain.5", "cache", "chain: `cache` is never run: `forwarding` before it"),
    ("chain.1", "validation", "chain: `validation` is there twice"),
    (
        "chain",
        ["validation", "transformation", "forwarding"],
        "chain[1]: `transformation` has no effect without `injection`",
    ),
    (
        "routes.1.chain",
        ["validation", "injection", "forwarding"],
        "routes[1].chain[1]: `injection` has no effect without `transformation`",
    ),
    (
        "chain",
        ["validation", "transformation", "arguments", "injection", "forwarding"],
        "chain[1]: `transformation` must come after `arguments`",
    ),
    (
        "chain",
        ["transformation", "injection", "conversation", "forwarding"],
        "chain[1]: `injection` must come after `conversation`",
    ),
    (
        "chain",
        ["validation", "conversation", "transformation", "injection", "forwarding"],
        "chain[0]: `validation` must come after `conversation`",
    ),
    (
        "routes.0.options",
        {"bad_answers": {"format_miss": "error"}},
        "routes[0].options.bad_answers.format_miss: needs `output_format` in the chain",
    ),
    (
        "routes.0.options",
        {"loop_detect": {"repeats": 3}},
        "routes[0].options.loop_detect.repeats: needs `loop_detection` in the chain",
    ),
    (
        "routes.2.options",
        {"decoding": {"constrain": "required"}},
        "known feature for that; requests that require a call would be refused. Expected `auto`",
    ),
    (
        "routes.0.options",
        {"mode": "native", "decoding": {"constrain": "required"}},
        "routes[0].options.decoding.constrain: `required` is for calls in the gateway",
    ),
    ("backends.b.url", "http://localhost:8080/v1", "backends.b.url: leads back to the gateway itself"),
    (
        "routes",
        [{"model": "*", "backend": "a"}, {"model": "q-*", "backend": "b"}],
        "routes[1].model: 'q-*' never matches: '*' of routes[0].model comes first",
    ),
    ("routes.0.upstream_model", "", "routes[0].upstream_model: must not be empty"),
    ("routes.0.sticky_by", "a b", "routes[0].sticky_by: expected `prompt` or"),
    ("backends.a.headers", {"a b": "c"}, "backends.a.headers: not an HTTP header: 'a b'"),
    ("backends.a.api_key", "x\n", "backends.a.api_key: not an HTTP header"),
    ("backends.b", {"url": "http://ada:pw@127.0.0.1:8", "api_key": "k"}, "both use the same header, Authorization"),
    (
        "backends.b",
        {"url": "http://ada:pw@127.0.0.1:8", "headers": {"authorization": "k"}},
        "both use the same header, Authorization",
    ),
    ("limits.body_bytes", 0, "limits.body_bytes: 0 refuses everything"),
    (
        "routes.0.options",
        {"tool_loop": {"max_iterations": 0}},
        "routes[0].options.tool_loop.max_iterations: the first answer counts",
    ),
    ("store.max_responses", 0, "store: the bounds of a store must be at least 1"),
    ("backends.a.timeouts", {"idle_s": 0}, "backends.a.timeouts.idle_s: 0 allows no time"),
    (
        "backends.c",
        {"kind": "codex_app_server", "command": ["no-such-program"]},
        "backends.c.command: there is no program 'no-such-program'",
    ),
    ("backends.b", {}, "backends.b.url: required for the kind 'openai_chat'"),
    ("backends.b.url", "http://[::1", "backends.b.url: expected an address such as 'http://127.0.0.1:8000/v1'"),
    ("backends.b.pool", {"idle_s": -1}, "backends.b.pool.idle_s: expected at least 0, got -1.0"),
    ("routes", [], "routes: needed when there are several backends and none is called 'default'"),
    ("routes.1.aliases", ["x"], "routes[1].aliases[0]: 'x' is already taken by routes[0].model"),
    ("routes.0.model", "", "routes[0].model: must not be empty"),
    ("routes.0.chain", [], "routes[0].chain: must not be empty"),
    ("chain", [], "chain: must not be empty"),
    (
        "routes.0.options",
        {"prompt": {"template": "Hi", "template_file": "x"}},
        "routes[0].options.prompt.template_file: give either `template` or `template_file`",
    ),
    ("server.pass_through", ["/v1/models"], "server.pass_through[0]: the gateway serves /models itself"),
    ("server.pass_through", ["/chat"], "server.pass_through[0]: the gateway serves /chat itself"),
    ("server.pass_through", ["/v1/x", "/v1/x"], "server.pass_through[1]: the gateway serves /x itself"),
    ("telemetry.otlp_endpoint", "there", "telemetry.otlp_endpoint: expected an address"),
    ("defaults.reasoning", {"tags": ["", "x"]}, "defaults.reasoning.tags: a tag must not be empty"),
    ("auth.keys_file", "bytes", "auth.keys_file: cannot read"),
    (
        "routes.0.options",
        {"prompt": {"template_file": "bytes"}},
        "routes[0].options.prompt.template_file: cannot read",
    ),
    ("backends.m.script", [{"txt": "hi"}], "backends.m: script[0] has unknown keys"),
    ("backends.m.script", "none.yaml", "backends.m.script: cannot read"),
]
"""Paths, values there, and what is said of each. Behind the end of a list a value is added."""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "file.txt").write_text("")
    (tmp_path / "bytes").write_bytes(b"\xff")
    (tmp_path / "broken_plugin.py").write_text("raise RuntimeError('no')\n")
    (tmp_path / "plain_plugin.py").write_text("def needs(limit, burst):\n    raise AssertionError('never called')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    for name in ("NOT_SET_ANYWHERE", "NO_URL"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def said(text: str | bytes | dict[str, Any] = "", **env: str) -> list[str]:
    """What `check` says of a file that holds this."""
    text = json.dumps(text) if isinstance(text, dict) else text
    Path("c.yaml").write_bytes(text if isinstance(text, bytes) else text.encode())
    result = CliRunner().invoke(main, ["check", "c.yaml"], catch_exceptions=False, env=env)
    if result.exit_code == 0:
        return []
    assert (result.exit_code, result.output[:7]) == (1, "Error: "), result.output
    return result.output.removeprefix("Error: ").splitlines()


def checked(*mistakes: tuple[str, Any, str]) -> list[str]:
    """What `check` says of a file with these mistakes."""
    tree = deepcopy(BASE)
    for path, value, _ in mistakes:
        node: Any = tree
        *keys, last = path.split(".")
        for key in keys:
            node = node.setdefault(key, {}) if isinstance(node, dict) else node[int(key)]
        if isinstance(node, list):
            node[int(last) : int(last) + 1] = [value]
        else:
            node[last] = value
    return said(tree)


@every("mistake", MISTAKES)
def test_each_is_one_line(folder: Path, mistake: tuple[str, Any, str]) -> None:
    (line,) = checked(mistake)
    assert mistake[2] in line


def test_without_routes_the_defaults_are_named(folder: Path) -> None:
    defaults = {"tool_loop": {"max_iterations": 0}}
    (line,) = said({"backends": {"a": {"url": "http://127.0.0.1:9"}}, "defaults": defaults})
    assert line.startswith("defaults.tool_loop.max_iterations: the first answer counts")


def test_mistakes_of_all_kinds_are_said_together(folder: Path) -> None:
    together = (
        *("serverr", "limits.tools_max", "server.host", "backends.b.url", "backends.m.kind", "routes.1.backend"),
        *("routes.0.options", "chain.2", "routes.1.chain.1.options.tokns", "auth.keys.0.key", "auth.keys.2"),
        *("cors.origins", "tools.folder", "store", "rate_limits", "telemetry.otlp_endpoint", "defaults.reasoning"),
    )
    chosen = {mistake[0]: mistake for mistake in MISTAKES if mistake[0] in together}
    lines = checked(*chosen.values())
    assert [sum(words in line for line in lines) for _, _, words in chosen.values()] == [1] * len(together), lines
    assert len(lines) == len(together), lines


@every(
    ("mistake", "warned"),
    [(None, True), (("server.prot", 1, ""), True), (("routes.1.backend", "bb", ""), False)],  # it may mean the idle one
)
def test_parts_without_effect_are_warned_of(folder: Path, mistake: tuple[str, Any, str] | None, warned: bool) -> None:
    idle = [("backends.idle", {"url": "http://127.0.0.1:9"}, ""), ("auth", {"keys_file": "file.txt"}, "")]
    checked(*idle, *([mistake] if mistake else []))
    output = CliRunner().invoke(main, ["check", "c.yaml"]).output
    for warning in ("backends.idle: no route uses it", "auth.keys_file: the file contains no key"):
        assert (f"Warning: {warning}" in output) is warned, output


def test_all_repeated_keys_are_said_with_all_the_rest(folder: Path) -> None:
    *lines, last = said(
        "server: {port: 1, port: 70000}\nbackends: {a: {url: 'http://x', url: 'http://y', 3: 4, 5: 6}}\n"
        "server: {prot: 1}\nchain: [nothing]\n"
    )
    assert lines == [
        "c.yaml: line 1, column 19: key 'port' occurs twice",
        "c.yaml: line 2, column 33: key 'url' occurs twice",
        "c.yaml: line 3, column 1: key 'server' occurs twice",
        "server.prot: unknown key, did you mean 'port'? (line 3)",
        "backends.a.3: keys are text, write '3' in quotes (line 2)",
        "backends.a.5: keys are text, write '5' in quotes (line 2)",
    ]
    assert last.startswith("chain[0].use: unknown middleware 'nothing'; known: ")


def test_a_control_character_is_said_where_it_stands(folder: Path) -> None:
    said_of = said(b"server: {}\nbackends: {a: \x00}\n")
    assert said_of == ["c.yaml: line 2, column 15: a control character, which YAML does not allow"]


def test_each_has_the_line_of_its_key(folder: Path) -> None:
    lines = said(
        "server:\n  port: x\nbackends:\n  a:\n    url: nowhere\n  b: {}\nroutes:\n- model: m\n  backend: a\n"
        "- model: n\n  backend: c\n  options:\n    mode: promt\nauth:\n  keys:\n  - name: x\n",
        TOOLWIRE_LIMITS__TOOLS_MAX="many",
    )
    assert re.findall(r"^([\w.\[\]]+): .*?(?: \(line (\d+)\))?$", "\n".join(sorted(lines)), re.M) == [
        *(("auth.keys[0].key", "16"), ("backends.a.url", "5"), ("backends.b.url", "6"), ("limits.tools_max", "")),
        *(("routes[1].backend", "11"), ("routes[1].options.mode", "13"), ("server.port", "2")),
    ]


def test_modules_of_tools_are_looked_at_besides(folder: Path) -> None:
    (folder / "tools").mkdir()
    (folder / "tools" / "bad.py").write_text("TOOLS = 5\n")
    output = "\n".join(said({**BASE, "tools": {"folder": "tools"}, "serverr": {}}))
    assert "serverr: unknown key" in output
    assert "bad.py: FAILED_VALIDATION" in output


def test_what_follows_is_not_said() -> None:
    mistakes = Mistakes()
    mistakes.add(["a.b[0]: wrong", "c: wrong"])
    mistakes.add(["a.b[0].d: follows", "a.b: its own", "a.bc: its own", "c.e: follows", "c: follows", "cd: its own"])
    assert mistakes.lines == ["a.b[0]: wrong", "c: wrong", "a.b: its own", "a.bc: its own", "cd: its own"]
    assert mistakes.at("c")
    assert not mistakes.at("a")
    assert mistakes.below("a")
