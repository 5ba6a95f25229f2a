"""Faults on a WebSocket (R28.2), and what is left afterwards. The table for people is docs/reference/faults.md."""

from __future__ import annotations

import asyncio
import os
import signal
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import pytest

from tests.e2e.conftest import Gateway, read_config, serving, upstream_config
from tests.e2e.edge import Start
from tests.e2e.processes import running
from tests.e2e.sockets import PATH, Socket, connected, handshake, said, talking
from tests.e2e.test_backpressure import BEGIN, SENT_BYTES, SSE, WORDS, Flood
from tests.e2e.test_fault_table import HEAD, HEL, _chunked
from tests.waiting import GUARD_S, until
from toolwire.ingress.budget import BODY_BUDGET
from toolwire.pipeline.websocket.sockets import SOCKETS
from toolwire.testing import Answer, Raw, Say, Upstream

CREATE = {"type": "response.create", "model": "m", "input": "hi"}


def mock(script: Any = ("Hello.",), **sections: Any) -> Any:
    return read_config({"backends": {"m": {"kind": "mock", "script": list(script)}}, **sections})


BAD: dict[str, tuple[Callable[[Socket], Any], str, str | None]] = {
    "no JSON": (lambda socket: socket.raw.send_str("{"), "invalid_json", None),
    "a binary message": (lambda socket: socket.raw.send_bytes(orjson.dumps(CREATE)), "invalid_json", None),
    "not UTF-8": (lambda socket: socket.raw.send_frame(b'{"a":"\xff"}', aiohttp.WSMsgType.TEXT), "invalid_json", None),
    "no type": (lambda socket: socket.send({"model": "m"}), "missing_required_parameter", "type"),
    "a bad field": (lambda socket: socket.create(input=7), "invalid_type", "input"),
    "a bad lane": (lambda socket: socket.create(input="hi", stream_id=7), "invalid_type", "stream_id"),
    "a lane without a name": (lambda socket: socket.create(input="hi", stream_id=""), "invalid_value", "stream_id"),
    "a bad generate": (lambda socket: socket.create(input="hi", generate="no"), "invalid_type", "generate"),
    "a key twice": (lambda socket: socket.raw.send_str('{"type":"response.create","type":"x"}'), "invalid_json", None),
}


async def test_a_bad_message_is_an_error_event_and_the_connection_goes_on(gateway: Gateway) -> None:
    server = await gateway(script=["Hello."])
    async with connected(server) as socket:
        for name, (send, code, param) in BAD.items():
            await send(socket)
            event = await socket.event()
            assert (event["type"], event["status"], event["error"]["code"]) == ("error", 400, code), name
            assert event["error"]["param"] == param, name
            assert event["error"].keys() == {"type", "code", "message", "param"}
            assert said(await socket.respond(input="hi")) == "Hello.", name


@pytest.mark.parametrize("strict", [False, True])
async def test_half_a_character_is_judged_alike_on_all_ways(gateway: Gateway, strict: bool) -> None:
    """`validation: strict` refuses what is otherwise replaced (R28.4)."""
    requests = {"validation": "strict" if strict else "default"}
    server = await gateway(mock(defaults={"requests": requests}), script=["Hello."])
    half = orjson.dumps({**CREATE, "input": "a HALF b"}).replace(b"HALF", rb"\ud83d").decode()
    items = orjson.dumps({"items": [{"role": "user", "content": "HALF"}]}).replace(b"HALF", rb"\ud83d")
    headers = {"Content-Type": "application/json"}
    async with connected(server) as socket, aiohttp.ClientSession(server.make_url("/"), headers=headers) as session:
        await socket.raw.send_str(half)
        last = (await socket.events())[-1]
        assert last["type"] == ("error" if strict else "response.completed")
        errors = [last.get("error")]
        for path, body in ((PATH, half.encode()), ("/v1/conversations", items)):
            async with session.post(path, data=body) as answer:
                assert answer.status == (400 if strict else 200)
                errors.append((await answer.json()).get("error"))
    for error in errors if strict else ():
        assert error["code"] == "invalid_json"
        assert "surrogate" in error["message"]


async def test_a_message_that_is_too_large_ends_the_connection() -> None:
    """In one frame, or in fragments."""
    async with serving(mock(limits={"body_bytes": 1000})) as server:
        async with connected(server) as socket:
            await socket.create(input="x" * 1000)
            assert await socket.closed() == 1009
        reader, writer = await shaken(server)
        writer.write(frame(b"x" * 600, opcode=1, fin=False) + frame(b"x" * 600, opcode=0, fin=False))
        assert await closed_with(reader) == 1009
        writer.close()


