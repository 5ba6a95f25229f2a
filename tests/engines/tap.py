"""A tap between the gateway and an engine: what each was sent, so that their mistakes can be told apart."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import orjson
from aiohttp import web

from bench.relay import Recorded, Relay
from toolwire.testing import read_frames


@dataclass(slots=True)
class Tapped(Recorded):
    """One exchange with the engine: the path and the body of the request, and the response."""

    path: str
    body: dict[str, Any]

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


class Tap(Relay):
    """A relay between the gateway and an engine that records all exchanges. `spoil` changes the bodies of requests."""

    def __init__(self, engine: str) -> None:
        super().__init__(engine)
        self.exchanges: list[Tapped] = []
        self.spoil: Callable[[dict[str, Any]], dict[str, Any]] | None = None

    @contextmanager
    def spoiling(self, spoil: Callable[[dict[str, Any]], dict[str, Any]]) -> Iterator[None]:
        """Changes the bodies of requests by `spoil` while the context lasts."""
        self.spoil = spoil
        try:
            yield
        finally:
            self.spoil = None

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """See `Relay`."""
        data = await request.read()
        body = orjson.loads(data) if data else {}
        if self.spoil is not None and request.method == "POST":
            body = self.spoil(body)
            data = orjson.dumps(body)
        exchange = Tapped(request.path, body)
        if request.method == "POST":
            self.exchanges.append(exchange)
        return await self.forward(request, data, exchange)
