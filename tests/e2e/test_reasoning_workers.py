"""Reasoning that comes back to another worker, after a worker has died, and after a reload: without a store (R28.3)."""

from __future__ import annotations

import json
import os
import signal
import socket
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from aiohttp.test_utils import TestServer

from tests.e2e.processes import running
from tests.e2e.reasoning_servers import SAID, DeepSeek, ResponsesClient
from toolwire.testing import Upstream

pytestmark = pytest.mark.skipif(not hasattr(socket, "SO_REUSEPORT"), reason="several workers need SO_REUSEPORT")

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
