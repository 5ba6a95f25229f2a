"""Two gateways with one Redis by Sentinels, whose master goes away while clients hold conversations: every response
that a client has been told of can be gone on from afterwards, at either gateway."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.waiting import GUARD_S

pytest.importorskip("redis")

from tests.e2e.conftest import serving, upstream_config
from tests.optional import REDIS
from tests.store.redis_server import WatchedGroup, started
from toolwire.testing import Answer, Asked, Say, Upstream

pytestmark = pytest.mark.needs(REDIS)

RESPONSES = "/v1/responses"
CLIENTS = 4
SOME = 10
"""Answers that come before, and again after, the master is replaced."""


def echo(asked: Asked) -> Answer:
    return Say("You said ", asked.json["messages"][-1]["content"])(asked)


class Clients:
    """Go on from their last answers without end, from one gateway to the other. `told` are the answers by what was
    asked."""

    def __init__(self, urls: Sequence[str]) -> None:
        self.told: dict[str, dict[str, Any]] = {}
        self._urls = itertools.cycle(urls)
        self._tasks = [asyncio.create_task(self._talk(number)) for number in range(CLIENTS)]

    async def more(self) -> None:
        """Returns when so many more have come; fails with a client."""
        enough = len(self.told) + SOME
        async with asyncio.timeout(GUARD_S):
            while len(self.told) < enough:
                await asyncio.sleep(0.02)
                for task in self._tasks:
                    if task.done():
                        task.result()

    async def end(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _talk(self, number: int) -> None:
        previous: dict[str, str] = {}
        async with aiohttp.ClientSession() as session:
            for turn in itertools.count():
                said = f"{turn} of {number}"
                body = {"model": "m", "input": said, "stream": number % 2 == 0, **previous}
                async with session.post(next(self._urls), json=body) as answer:
                    assert answer.status == 200, await answer.text()
                    told = await self._read(answer) if number % 2 == 0 else await answer.json()
                assert (told["status"], told["store"]) == ("completed", True)
                self.told[said] = told
                previous = {"previous_response_id": told["id"]} if turn % 10 else {}

    async def _read(self, answer: aiohttp.ClientResponse) -> dict[str, Any]:
        response: dict[str, Any] = {}
        async for line in answer.content:
            if line.startswith(b"data: {"):
                response = json.loads(line[6:]).get("response", response)
        return response


async def test_what_was_told_can_be_gone_on_from(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with started(WatchedGroup(tmp_path, replicas=2, sentinels=3)) as group:
        store = {"kind": "redis", "url": group.url, "failover_s": GUARD_S}
        async with Upstream([echo]) as upstream:
            config = upstream_config(upstream.url, store=store)
            async with serving(config) as one, serving(config) as two:
                urls = [str(server.make_url(RESPONSES)) for server in (one, two)]
                clients = Clients(urls)
                await clients.more()
                old = await group.master()
                old.stop()
                await group.replaced(old)
                await clients.more()
                await clients.end()
                async with aiohttp.ClientSession() as session:
                    for (said, told), url in zip(clients.told.items(), itertools.cycle(urls)):
                        async with session.get(f"{url}/{told['id']}") as answer:
                            assert (answer.status, await answer.json()) == (200, told)
                        body = {"model": "m", "input": f"And after {said}?", "previous_response_id": told["id"]}
                        async with session.post(url, json=body) as answer:
                            assert answer.status == 200
            texts = [[message["content"] for message in post.json["messages"]] for post in upstream.posts]
            gone_on = {tuple(each[-3:]) for each in texts}
            assert gone_on >= {(said, f"You said {said}", f"And after {said}?") for said in clients.told}
    assert "could not be stored" not in caplog.text
