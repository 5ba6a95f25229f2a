"""The requests that a process answers before it says that it serves."""

from __future__ import annotations

import asyncio
import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest
from aiohttp import web

from proxy.config import BackendConfig, GatewayConfig, StoreConfig
from proxy.configuration.settings import load
from proxy.observability.telemetry import ACCESS, Metrics
from proxy.pipeline.delivery import CLIENTS
from proxy.server import rehearsal
from proxy.server.played import PlayedGateway
from proxy.server.rehearsal import _answered, _of_its_own, _requests, rehearse
from proxy.server.serving import gateway

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine may pause."""
    monkeypatch.setattr(rehearsal, "MOST_S", 60.0)


async def test_each_protocol_whole_and_streamed_and_calls_are_found() -> None:
    config = GatewayConfig()
    async with PlayedGateway(gateway, _of_its_own(config), _answered(config)) as played:
        ask = played.client()
        requests = list(_requests(played.app[CLIENTS].sides))
        assert len(requests) == 4 * len(played.app[CLIENTS].sides) >= 12
        for request in requests:
            answer = await ask(request)
            assert answer.startswith(b"HTTP/1.1 200 "), answer
            assert (b"call_" in answer or b"toolu_" in answer) is (b'"name":"look"' in request), answer


async def test_nobody_sees_it(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    """No log, no count, no stored response, no request of the configured server; and the log speaks afterwards."""
    caplog.set_level(logging.DEBUG)
    asked: list[str] = []

    async def seen(request: web.Request) -> web.Response:
        asked.append(request.path)
        return web.Response(status=404)

    server = web.Server(seen)
    listening = await asyncio.get_running_loop().create_server(server, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    store = StoreConfig(path=str(tmp_path / "responses.sqlite3"))
    config = GatewayConfig(backends={"default": BackendConfig(url=url)}, store=store)
    created: list[GatewayConfig] = []

    def create(config: GatewayConfig, metrics: Metrics, before: web.Application | None) -> web.Application:
        created.append(config)
        return gateway(config, metrics, before)

    await rehearse(create, config)
    assert len(created) == 1
    assert created[0].store.kind == "memory"
    assert not [record for record in caplog.records if record.name.startswith("toolwire")]
    assert not asked
    assert not os.listdir(tmp_path)
    ACCESS.info("heard")
    assert "heard" in caplog.messages
    listening.close()
    await server.shutdown()


async def test_its_failure_is_for_who_looks_for_it(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "toolwire")

    def create(config: GatewayConfig, metrics: Metrics, before: web.Application | None) -> web.Application:
        raise OSError("none")

    await rehearse(create, GatewayConfig())
    assert [(record.levelno, record.message) for record in caplog.records] == [(logging.DEBUG, "the rehearsal failed")]
    assert not ACCESS.filters


async def test_calls_are_written_as_the_default_format_has_them() -> None:
    config = load(
        None,
        env={},
        overrides={"backends": {"a": {"url": "http://127.0.0.1:9"}}, "defaults": {"format": "qwen3_coder"}},
    )
    assert _of_its_own(config).defaults == config.defaults
    async with PlayedGateway(gateway, _of_its_own(config), _answered(config)) as played:
        ask = played.client()
        for request in _requests(played.app[CLIENTS].sides):
            answer = await ask(request)
            assert (b"call_" in answer or b"toolu_" in answer) is (b'"name":"look"' in request), answer


FIRST = """
import asyncio, sys
from proxy.config import GatewayConfig
from proxy.pipeline.delivery import CLIENTS
from proxy.server.played import PlayedGateway
from proxy.server.rehearsal import _answered, _of_its_own, _requests, rehearse
from proxy.server.serving import gateway
from proxy.server import rehearsal

rehearsal.MOST_S = 60.0
calls = 0
def count(frame, what, argument):
    global calls
    calls += what == "call" or what == "c_call"

async def main():
    global calls
    config = GatewayConfig()
    if sys.argv[1] == "rehearsed":
        await rehearse(gateway, config)
    async with PlayedGateway(gateway, _of_its_own(config), _answered(config)) as played:
        ask = played.client()
        request = list(_requests(played.app[CLIENTS].sides))[int(sys.argv[2])]
        counts = []
        for _ in range(30):
            calls = 0
            sys.setprofile(count)
            await ask(request)
            sys.setprofile(None)
            counts.append(calls)
    print(counts[0] / sorted(counts)[15])

asyncio.run(main())
"""


@pytest.mark.parametrize("kind", [2, 6, 10])
def test_the_first_request_runs_at_most_twice_the_functions(kind: int) -> None:
    """Of those that a later one runs; it is many more without a rehearsal."""

    def ratio(how: str) -> float:
        command = [sys.executable, "-c", FIRST, how, str(kind)]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
        return float(done.stdout)

    assert ratio("rehearsed") < 2 < ratio("cold")
