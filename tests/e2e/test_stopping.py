"""SIGTERM: what clients get of answers that run, in each protocol's own form (R17.5). Real processes, signals and
sockets."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.e2e.conftest import USER
from tests.e2e.processes import Process, closed, running, until_status
from tests.waiting import GUARD_S, until
from toolwire.protocols.responses.protocol import ResponsesProtocol
from toolwire.store.sqlite import SqliteStore
from toolwire.testing import Say, Upstream, read_frames

pytestmark = pytest.mark.skipif(os.name != "posix", reason="signals")

TOOL = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}
CALL = '<tool_call>{"name":"look","arguments":"{}"}</tool_call>'


def is_near_miss(asked: Any) -> bool:
    """Whether a request gets a call of a misspelt tool, after which the gateway asks again (R23.4)."""
    said = str(asked.json["messages"])
    return "near" in said and "not accepted" not in said


def unfinished(upstream: Upstream) -> list[Any]:
    """The requests whose answers wait for the gate."""
    return [asked for asked in upstream.posts if not is_near_miss(asked)]


def upstream_turn(gate: asyncio.Event) -> Callable[[Any], Any]:
    """Says `Hello`, waits for the gate and says ` there.`; of a whole answer, or if it was asked for silence, nothing
    before. A near miss comes at once."""

    def turn(asked: Any) -> Any:
        if is_near_miss(asked):
            return Say(CALL.replace("look", "lok"))(asked)
        if "quiet" in str(asked.json["messages"]) or not asked.json.get("stream"):
            answer = Say("Hello there.")(asked)
            return type(answer)(steps=answer.steps, headers=answer.headers, wait=gate)
        return Say("Hello", gate, " there.")(asked)

    return turn


def config(upstream: Upstream, **server: Any) -> dict[str, Any]:
    return {"server": {"port": 0, **server}, "backends": {"up": {"url": upstream.url}}, "store": {"kind": "sqlite"}}


class Client:
    """One request that is under way. `begun` once its first text has come."""

    def __init__(self, session: aiohttp.ClientSession, url: str, body: dict[str, Any]) -> None:
        self.begun = asyncio.Event()
        self.body = b""
        path = "/v1/responses" if "input" in body else "/v1/chat/completions"
        self.done = asyncio.ensure_future(self._run(session, url + path, {"model": "m", **body}))

    async def _run(self, session: aiohttp.ClientSession, url: str, body: dict[str, Any]) -> None:
        async with session.post(url, json=body) as answer:
            self.status, self.headers = answer.status, answer.headers
            async for data in answer.content.iter_any():
                self.body += data
                if b"Hello" in self.body:
                    self.begun.set()

    @property
    def frames(self) -> list[Any]:
        return read_frames(self.body)


STREAMS: dict[str, dict[str, Any]] = {
    "raw": {"messages": USER, "stream": True},
    "gate": {"messages": USER, "stream": True, "tools": [TOOL]},
    "events": {"input": "hi", "stream": True},
    "asked again": {"messages": [{"role": "user", "content": "near"}], "stream": True, "tools": [TOOL]},
    "events, asked again": {"input": "near", "stream": True, "tools": [{"type": "function", **TOOL["function"]}]},
}
WAITING: dict[str, dict[str, Any]] = {
    "whole": {"messages": USER},
    "whole response": {"input": "hi"},
    "nothing yet": {"messages": [{"role": "user", "content": "quiet"}], "stream": True},
    "nothing, asked again": {"messages": [{"role": "user", "content": "near, quiet"}], "stream": True, "tools": [TOOL]},
}


async def ask_all(session: aiohttp.ClientSession, gateway: Process, upstream: Upstream) -> dict[str, Client]:
    """Every kind of request, the streams begun, the others waiting for the model."""
    clients = {name: Client(session, gateway.url, body) for name, body in (STREAMS | WAITING).items()}
    await until(lambda: len(unfinished(upstream)) == len(clients))
    async with asyncio.timeout(GUARD_S):
        for name in STREAMS:
            await clients[name].begun.wait()
    return clients


async def test_what_runs_is_finished_within_the_grace(tmp_path: Path) -> None:
    gate = asyncio.Event()
    async with (
        Upstream([upstream_turn(gate)]) as upstream,
        running(tmp_path, config(upstream, workers=2)) as gateway,
        aiohttp.ClientSession() as session,
    ):
        clients = await ask_all(session, gateway, upstream)
        gateway.signal(signal.SIGTERM)
        await closed(gateway.url)
        gate.set()
        async with asyncio.timeout(GUARD_S):
            await asyncio.gather(*(client.done for client in clients.values()))
        assert await gateway.end() == 0
    for name, client in clients.items():
        assert client.status == 200, name
        assert b" there." in client.body, name
        assert b"error" not in client.body.replace(b'"error":null', b""), name
    for name in WAITING:  # their heads were not out yet
        assert clients[name].headers["Connection"] == "close", name


async def test_after_the_grace_each_gets_the_error_of_its_protocol(tmp_path: Path) -> None:
    async with (
        Upstream([upstream_turn(asyncio.Event())]) as upstream,
        running(tmp_path, config(upstream, shutdown_grace_s=0.1)) as gateway,
        aiohttp.ClientSession() as session,
    ):
        clients = await ask_all(session, gateway, upstream)
        gateway.signal(signal.SIGTERM)
        async with asyncio.timeout(GUARD_S):
            await asyncio.gather(*(client.done for client in clients.values()))
        assert await gateway.end() == 0
        assert all([await asyncio.wait_for(asked.dropped.wait(), GUARD_S) for asked in unfinished(upstream)])
    for name in ("raw", "gate", "asked again"):
        *before, error, done = clients[name].frames
        assert done == "[DONE]", name
        assert error["error"]["code"] == "shutting_down", name
        assert set(error["error"]) == {"message", "type", "param", "code"}
        assert not any(choice["finish_reason"] for frame in before for choice in frame["choices"])
    for name in ("events", "events, asked again"):
        *before, error, failed = clients[name].frames
        assert (error["type"], error["error"]["code"]) == ("error", "shutting_down"), name
        assert failed["type"] == "response.failed"
        assert failed["response"]["error"]["code"] == "server_error"
        assert "shutting_down" in failed["response"]["error"]["message"]
        assert [frame["sequence_number"] for frame in clients[name].frames] == list(range(len(before) + 2))
        kept = await stored(tmp_path, failed["response"]["id"])
        assert (kept["status"], kept["error"]) == ("failed", failed["response"]["error"])
    for name in WAITING:
        client = clients[name]
        assert (client.status, client.headers["Connection"]) == (503, "close"), name
        assert int(client.headers["Retry-After"]) > 0
        assert b'"code":"shutting_down"' in client.body, name
    assert f"the grace period of the shutdown is over; requests that were ended: {len(clients)}" in gateway.log
    assert gateway.log.count("code=shutting_down") == len(clients)
    assert "Traceback" not in gateway.log


async def stored(folder: Path, ident: str) -> Any:
    store = SqliteStore(folder / "responses.sqlite3", 100)
    await store.start()
    try:
        turn = await store.get(ident, "")
        assert turn is not None
        return ResponsesProtocol().turns.shown(turn)
    finally:
        await store.close()


async def test_during_the_delay_connections_are_taken_and_end_with_their_answer(tmp_path: Path) -> None:
    async with (
        Upstream([Say("Hello")]) as upstream,
        running(tmp_path, config(upstream, shutdown_delay_s=3600)) as gateway,
        aiohttp.ClientSession() as session,
    ):
        async with session.get(gateway.url + "/health") as kept:
            assert "Connection" not in kept.headers
        gateway.signal(signal.SIGTERM)
        ready = await until_status(gateway.url + "/ready", 503)
        assert await ready.json() == {"status": "draining"}
        async with session.get(gateway.url + "/health") as health:
            seen = await health.json()
            assert (health.status, seen["status"], seen["in_flight"]) == (200, "draining", 0)
        for path in ("/health", "/v1/models", "/nothing"):  # the first one on the connection that was kept
            async with session.get(gateway.url + path) as answer:
                assert answer.status == (404 if path == "/nothing" else 200)
                assert answer.headers["Connection"] == "close"
        for stream in (False, True):
            client = Client(session, gateway.url, {"messages": USER, "stream": stream})
            await asyncio.wait_for(client.done, GUARD_S)
            assert (client.status, client.headers["Connection"]) == (200, "close")
            assert b"Hello" in client.body
        gateway.signal(signal.SIGTERM)
        assert await gateway.end() == 1
    assert "stopped by a second signal" in gateway.log


async def test_idle_connections_are_closed_and_do_not_hold_up_the_end(tmp_path: Path) -> None:
    async with Upstream([Say("Hello")]) as upstream, running(tmp_path, config(upstream)) as gateway:
        port = int(gateway.url.rpartition(":")[2])
        used = await asyncio.open_connection("127.0.0.1", port)
        used[1].write(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
        await used[0].readuntil(b"}")
        fresh = await asyncio.open_connection("127.0.0.1", port)
        half = await asyncio.open_connection("127.0.0.1", port)
        half[1].write(b"POST /v1/chat/completions HTT")
        gateway.signal(signal.SIGTERM)
        assert await gateway.end() == 0
        for reader, writer in (used, fresh, half):
            assert await asyncio.wait_for(reader.read(), GUARD_S) == b""
            writer.close()


WAITS = """
import asyncio
TOOLS = [{"type": "function", "function": {"name": "look", "description": "Looks.", "parameters": {"type": "object"}}}]
async def handle_tool_call(name, arguments):
    await asyncio.sleep(3600)
