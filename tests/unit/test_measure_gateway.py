"""`toolwire bench gateway`: small real runs on the loopback interface. Nothing here looks at how large a time is."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st

from toolwire.cli import main
from toolwire.extras.bench.gateway import WORKS, Measured, Side, as_text, shown
from toolwire.extras.bench.timing import Estimate, estimate

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


BACKENDS = "backends: {m: {url: 'http://127.0.0.1:9'}}\n"


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (f"{BACKENDS}chain: [forwarding]", "the gateway gives a wrong answer (whole answer, a call): 200"),
        (f"{BACKENDS}defaults: {{format: hermse}}", "did you mean 'hermes'?"),
        ("nonsense: 1", "nonsense"),
    ],
)
def test_what_cannot_be_measured_is_said(run: Run, tmp_path: Path, config: str, message: str) -> None:
    (tmp_path / "c.yaml").write_text(config)
    result = run("--config", "c.yaml")
    assert result.exit_code == 1, result.output
    assert message in result.output
    assert run("--requests", "0").exit_code == 2


def measured(direct: list[int], gateway: list[int], frames: int = 0) -> Measured:
    return Measured(WORKS[0], frames, Side(direct, direct), Side(gateway, gateway))


def test_the_overhead_is_what_the_gateway_adds_to_the_request_beside_it() -> None:
    """A pause of the machine that falls on a direct request is no gain of the gateway, and none of its costs
    otherwise."""
    direct = [1_000_000] * 400
    gateway = [1_100_000] * 400
    for at in (7, 100, 200, 300, 350):
        direct[at] = 76_000_000
    steady = measured(direct, gateway, frames=10)
    assert steady.overhead(50) == steady.overhead(99) == Estimate(100_000, 100_000, 100_000)
    row = next(line for line in as_text([steady]) if line.startswith(f"| {WORKS[0].title}"))
    cells = [cell.strip() for cell in row.split("|")[1:-1]]
    assert cells[2:] == ["1,000", "1,100", *["100 [100, 100]"] * 3, *["10.00 [10.00, 10.00]"] * 2]


def test_percentiles_come_with_what_is_known_of_them() -> None:
    ranks = list(range(1, 101))
    assert estimate(ranks, 50) == Estimate(50, 40, 61)  # as in the tables of order statistics
    assert estimate(list(range(1, 367 + 1)), 99).high is None
    assert estimate(list(range(1, 368 + 1)), 99).high == 368
    assert estimate([7], 50) == Estimate(7, None, None)


NS = st.integers(1, 10**9)


@given(st.lists(st.tuples(NS, NS), min_size=1, max_size=60), st.integers(0, 600))
def test_no_overhead_below_zero_is_ever_a_figure(pairs: list[tuple[int, int]], frames: int) -> None:
    each = measured(*(list(side) for side in zip(*pairs, strict=True)), frames=frames)
    row = next(line for line in as_text([each]) if line.startswith(f"| {WORKS[0].title}"))
    for cell in row.split("|")[5:-1]:
        assert re.fullmatch(r" *(\?|none|< [\d,.]+|[\d,.]+ \[[\d,.]+, [\d,.]+\]|) *", cell), cell


def test_noise_is_a_bound_and_no_figure() -> None:
    noisy = [100_000 * (-1) ** number * number for number in range(400)]
    assert shown(estimate(noisy, 50)).startswith("< ")
    assert shown(Estimate(-5_000, -9_000, -1_000)) == "none"
    assert shown(Estimate(1, 1, None)) == "?"
