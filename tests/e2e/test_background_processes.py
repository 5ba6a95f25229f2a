"""Responses in the background of a gateway with two workers: any of them answers for one, a reload does not end it, a
killed worker and the end of the drain do, and every poll says so."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import openai
import pytest
from openai.types.responses import Response

from tests.e2e.conftest import NO_TLS
from tests.e2e.processes import Process, running
from tests.e2e.test_background import END, word
from tests.waiting import GUARD_S
from toolwire.testing import Answer, Upstream

pytestmark = pytest.mark.skipif(not hasattr(socket, "SO_REUSEPORT"), reason="several workers need SO_REUSEPORT")

POLLS = 12
"""Connections of their own: they come to both workers."""


SHORT_LEASE = {"background": {"lease_s": 8.0}}
"""The responses of a killed worker end soon, and those of others outlast pauses of seconds: a lease is renewed after a
quarter of its time."""


def configured(upstream: Upstream, **more: Any) -> dict[str, Any]:
    """Two workers."""
    return {"server": {"port": 0, "workers": 2, **more}, "backends": {"up": {"url": upstream.url}}}


def client(url: str) -> openai.AsyncOpenAI:
    """A client with a connection of its own."""
    plain = openai.DefaultAsyncHttpxClient(verify=NO_TLS)
    return openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=3, http_client=plain)


async def asked(url: str, ident: str, times: int = POLLS) -> list[Response]:
    """What a response is, each time over a new connection."""
    found = []
    for _ in range(times):
        async with client(url) as session:
            found.append(await session.responses.retrieve(ident))
    return found


async def until(url: str, ident: str, status: str) -> None:
    async with asyncio.timeout(GUARD_S):
        while {response.status for response in await asked(url, ident, 1)} != {status}:  # noqa: ASYNC110
            await asyncio.sleep(0.05)


async def begin(process: Process) -> str:
    async with client(process.url) as session:
        made = await session.responses.create(model="m", input="x", background=True)
    await until(process.url, made.id, "in_progress")
    return made.id


@pytest.fixture
async def held() -> AsyncIterator[tuple[Upstream, asyncio.Event]]:
    gate = asyncio.Event()
    async with Upstream([Answer([word("Half "), gate, word("whole."), *END])]) as upstream:
        yield upstream, gate


async def test_any_worker_and_a_reload(tmp_path: Path, held: tuple[Upstream, asyncio.Event]) -> None:
    upstream, gate = held
    async with running(tmp_path, configured(upstream)) as process:
        ident = await begin(process)
        assert {response.status for response in await asked(process.url, ident)} == {"in_progress"}
        await process.reload()
        assert {response.status for response in await asked(process.url, ident)} == {"in_progress"}
        gate.set()
        await until(process.url, ident, "completed")
        assert {response.output_text for response in await asked(process.url, ident)} == {"Half whole."}


async def test_a_killed_worker(tmp_path: Path, held: tuple[Upstream, asyncio.Event]) -> None:
    """A poll says so, and a stream that somebody follows ends so."""
    upstream, gate = held
    async with running(tmp_path, configured(upstream) | SHORT_LEASE) as process:
        idents = [await begin(process) for _ in range(3)]
        for worker in process.workers():
            os.kill(worker, signal.SIGKILL)
        await process.logged("starting another", 2)
        for ident in idents:
            await until(process.url, ident, "failed")
            failed = (await asked(process.url, ident))[0]
            assert failed.error is not None
            assert failed.error.message.startswith("response_lost: ")
            async with client(process.url) as session:
                events = [event async for event in await session.responses.retrieve(ident, stream=True)]
            assert [event.sequence_number for event in events] == [*range(len(events))]
            assert (events[0].type, events[-1].type) == ("response.created", "response.failed")
        gate.set()
        assert await begin_and_end(process) == "Half whole."  # nothing stands in the way of the next one


async def begin_and_end(process: Process) -> str:
    async with client(process.url) as session:
        made = await session.responses.create(model="m", input="x", background=True)
    await until(process.url, made.id, "completed")
    return (await asked(process.url, made.id, 1))[0].output_text


@pytest.mark.parametrize("in_time", [True, False])
async def test_the_drain(tmp_path: Path, held: tuple[Upstream, asyncio.Event], in_time: bool) -> None:
    """It is waited for as for any other answer; when the time is over it has failed, and a gateway that is started
    again says so."""
    upstream, gate = held
    config = configured(upstream, shutdown_grace_s=GUARD_S / 2 if in_time else 0.2)
    async with running(tmp_path, config) as process:
        ident = await begin(process)
        process.signal(signal.SIGTERM)
        if in_time:
            await process.logged("stopping; requests under way: 1")
            gate.set()
        await process.end()
    async with running(tmp_path, config) as process:
        (response,) = await asked(process.url, ident, 1)
    if in_time:
        assert (response.status, response.output_text) == ("completed", "Half whole.")
    else:
        assert response.status == "failed"
        assert response.error is not None
        assert response.error.message.startswith("shutting_down: ")
