"""`toolwire tune` as it is run: the command, the gateway, and a model server on sockets."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import xml.etree.ElementTree as ET
from collections.abc import Callable
from importlib import resources
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from click.testing import CliRunner, Result

from tests.e2e.engines import llamacpp
from tests.tuning.conftest import ModelServer, Rule, prompt_of
from tests.waiting import GUARD_S
from toolwire.cli import main
from toolwire.config import RouteOptions
from toolwire.configuration.settings import load
from toolwire.extras.tune import show
from toolwire.extras.tune.show import PlainProgress, view
from toolwire.support.conversion import from_mapping

Run = Callable[..., Result]
Start = Callable[[Rule], ModelServer]

ROOT = Path(__file__).parents[2]
DEFAULT = RouteOptions().format
CASES = {
    "tools": {
        "get_weather": {
            "description": "Weather",
            "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
        }
    },
    "cases": [
        *(
            {
                "id": f"weather-{city.lower()}",
                "topic": "one tool",
                "ask": f"Weather in {city}?",
                "tools": ["get_weather"],
                "calls": [{"name": "get_weather", "arguments": {"city": city}}],
            }
            for city in ("Oslo", "Rome", "Lima", "Bonn")
        ),
        {"id": "hello", "topic": "none needed", "ask": "Hello!", "tools": ["get_weather"], "calls": []},
    ],
}


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """Run `toolwire tune` on five cases in an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MODEL_SERVER_KEY", raising=False)
    (tmp_path / "cases.json").write_text(json.dumps(CASES))
    return lambda *args: CliRunner().invoke(main, ["tune", "--model", "m", "--cases", "cases.json", *args])


def only_pythonic(body: dict[str, Any]) -> str:
    """A model that calls only where it is taught to write Python."""
    question = body["messages"][-1]["content"]
    city = re.search(r"Weather in (\w+)\?", question)
    if city is None or "[<function-name>(<parameter-name>=<value>)]" not in prompt_of(body):
        return "I am only a language model."
    return f'[get_weather(city="{city[1]}")]'


def where_told(words: str) -> Rule:
    """A model that calls only where its prompt has these words."""

    def rule(body: dict[str, Any]) -> str:
        city = re.search(r"Weather in (\w+)\?", body["messages"][-1]["content"])
        if city is None or words not in prompt_of(body):
            return "No."
        return OSLO.replace("Oslo", city[1])

    return rule


OSLO = '<tool_call>{"name":"get_weather","arguments":{"city":"Oslo"}}</tool_call>'


def command(server: ModelServer, *more: str) -> list[str]:
    """`toolwire tune` in a process of its own."""
    return [sys.executable, "-m", "toolwire", "tune", "--backend", server.url, "--model", "m", *more]


def test_the_form_that_a_model_can_write_is_found_and_written(run: Run, model_server: Start, tmp_path: Path) -> None:
    server = model_server(only_pythonic)
    result = run("--backend", server.url, "--write", "best.yaml", "--json", "all.json", "--plot", "all.svg")
    assert result.exit_code == 0, result.output
    assert re.search(
        r"^\| pythonic +\| +5 \| +100 \| +100 % \| +100 % \| +100 % \| +100 % \| +0 % \|", result.output, re.M
    )
    assert f"Best: pythonic: score 100 where the default ({DEFAULT}) has 25" in result.output
    assert not (re.search(r"\[TOOL_CALL|Traceback", result.output))

    written = (tmp_path / "best.yaml").read_text("utf-8")
    config = load(tmp_path / "best.yaml", env={})
    assert config.routes[0].options == RouteOptions(format="pythonic")
    assert (config.routes[0].model, config.routes[0].upstream_model) == ("*", "m")
    assert config.backends["default"].url == server.url
    assert f"# toolwire tune --backend {server.url} --model m --cases cases.json" in written
    assert "# | pythonic" in written
    checked = CliRunner().invoke(main, ["check", "best.yaml"])
    assert checked.exit_code == 0, checked.output

    document = json.loads((tmp_path / "all.json").read_text("utf-8"))
    schema = json.loads(resources.files("toolwire").joinpath("extras/tune/report.schema.json").read_text("utf-8"))
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(document, schema)
    assert document["best"] == "pythonic"
    best = document["candidates"][0]
    assert (best["right_values"], best["wanted"], best["false_calls"], best["faults"]) == (4, 4, 0, 0)
    assert {answer["case"] for answer in best["answers"]} == {case["id"] for case in CASES["cases"]}  # type: ignore[index]

    picture = ET.fromstring((tmp_path / "all.svg").read_text("utf-8"))
    shown = [
        group.get("data-candidate")
        for group in picture.iter("{http://www.w3.org/2000/svg}g")
        if group.get("class") == "candidate"
    ]
    assert shown == [candidate["name"] for candidate in document["candidates"]]


