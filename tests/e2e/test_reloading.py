"""SIGHUP under load, and workers that are killed: no stream notices. Real processes, signals and sockets (R17.5,
R17.6)."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.e2e.conftest import USER
from tests.e2e.processes import Process, closed, running
from tests.waiting import GUARD_S, until
from toolwire.testing import Say, Upstream, read_frames

pytestmark = pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="signals, and looking at processes")

WORDS = [f"w{number} " for number in range(20)]
PLUGIN = """
from toolwire.pipeline.chain.middleware import Middleware
class Broken(Middleware):
    async def start(self, app):
        raise OSError("no such device")
"""


def config(upstream: Upstream, **sections: Any) -> dict[str, Any]:
    return {
        "server": {"port": 0, **sections.pop("server", {})},
        "backends": {"up": {"url": upstream.url}},
        "store": {"kind": "memory"},
        **sections,
    }


def not_asked(config: dict[str, Any]) -> dict[str, Any]:
    """The same without queries what the server is: sockets are counted from the start."""
    return {**config, "backends": {"up": {**config["backends"]["up"], "identify_s": 0}}}


class Load:
    """Clients that ask for one stream after the other, half of them each time on a new connection."""

    def __init__(self, url: str, clients: int = 8) -> None:
        self.url = url
        self.answered = [0] * clients
        self.failures: list[str] = []
        self.progress = asyncio.Event()
        self._tasks = [asyncio.create_task(self._run(number)) for number in range(clients)]
        self._over = False

    async def _run(self, number: int) -> None:
        async with aiohttp.ClientSession() as session:
            while not self._over:
                try:
                    if number % 2:
                        async with aiohttp.ClientSession() as own:
                            await self._ask(own)
                    else:
                        await self._ask(session)
                except (aiohttp.ClientError, TimeoutError) as error:
                    self.failures.append(repr(error))
                self.answered[number] += 1
                self.progress.set()

    async def _ask(self, session: aiohttp.ClientSession) -> None:
        body = {"model": "m", "messages": USER, "stream": True}
        async with session.post(self.url + "/v1/chat/completions", json=body) as answer:
            frames = read_frames(await answer.read())
        text = "".join(choice["delta"].get("content", "") for frame in frames[:-1] for choice in frame["choices"])
        if (answer.status, frames[-1], text) != (200, "[DONE]", "".join(WORDS)):
            self.failures.append(f"{answer.status} {text}")

    async def more(self) -> None:
        """Wait until each client has asked and been answered anew."""
        wanted = [number + 2 for number in self.answered]
        async with asyncio.timeout(GUARD_S):
            while any(number < least for number, least in zip(self.answered, wanted, strict=True)):
                self.progress.clear()
                await self.progress.wait()

    async def end(self) -> None:
        """Let the last ones end."""
        self._over = True
        async with asyncio.timeout(GUARD_S):
            await asyncio.gather(*self._tasks)


async def all_closed(upstream: Upstream) -> None:
    """Wait until nobody is connected to it."""
    await until(lambda: not upstream.open)


def sockets(pid: int) -> int:
    """How many sockets a process has open."""
    found = 0
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(OSError):  # closed meanwhile
            found += str(entry.readlink()).startswith("socket:")
    return found


@asynccontextmanager
async def load(gateway: Process) -> AsyncIterator[Load]:
    """Continuous load; of which at the end everything must have been answered."""
    clients = Load(gateway.url)
    try:
        await clients.more()
        yield clients
    finally:
        await clients.end()


async def test_a_reload_under_load_fails_nothing(tmp_path: Path) -> None:
    server = {"workers": 2}
    async with (
        Upstream([Say(*WORDS)]) as first,
        Upstream([Say(*WORDS)]) as second,
        running(tmp_path, config(first, server=server)) as gateway,
        load(gateway) as clients,
    ):
        assert (
            gateway.log.count("conversations are stored in the memory of this process, of each of the 2 workers") == 1
        )
        for target, old in ((second, first), (first, second)):
            gateway.write(config(target, server=server))
            await gateway.reload()
            await clients.more()  # what began before has ended
            asked = len(old.posts)
            await clients.more()
            assert len(old.posts) == asked
        await all_closed(second)
        await clients.end()
        assert clients.failures == []
        gateway.signal(signal.SIGTERM)
        assert await gateway.end() == 0
    assert "Traceback" not in gateway.log


async def test_a_stream_outlives_the_configuration_it_began_with(tmp_path: Path) -> None:
    """And with it what the configuration opened; a conversation in memory, and the counters, go on."""
    gate = asyncio.Event()
    async with (
        Upstream([Say("begin ", gate, "end")]) as first,
        Upstream([Say("new")]) as second,
        running(tmp_path, config(first)) as gateway,
        aiohttp.ClientSession() as session,
    ):
        url = gateway.url + "/v1/responses"
        async with session.post(url, json={"model": "m", "input": "one", "stream": True}) as stream:
            while b"begin" not in await stream.content.readline():  # the blank behind it waits for what follows (R6.6)
                pass
            gateway.write({**config(second), "server": {"port": 1, "log_format": "json"}})
            await gateway.reload()
            await gateway.reload()
            async with session.post(url, json={"model": "m", "input": "two"}) as answer:
                kept = await answer.json()
            assert kept["output"][0]["content"][0]["text"] == "new"
            await gateway.reload()
            assert len(first.posts) == 1
            gate.set()
            text = (await stream.read()).decode()
        assert text.endswith("\n\n")
        assert "event: response.completed" in text
        ident = text.rpartition('"response":{"id":"')[2].partition('"')[0]
        for previous in (ident, kept["id"]):
            body = {"model": "m", "input": "more", "previous_response_id": previous}
            async with session.post(url, json=body) as answer:
                assert answer.status == 200, await answer.text()
        async with session.get(gateway.url + "/metrics") as page:
            counted = await page.text()
        labels = 'endpoint="responses",model="m",route="*",status="200",stream="false"'
        assert f"toolwire_requests_total{{{labels}}} 3.0" in counted
        await all_closed(first)
        assert "server.port: a change takes effect at the next start" in gateway.log
        assert gateway.log.splitlines()[-1].startswith('{"time":')


BAD: dict[str, tuple[Any, str]] = {
    "syntax": ("backends: [", "expected the node content"),
    "unknown key": ({"backend": {}}, "did you mean 'backends'"),
    "no such plug-in": ({"chain": ["missing"]}, "missing"),
    "a plug-in that cannot start": ({"chain": ["broken:Broken", "forwarding"]}, "no such device"),
    "a key file that is not there": ({"auth": {"keys_file": "nowhere"}}, "nowhere"),
}


async def test_a_bad_configuration_changes_nothing(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text(PLUGIN)
    server = {"workers": 2}
    async with (
        Upstream([Say(*WORDS)]) as upstream,
        running(tmp_path, config(upstream, server=server)) as gateway,
        load(gateway) as clients,
    ):
        for number, (change, message) in enumerate(BAD.values(), 1):
            gateway.write(change if isinstance(change, str) else {**config(upstream), **change})
            gateway.signal(signal.SIGHUP)
            await gateway.logged("the configuration stays as it was", number)
            assert message in gateway.log
        await clients.more()
        # A good one after all; with text from the environment, which has to reach the workers.
        change = {"backends": {"up": {"url": upstream.url, "options": {"deep": ["${UNSET:-text}"]}}}}
        gateway.write(config(upstream, server=server) | change)
        await gateway.reload()
        await clients.more()
        await clients.end()
        assert clients.failures == []
        gateway.signal(signal.SIGTERM)
        assert await gateway.end() == 0


async def test_a_configuration_that_kills_the_worker_that_tries_it_reaches_no_other(tmp_path: Path) -> None:
    (tmp_path / "deadly.py").write_text(PLUGIN.replace('raise OSError("no such device")', "import os; os._exit(3)"))
    server = {"workers": 2}
    async with (
        Upstream([Say("a")]) as upstream,
        running(tmp_path, config(upstream, server=server)) as gateway,
        aiohttp.ClientSession() as session,
    ):
        gateway.write(config(upstream, server=server, chain=["deadly:Broken", "forwarding"]))
        before = set(gateway.workers())
        gateway.signal(signal.SIGHUP)
        await gateway.logged("died when it loaded the new one")
        async with asyncio.timeout(GUARD_S):
            while len(after := set(gateway.workers())) < 2 or after == before:  # noqa: ASYNC110  # nobody announces it
                await asyncio.sleep(0.01)
        assert len(after & before) == 1
        gateway.write(config(upstream, server=server))
        await gateway.reload()  # both, so the new one serves as well
        async with session.get(gateway.url + "/ready") as answer:
            assert answer.status == 200
        gateway.signal(signal.SIGTERM)
        assert await gateway.end() == 0
    assert "deadly" not in gateway.log


async def begun(
    session: aiohttp.ClientSession, gateway: Process, upstream: Upstream, number: int
) -> list[asyncio.Task[bytes]]:
    """So many streams, for each of which the model server has been asked. Each gives the whole of its answer."""
    body = {"model": "m", "messages": USER, "stream": True}

    async def ask() -> bytes:
        async with session.post(gateway.url + "/v1/chat/completions", json=body) as answer:
            return await answer.read()

    streams = [asyncio.create_task(ask()) for _ in range(number)]
    for _ in streams:
        await asyncio.wait_for(upstream.next_request(), GUARD_S)
    return streams


async def test_a_worker_that_somebody_stops_leaves_its_queue_to_the_others(tmp_path: Path) -> None:
    gate = asyncio.Event()
    async with (
        Upstream([Say("begin ", gate, "end")]) as upstream,
        running(tmp_path, config(upstream, server={"workers": 2})) as gateway,
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0, force_close=True)) as session,
    ):
        streams = await begun(session, gateway, upstream, 20)
        leaving, other = gateway.workers()
        os.kill(leaving, signal.SIGTERM)
        await until(lambda: not listening(leaving))
        gateway.write(config(upstream, server={"workers": 2}))
        gateway.signal(signal.SIGHUP)  # who leaves is not asked
        await gateway.logged("reloaded the configuration")
        later = await begun(session, gateway, upstream, 20)
        assert gateway.workers() == [leaving, other]
        gate.set()
        async with asyncio.timeout(GUARD_S):
            assert all(b"end" in answer for answer in await asyncio.gather(*streams, *later))
        await gateway.logged(f"worker {leaving} was told to stop, and has; starting another")
        await until(lambda: len(gateway.workers()) >= 2)
        gateway.signal(signal.SIGTERM)
        assert await gateway.end() == 0
    assert "stays as it was" not in gateway.log


def listening(pid: int) -> bool:
    """Whether a process holds a socket that listens."""
    states = {line.split()[9]: line.split()[3] for line in Path("/proc/net/tcp").read_text().splitlines()[1:]}
    held = set()
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(OSError):  # closed meanwhile
            held.add(str(entry.readlink()).removeprefix("socket:[").removesuffix("]"))
    return any(states.get(inode) == "0A" for inode in held)


@pytest.mark.parametrize("workers", [1, 2])
async def test_signals_at_once(tmp_path: Path, workers: int) -> None:
    async with (
        Upstream([Say("a")]) as first,
        Upstream([Say("b")]) as second,
        running(tmp_path, config(first, server={"workers": workers})) as gateway,
        aiohttp.ClientSession() as session,
    ):
        gateway.signal(signal.SIGHUP, signal.SIGHUP)
        gateway.write(config(second, server={"workers": workers}))
        gateway.signal(signal.SIGHUP)
        # The last signal is never lost, however many became one.
        async with asyncio.timeout(GUARD_S):
            while not second.posts:
                body = {"model": "m", "messages": USER}
                async with session.post(gateway.url + "/v1/chat/completions", json=body) as answer:
                    assert answer.status == 200
        gateway.signal(signal.SIGHUP, signal.SIGTERM)
        assert await gateway.end() == 0
    assert "Traceback" not in gateway.log


async def test_no_reload_while_stopping(tmp_path: Path) -> None:
    gate = asyncio.Event()
    async with (
        Upstream([Say("begin ", gate, "end")]) as upstream,
        running(tmp_path, config(upstream)) as gateway,
        aiohttp.ClientSession() as session,
    ):
        body = {"model": "m", "messages": USER, "stream": True}
        async with session.post(gateway.url + "/v1/chat/completions", json=body) as answer:
            await upstream.next_request()
            gateway.signal(signal.SIGTERM)
            await closed(gateway.url)
            gateway.signal(signal.SIGHUP)
            await gateway.logged("not reloading: the gateway is stopping")
            gate.set()
            assert b"end" in await answer.read()
        assert await gateway.end() == 0


async def test_a_killed_worker_takes_only_its_own_streams_with_it(tmp_path: Path) -> None:
    """No connection is refused or reset but those it had accepted, and it is replaced at once."""
    gate = asyncio.Event()
    async with (
        Upstream([Say("begin ", gate, "end")]) as upstream,
        running(tmp_path, not_asked(config(upstream, server={"workers": 2}))) as gateway,
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0, force_close=True)) as session,
    ):
        doomed, other = gateway.workers()
        files = gateway.files()
        idle = sockets(doomed)
        streams = await begun(session, gateway, upstream, 40)
        # Each has one to the client and one to the model server; one of those may have been there, idle.
        its_own = (sockets(doomed) - idle + 1) // 2
        os.kill(doomed, signal.SIGKILL)
        later = await begun(session, gateway, upstream, 40)  # the first of them while there is one worker
        gate.set()
        async with asyncio.timeout(GUARD_S):
            ended = await asyncio.gather(*streams, *later, return_exceptions=True)
        whole = [answer for answer in ended if isinstance(answer, bytes)]
        assert all(b"end" in answer and answer.endswith(b"data: [DONE]\n\n") for answer in whole)
        assert 0 < its_own < len(streams)
        assert len(whole) == len(ended) - its_own, ended
        assert all(isinstance(answer, bytes) for answer in ended[len(streams) :])
        after = gateway.workers()
        assert len(after) == 2
        assert other in after
        wanted = {
            f'toolwire_requests_total{{endpoint="chat",model="other",route="*",status="200",stream="true"}} {float(len(whole))}',
            "toolwire_inflight_requests 0.0",  # those that died with the worker do not count
        }
        async with asyncio.timeout(GUARD_S):
            missing = wanted
            while missing:  # an exchange is counted just after its client has all
                async with session.get(gateway.url + "/metrics") as page:
                    missing = wanted - set((await page.text()).splitlines())
        assert gateway.files() == files
        gateway.signal(signal.SIGTERM)
        assert await gateway.end() == 0
    assert f"worker {doomed} died with status -9; starting another" in gateway.log
    assert gateway.log.count("worker=1 ") + gateway.log.count("worker=2 ") == gateway.log.count("toolwire.access")
