"""A relay in front of a model server, for programs that record or change what passes through it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Self

import aiohttp
from aiohttp import web


@dataclass(slots=True, kw_only=True)
class Recorded:
    """The response of the server to one request: `data` is its body as far as it came, `ended` if it is complete."""

    status: int = 0
    streamed: bool = False
    data: bytes = b""
    ended: bool = False


class Relay:
    """Forwards every request to the server at `target`, with `headers` added. `url` is set while it serves."""

    def __init__(self, target: str, headers: Mapping[str, str] | None = None) -> None:
        self.url = ""
        self._target = target
        self._headers = headers or {}
        self._client: aiohttp.ClientSession

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[Self]:
        """Serves on a free port of the loopback interface while the context lasts."""
        app = web.Application(client_max_size=64 << 20)
        app.router.add_route("*", "/{path:.*}", self.answer)
        runner = web.AppRunner(app, access_log=None, handler_cancellation=True)
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=None)) as self._client:
            await runner.setup()
            try:
                await web.TCPSite(runner, "127.0.0.1", 0).start()
                self.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
                yield self
            finally:
                await runner.cleanup()

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Answers a request; subclasses override it."""
        return await self.forward(request, await request.read(), Recorded())

    async def forward(self, request: web.Request, body: bytes, recorded: Recorded) -> web.StreamResponse:
        """Sends `body` to the server, passes its response on and records it. A failed connection to the server aborts
        the one to the client."""
        headers = {**({"Content-Type": request.content_type} if body else {}), **self._headers}
        try:
            async with self._client.request(
                request.method, self._target + request.path_qs, data=body or None, headers=headers
            ) as answer:
                recorded.status = answer.status
                recorded.streamed = answer.content_type == "text/event-stream"
                out = web.StreamResponse(
                    status=answer.status, headers={"Content-Type": answer.headers.get("Content-Type", "")}
                )
                if not recorded.streamed:
                    recorded.data = await answer.read()
                    out.content_length = len(recorded.data)
                await out.prepare(request)
                if recorded.streamed:
                    async for chunk in answer.content.iter_any():
                        recorded.data += chunk
                        await out.write(chunk)
                else:
                    await out.write(recorded.data)
                recorded.ended = True
                await out.write_eof()
                return out
        except aiohttp.ClientError:
            if request.transport is not None:
                request.transport.abort()
            return web.Response(status=502)  # the connection is gone, so nobody gets this
