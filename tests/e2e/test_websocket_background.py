"""A response in the background over WebSocket: it outlives its connection (R28.2, R28.7)."""

from __future__ import annotations

import asyncio

from proxy.testing import Answer, Upstream, chunk, frame
from tests.e2e.conftest import sdk, serving, upstream_config
from tests.e2e.sockets import connected, said
from tests.waiting import GUARD_S


async def test_it_outlives_its_connection() -> None:
    more = asyncio.Event()
    end = [frame(chunk({"content": " again."})), frame(chunk({}, "stop")), b"data: [DONE]\n\n"]
    answer = Answer([frame(chunk({"content": "Hello"})), more, *end])
    async with Upstream([answer]) as upstream, serving(upstream_config(upstream.url)) as server:
        async with connected(server) as socket:
            await socket.create(input="hi", background=True)
            event = await socket.event()
            assert event["type"] == "response.created"
            ident = event["response"]["id"]
            while event["type"] != "response.output_text.delta":
                event = await socket.event()
        more.set()
        async with sdk(server) as session, asyncio.timeout(GUARD_S):
            while (kept := await session.responses.retrieve(ident)).status in ("queued", "in_progress"):  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        assert (kept.status, kept.output_text) == ("completed", "Hello again.")


async def test_it_is_followed_to_its_end() -> None:
    end = [frame(chunk({"content": "Hello"})), frame(chunk({}, "stop")), b"data: [DONE]\n\n"]
    async with (
        Upstream([Answer(end)]) as upstream,
        serving(upstream_config(upstream.url)) as server,
        connected(server) as socket,
    ):
        assert said(await socket.respond(input="hi", background=True)) == "Hello"
