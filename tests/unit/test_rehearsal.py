"""The requests that a process answers before it says that it serves."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable
from contextvars import copy_context
from itertools import product
from pathlib import Path
from typing import Any, Final

import pytest
from aiohttp import web

from tests.cases import every
from tests.unit import first_request
from tests.unit.first_request import KINDS
from tests.waiting import GUARD_S
from toolwire.app import create_app
from toolwire.config import BackendConfig, GatewayConfig, StoreConfig
from toolwire.configuration.settings import load
from toolwire.model import ModelRequest
from toolwire.observability.telemetry import ACCESS, Metrics
from toolwire.record import AccessRecord, BackendObserver, ExchangeObserver, ReadRequest
from toolwire.server import rehearsal
from toolwire.server.process import gateway
from toolwire.server.rehearsal import TIMES, rehearse

ROOT = Path(__file__).parents[2]
SERVER: Final = {"a": {"url": "http://127.0.0.1:9"}}
QWEN: Final = {"format": "qwen3_coder"}


def configured(**sections: Any) -> GatewayConfig:
    return load(None, env={}, overrides={"backends": SERVER, **sections})


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine may pause."""
    monkeypatch.setattr(rehearsal, "MOST_S", GUARD_S)


class Seen(ExchangeObserver):
    """An exchange of the rehearsal's own application, and the whole of its answer."""

    def __init__(self) -> None:
        self.answer = b""
        self.output = self._output

    def _output(self, data: bytes) -> None:
        self.answer += data

    def read(self, read: ReadRequest, record: AccessRecord) -> None:
        self.read_request = read

    def backend_call(self, backend: str, request: ModelRequest) -> BackendObserver:
        return BackendObserver()

    def tool(self, name: str, call_id: str, arguments: str) -> Any:
        raise AssertionError("the gateway has no tools")

    def ended(self, record: AccessRecord) -> None:
        self.status = record.status
        self.usage_source = record.notes.get("usage_source")


async def rehearsed(config: GatewayConfig) -> list[Seen]:
    """What is asked."""
    seen: list[Seen] = []

    def observe(request: web.Request, ident: str) -> Seen:
        seen.append(Seen())
        return seen[-1]

    def create(config: GatewayConfig, metrics: Metrics, before: web.Application | None) -> web.Application:
        return create_app(config, metrics=metrics, before=before, observe=[observe])

    await rehearse(create, config)
    assert all(each.status == 200 for each in seen)
    for each in seen:
        called = b'"call_' in each.answer or b'"toolu_' in each.answer
        assert called is bool(each.read_request.request.tools), each.answer
    return seen


def kinds(seen: Iterable[Seen]) -> Counter[tuple[str, bool, bool]]:
    reads = [each.read_request for each in seen]
    return Counter((read.endpoint, read.request.stream, bool(read.request.tools)) for read in reads)


EACH = set(product(("chat", "responses", "messages"), (False, True), (False, True)))


async def test_each_protocol_whole_and_streamed_and_calls_are_found() -> None:
    seen = await rehearsed(configured())
    assert kinds(seen) == dict.fromkeys(EACH, TIMES)
    assert {each.usage_source for each in seen} >= {"backend", "estimate"}
    assert any(b'"previous_response_id":"resp_' in each.answer for each in seen)


@every(
    ("kind", "mode"),
    [
        *(("openai_chat", "native"), ("openai_completions", "prompt")),
        *(("openai_responses", "prompt"), ("anthropic_messages", "native")),
    ],
)
async def test_each_format_and_server_of_the_routes(kind: str, mode: str) -> None:
    of_routes = {"a": ("a", {}), "b": ("b", {"mode": mode}), "c": ("a", QWEN), "d": ("a", QWEN)}
    routes = [{"model": name, "backend": to, "options": options} for name, (to, options) in of_routes.items()]
    backends = {"a": SERVER["a"], "b": {**SERVER["a"], "kind": kind}}
    seen = await rehearsed(configured(backends=backends, routes=routes))
    by_route: dict[str, list[Seen]] = {}
    for each in seen:
        by_route.setdefault(each.read_request.route.model, []).append(each)
    first, *others = by_route.values()
    assert kinds(first) == dict.fromkeys(EACH, TIMES)
    assert [kinds(other) for other in others] == [dict.fromkeys(EACH, 1)] * (1 if kind == "openai_chat" else 2)
    assert others[-1][0].read_request.options.format == "qwen3_coder"


async def test_a_server_with_fallbacks_is_asked_as_well() -> None:
    backends = {"a": {**SERVER["a"], "kind": "anthropic_messages"}, "b": SERVER["a"]}
    seen = await rehearsed(configured(backends=backends, routes=[{"model": "a", "backend": "a", "fallback": ["b"]}]))
    assert {each.read_request.route.backend for each in seen} == {"anthropic_messages", "openai_chat"}


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
    assert created[0].store.kind == "sqlite"
    assert created[0].store.path != store.path
    assert not Path(str(created[0].store.path)).parent.exists()
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

    await rehearse(create, configured())
    assert [(record.levelno, record.message) for record in caplog.records] == [(logging.DEBUG, "the rehearsal failed")]
    assert not ACCESS.filters


async def test_who_is_served_meanwhile_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)

    def create(config: GatewayConfig, metrics: Metrics, before: web.Application | None) -> web.Application:
        elsewhere.run(ACCESS.info, "heard")
        ACCESS.info("not heard")
        return gateway(config, metrics, before)

    elsewhere = copy_context()
    await rehearse(create, configured())
    assert caplog.messages == ["heard"]


def test_the_first_request_runs_at_most_twice_the_functions() -> None:
    """Of those that a later one runs; it is many more without a rehearsal."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, first_request.__file__]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    ratios: dict[str, float] = json.loads(done.stdout)
    assert ratios.pop("cold") > 2
    assert ratios.keys() == KINDS.keys()
    assert {kind: ratio for kind, ratio in ratios.items() if ratio >= 2} == {}
