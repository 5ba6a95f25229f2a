"""A relay between a client and the gateway that keeps what went by, so that it can be held against the published
schemas."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import aiohttp
from aiohttp import web
from aiohttp.test_utils import TestServer

from tests.protocols.responses_wires import accumulate, check_event, check_resource, payloads

_OWN_HEADERS = ("Host", "Transfer-Encoding", "Content-Length", "Connection")


@dataclass
class Recorder:
    """Passes every request on to `target`, byte for byte as it comes, and keeps requests and answers."""

    target: TestServer
    requests: list[Any] = field(default_factory=list)
    answers: list[tuple[int, str, bytes]] = field(default_factory=list)
    """Status, content type and body."""

    def app(self) -> web.Application:
        app = web.Application(client_max_size=1 << 26)
        app.router.add_route("*", "/{path:.*}", self._relay)
        return app

    async def _relay(self, request: web.Request) -> web.StreamResponse:
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

    def check_responses(self) -> None:
        """Every answer of the Responses API, event for event."""
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
