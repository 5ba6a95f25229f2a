"""A tap between the gateway and an engine: what each was sent, so that their mistakes can be told apart."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import orjson
from aiohttp import web

from proxy.testing import read_frames


@dataclass(slots=True)
class Tapped:
    """One exchange with the engine. `data`: the bytes of its answer."""

    path: str
    body: dict[str, Any]
    status: int = 0
    streamed: bool = False
    data: bytes = b""
    ended: bool = False

    @property
    def error(self) -> str | None:
        """The error that the engine answered with, also inside of an accepted answer."""
        if self.status == 0:
            return None
        if self.streamed:
            found = [frame["error"] for frame in self.frames() if isinstance(frame, dict) and frame.get("error")]
            return str(found[0]) if found else None
        if self.status >= 400:
            return self.data[:300].decode("utf-8", "replace")
        return None

    def frames(self) -> list[Any]:
        """The frames of a stream, as far as they are JSON."""
        try:
            return read_frames(self.data)
        except ValueError:
            return []

    def text(self) -> str:
        """The text that the engine gave, of one choice."""
        if self.streamed:
            choices = [one for frame in self.frames() if frame != "[DONE]" for one in frame.get("choices") or ()]
            return "".join((one.get("delta") or {}).get("content") or one.get("text") or "" for one in choices)
        (choice, *_) = [one for value in self.values() for one in value.get("choices") or ()] or [{}]
        return (choice.get("message") or {}).get("content") or choice.get("text") or ""

    def values(self) -> list[dict[str, Any]]:
        """The objects of an answer with status 200: its frames, or the whole one."""
        try:
            found = self.frames() if self.streamed else [orjson.loads(self.data)] if self.status == 200 else []
        except ValueError:
            return []
        return [one for one in found if isinstance(one, dict)]

    def usage(self) -> tuple[int, int] | None:
        """The tokens of prompt and answer that the engine counted."""
        said = [one["usage"] for one in self.values() if one.get("usage")]
        return (said[-1]["prompt_tokens"], said[-1]["completion_tokens"]) if said else None

    def finish(self) -> str | None:
        """The finish reason that the engine gave."""
        choices = [one for value in self.values() for one in value.get("choices") or ()]
        return next((one["finish_reason"] for one in reversed(choices) if one.get("finish_reason")), None)


CONSTRAINTS = ("structured_outputs", "grammar", "ebnf", "response_format", "regex", "json_schema")


def constraint(body: dict[str, Any]) -> tuple[str, Any] | None:
    """The field that constrains an answer, and its value, as the engine was sent it."""
    return next(((name, body[name]) for name in CONSTRAINTS if body.get(name)), None)


@dataclass(slots=True)
class Tap:
    """A server that passes everything on to an engine. `spoil` changes the bodies that it is sent."""

    engine: str
    url: str = ""
    exchanges: list[Tapped] = field(default_factory=list)
    spoil: Callable[[dict[str, Any]], dict[str, Any]] | None = None

    @contextmanager
    def spoiling(self, spoil: Callable[[dict[str, Any]], dict[str, Any]]) -> Iterator[None]:
        """Change what is sent on."""
        self.spoil = spoil
        try:
            yield
        finally:
            self.spoil = None

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[Tap]:
        """Serve at `url`."""
        app = web.Application(client_max_size=64 << 20)
        app.router.add_route("*", "/{path:.*}", self._pass)
        runner = web.AppRunner(app, access_log=None, handler_cancellation=True)
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=None)) as self._client:
            await runner.setup()
            try:
                await web.TCPSite(runner, "127.0.0.1", 0).start()
                self.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
                yield self
            finally:
                await runner.cleanup()

    _client: aiohttp.ClientSession = field(init=False, repr=False)

    async def _pass(self, request: web.Request) -> web.StreamResponse:
        data = await request.read()
        body = orjson.loads(data) if data else {}
        if self.spoil is not None and request.method == "POST":
            body = self.spoil(body)
            data = orjson.dumps(body)
        exchange = Tapped(request.path, body)
        if request.method == "POST":
            self.exchanges.append(exchange)
        headers = {"Content-Type": request.content_type} if data else {}
        try:
            async with self._client.request(
                request.method, self.engine + request.path_qs, data=data or None, headers=headers
            ) as answer:
                exchange.status = answer.status
                exchange.streamed = answer.content_type == "text/event-stream"
                out = web.StreamResponse(
                    status=answer.status, headers={"Content-Type": answer.headers.get("Content-Type", "")}
                )
                if not exchange.streamed:
                    exchange.data = await answer.read()
                    out.content_length = len(exchange.data)
                await out.prepare(request)
                if exchange.streamed:
                    async for chunk in answer.content.iter_any():
                        exchange.data += chunk
                        await out.write(chunk)
                else:
                    await out.write(exchange.data)
                exchange.ended = True
                await out.write_eof()
                return out
        except aiohttp.ClientError:  # as the engine did it
            if request.transport is not None:
                request.transport.abort()
            return web.Response(status=502)  # which nobody gets