async def test_pings_are_answered_and_a_flood_ends_it(gateway: Gateway) -> None:
    server = await gateway(script=["Hello."])
    reader, writer = await shaken(server)
    writer.write(frame(b"there?", opcode=9))
    assert await reader.readexactly(8) == b"\x8a\x06there?"
    writer.write(frame(b"", opcode=9) * 2000)
    assert await closed_with(reader) == 1008
    writer.close()


async def test_a_client_that_goes_cancels_what_runs() -> None:
    gate = asyncio.Event()
    async with Upstream([Say("Hello", gate)]) as upstream, serving(upstream_config(upstream.url)) as server:
        for abrupt in (False, True):
            async with connected(server) as socket:
                await socket.create(input="hi", stream_id="a")
                await socket.create(input="hi", stream_id="b")
                await socket.create(input="waits", stream_id="b")
                asked = [await upstream.next_request(), await upstream.next_request()]
                while (await socket.event())["type"] != "response.output_text.delta":
                    pass
                if abrupt:
                    transport = socket.raw.get_extra_info("socket")
                    transport.setsockopt(1, 13, struct.pack("ii", 1, 0))  # SO_LINGER: a reset
                    socket.raw._response.connection.transport.abort()  # type: ignore[union-attr]
                else:
                    await socket.raw.close()
                async with asyncio.timeout(GUARD_S):
                    await asyncio.gather(*(one.dropped.wait() for one in upstream.posts))
            assert len(asked) == 2
            await nothing_open(server)
        assert len(upstream.posts) == 4


async def test_a_server_that_dies_is_the_end_of_its_response_only() -> None:
    dies = Raw(HEAD + _chunked(HEL), reset=True)
    script = [dies, Say("Good.")]
    async with talking(script) as (_, socket):
        await socket.create(input="hi")
        events = await socket.events()
        assert events[-1]["type"] == "response.failed"
        assert "error" not in {event["type"] for event in events}  # one end
        assert events[-1]["response"]["error"]["code"]
        assert said(await socket.respond(input="hi")) == "Good."


async def test_a_slow_reader_holds_up_itself_only() -> None:
    """What is made for it stops at its server; others are served meanwhile."""
    flood = Flood(BEGIN, again=WORDS)

    def turn(asked: Any) -> Any:
        return Answer(flood, headers=SSE) if "much" in str(asked.json["messages"]) else Say("Quick.")(asked)

    async with Upstream([turn]) as upstream, serving(upstream_config(upstream.url)) as server:
        _, writer = await shaken(server, limit=1024)
        writer.write(frame(orjson.dumps({**CREATE, "input": "much"})))
        asked = await upstream.next_request()
        async with connected(server) as socket:
            sent = -1
            while sent != flood.sent:  # until nothing moves any more
                sent = flood.sent
                for _ in range(10):
                    assert said(await socket.respond(input="hi")) == "Quick."
        assert flood.sent < SENT_BYTES / 2
        writer.close()
        async with asyncio.timeout(GUARD_S):
            await asked.dropped.wait()
        await nothing_open(server)


async def test_a_client_that_answers_no_ping_is_release() -> None:
    async with serving(mock(websocket={"heartbeat_s": 0.1})) as server:
        _, writer = await shaken(server)
        await nothing_open(server)
        writer.close()


# --- limits ---------------------------------------------------------------------------------------------------------


async def test_lanes_are_limited() -> None:
    async with serving(mock(websocket={"lanes": 2})) as server, connected(server) as socket:
        for name in ("a", "b"):
            await socket.respond(input="hi", stream_id=name)
        refused = await socket.ask(input="hi", stream_id="c")
        assert (refused["error"]["code"], refused["stream_id"]) == ("websocket_stream_limit_reached", "c")
        await socket.respond(input="hi", stream_id="a")
        await socket.respond(input="hi")


async def test_responses_at_the_same_time_are_limited() -> None:
    gate = asyncio.Event()
    config = {"websocket": {"in_flight": 2}}
    async with talking([Say("Hello", gate, ".")], **config) as (upstream, socket):
        for name in ("a", "b"):
            await socket.create(input="hi", stream_id=name)
            await upstream.next_request()
        await socket.create(input="hi", stream_id="c")
        for name in ("a", "a", "a"):  # two wait, the third is too much
            await socket.create(input="hi", stream_id=name)
        refused: list[str] = []
        while len(refused) < 2:
            event = await socket.event()
            if event["type"] == "error":
                assert event["error"]["code"] == "websocket_stream_limit_reached"
                refused.append(event["stream_id"])
        assert refused == ["c", "a"]
        gate.set()
        ends = 0
        while ends < 4:
            ends += (await socket.event())["type"] == "response.completed"


