"""Servers that have an address, and what hostile ones do: a double that speaks the protocol by hand."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from tests.mcp.conftest import call, connected, settings
from tests.waiting import GUARD_S, until
from toolwire.config import McpServerConfig
from toolwire.configuration.mcp_secrets import secrets_of
from toolwire.extras.mcp import server as serving
from toolwire.extras.mcp.server import McpServer

pytest.importorskip("mcp")

TOOLS = ["echo", "large", "zipped", "strange", "accepted", "refused", "leave", "gone", "broken_off", "hang", "moved"]


class Double:
    """Speaks the protocol of 2025-06-18. `sessions` are those that were begun; `requests` every request's headers."""

    def __init__(self) -> None:
        self.sessions: list[str] = []
        self.requests: list[dict[str, str]] = []
        self.cancelled: list[Any] = []
        self.moved_to: str | None = None
        self.full: asyncio.Event | None = None  # set when a second session is asked for, which gets 503 after `stop`
        self.hangs = asyncio.Event()
        self.stop = asyncio.Event()

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.requests.append(dict(request.headers))
        if request.method != "POST":
            return web.Response(status=405)
        if request.path == "/elsewhere":
            raise web.HTTPTemporaryRedirect(self.moved_to or "/mcp")
        message = await request.json()
        number, params = message.get("id"), message.get("params") or {}
        match message["method"]:
            case "initialize" if self.sessions and self.full is not None:
                self.full.set()
                await self.stop.wait()
                return web.Response(status=503)
            case "initialize":
                self.sessions.append(f"session-{len(self.sessions)}")
                info = {"name": "http", "version": "1"}
                result = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": info}
                return self.answer(number, result, headers={"mcp-session-id": self.sessions[-1]})
            case "tools/list":
                tools = [{"name": name, "inputSchema": {"type": "object"}} for name in TOOLS]
                return self.answer(number, {"tools": tools})
            case "tools/call":
                return await self.called(params["name"], number, request)
            case "notifications/cancelled":
                self.cancelled.append(params["requestId"])
        if number is None:
            return web.Response(status=202)
        return web.json_response({"jsonrpc": "2.0", "id": number, "error": {"code": -32601, "message": "unknown"}})

    def answer(self, number: Any, result: Any, **more: Any) -> web.Response:
        return web.json_response({"jsonrpc": "2.0", "id": number, "result": result}, **more)

    async def called(self, name: str, number: Any, request: web.Request) -> web.StreamResponse:
        text = {"content": [{"type": "text", "text": name}]}
        match name:
            case "large":
                return self.answer(number, {"content": [{"type": "text", "text": "x" * 80_000_000}]})
            case "zipped":
                body = gzip.compress(json.dumps({"jsonrpc": "2.0", "id": number, "result": text}).encode())
                return web.Response(body=body, headers={"content-encoding": "gzip"}, content_type="application/json")
            case "strange":
                return web.Response(text="<h1>Login</h1>", content_type="text/html")
            case "accepted":
                return web.Response(status=202)
            case "refused":
                return web.Response(status=401)
            case "leave" if request.headers["mcp-session-id"] == "session-0":
                error = {"code": -32600, "message": "Session not found"}  # as the servers of the SDKs say it
                return web.json_response({"jsonrpc": "2.0", "id": "server-error", "error": error}, status=404)
            case "gone":
                return web.Response(status=404)
            case "broken_off":
                response = web.StreamResponse(headers={"content-type": "text/event-stream"})
                await response.prepare(request)
                await response.write(b"event: message\ndata: {\n")
                return response
            case "hang":
                self.hangs.set()
                await self.stop.wait()
        return self.answer(number, text)


@asynccontextmanager
async def running() -> AsyncIterator[tuple[Double, str]]:
    """A double and its address."""
    double = Double()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", double.handle)
    server = TestServer(app)
    await server.start_server()
    try:
        yield double, str(server.make_url("/mcp"))
    finally:
        double.stop.set()
        await server.close()


