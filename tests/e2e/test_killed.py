"""A gateway that is killed while it answers: what a client has got of the Responses API is there when it runs again."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.e2e.processes import running
from tests.waiting import GUARD_S
from toolwire.testing import Answer, Asked, Say, Upstream

pytestmark = pytest.mark.skipif(not hasattr(socket, "SO_REUSEPORT"), reason="several workers need SO_REUSEPORT")

RESPONSES = "/v1/responses"
CLIENTS = 8
ENOUGH = 30
"""Answers that have come before the gateway is killed."""


def echo(asked: Asked) -> Answer:
    return Say("You said ", asked.json["messages"][-1]["content"])(asked)


class Clients:
    """Ask without end, until nobody answers any more. `got` are the answers by what was asked, `begun` the ids of
    streams that had begun."""

    def __init__(self, url: str) -> None:
        self.got: dict[str, dict[str, Any]] = {}
        self.begun: set[str] = set()
        self.enough = asyncio.Event()
        self._url = url

    async def ask(self, number: int) -> None:
        """One of them; every other one wants streams."""
        async with aiohttp.ClientSession(self._url) as session:
            try:
                for turn in range(10_000):
                    said = f"{turn} of {number}"
                    body = {"model": "m", "input": said, "stream": number % 2 == 0}
                    async with session.post(RESPONSES, json=body) as answer:
                        assert answer.status == 200
                        self._take(said, await answer.json()) if number % 2 else await self._read(said, answer)
            except (aiohttp.ClientError, ConnectionError):
                pass  # killed

    async def _read(self, said: str, answer: aiohttp.ClientResponse) -> None:
        async for line in answer.content:
            if line.startswith(b"data: "):
                event = json.loads(line[6:])
                if event["type"] == "response.created":
                    self.begun.add(event["response"]["id"])
                elif event["type"] == "response.completed":
                    self._take(said, event["response"])

    def _take(self, said: str, response: dict[str, Any]) -> None:
        self.got[said] = response
        if len(self.got) >= ENOUGH:
            self.enough.set()


@asynccontextmanager
async def asking(url: str) -> AsyncIterator[Clients]:
    """Clients that ask until the block ends, and then until nobody answers."""
    clients = Clients(url)
    async with asyncio.timeout(GUARD_S), asyncio.TaskGroup() as group:
        for number in range(CLIENTS):
            group.create_task(clients.ask(number))
        yield clients


async def test_what_was_answered_outlives_a_kill(tmp_path: Path) -> None:
    async with Upstream([echo]) as upstream:
        config = {
            "server": {"port": 0, "workers": 2},
            "backends": {"up": {"url": upstream.url}},
            "store": {"kind": "sqlite", "path": str(tmp_path / "turns.sqlite3")},
        }
        async with running(tmp_path, config) as gateway, asking(gateway.url) as clients:
            await clients.enough.wait()
            os.killpg(gateway.process.pid, signal.SIGKILL)
        assert any(response["id"] in clients.begun for response in clients.got.values())
        assert any(response["id"] not in clients.begun for response in clients.got.values())
        async with running(tmp_path, config) as gateway, aiohttp.ClientSession(gateway.url) as session:
            for said, response in clients.got.items():
                async with session.get(f"{RESPONSES}/{response['id']}") as answer:
                    assert (answer.status, await answer.json()) == (200, response)
                body = {"model": "m", "input": "And then?", "previous_response_id": response["id"]}
                async with session.post(RESPONSES, json=body) as answer:
                    assert answer.status == 200
                texts = [message["content"] for message in upstream.posts[-1].json["messages"]]
                assert texts == [said, f"You said {said}", "And then?"]
            for ident in clients.begun:
                async with session.get(f"{RESPONSES}/{ident}") as answer:
                    assert answer.status == 200