async def test_connections_are_limited() -> None:
    async with serving(mock(websocket={"connections": 1})) as server:
        async with connected(server):
            assert await handshake(server) == 503
        await nothing_open(server)
        async with connected(server) as socket:
            await socket.respond(input="hi")


async def test_connections_of_a_key_are_limited() -> None:
    config = mock(auth={"keys": ["one", "two"]}, websocket={"connections_per_key": 1})
    async with serving(config) as server, connected(server, headers=bearer("one")):
        assert await handshake(server, headers=bearer("one")) == 429
        async with connected(server, headers=bearer("two")) as socket:
            await socket.respond(input="hi")


async def test_an_old_connection_takes_nothing_more() -> None:
    """What runs is finished."""
    gate = asyncio.Event()
    config = {"websocket": {"max_age_s": 5.0}}  # a pause of the machine must not age it before it asks
    async with talking([Say("Hello", gate, ".")], **config) as (upstream, socket):
        await socket.create(input="hi")
        await upstream.next_request()
        refused: dict[str, Any] = {}
        while refused.get("type") != "error":  # it grows old meanwhile
            await asyncio.sleep(0.1)
            refused = await socket.ask(input="hi", stream_id="x", generate=False)
        assert refused["error"]["code"] == "websocket_connection_limit_reached"
        gate.set()
        while (event := await socket.event())["type"] != "error":
            pass
        assert event["error"]["code"] == "websocket_connection_limit_reached"
        assert await socket.closed() == 1001


async def test_an_idle_one_is_told_and_closed() -> None:
    async with serving(mock(websocket={"max_age_s": 0.05})) as server, connected(server) as socket:
        event = await socket.event()
        assert (event["status"], event["error"]["code"]) == (400, "websocket_connection_limit_reached")
        assert await socket.closed() == 1001


async def test_what_is_remembered_is_bounded() -> None:
    """The connection that has the most forgets; the client sends everything again."""
    config = mock(["1", "2", "3"], websocket={"remembered_bytes": 20_000})
    async with serving(config) as server, connected(server) as large, connected(server) as small:
        kept = await small.respond(input="hi", store=False)
        lost = await large.respond(input="x" * 30_000, store=False)
        assert await small.respond(input="on", store=False, previous_response_id=kept["id"])
        missing = await large.ask(input="on", store=False, previous_response_id=lost["id"])
        assert missing["error"]["code"] == "previous_response_not_found"
    await nothing_open(server)


# --- who may --------------------------------------------------------------------------------------------------------


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


async def test_a_handshake_needs_a_key() -> None:
    async with serving(mock(auth={"keys": ["one"]})) as server:
        assert await handshake(server, headers=bearer("two")) == 401


@pytest.mark.parametrize(("origins", "status"), [([], 403), (["https://b.example"], 403), (["https://a.example"], 101)])
async def test_a_web_page_has_to_be_listed(origins: list[str], status: int) -> None:
    """It could read what comes: there is no preflight of a WebSocket."""
    async with serving(mock(cors={"origins": origins})) as server:
        assert await handshake(server, origin="https://a.example") == status
        if status == 101:
            async with connected(server, origin="https://a.example") as socket:
                await socket.respond(input="hi")


# --- its own server: real processes ---------------------------------------------------------------------------------


def process_config(upstream: Upstream, **sections: Any) -> dict[str, Any]:
    backends = {"up": {"url": upstream.url}}
    return {"server": {"port": 0}, "backends": backends, "store": {"kind": "memory"}, **sections}


async def open_stream(socket: Socket) -> None:
    """Until a response says something."""
    await socket.create(input="hi")
    while (await socket.event())["type"] != "response.output_text.delta":
        pass


@pytest.mark.skipif(os.name != "posix", reason="signals")
@pytest.mark.parametrize("way", ["stop", "reload"])
async def test_what_runs_is_finished_and_then_it_closes(tmp_path: Path, way: str) -> None:
    gate = asyncio.Event()
    async with Upstream([Say("Hello", gate, " there.")]) as upstream:  # noqa: SIM117
        async with running(tmp_path, process_config(upstream)) as process, connected(process.url) as socket:
            async with connected(process.url) as idle:
                await open_stream(socket)
                process.signal(signal.SIGTERM if way == "stop" else signal.SIGHUP)
                assert await idle.closed() == 1001
                await socket.create(input="more", stream_id="x")
                refused = await socket.event()
                assert (refused["error"]["code"], refused["stream_id"]) == ("shutting_down", "x")
                gate.set()
                last = (await socket.events())[-1]
                assert said(last["response"]) == "Hello there."
                assert await socket.closed() == 1001
            if way == "reload":
                async with connected(process.url) as again:
                    assert said(await again.respond(input="hi")) == "Hello there."