def test_a_template_of_ones_own_is_tried_and_survives_the_file(run: Run, model_server: Start, tmp_path: Path) -> None:
    template = "MINE ${HOME} {tools}\n{format} {policy}\n{examples}"
    (tmp_path / "mine.txt").write_text(template)
    server = model_server(where_told("MINE ${HOME}"))
    result = run("--backend", server.url, "--format", "hermes", "--template", "mine.txt", "--write", "best.yaml")
    assert result.exit_code == 0, result.output
    assert "Best: hermes, mine" in result.output
    assert load(tmp_path / "best.yaml", env={}).routes[0].options.prompt.template == template
    assert "template: |" in (tmp_path / "best.yaml").read_text("utf-8"), "a text that people can read"


def test_nothing_that_is_secret_is_written(run: Run, model_server: Start, tmp_path: Path) -> None:
    """Neither the key of the server nor a password in its address."""
    server = model_server(only_pythonic)
    url = server.url.replace("http://", "http://user:hunter2@")
    for number, (secret, *arguments) in enumerate(
        (("sesame", server.url, "--backend-key", "sesame"), ("hunter2", url))
    ):
        written, document = tmp_path / f"{number}.yaml", tmp_path / f"{number}.json"
        files = ("--json", str(document), "--write", str(written))
        result = run("--backend", *arguments, "--format", "pythonic", *files)
        assert result.exit_code == 0, result.output
        assert secret not in result.output + document.read_text() + written.read_text()
        if secret == "sesame":
            posts = [asked for asked in server.upstream.requests if asked.method == "POST"]
            assert {asked.headers.get("authorization") for asked in posts} == {"Bearer sesame"}
    key, login = tmp_path / "0.yaml", tmp_path / "1.yaml"
    assert load(key, env={"MODEL_SERVER_KEY": "x"}).backends["default"].api_key == "x"
    assert not load(key, env={}).backends["default"].api_key
    assert load(login, env={"MODEL_SERVER_LOGIN": "user:hunter2"}).backends["default"].url == url


def test_a_candidate_that_the_server_refuses_is_out_and_the_rest_goes_on(run: Run, model_server: Start) -> None:
    def rule(body: dict[str, Any]) -> str | int:
        return 400 if "tools" in body else only_pythonic(body)

    result = run(
        "--backend", model_server(rule).url, "--format", "native", "--format", "pythonic", "--wording", "standard"
    )
    assert result.exit_code == 0, result.output
    assert re.search(r"^\| native +\| +0 \+3! ", result.output, re.M)
    assert "the model server fails" in result.output
    assert "Fault of the model server: 400 upstream_rejected: " in result.output
    assert "Best: pythonic" in result.output


def test_a_model_that_never_calls_is_told_so(run: Run, model_server: Start) -> None:
    result = run("--backend", model_server(lambda body: "Hello.").url, "--format", "hermes")
    assert result.exit_code == 0, result.output
    assert f"Best: {DEFAULT}, which is the default." in result.output
    assert "No expected call had the right values." in result.output


def test_a_call_that_stays_text_is_counted(run: Run, model_server: Start) -> None:
    text = 'Sure: `x`\n\n```json\n{"name": "get_weather", "arguments": {"city": "Oslo"}}\n```'
    result = run(
        "--backend", model_server(lambda body: text).url, "--format", "harmony", "--json", "-", "--wording", "standard"
    )
    document = json.loads(result.stdout)
    for candidate in document["candidates"]:
        assert candidate["printed"] + candidate["right_values"] > 0


@pytest.mark.parametrize(
    ("args", "status", "message"),
    [
        ((), 2, "Missing option '--backend'"),
        (("--backend", "{url}", "--format", "hermse"), 1, "did you mean 'hermes'?"),
        (("--backend", "{url}", "--wording", "loud"), 1, "unknown wording 'loud'; known: standard"),
        (("--backend", "{url}", "--template", "none.txt"), 1, "cannot read none.txt"),
        (("--backend", "{url}", "--template", "bad.txt"), 1, "bad.txt: the template lacks {tools}, {policy}, {format}"),
        (("--backend", "{url}", "--cases", "none.json"), 1, "none.json: No such file"),
        (("--backend", "{url}", "--cases", "bad.txt"), 1, "bad.txt: the document: "),
        (("--backend", "{url}", "--write", "cases.json"), 1, "cases.json exists and is not overwritten"),
        (("--backend", "{url}", "--write", "none/best.yaml"), 1, "cannot write none/best.yaml: there is no such folder"),
        (("--backend", "{url}", "--preset", "vlm"), 1, "unknown preset 'vlm'"),
        (("--backend", "{url}", "--choice", "none"), 2, "--choice"),
        (("--backend", "http://127.0.0.1:9", "-n", "1"), 1, "the model server fails: 502 upstream_disconnected"),
        (("--backend", "nowhere"), 1, "an address such as"),
    ],
)  # fmt: skip
def test_mistakes_are_told(
    run: Run, model_server: Start, tmp_path: Path, args: tuple[str, ...], status: int, message: str
) -> None:
    (tmp_path / "bad.txt").write_text("{examples}")
    server = model_server(only_pythonic)
    result = run(*(arg.replace("{url}", server.url) for arg in args))
    assert result.exit_code == status, result.output
    assert message in result.output
    assert server.bodies == [], "nothing was asked"


