"""A client of Responses over WebSocket that sees the frames."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import orjson
from aiohttp.test_utils import TestServer

from tests.e2e.conftest import serving, upstream_config
from tests.waiting import GUARD_S
from toolwire.testing import Upstream

PATH = "/v1/responses"
ENDS = ("response.completed", "response.incomplete", "response.failed", "error")


class Socket:
    """One connection."""

    def __init__(self, raw: aiohttp.ClientWebSocketResponse[Any]) -> None:
        self.raw = raw

    async def create(self, **body: Any) -> None:
        """Send a `response.create`."""
        await self.send({"type": "response.create", "model": "m", **body})

    async def send(self, message: Mapping[str, Any]) -> None:
        """Send any message."""
        await self.raw.send_str(orjson.dumps(message).decode())

    async def event(self) -> dict[str, Any]:
        """The next event."""
        message = await self.raw.receive(timeout=GUARD_S)
        assert message.type is aiohttp.WSMsgType.TEXT, message
        event: dict[str, Any] = orjson.loads(message.data)
        return event

    async def events(self) -> list[dict[str, Any]]:
        """The events up to the end of a response."""
        events = [await self.event()]
        while events[-1]["type"] not in ENDS:
            events.append(await self.event())
        return events

    async def ask(self, **body: Any) -> dict[str, Any]:
        """Send a `response.create`: the last event of what comes."""
        await self.create(**body)
        return (await self.events())[-1]

    async def respond(self, **body: Any) -> dict[str, Any]:
        """The same: the response, which has to be complete."""
        last = await self.ask(**body)
        assert last["type"] == "response.completed", last
        response: dict[str, Any] = last["response"]
        return response

    async def closed(self) -> int | None:
        """The code with which the gateway closes it; nothing else comes before."""
        message = await self.raw.receive(timeout=GUARD_S)
        assert message.type in (aiohttp.WSMsgType.CLOSE, aiohttp.WSMsgType.CLOSED, aiohttp.WSMsgType.ERROR), message
        return self.raw.close_code


@asynccontextmanager
async def connected(server: TestServer | str, **options: Any) -> AsyncIterator[Socket]:
    """A connection to a gateway."""
    url = f"{server}/responses" if isinstance(server, str) else server.make_url(PATH)
    async with aiohttp.ClientSession() as session, session.ws_connect(url, max_msg_size=0, **options) as raw:
        yield Socket(raw)


async def handshake(server: TestServer | str, **options: Any) -> int:
    """The status that a handshake gets."""
    try:
        async with connected(server, **options):
            return 101
    except aiohttp.WSServerHandshakeError as error:
        return error.status


@asynccontextmanager
async def talking(script: Sequence[Any], **sections: Any) -> AsyncIterator[tuple[Upstream, Socket]]:
    """A model server, and a connection to a gateway before it."""
    async with (
        Upstream(list(script)) as upstream,
        serving(upstream_config(upstream.url, **sections)) as server,
        connected(server) as socket,
    ):
        yield upstream, socket


def said(response: Mapping[str, Any]) -> str:
    """The text of a response."""
    return "".join(part["text"] for item in response["output"] if item["type"] == "message" for part in item["content"])