@pytest.mark.skipif(os.name != "posix", reason="signals")
async def test_a_key_that_is_reloaded_away_opens_nothing(tmp_path: Path) -> None:
    async with Upstream([Say("Hello.")]) as upstream:
        config = process_config(upstream, auth={"keys": ["one", "two"]})
        async with running(tmp_path, config) as process, connected(process.url, headers=bearer("one")) as socket:
            await socket.respond(input="hi")
            process.write({**config, "auth": {"keys": ["two"]}})
            await process.reload()
            assert await socket.closed() == 1001
            assert await handshake(process.url, headers=bearer("one")) == 401


@pytest.mark.skipif(os.name != "posix", reason="signals")
async def test_what_does_not_end_in_time_is_told(tmp_path: Path) -> None:
    gate = asyncio.Event()
    sections = {"server": {"port": 0, "shutdown_grace_s": 0.2}}
    async with (
        Upstream([Say("Hello", gate)]) as upstream,
        running(tmp_path, process_config(upstream, **sections)) as process,
        connected(process.url) as socket,
    ):
        await open_stream(socket)
        process.signal(signal.SIGTERM)
        last = (await socket.events())[-1]
        assert last["type"] == "response.failed"
        assert await socket.closed() == 1001


# --- its own server, in this process --------------------------------------------------------------------------------


async def test_a_long_head_and_frames_behind_it_come(start: Start) -> None:
    """Also where the wish for a WebSocket stands far behind in the head, and what comes first is sent with it."""
    gateway = await start()
    url = f"http://127.0.0.1:{gateway.port}/v1"
    async with connected(url, headers={"Authorization": "Bearer " + "x" * 3000}) as socket:
        assert said(await socket.respond(input="hi")) == "Hello."
    lines = ["GET /v1/responses HTTP/1.1", "Host: x", "A: " + "y" * 3000, "Connection: Upgrade"]
    lines += ["Upgrade: websocket", "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: " + "A" * 22 + "=="]
    async with gateway.connection() as (reader, writer):
        writer.write("\r\n".join([*lines, "", ""]).encode() + frame(orjson.dumps({**CREATE, "input": "a\r\n\r\n" * 9})))
        await reader.readuntil(b"\r\n\r\n")
        assert await reader.readuntil(b"response.completed")
        writer.write_eof()  # a client that says no more has gone
        async with asyncio.timeout(GUARD_S):
            await reader.read()


async def test_bytes_of_frames_count_in_the_budget(start: Start) -> None:
    """Also those of a message that is not whole yet; where there is no room the connection ends, and gives back."""
    gateway = await start(limits={"total_body_bytes": 300_000, "body_bytes": 250_000})
    first, second = [await shaken(gateway) for _ in range(2)]
    half = frame(b"x" * 200_000)[:190_000]
    first[1].write(half)
    await until(lambda: gateway.body_bytes >= 150_000)
    second[1].write(half)
    assert await closed_with(second[0]) == 1013
    first[1].close()
    await until(lambda: not gateway.body_bytes)
    second[1].close()
    async with connected(f"http://127.0.0.1:{gateway.port}/v1") as socket:
        assert said(await socket.respond(input="x" * 100_000)) == "Hello."


# --- frames by hand -------------------------------------------------------------------------------------------------


def frame(data: bytes, *, opcode: int = 1, fin: bool = True) -> bytes:
    """A client's frame, masked with zeros."""
    size = len(data)
    if size < 126:
        length = bytes([0x80 | size])
    else:
        length = struct.pack("!BH", 0xFE, size) if size <= 0xFFFF else struct.pack("!BQ", 0xFF, size)
    return bytes([(0x80 if fin else 0) | opcode]) + length + b"\0\0\0\0" + data


async def shaken(server: Any, limit: int = 2**16) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A raw connection behind its handshake."""
    port = int(server.split(":")[2].split("/")[0]) if isinstance(server, str) else server.port
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=limit)
    head = (
        f"GET {PATH} HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    )
    writer.write(f"{head}Sec-WebSocket-Key: {'A' * 22}==\r\n\r\n".encode())
    assert b" 101 " in await reader.readuntil(b"\r\n\r\n")
    return reader, writer


async def closed_with(reader: asyncio.StreamReader) -> int:
    """The code of the close frame that ends what comes."""
    async with asyncio.timeout(GUARD_S):
        data = await reader.read()
    found = data.rfind(b"\x88")
    return int.from_bytes(data[found + 2 : found + 4])


async def nothing_open(server: Any) -> None:
    """Wait until the gateway holds nothing of any connection."""
    app = server.app
    await until(lambda: not (app[SOCKETS]._open or app[BODY_BUDGET].bytes or app[SOCKETS].memory._bytes))
