"""A gateway with several workers, as processes: whichever worker is asked, it speaks for all. Metrics and captures; and
reasoning that comes back to another worker, after one has died, and after a reload: without a store (R28.3)."""

from __future__ import annotations

import json
import os
import signal
import socket
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import aiohttp
import pytest
from aiohttp.test_utils import TestServer
from prometheus_client.parser import text_string_to_metric_families

from tests.e2e.conftest import CHAT, USER
from tests.e2e.processes import Process, running
from tests.e2e.reasoning_servers import SAID, DeepSeek, ResponsesClient
from tests.waiting import until
from toolwire.testing import Upstream

pytestmark = pytest.mark.skipif(not hasattr(socket, "SO_REUSEPORT"), reason="several workers need SO_REUSEPORT")

CONFIG = {
    "server": {"port": 0, "workers": 2, "log_format": "json"},
    "backends": {"m": {"kind": "mock", "script": ["hello"]}},
    "store": {"kind": "none"},
    "capture": 30,
}
REQUESTS = 20


class Client:
    """Asks over a connection of its own each time, so that any worker may answer."""

    def __init__(self, gateway: Process, session: aiohttp.ClientSession) -> None:
        self._gateway = gateway
        self._session = session

    async def get(self, path: str) -> str:
        async with self._session.get(path) as answer:
            return await answer.text()

    async def ask(self, ident: str) -> bool:
        """A request. False if a worker that is just being killed refused it, which never counts."""
        try:
            body = {"model": "m", "messages": USER}
            async with self._session.post(CHAT, json=body, headers={"X-Request-Id": ident}) as answer:
                return answer.status == 200
        except aiohttp.ClientError:
            return False

    async def counted(self, wanted: int) -> bool:
        """Whether all requests are so many, as one worker says."""
        families = text_string_to_metric_families(await self.get("/metrics"))
        samples = [sample for family in families for sample in family.samples]
        return sum(sample.value for sample in samples if sample.name == "toolwire_requests_total") == wanted

    def workers(self) -> set[int]:
        """Returns the workers that have answered, by the log."""
        lines = map(json.loads, self._gateway.log.splitlines())
        return {line["pid"] for line in lines if line["logger"] == "toolwire.access"}


async def test_the_sum_is_exact_and_outlives_a_worker(tmp_path: Path) -> None:
    async with (
        running(tmp_path, CONFIG, TMPDIR=str(tmp_path)) as gateway,
        aiohttp.ClientSession(gateway.url, connector=aiohttp.TCPConnector(force_close=True)) as session,
    ):
        client = Client(gateway, session)
        for number in range(REQUESTS):
            assert await client.ask(f"r{number}")
        await until(lambda: len(client.workers()) == 2)
        await until(lambda: client.counted(REQUESTS))
        assert all([await client.counted(REQUESTS) for _ in range(20)])
        killed = min(client.workers())
        os.kill(killed, signal.SIGKILL)
        for number in range(REQUESTS, 2 * REQUESTS):
            await until(lambda ident=f"r{number}": client.ask(ident))  # type: ignore[misc]
        await until(lambda: len(client.workers() - {killed}) == 2)
        await until(lambda: client.counted(2 * REQUESTS))
        assert all([await client.counted(2 * REQUESTS) for _ in range(20)])

        async def all_captured() -> bool:
            return len(json.loads(await client.get("/admin/captures"))["data"]) == 30

        await until(all_captured)
        for _ in range(10):  # a capture is found by whichever worker is asked, also one that the killed worker made
            for ident in ("r39", "r11"):
                assert f'"request_id":"{ident}"' in await client.get(f"/admin/captures/{ident}")
        gateway.signal(signal.SIGTERM)
        assert await gateway.end() == 0
    assert not [path for path in tmp_path.iterdir() if path.is_dir()], "nothing is left behind"  # noqa: ASYNC240


CONVERSATIONS = 8


async def test_any_worker_opens_what_another_one_sealed(tmp_path: Path) -> None:
    """R28.3: each request has a connection of its own, so any worker may get it."""
    model = DeepSeek()
    async with Upstream([model]) as up:
        config: dict[str, Any] = {
            "server": {"port": 0, "workers": 2, "log_format": "json"},
            "backends": {"m": {"kind": "openai_chat", "url": up.url, "identify_s": None}},
            "defaults": {"mode": "native"},
            "store": {"kind": "none"},
        }
        async with running(tmp_path, config) as process:
            server = cast(TestServer, SimpleNamespace(make_url=lambda path: process.url + path))
            clients = [ResponsesClient(stream=number % 2 == 1) for number in range(CONVERSATIONS)]
            for client in clients:
                await client.ask(server)
            await process.reload()
            for client in clients:
                await client.ask(server)
            os.kill(process.workers()[0], signal.SIGKILL)
            for client in clients:
                await client.ask(server)
            assert [await client.ask(server) for client in clients] == [SAID] * CONVERSATIONS
            lines = [json.loads(line) for line in process.log.splitlines()]
            answered = {line["pid"] for line in lines if line["logger"] == "toolwire.access"}
            assert len(answered) > 1
    assert model.faults == []
