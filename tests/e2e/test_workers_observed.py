"""Metrics and captures of a gateway with several workers, as processes: whichever worker is asked, it speaks for
all."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.e2e.forking import Forked
from tests.waiting import GUARD_S

pytestmark = pytest.mark.skipif(not hasattr(socket, "SO_REUSEPORT"), reason="several workers need SO_REUSEPORT")

ROOT = Path(__file__).resolve().parents[2]
CONFIG = """
server: {port: 0, workers: 2, log_format: json}
backends: {m: {kind: mock, script: [hello]}}
store: {kind: none}
capture: 100
"""
REQUESTS = 60


class Gateway:
    """A running `toolwire serve`."""

    def __init__(self, folder: Path) -> None:
        (folder / "gateway.yaml").write_text(CONFIG)
        self._log = folder / "log"
        with self._log.open("wb") as log:
            self.process = Forked(folder / "gateway.yaml", env={"TMPDIR": str(folder)}, folder=folder, log=log)
        found = re.search(r"http://\S+?(?=/v1)", self.process.stdout.readline().decode())
        assert found, self._log.read_text()
        self.url = found[0]

    def get(self, path: str) -> bytes:
        """Over a connection of its own, so that any worker may answer."""
        with urllib.request.urlopen(self.url + path, timeout=GUARD_S) as answer:
            return bytes(answer.read())

    def ask(self, ident: str) -> None:
        body = json.dumps({"model": "m", "messages": [{"role": "user", "content": "hi"}]}).encode()
        headers = {"Content-Type": "application/json", "X-Request-Id": ident}
        with urllib.request.urlopen(urllib.request.Request(f"{self.url}/v1/chat/completions", body, headers)) as answer:
            assert answer.status == 200

    def count(self) -> float:
        """All requests, as one worker says."""
        page = self.get("/metrics").decode()
        return sum(
            sample.value
            for family in text_string_to_metric_families(page)
            for sample in family.samples
            if sample.name == "toolwire_requests_total"
        )

    def pids(self) -> list[int]:
        """The workers that have answered, by the log."""
        lines = [json.loads(line) for line in self._log.read_text().splitlines()]
        return sorted({line["pid"] for line in lines if line["logger"] == "toolwire.access"})


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[Gateway]:
    running = Gateway(tmp_path)
    yield running
    running.process.close()


def until(holds: Callable[[], bool]) -> None:
    """Wait for it; a request is counted, logged and captured a little after its answer has gone."""
    limit = time.monotonic() + GUARD_S
    while not holds():
        assert time.monotonic() < limit, "it never came"
        time.sleep(0.02)


def test_the_sum_is_exact_and_outlives_a_worker(gateway: Gateway, tmp_path: Path) -> None:
    for number in range(REQUESTS):
        gateway.ask(f"r{number}")
    until(lambda: len(gateway.pids()) == 2)
    until(lambda: gateway.count() == REQUESTS)
    assert {gateway.count() for _ in range(20)} == {REQUESTS}
    killed = gateway.pids()[0]
    os.kill(killed, signal.SIGKILL)
    for number in range(REQUESTS, 2 * REQUESTS):
        until(lambda ident=f"r{number}": answered(gateway, ident))  # type: ignore[misc]
    until(lambda: len(set(gateway.pids()) - {killed}) == 2)
    until(lambda: gateway.count() == 2 * REQUESTS)
    assert {gateway.count() for _ in range(20)} == {2 * REQUESTS}
    # A capture is found by whichever worker is asked, also one that the killed worker made.
    until(lambda: len(json.loads(gateway.get("/admin/captures"))["data"]) == 100)
    for _ in range(10):
        assert b'"request_id":"r119"' in gateway.get("/admin/captures/r119")
        assert b'"request_id":"r21"' in gateway.get("/admin/captures/r21")
    gateway.process.send_signal(signal.SIGTERM)
    assert gateway.process.wait() == 0
    assert not [path for path in tmp_path.iterdir() if path.is_dir()], "nothing is left behind"


def answered(gateway: Gateway, ident: str) -> bool:
    """A connection to a worker that is just being killed may be refused; such a request was never counted."""
    try:
        gateway.ask(ident)
    except OSError:
        return False
    return True
