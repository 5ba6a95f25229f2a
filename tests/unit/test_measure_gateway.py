"""`toolwire bench gateway`: small real runs on the loopback interface. Nothing here looks at how large a time is."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from proxy.cli import main
from proxy.measure.gateway import WORKS, Measured, Side

Run = Callable[..., Result]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """Run `toolwire bench gateway` in an empty folder, with two requests of each kind."""
    monkeypatch.chdir(tmp_path)
    return lambda *args: CliRunner().invoke(main, ["bench", "gateway", "--requests", "2", *args])


def test_every_kind_of_request_is_measured(run: Run, tmp_path: Path) -> None:
    result = run("--json", "g.json")
    assert result.exit_code == 0, result.output
    table = [line for line in result.output.splitlines() if line.startswith("|")]
    assert [line.split("|")[1].strip() for line in table[2:]] == [work.title for work in WORKS]
    assert len({len(line) for line in table}) == 1
    document = json.loads((tmp_path / "g.json").read_text("utf-8"))
    assert document["requests"] == 2
    for work, measured in zip(WORKS, document["work"], strict=True):
        assert (measured["title"], measured["tools"], measured["stream"]) == (work.title, work.tools, work.stream)
        assert (measured["frames"] > 400) == work.stream
        for side in ("direct_ns", "gateway_ns"):
            assert len(measured[side]["wall"]) == len(measured[side]["cpu"]) == 2
            assert min(measured[side]["wall"]) > 0


CONFIG = """
backends: {gpu: {url: 'http://127.0.0.1:9', api_key: secret, preset: vllm}}
auth: {keys: [hunter2]}
routes: [{model: 'qwen-*', options: {%s}}]
"""


@pytest.mark.parametrize("options", ["format: bare_json", "mode: native"])
def test_a_configuration_is_measured_without_its_backends_and_keys(run: Run, tmp_path: Path, options: str) -> None:
    (tmp_path / "c.yaml").write_text(CONFIG % options)
    result = run("--config", "c.yaml", "--json", "-")
    assert result.exit_code == 0, result.output
    assert len(json.loads(result.stdout)["work"]) == len(WORKS)


@pytest.mark.parametrize(
    ("config", "status", "message"),
    [
        (
            "backends: {m: {url: 'http://127.0.0.1:9'}}\nchain: [forwarding]",
            1,
            "the gateway answers wrong (whole answer, a call): 200",
        ),
        ("backends: {m: {url: 'http://127.0.0.1:9'}}\ndefaults: {format: hermse}", 1, "did you mean 'hermes'?"),
        ("nonsense: 1", 1, "nonsense"),
    ],
)
def test_what_cannot_be_measured_is_said(run: Run, tmp_path: Path, config: str, status: int, message: str) -> None:
    (tmp_path / "c.yaml").write_text(config)
    result = run("--config", "c.yaml")
    assert result.exit_code == status, result.output
    assert message in result.output
    assert run("--requests", "0").exit_code == 2


def test_the_overhead_is_what_the_gateway_adds() -> None:
    measured = Measured(WORKS[0], 0, Side([10, 30, 20], [1, 1, 1]), Side([25, 90, 60], [5, 7, 9]))
    assert (measured.overhead(50), measured.overhead(99), measured.cpu) == (40, 60, 6)
