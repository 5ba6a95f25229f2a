"""A relay between a client and the gateway that keeps what went by, so that it can be held against the published
schemas."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field
from typing import Any, Final

import aiohttp
from aiohttp import web
from aiohttp.test_utils import TestServer

from tests.protocols.responses_wires import accumulate, check_event, check_resource, payloads

_OWN_HEADERS = ("Host", "Transfer-Encoding", "Content-Length", "Connection")

ENDS: Final = ("response.completed", "response.incomplete", "response.failed")


@dataclass
class Recorder:
    """Passes every request on to `target`, byte for byte as it comes, and keeps requests and answers."""

    target: TestServer
    requests: list[Any] = field(default_factory=list)
    answers: list[tuple[int, str, bytes]] = field(default_factory=list)
    """Status, content type and body."""
    messages: list[Any] = field(default_factory=list)
    """Of clients, on WebSockets."""
    events: list[list[Any]] = field(default_factory=list)
    """On each WebSocket."""

    def app(self) -> web.Application:
        app = web.Application(client_max_size=1 << 26)
        app[RECORDER] = self
        app.router.add_route("*", "/{path:.*}", self._relay)
        return app

    async def _relay(self, request: web.Request) -> web.StreamResponse:
        if request.headers.get("Upgrade", "").lower() == "websocket":
            return await self._relay_socket(request)
        sent = await request.read()
        headers = {key: value for key, value in request.headers.items() if key not in _OWN_HEADERS}
        async with (
            aiohttp.ClientSession(auto_decompress=False) as session,
            session.request(request.method, self.target.make_url(request.path_qs), data=sent, headers=headers) as got,
        ):
            given = {key: value for key, value in got.headers.items() if key not in _OWN_HEADERS}
            answer = web.StreamResponse(status=got.status, headers=given)
            await answer.prepare(request)
            received = bytearray()
            async for data in got.content.iter_any():
                received += data
                await answer.write(data)
            self.requests.append(json.loads(sent) if sent else None)
            self.answers.append((got.status, got.content_type, bytes(received)))
            await answer.write_eof()
            return answer

    async def _relay_socket(self, request: web.Request) -> web.StreamResponse:
        """As the gateway is asked: a handshake that it refuses is refused with its status."""
        headers = {name: value for name, value in request.headers.items() if name.startswith(("A", "x-", "open"))}
        async with aiohttp.ClientSession() as session:
            try:
                server = await session.ws_connect(
                    self.target.make_url(request.path_qs), headers=headers, max_msg_size=0
                )
            except aiohttp.WSServerHandshakeError as refused:
                return web.Response(status=refused.status)
            async with server:
                client: web.WebSocketResponse[Any] = web.WebSocketResponse(max_msg_size=0)
                await client.prepare(request)
                events: list[Any] = []
                self.events.append(events)
                back = asyncio.create_task(_pass(server, client, events))
                try:
                    await _pass(client, server, self.messages)
                finally:
                    await server.close()
                    await back
        return client

    def check_responses(self) -> None:
        """Every answer of the Responses API, event for event."""
        for events in self.events:
            response: list[Any] = []
            for event in events:
                if event["type"] == "error":
                    continue
                check_event(event)
                response.append(event)
                if event["type"] in ENDS:
                    resource = event["response"]
                    assert accumulate(response) == resource["output"] or resource["status"] == "failed"
                    response = []
        for request, (status, kind, body) in zip(self.requests, self.answers, strict=True):
            if request is None or "messages" in request or status != 200:
                continue
            if kind == "text/event-stream":
                events = payloads(body)
                for event in events:
                    check_event(event)
                resource = events[-1]["response"]
                assert accumulate(events) == resource["output"] or resource["status"] == "failed"
            else:
                check_resource(json.loads(body))


RECORDER: Final = web.AppKey("recorder", Recorder)


async def _pass(come: Any, go: Any, kept: list[Any]) -> None:
    """Messages of one side to the other, until it has no more."""
    async for message in come:
        if message.type is aiohttp.WSMsgType.TEXT:
            kept.append(json.loads(message.data))
            await go.send_str(message.data)
    await go.close(code=come.close_code or 1000)
