"""Several workers, as processes: whichever answers the page, it speaks for all."""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import pytest

from proxy.inspector.holders import SUFFIX
from tests.e2e.conftest import CHAT
from tests.e2e.processes import Process, running
from tests.inspector.inspected import asked
from tests.waiting import GUARD_S

pytestmark = pytest.mark.skipif(not hasattr(socket, "SO_REUSEPORT"), reason="several workers need SO_REUSEPORT")

CONFIG: dict[str, Any] = {
    "server": {"port": 0, "workers": 2, "log_format": "json"},
    "backends": {"m": {"kind": "mock", "script": ["hello"]}},
    "store": {"kind": "none"},
    "inspect": True,
}


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[Process]:
    async with running(tmp_path, CONFIG, TMPDIR=str(tmp_path)) as process:
        yield process


async def get(gateway: Process, path: str) -> tuple[int, Any]:
    """Over a connection of its own, so that any worker may answer."""
    async with aiohttp.ClientSession() as session, session.get(f"{gateway.url}/inspect/api/{path}") as answer:
        return answer.status, orjson.loads(await answer.read())


async def ask(gateway: Process, ident: str) -> int:
    async with (
        aiohttp.ClientSession() as session,
        session.post(gateway.url + CHAT, json=asked(), headers={"X-Request-Id": ident}) as answer,
    ):
        return answer.status


Rows = dict[str, dict[str, Any]]


async def shown(gateway: Process, enough: Callable[[Rows], object]) -> Rows:
    """What a page knows as soon as that is enough. It asks again when its feed ends, and begins anew then."""
    while True:
        rows: Rows = {}
        try:
            async with (
                aiohttp.ClientSession() as session,
                session.get(f"{gateway.url}/inspect/api/feed") as answer,
            ):
                async for line in answer.content:
                    if line.startswith(b'data: {"rows"'):
                        said = orjson.loads(line[6:])
                        rows |= {row["id"]: row for row in said["rows"]}
                        rows = {ident: row for ident, row in rows.items() if ident not in said["gone"]}
                        if enough(rows):
                            return rows
        except aiohttp.ClientError:  # to a worker that is just being killed
            await asyncio.sleep(0.01)


@asynccontextmanager
async def asking(gateway: Process, prefix: str) -> AsyncIterator[None]:
    """Meanwhile requests come, with ids that begin so."""

    async def always() -> None:
        for number in itertools.count():
            with suppress(aiohttp.ClientError):
                await ask(gateway, f"{prefix}{number}")
            await asyncio.sleep(0.01)

    task = asyncio.create_task(always())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def of_both(prefix: str) -> Callable[[Rows], bool]:
    """Both workers have answered requests with such ids."""

    def true(rows: Rows) -> bool:
        ended = [row for ident, row in rows.items() if ident.startswith(prefix) and not row["running"]]
        return {row["worker"] for row in ended} == {1, 2}

    return true


async def worker_of(gateway: Process, ident: str) -> int:
    """The process that answered a request, by the log."""
    await gateway.logged(f'"{ident}"')
    for line in gateway.log.splitlines():
        said = orjson.loads(line)
        if said.get("logger") == "toolwire.access" and said.get("request_id") == ident:
            return int(said["pid"])
    raise AssertionError(gateway.log)


async def test_the_list_is_one_and_outlives_a_worker(gateway: Process) -> None:
    async with asyncio.timeout(GUARD_S):
        async with asking(gateway, "r"):
            await shown(gateway, of_both("r"))
        known = await shown(gateway, lambda rows: of_both("r")(rows) and not any(r["running"] for r in rows.values()))
        one = {ident for ident, row in known.items() if row["worker"] == 1}
        other = set(known) - one
        for _ in range(5):  # whichever worker is asked
            await shown(gateway, lambda rows: set(known) <= set(rows))
            for ident in (min(one), min(other)):
                status, view = await get(gateway, f"exchanges/{ident}")
                assert (status, view["id"], view["running"]) == (200, ident, False)
            _, overview = await get(gateway, "overview")
            assert sum(overview["routes"][0]["requests"]) >= len(known)
        assert (await get(gateway, "exchanges/nobody"))[0] == 404

        killed = await worker_of(gateway, min(one))
        os.kill(killed, signal.SIGKILL)
        # What it had is gone with it; the list has the rest, and that of whoever follows it.
        known = await shown(gateway, lambda rows: other <= set(rows) and not set(rows) & one)
        async with asking(gateway, "s"):
            known = await shown(gateway, of_both("s"))
        assert not set(known) & one
        await shown(gateway, lambda rows: other <= set(rows))
        assert (await get(gateway, f"exchanges/{min(other)}"))[0] == 200

        await gateway.reload()
        await shown(gateway, lambda rows: other <= set(rows))
        gateway.write({**CONFIG, "inspect": {"on": True, "bytes": 1_000_000}})
        await gateway.reload()
        async with asking(gateway, "t"):  # the workers find each other where the ones before them were
            await shown(gateway, of_both("t"))
        gateway.signal(signal.SIGTERM)
        assert await gateway.end() == 0


async def test_a_page_that_looks_on_is_told_of_a_lost_worker(gateway: Process) -> None:
    """Its feed ends."""
    async with asyncio.timeout(GUARD_S):
        async with asking(gateway, "r"):
            known = await shown(gateway, of_both("r"))
        pids = [
            await worker_of(gateway, min(ident for ident, row in known.items() if row["worker"] == number))
            for number in (1, 2)
        ]
        # Over one connection for all: the worker that answers it is known by its log.
        async with (
            aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=1)) as session,
            session.post(gateway.url + CHAT, json=asked(), headers={"X-Request-Id": "mine"}) as answer,
        ):
            await answer.read()
            mine = await worker_of(gateway, "mine")
            async with session.get(f"{gateway.url}/inspect/api/feed") as feed:
                while b'"answering":2' not in await feed.content.readline():
                    pass
                (lost,) = set(pids) - {mine}
                os.kill(lost, signal.SIGKILL)
                while await feed.content.read(65536):
                    pass


def sockets_in(folder: Path) -> list[Path]:
    """Where workers answer each other."""
    return sorted(folder.glob(f"*/*{SUFFIX}"))


async def test_nobody_else_may_ask_the_workers(gateway: Process, tmp_path: Path) -> None:
    sockets = sockets_in(tmp_path)  # they are there before it serves
    (folder,) = {path.parent for path in sockets}
    assert folder.stat().st_mode & 0o077 == 0
    assert [path.name for path in sockets] == [f"1{SUFFIX}", f"2{SUFFIX}"]
    gateway.signal(signal.SIGTERM)
    assert await gateway.end() == 0
    assert sockets_in(tmp_path) == [], "nothing is left behind"