"""


async def test_a_tool_that_is_being_run_is_ended_as_well(tmp_path: Path) -> None:
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools" / "waits.py").write_text(WAITS)
    async with (
        Upstream([Say("Hello ", CALL)]) as upstream,
        running(
            tmp_path,
            config(upstream, shutdown_grace_s=0.1)
            | {
                "tools": {"folder": str(tmp_path / "tools"), "timeout_s": 3600},
                "defaults": {"tool_loop": {"max_seconds": 3600}},
            },
        ) as gateway,
        aiohttp.ClientSession() as session,
    ):
        bodies: list[dict[str, Any]] = [
            {"messages": USER},
            {"messages": USER, "stream": True},
            {"input": "hi", "stream": True},
        ]
        clients = [Client(session, gateway.url, body) for body in bodies]
        await gateway.logged("state=EXECUTING_TOOL", len(clients))
        gateway.signal(signal.SIGTERM)
        async with asyncio.timeout(GUARD_S):
            await asyncio.gather(*(client.done for client in clients))
        assert await gateway.end() == 0
    whole, chat, response = clients
    assert (whole.status, b"shutting_down" in whole.body) == (503, True)
    assert (chat.frames[-2]["error"]["code"], chat.frames[-1]) == ("shutting_down", "[DONE]")
    failed = response.frames[-1]
    assert failed["type"] == "response.failed"
    kept = await stored(tmp_path, failed["response"]["id"])
    assert (kept["status"], kept["error"]) == ("failed", failed["response"]["error"])


HANGS = """
import asyncio, time
from toolwire.pipeline.chain.middleware import Middleware
class Hangs(Middleware):
    async def on_request(self, exchange, request):
        await asyncio.to_thread(time.sleep, 3600)
        return request
