"""Gateways that are killed, and stores whose master goes away, while clients hold conversations: every response that a
client has been told of can be gone on from afterwards."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import signal
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.e2e.conftest import serving, upstream_config
from tests.e2e.processes import running
from tests.optional import REDIS
from tests.store.redis_server import WatchedGroup, started
from tests.waiting import GUARD_S, until
from toolwire.testing import Answer, Asked, Say, Upstream

RESPONSES = "/v1/responses"


def echo(asked: Asked) -> Answer:
    return Say("You said ", asked.json["messages"][-1]["content"])(asked)


class Clients:
    """Go on from their last answers, from one gateway to the other, until it is over or one of these errors comes.
    `told` are the answers by what was asked, `begun` the ids of streams that had begun."""

    def __init__(self, urls: tuple[str, ...], errors: tuple[type[Exception], ...]) -> None:
        self.told: dict[str, dict[str, Any]] = {}
        self.begun: set[str] = set()
        self.over = False
        self._urls = itertools.cycle(urls)
        self._errors = errors

    async def more(self, number: int) -> None:
        """Returns when so many more have come."""
        enough = len(self.told) + number
        await until(lambda: len(self.told) >= enough)

    async def talk(self, number: int) -> None:
        """One of them; every other one wants streams."""
        previous: dict[str, str] = {}
        with suppress(*self._errors):
            async with aiohttp.ClientSession() as session:
                for turn in itertools.count():
                    if self.over:
                        return
                    said = f"{turn} of {number}"
                    body = {"model": "m", "input": said, "stream": number % 2 == 0, **previous}
                    async with session.post(next(self._urls), json=body) as answer:
                        assert answer.status == 200, await answer.text()
                        if number % 2:
                            self.told[said] = await answer.json()
                        else:
                            await self._read(said, answer)
                    told = self.told[said]
                    assert (told["status"], told["store"]) == ("completed", True)
                    previous = {"previous_response_id": told["id"]} if turn % 10 else {}

    async def _read(self, said: str, answer: aiohttp.ClientResponse) -> None:
        async for line in answer.content:
            if line.startswith(b"data: {"):
                event = json.loads(line[6:])
                if event["type"] == "response.created":
                    self.begun.add(event["response"]["id"])
                elif event["type"] == "response.completed":
                    self.told[said] = event["response"]


@asynccontextmanager
async def talking(number: int, *urls: str, errors: tuple[type[Exception], ...] = ()) -> AsyncIterator[Clients]:
    """Runs this many clients, which talk until the block ends."""
    clients = Clients(urls, errors)
    async with asyncio.timeout(GUARD_S), asyncio.TaskGroup() as group:
        for each in range(number):
            group.create_task(clients.talk(each))
        yield clients
        clients.over = True


async def can_be_gone_on_from(told: Mapping[str, dict[str, Any]], upstream: Upstream, *urls: str) -> None:
    """Asserts that each response is as the client has it, and the model sees what was said before."""
    async with aiohttp.ClientSession() as session:
        for (said, response), url in zip(told.items(), itertools.cycle(urls)):
            async with session.get(f"{url}/{response['id']}") as answer:
                assert (answer.status, await answer.json()) == (200, response)
            body = {"model": "m", "input": "And then?", "previous_response_id": response["id"]}
            async with session.post(url, json=body) as answer:
                assert answer.status == 200
            texts = [message["content"] for message in upstream.posts[-1].json["messages"]]
            assert texts[-3:] == [said, f"You said {said}", "And then?"]


@pytest.mark.skipif(not hasattr(socket, "SO_REUSEPORT"), reason="several workers need SO_REUSEPORT")
async def test_what_was_answered_outlives_a_kill(tmp_path: Path) -> None:
    async with Upstream([echo]) as upstream:
        config = {
            "server": {"port": 0, "workers": 2},
            "backends": {"up": {"url": upstream.url}},
            "store": {"kind": "sqlite", "path": str(tmp_path / "turns.sqlite3")},
        }
        gone = (aiohttp.ClientError, ConnectionError)
        async with running(tmp_path, config) as gateway, talking(8, gateway.url + RESPONSES, errors=gone) as clients:
            await clients.more(30)
            os.killpg(gateway.process.pid, signal.SIGKILL)
        streamed = [response["id"] in clients.begun for response in clients.told.values()]
        assert set(streamed) == {False, True}
        async with running(tmp_path, config) as gateway:
            await can_be_gone_on_from(clients.told, upstream, gateway.url + RESPONSES)
            async with aiohttp.ClientSession(gateway.url) as session:
                for ident in clients.begun:
                    async with session.get(f"{RESPONSES}/{ident}") as answer:
                        assert answer.status == 200


@pytest.mark.needs(REDIS)
async def test_what_was_told_outlives_the_master_of_the_store(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Two gateways with one Redis by Sentinels."""
    pytest.importorskip("redis")
    with started(WatchedGroup(tmp_path, replicas=2, sentinels=3)) as group:
        async with Upstream([echo]) as upstream:
            config = upstream_config(upstream.url, store={"kind": "redis", "url": group.url, "failover_s": GUARD_S})
            async with serving(config) as one, serving(config) as two:
                urls = [str(server.make_url(RESPONSES)) for server in (one, two)]
                async with talking(4, *urls) as clients:
                    await clients.more(10)
                    old = await group.master()
                    old.stop()
                    await group.replaced(old)
                    await clients.more(10)
                await can_be_gone_on_from(clients.told, upstream, *urls)
    assert "could not be stored" not in caplog.text