def test_a_model_has_to_be_named_where_there_are_several(run: Run, model_server: Start) -> None:
    server = model_server(only_pythonic)
    result = CliRunner().invoke(main, ["tune", "--backend", server.url])
    assert result.exit_code == 1
    assert "several models: choose one with --model: m, n" in result.output


def test_a_server_that_cannot_be_asked_is_told_so(model_server: Start) -> None:
    """It is away, or the client can send either a login or a key."""
    url = model_server(only_pythonic).url.replace("http://", "http://user:hunter2@")
    for args, message in (
        (("http://user:hunter2@127.0.0.1:9",), "the model server at http://127.0.0.1:9 does not answer"),
        ((url, "--backend-key", "sesame"), "the model server cannot be reached: "),
    ):
        result = CliRunner().invoke(main, ["tune", "--backend", *args])
        assert result.exit_code == 1
        assert message in result.output
        assert "hunter2" not in result.output


def test_ctrl_c_keeps_what_was_measured(model_server: Start, tmp_path: Path) -> None:
    (tmp_path / "cases.json").write_text(json.dumps(CASES))
    enough = threading.Event()
    hold = threading.Event()
    count = 0

    def rule(body: dict[str, Any]) -> str:
        nonlocal count
        count += 1
        if count > 12:
            enough.set()
            hold.wait(GUARD_S)  # the server answers nobody any more
        return only_pythonic(body)

    server = model_server(rule)
    program = command(server, "--cases", "cases.json", "--write", "best.yaml", "--json", "all.json")
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    with subprocess.Popen(
        [*program, "--format", "pythonic", "--format", "hermes"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert enough.wait(GUARD_S)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=GUARD_S)
        hold.set()
    assert process.returncode == 130, err
    assert "Traceback" not in err
    assert "It was stopped early: the order is not final." in out
    document = json.loads((tmp_path / "all.json").read_text("utf-8"))
    assert document["stopped"]
    assert sum(candidate["asked"] for candidate in document["candidates"]) == 12
    assert from_mapping(RouteOptions, yaml.safe_load((tmp_path / "best.yaml").read_text())["routes"][0]["options"])


def test_without_a_terminal_there_are_plain_lines(run: Run, model_server: Start) -> None:
    result = run("--backend", model_server(only_pythonic).url, "--format", "pythonic", "--format", "hermes")
    assert re.search(r"^\d+ of \d+ candidates; cases: 5; at most \d+ answers$", result.stderr, re.M)
    assert re.search(r"^  out \(round \d", result.stderr, re.M)
    assert "\x1b" not in result.output


def test_without_its_extra_there_are_plain_lines_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(show, "find_spec", lambda name: None)
    assert type(view(print, terminal=True)) is PlainProgress


@pytest.mark.skipif(not hasattr(os, "openpty"), reason="needs pseudo-terminals")
def test_on_a_terminal_there_are_a_table_and_a_bar_that_vanish(model_server: Start, tmp_path: Path) -> None:
    (tmp_path / "cases.json").write_text(json.dumps(CASES))
    server = model_server(only_pythonic)
    master, slave = os.openpty()
    shown = b""
    with subprocess.Popen(
        command(server, "--format", "pythonic", "--cases", str(tmp_path / "cases.json")),
        cwd=ROOT,
        env={**os.environ, "TERM": "xterm-256color", "COLUMNS": "160", "LINES": "50"},
        stdout=subprocess.PIPE,
        stderr=slave,
    ) as process:
        os.close(slave)
        while True:
            try:
                piece = os.read(master, 4096)
            except OSError:  # so Linux says that nobody holds the other end any more
                break
            if not piece:
                break
            shown += piece
        out, _ = process.communicate(timeout=GUARD_S)
    os.close(master)
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown.decode())
    assert process.returncode == 0, text
    assert "right values" in text
    assert "pythonic, firm" in text
    assert re.search(r"[━╸]+ +\d+/\d+", text), "the bar, with how many there are"
    assert b"\x1b[2K" in shown, "what was shown is taken away again"
    assert b"Best: pythonic" in out
    assert b"\x1b" not in out


def test_calls_may_be_demanded_of_a_server_that_says_its_preset(run: Run, model_server: Start, tmp_path: Path) -> None:
    server = model_server(lambda body: OSLO)
    server.upstream.listing = llamacpp()
    result = run(
        "--backend", server.url, "--choice", "required", "--format", "hermes", "--json", "-", "--write", "best.yaml"
    )
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    assert "hello" not in {case["id"] for case in document["cases"]}
    assert {bool(body.get("grammar")) for body in server.bodies} == {True, False}, "with the grammar, and without"
    assert {candidate["levels"].get("constraint") for candidate in document["candidates"]} >= {"-", "unconstrained"}
    assert load(tmp_path / "best.yaml", env={}).backends["default"].preset == "llamacpp"
