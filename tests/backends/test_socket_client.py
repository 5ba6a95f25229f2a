"""Responses servers over WebSocket: `websocket: true` of a backend (R28.2)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import orjson
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from tests.e2e.conftest import post, read_config, serving
from tests.e2e.responses_answers import read_events
from tests.e2e.sockets import connected, said
from tests.protocols.blocks import text as block
from tests.protocols.responses_wires import payloads, write
from tests.waiting import GUARD_S
from toolwire.configuration.settings import load
from toolwire.errors import BackendFault
from toolwire.events import Event, Finish, Start
from toolwire.model import Usage
from toolwire.support.conversion import ConfigError
from toolwire.upstream.client.socket_client import RefusedAnswer
from toolwire.upstream.servers.client_ids import HEADER

Turn = Callable[[web.WebSocketResponse[Any], dict[str, Any]], Awaitable[None]]


def events(text: str) -> list[dict[str, Any]]:
    """The events of an answer with this text; the last one has the whole response."""
    answer: list[Event] = [Start("resp_1", "m", 1), *block(0, text), Finish("stop", Usage(3, 2))]
    return payloads(write(answer))


def say(text: str) -> Turn:
    async def turn(socket: web.WebSocketResponse[Any], asked: dict[str, Any]) -> None:
        for event in events(text):
            await socket.send_json(event)

    return turn


def refuse(status: int, code: str, **more: Any) -> Turn:
    async def turn(socket: web.WebSocketResponse[Any], asked: dict[str, Any]) -> None:
        error = {"type": "invalid_request_error", "code": code, "message": "No.", "param": None}
        await socket.send_json({"type": "error", "status": status, "error": error, **more})

    return turn


class Server:
    """A Responses server. `turns` answer what comes on WebSockets, the last one for ever; `handshake` is the status of
    a refusal. Over HTTP it says `By HTTP.`."""

    def __init__(self, *turns: Turn, handshake: int | None = None) -> None:
        self.turns = list(turns)
        self.handshake = handshake
        self.asked: list[dict[str, Any]] = []
        self.over_http: list[dict[str, Any]] = []
        self.handshakes: list[Any] = []
        self.gone = asyncio.Semaphore(0)

    def app(self) -> web.Application:
        app = web.Application()
        app.router.add_get("/v1/responses", self._connect)
        app.router.add_post("/v1/responses", self._answer)
        return app

    async def _connect(self, request: web.Request) -> web.StreamResponse:
        self.handshakes.append(request.headers)
        if self.handshake is not None:
            return web.Response(status=self.handshake, headers={"Location": "/elsewhere"})
        socket: web.WebSocketResponse[Any] = web.WebSocketResponse()
        await socket.prepare(request)
        async for message in socket:
            self.asked.append(orjson.loads(message.data))
            await (self.turns.pop(0) if len(self.turns) > 1 else self.turns[0])(socket, self.asked[-1])
        self.gone.release()
        return socket

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        asked = await request.json()
        self.over_http.append(asked)
        if not asked.get("stream"):
            return web.json_response(events("By HTTP.")[-1]["response"])
        frames = (b"data: %b\n\n" % orjson.dumps(event) for event in events("By HTTP."))
        return web.Response(body=b"".join(frames), content_type="text/event-stream")


@asynccontextmanager
async def gateway(server: Server, **backend: Any) -> AsyncIterator[TestServer]:
    async with TestServer(server.app()) as upstream:
        up = {"kind": "openai_responses", "url": str(upstream.make_url("/")), "websocket": True, **backend}
        async with serving(read_config({"backends": {"up": up}})) as running:
            yield running


async def ask(running: TestServer, headers: Any = None, **body: Any) -> Any:
    answer = await post(running, {"input": "hi", "stream": True, **body}, path="/v1/responses", headers=headers)
    return answer if answer.status != 200 else read_events(answer.body)


@pytest.mark.parametrize("store", [True, False])
async def test_a_stream_comes_over_it_and_the_next_one_on_the_same_connection(store: bool) -> None:
    server = Server(say("One."), say("Two."))
    async with gateway(server, api_key="sk-up") as running:
        texts = [said((await ask(running, store=store))[-1]["response"]) for _ in range(2)]
    assert texts == ["One.", "Two."]
    assert [headers["Authorization"] for headers in server.handshakes] == ["Bearer sk-up"]
    assert [asked["type"] for asked in server.asked] == ["response.create"] * 2
    assert all(asked["input"] and asked["store"] is False for asked in server.asked)
    assert server.over_http == []


async def test_a_connection_is_for_requests_with_the_headers_of_its_handshake() -> None:
    server = Server(say("Good."))
    async with gateway(server) as running:
        for ident in ("a", "b", "a"):
            assert said((await ask(running, headers={HEADER: ident}))[-1]["response"]) == "Good."
    assert [headers[HEADER] for headers in server.handshakes] == ["a", "b"]
    assert len(server.asked) == 3


async def test_a_client_of_a_websocket_in_front_of_one() -> None:
    server = Server(say("One."))
    async with gateway(server) as running, connected(running) as socket:
        first = await socket.respond(input="hi", store=False)
        assert said(first) == "One."
        assert said(await socket.respond(input="on", store=False, previous_response_id=first["id"])) == "One."
    assert not {"previous_response_id", "generate"} & server.asked[1].keys()
    assert "hi" in str(server.asked[1]["input"])


async def test_chat_is_answered_by_it_as_well() -> None:
    async with gateway(Server(say("Hello."))) as running:
        answer = await post(running, {"messages": [{"role": "user", "content": "hi"}], "stream": True})
    assert b"Hello." in answer.body


async def test_a_whole_answer_comes_over_http() -> None:
    server = Server(say("One."))
    async with gateway(server) as running:
        answer = await post(running, {"input": "hi"}, path="/v1/responses")
    assert said(answer.json()) == "By HTTP."
    assert server.handshakes == []


@pytest.mark.parametrize(("status", "tries"), [(426, 1), (404, 1), (405, 1), (401, 2), (503, 2)])
async def test_where_it_is_refused_http_is_used(status: int, tries: int) -> None:
    """A server that has none is remembered."""
    server = Server(handshake=status)
    async with gateway(server) as running:
        for _ in range(2):
            assert said((await ask(running))[-1]["response"]) == "By HTTP."
    assert (len(server.handshakes), len(server.over_http)) == (tries, 2)


async def test_a_redirect_is_not_followed() -> None:
    server = Server(handshake=307)
    async with gateway(server, api_key="sk-up") as running:
        answer = await ask(running)
    assert (answer.status, answer.json()["error"]["code"]) == (502, "upstream_error")
    assert len(server.handshakes) == 1


async def test_a_refusal_has_its_status_and_the_connection_goes_on() -> None:
    headers = {"retry-after": "7"}
    server = Server(refuse(429, "rate_limit_exceeded", headers=headers), refuse(400, "bad"), say("Good."))
    async with gateway(server) as running:
        limited = await ask(running)
        assert (limited.status, limited.headers["Retry-After"]) == (429, "7")
        assert (await ask(running)).status == 400
        assert said((await ask(running))[-1]["response"]) == "Good."
    assert len(server.handshakes) == 1


async def test_a_connection_that_is_too_old_is_replaced() -> None:
    server = Server(refuse(400, "websocket_connection_limit_reached"), say("Good."))
    async with gateway(server) as running:
        assert said((await ask(running))[-1]["response"]) == "Good."
    assert len(server.handshakes) == 2


async def test_no_more_unused_ones_stay_open_than_configured() -> None:
    server = Server(say("Good."))
    async with gateway(server, pool={"idle_connections": 0}) as running:
        for _ in range(2):
            assert said((await ask(running))[-1]["response"]) == "Good."
    assert len(server.handshakes) == 2


async def test_one_that_was_closed_while_unused_is_replaced() -> None:
    async def close(socket: web.WebSocketResponse[Any], asked: dict[str, Any]) -> None:
        await say("One.")(socket, asked)
        await socket.close()

    server = Server(close, say("Two."))
    async with gateway(server) as running:
        assert said((await ask(running))[-1]["response"]) == "One."
        assert said((await ask(running))[-1]["response"]) == "Two."


async def test_what_comes_unasked_closes_it() -> None:
    """It would be the beginning of the next answer."""

    async def talkative(socket: web.WebSocketResponse[Any], asked: dict[str, Any]) -> None:
        await say("One.")(socket, asked)
        await say("Somebody else's.")(socket, asked)

    server = Server(talkative, say("Two."))
    async with gateway(server) as running:
        assert said((await ask(running))[-1]["response"]) == "One."
        async with asyncio.timeout(GUARD_S):
            await server.gone.acquire()
        assert said((await ask(running))[-1]["response"]) == "Two."


@pytest.mark.parametrize("early", [True, False])
async def test_a_server_that_goes_is_an_error(early: bool) -> None:
    async def goes(socket: web.WebSocketResponse[Any], asked: dict[str, Any]) -> None:
        for event in [] if early else events("Hello")[:5]:
            await socket.send_json(event)
        await socket.close()

    async with gateway(Server(goes)) as running:
        answer = await ask(running)
    if early:
        assert (answer.status, answer.json()["error"]["code"]) == (502, "upstream_disconnected")
    else:
        assert answer[-1]["type"] == "response.failed"


@pytest.mark.parametrize("frame", ["no JSON", "[1]", '{"a":1}'])
async def test_nonsense_is_an_error(frame: str) -> None:
    async def babbles(socket: web.WebSocketResponse[Any], asked: dict[str, Any]) -> None:
        await socket.send_str(frame)

    async with gateway(Server(babbles)) as running:
        assert (await ask(running)).status == 502


async def test_a_refusal_is_read_up_to_the_limit() -> None:
    refused = RefusedAnswer(400, b"abc", {})
    assert await refused.read(3) == b"abc"
    with pytest.raises(BackendFault, match="larger"):
        await refused.read(2)


async def test_a_frame_that_is_too_large_is_an_error() -> None:
    server = Server(say("x" * 5000))
    async with TestServer(server.app()) as upstream:
        up = {"kind": "openai_responses", "url": str(upstream.make_url("/")), "websocket": True}
        config = read_config({"backends": {"up": up}, "limits": {"frame_bytes": 2000}})
        async with serving(config) as running:
            answer = await ask(running)
    last = answer.json()["error"] if not isinstance(answer, list) else answer[-1]["response"]["error"]
    assert "larger" in last["message"]


async def test_a_server_that_says_nothing_is_an_error() -> None:
    async def silent(socket: web.WebSocketResponse[Any], asked: dict[str, Any]) -> None:
        pass

    server = Server(silent)
    async with gateway(server, timeouts={"first_byte_s": 0.1}) as running:
        assert (await ask(running)).status == 504
        async with asyncio.timeout(GUARD_S):
            await server.gone.acquire()


async def test_a_client_that_goes_takes_the_servers_work_along() -> None:
    begun = asyncio.Event()

    async def endless(socket: web.WebSocketResponse[Any], asked: dict[str, Any]) -> None:
        for event in events("Hello")[:5]:
            await socket.send_json(event)
        begun.set()

    server = Server(endless)
    async with gateway(server) as running:
        async with aiohttp.ClientSession() as session:
            body = {"model": "m", "input": "hi", "stream": True}
            async with session.post(running.make_url("/v1/responses"), json=body) as answer:
                await answer.content.readany()
                await begun.wait()
        async with asyncio.timeout(GUARD_S):
            await server.gone.acquire()


def test_other_kinds_have_none() -> None:
    backends = {"up": {"url": "http://127.0.0.1:1", "websocket": True}}
    with pytest.raises(ConfigError, match="only servers of `kind: openai_responses`"):
        load(None, env={}, overrides={"backends": backends})