"""


async def test_a_thread_that_does_not_end_does_not_hold_up_the_process(tmp_path: Path) -> None:
    (tmp_path / "hangs.py").write_text(HANGS)
    async with Upstream([Say("Hello")]) as upstream:
        settings = config(upstream, shutdown_grace_s=0.1, workers=2) | {"chain": ["hangs:Hangs", "forwarding"]}
        async with running(tmp_path, settings) as gateway, aiohttp.ClientSession() as session:
            client = Client(session, gateway.url, {"messages": USER})
            async with asyncio.timeout(GUARD_S):
                while "toolwire_inflight_requests 1.0" not in await metrics(session, gateway):  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
                gateway.signal(signal.SIGTERM)
                await client.done
            assert client.status == 503
            assert await gateway.end() == 0
        assert "a thread or task is still running" in gateway.log


STREAMS_ITSELF = """
import asyncio
from aiohttp import web
from toolwire.pipeline.chain.middleware import Middleware
class Streams(Middleware):
    async def __call__(self, request, handler):
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"Hello")
        await asyncio.sleep(3600)
"""


async def test_no_error_stands_in_the_middle_of_an_answer(tmp_path: Path) -> None:
    (tmp_path / "plugin.py").write_text(STREAMS_ITSELF)
    async with Upstream([Say("unused")]) as upstream:
        settings = config(upstream, shutdown_grace_s=0.1) | {"chain": ["plugin:Streams", "forwarding"]}
        async with running(tmp_path, settings) as gateway:
            reader, writer = await asyncio.open_connection("127.0.0.1", int(gateway.url.rpartition(":")[2]))
            writer.write(request_bytes())
            got = await asyncio.wait_for(reader.readuntil(b"Hello"), GUARD_S)
            gateway.signal(signal.SIGTERM)
            got += await asyncio.wait_for(reader.read(), GUARD_S)
            writer.close()
            assert await gateway.end() == 0
    assert got.count(b"HTTP/1.1") == 1
    assert got.endswith(b"5\r\nHello\r\n")  # cut off, and to be seen as that


def request_bytes() -> bytes:
    body = b'{"model":"m","messages":[{"role":"user","content":"x"}],"stream":true}'
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n"
    return head.encode() + b"Content-Type: application/json\r\n\r\n" + body


async def metrics(session: aiohttp.ClientSession, gateway: Process) -> str:
    async with session.get(gateway.url + "/metrics") as page:
        return await page.text()


async def test_a_client_that_does_not_read_does_not_hold_up_the_process(tmp_path: Path) -> None:
    async with (
        Upstream([Say(*["Hello" * 20_000] * 1000)]) as upstream,
        running(tmp_path, config(upstream, shutdown_grace_s=0.1)) as gateway,
    ):
        with socket.create_connection(("127.0.0.1", int(gateway.url.rpartition(":")[2]))) as sock:
            sock.sendall(request_bytes())
            await asyncio.wait_for(upstream.next_request(), GUARD_S)
            gateway.signal(signal.SIGTERM)
            assert await gateway.end() == 0
    assert "Traceback" not in gateway.log


async def test_systemd_hears_of_start_reload_and_end(tmp_path: Path) -> None:
    address = tmp_path / "notify"
    heard: list[str] = []
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind(str(address))
        sock.settimeout(GUARD_S)

        def listen() -> None:
            while not heard or heard[-1] != "STOPPING=1":
                heard.append(sock.recv(4096).decode())

        thread = threading.Thread(target=listen)
        thread.start()
        async with (
            Upstream([Say("Hello")]) as upstream,
            running(tmp_path, config(upstream, workers=2), NOTIFY_SOCKET=str(address)) as gateway,
        ):
            await gateway.reload()
            gateway.write("bad: 1")
            gateway.signal(signal.SIGHUP)
            await gateway.logged("cannot reload")
            gateway.signal(signal.SIGTERM)
            assert await gateway.end() == 0
        await asyncio.to_thread(thread.join, GUARD_S)
    kinds = [message.split("=")[0] for message in heard]
    assert kinds == ["READY", "RELOADING", "READY", "RELOADING", "READY", "STOPPING"]
    assert "MONOTONIC_USEC=" in heard[1]