async def test_what_servers_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "FIRST_WAIT_S", 0.01)
    async with running() as (double, url), connected(settings(url=url)) as server:
        assert (await call(server, "echo")).text == "echo"
        for name, said in (
            ("strange", "Error: Unexpected content type: text/html"),
            ("accepted", "Error: server answered a request with 202 Accepted"),
            ("refused", "Error: Server returned an error response"),
            ("broken_off", "Error: SSE stream ended without a response"),
        ):
            result = await call(server, name)
            assert result.failed
            assert result.text.startswith(said), name
        assert (await call(server, "echo")).text == "echo"
        waiting = asyncio.create_task(call(server, "hang"))
        await asyncio.wait_for(double.hangs.wait(), GUARD_S)
        waiting.cancel()
        await until(lambda: double.cancelled)
        assert server.restarts == 0
        # A session that the server has forgotten is begun anew, for the call that it did not run too.
        assert (await call(server, "leave")).text == "leave"
        assert server.restarts == 1
        assert double.sessions == ["session-0", "session-1"]
        again = await call(server, "gone")  # once
        assert (again.failed, again.text) == (True, "Error: The connection to the tool's server was lost")
        assert double.sessions[2:] == ["session-2"]


@pytest.mark.parametrize("closes", [False, True])
async def test_a_call_does_not_wait_longer_than_for_one_new_session(
    closes: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving, "FIRST_WAIT_S", 0.01)
    async with running() as (double, url):
        double.full = asyncio.Event()
        async with connected(settings(url=url)) as server:
            waiting = asyncio.create_task(call(server, "leave"))
            await asyncio.wait_for(double.full.wait(), GUARD_S)
            assert not waiting.done()
            if not closes:
                double.stop.set()
                await asyncio.wait({waiting})
        result = await waiting
    assert result.failed
    assert result.text.startswith("Error: The tool's server test cannot be reached now")


async def test_large_and_compressed_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "FIRST_WAIT_S", 0.01)
    async with running() as (double, url), connected(settings(url=url)) as server:
        for number, (name, why) in enumerate([("large", "more than 67108864 bytes"), ("zipped", "compressed")], 1):
            result = await call(server, name)
            assert result.failed
            await until(lambda number=number: server.restarts == number and server.state == "up")
            assert why in result.text
        assert (await call(server, "echo")).text == "echo"
    assert all(headers["Accept-Encoding"] == "identity" for headers in double.requests)


async def test_a_redirect_does_not_carry_headers_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "FIRST_WAIT_S", 600.0)
    headers = {"Authorization": "Bearer sesame-open"}
    async with running() as (thief, stolen), running() as (double, url):
        elsewhere = url.replace("/mcp", "/elsewhere")
        async with connected(settings(url=elsewhere, headers=headers)) as server:  # within the origin it is followed
            assert (await call(server, "echo")).text == "echo"
        double.moved_to = stolen
        server = McpServer(settings(url=elsewhere, headers=headers))
        async with server.running():
            await asyncio.wait_for(server.settled.wait(), GUARD_S)
            assert server.error is not None
            assert "Redirect to" in server.error
        assert not thief.requests


async def test_the_proxies_of_the_environment_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    async with running() as (_, url):
        async with connected(settings(url=url)) as server:
            assert (await call(server, "echo")).text == "echo"
        trusting = McpServer(settings(url=url, trust_env=True))
        async with trusting.running():
            await asyncio.wait_for(trusting.settled.wait(), GUARD_S)
            assert trusting.error is not None
            assert trusting.error.startswith("ConnectError")


def test_a_header_of_the_configuration_takes_the_place_of_the_gateways() -> None:
    from toolwire.extras.mcp.addresses import http_client
    from toolwire.extras.mcp.frames import HostSettings

    sent = http_client(HostSettings(headers={"user-agent": "mine/1", "X-Key": "a"})).headers
    assert sent.get_list("User-Agent") == ["mine/1"]
    assert sent["x-key"] == "a"


def test_why_a_connection_failed_is_said_without_paths() -> None:
    """Some have a key in them."""
    from toolwire.extras.mcp.host import ConnectionFailed, _reason

    said = _reason(
        ExceptionGroup("", [OSError("x"), ConnectionFailed("http://a.example:1/key moved\nto HTTP://b?key")])
    )
    assert said == "http://a.example:1/... moved to HTTP://b/..."


def test_blanks_around_a_secret_do_not_show_it() -> None:
    """The library's words for such a header have a tab as two characters."""
    config = McpServerConfig(name="a", url="https://a.example/", headers={"X-Key": "Bearer s3cret-value\t"})
    assert secrets_of(config) == ("Bearer s3cret-value", "s3cret-value")
