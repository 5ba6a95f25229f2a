"""Mistakes in configured MCP servers, and the output of commands about them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from tests.cases import every
from tests.mcp.conftest import raw
from toolwire.cli import main
from toolwire.configuration import mcp_checks
from toolwire.configuration.settings import load
from toolwire.support.conversion import ConfigError

BACKENDS = {"m": {"kind": "mock"}}


def problems(*servers: Any) -> tuple[str, ...]:
    with pytest.raises(ConfigError) as caught:
        load(None, env={}, overrides={"backends": BACKENDS, "tools": {"mcp": list(servers)}})
    return caught.value.problems


@every(
    ("server", "said"),
    [
        ({}, "needs `command`, such as `npx -y some-server`, or the `url` of a server"),
        ({"command": "a", "url": "http://a"}, "give either `command` or `url`"),
        ({"command": "a 'b"}, ".command: a quotation mark is not closed"),
        ({"command": " "}, ".command: expected a program and its arguments"),
        (
            {"command": "a", "headers": {"a": "b"}},
            ".headers: only for a `url`; variables for a program belong in `env`",
        ),
        ({"url": "ws://a"}, ".url: expected an address such as 'https://mcp.example.org/mcp'"),
        ({"url": "http://a", "env": {"A": "b"}}, ".env: only for a `command`"),
        ({"url": "http://a", "headers": {"A": "b\nc"}}, ".headers: 'A' cannot be sent as a header"),
        ({"command": "a", "prefix": "a b"}, ".prefix: expected at most 32 letters"),
        ({"command": "a", "timeout_s": 0}, ".timeout_s: expected more than 0"),
        ({"command": "a", "timeout_s": -1}, ".timeout_s: expected at least 0, got -1"),
        ({"command": "a", "concurrent": 0}, ".concurrent: expected 1 to 1000, got 0"),
        ({"command": "a", "max_result_chars": 10**9}, ".max_result_chars: expected 1 to 4000000"),
        ({"command": "a", "name": "a b"}, ".name: expected 1 to 64 letters"),
        ({"command": "a", "alow": []}, ".alow: unknown key"),
    ],
)
def test_mistakes(server: dict[str, Any], said: str) -> None:
    (problem,) = problems({"name": "one", **server})
    assert problem.startswith("tools.mcp[0]")
    assert said in problem


def test_two_servers_of_one_name() -> None:
    server = {"name": "one", "command": "a"}
    assert problems(server, server) == ("tools.mcp[1].name: 'one' is already taken by tools.mcp[0].name",)


def test_no_value_of_a_secret_is_shown() -> None:
    said = "\n".join(
        [
            *problems({"name": "one", "url": "sesame://sesame"}),
            *problems({"name": "one", "url": "http://a", "headers": {"A": 1234567}}),
            *problems({"name": "one", "command": "a", "env": {"TOKEN": 1234567}}),
        ]
    )
    assert "sesame" not in said
    assert "1234567" not in said


def test_variables_of_the_environment(tmp_path: Path) -> None:
    servers = [
        {"name": "one", "command": ["a", "b c"], "env": {"TOKEN": "${SECRET}"}},
        {"name": "two", "command": "a 'b c'"},
        {"name": "three", "url": "https://a/mcp", "headers": {"Authorization": "Bearer ${SECRET}"}},
    ]
    file = {"backends": BACKENDS, "tools": {"mcp": servers}}
    place = tmp_path / "gateway.yaml"
    place.write_text(yaml.safe_dump(file))
    one, two, three = load(str(place), env={"SECRET": "sesame"}).tools.mcp
    assert one.argv == two.argv == ("a", "b c")
    assert one.env == {"TOKEN": "sesame"}
    assert three.headers == {"Authorization": "Bearer sesame"}
    assert "sesame" not in repr((one, three))


@pytest.mark.parametrize(
    ("version", "said"),
    [
        (None, "the MCP SDK is not installed; install it with: pip install 'toolwire[mcp]'"),
        ("1.9.0", "version 2 is needed"),
    ],
)
def test_without_the_sdk(monkeypatch: pytest.MonkeyPatch, version: str | None, said: str) -> None:
    def found(name: str) -> str:
        if version is None:
            raise mcp_checks.PackageNotFoundError(name)
        return version

    monkeypatch.setattr(mcp_checks, "version", found)
    (problem,) = problems({"name": "one", "command": "a"})
    assert problem.startswith("tools.mcp: ")
    assert said in problem


def run(*words: str | Path) -> tuple[int, str]:
    done = CliRunner().invoke(main, [str(word) for word in words])
    return done.exit_code, done.output


def test_commands(tmp_path: Path) -> None:
    pytest.importorskip("mcp")
    file = tmp_path / "gateway.yaml"
    good = {"name": "good", "command": list(raw()), "allow": ["echo"], "connect_timeout_s": 120}
    bad = {"name": "bad", "command": "/no/such/program"}
    file.write_text(yaml.safe_dump({"backends": BACKENDS, "tools": {"mcp": [good]}}))
    status, said = run("tools", "list", "--config", file)
    assert (status, said) == (0, "MCP server good: up (raw 1)\n  echo(text): Does it.\n")
    status, said = run("check", file)
    assert status == 0
    assert "conversation > validation > execution > output_format" in said
    assert "MCP server" not in said  # nothing is contacted
    status, said = run("check", "--probe", file)
    assert status == 0
    assert "MCP server good: up (raw 1)" in said
    file.write_text(yaml.safe_dump({"backends": BACKENDS, "tools": {"mcp": [good, bad]}}))
    status, said = run("tools", "list", "--config", file, "--json")
    assert status == 1
    shown = json.loads(said)
    assert [server["state"] for server in shown["mcp"]] == ["up", "down"]
    assert shown["mcp"][1]["error"] == "its command cannot be run: program: No such file or directory"
