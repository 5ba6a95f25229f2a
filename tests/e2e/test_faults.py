"""Model servers that fail in the middle of an answer, and clients that leave (R7.9, R10.7, R10.8), through the whole
gateway. The faults of servers, one by one: `test_fault_table.py`."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest
from aiohttp.test_utils import TestServer

from tests.cases import every
from tests.e2e.conftest import CHAT, USER, Gateway, function, gateway_before, post, upstream_config
from tests.e2e.meaning import RESPONSES, ended, said
from tests.waiting import GUARD_S, until
from toolwire.pipeline.conversations.stored import CONVERSATIONS
from toolwire.testing import Answer, Raw, Say, Script, Upstream, WireAnswer

TOOLS = [function("read_file", path="string")]
FLAT = [{"type": "function", **TOOLS[0]["function"]}]
CALL = '<tool_call>{"name":"read_file","arguments":"{\\"path\\":\\"a\\"}"}</tool_call>'
SSE = {"Content-Type": "text/event-stream"}
ERROR = {"error": {"message": "no memory", "type": "server_error", "code": None}}

UNUSED = {"pool": {"idle_s": 0.2}}
"""Unused connections are soon closed: how many there are else depends on how fast requests follow each other."""


def ask(tools: list[Any], *, stream: bool) -> dict[str, Any]:
    return {"messages": USER, "tools": tools, "stream": stream} if tools else {"messages": USER, "stream": stream}


OFFERS = ((CHAT, []), (CHAT, TOOLS), (RESPONSES, []), (RESPONSES, FLAT))


def asked(path: str, tools: list[Any], *, stream: bool) -> dict[str, Any]:
    return ask(tools, stream=stream) if path == CHAT else {"input": "hi", "tools": tools, "stream": stream}


def check_envelope(answer: WireAnswer, status: int, code: str) -> None:
    assert (answer.status, answer.headers["Content-Type"].partition(";")[0]) == (status, "application/json")
    error = answer.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["code"] == code
    assert error["message"]
    assert answer.headers["X-Request-Id"]


# --- clients that go ------------------------------------------------------------------------------------------------

GONE: dict[str, Script] = {
    "before headers": Raw(hang=True),
    "before the first token": Answer(headers=SSE, hang=True),
    "during the stream": Say("Hel", hang=True),
    "inside a call": Say("Hel", CALL[:30], hang=True),
}


@every(
    "path, tools, mode",
    [(CHAT, [], "prompt"), (CHAT, TOOLS, "prompt"), (RESPONSES, FLAT, "prompt"), (RESPONSES, FLAT, "native")],
)
@every("stream", [False, True])
async def test_a_client_that_goes_takes_the_backends_work_along(
    path: str, tools: list[Any], mode: str, stream: bool
) -> None:
    async with gateway_before(defaults={"mode": mode}) as (server, upstream):
        for name, turn in GONE.items():
            upstream.script = [turn]
            async with aiohttp.ClientSession() as session:
                body = {"model": "m", **asked(path, tools, stream=stream)}
                asking = asyncio.create_task(session.post(server.make_url(path), json=body))
                async with asyncio.timeout(GUARD_S):
                    request = await upstream.next_request()
                    if stream and callable(turn):
                        response = await asking
                        await response.content.readuntil(b"Hel")
                        response.close()
                asking.cancel()
            async with asyncio.timeout(GUARD_S):
                assert await request.dropped.wait(), name
            await asyncio.gather(asking, return_exceptions=True)


# --- nothing is left behind -----------------------------------------------------------------------------------------


def _descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


@asynccontextmanager
async def leaving_nothing(server: TestServer, upstream: Upstream) -> AsyncIterator[None]:
    """Afterwards there are as many descriptors and tasks as before, when the backend's connections (see `UNUSED`) are
    closed."""

    async def plain() -> None:
        upstream.script = [Say("ok")]
        async with asyncio.timeout(GUARD_S):
            while (answer := await post(server, ask([], stream=True))).status == 504:
                pass  # the time limits of these tests are too short for a busy machine
        assert answer.status == 200
        assert server.runner is not None
        handlers = server.runner.server
        assert handlers is not None
        await until(lambda: not handlers.connections)
        await until(lambda: not upstream.open)

    await plain()
    tasks, descriptors = len(asyncio.all_tasks()), _descriptors()
    yield
    await plain()
    await until(lambda: len(asyncio.all_tasks()) == tasks)
    await until(lambda: _descriptors() == descriptors)


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="counts descriptors in /proc")
async def test_clients_that_go_leave_nothing_behind() -> None:
    async with gateway_before([Say("ok")], backend=UNUSED) as (server, upstream), leaving_nothing(server, upstream):
        async with aiohttp.ClientSession() as session:
            upstream.script = [Say("Hel", hang=True)]
            bodies = [(path, asked(path, tools, stream=True)) for path, tools in OFFERS] * 5
            answers = await asyncio.gather(
                *(session.post(server.make_url(path), json={"model": "m", **body}) for path, body in bodies)
            )
            for response in answers:
                response.close()
        async with asyncio.timeout(GUARD_S):
            for request in upstream.requests[-len(bodies) :]:
                await request.dropped.wait()
        assert not server.app[CONVERSATIONS].running


# --- signs of life --------------------------------------------------------------------------------------------------


async def test_a_comment_while_a_block_is_held_back(gateway: Gateway) -> None:
    """R6.14: the client hears something while a call is being written, and loses nothing of it."""
    gate = asyncio.Event()
    async with asyncio.timeout(GUARD_S), Upstream([Say("Hm. ", CALL[:30], gate, CALL[30:])]) as upstream:
        server = await gateway(upstream_config(upstream.url, server={"keepalive_s": 0.05}))
        async with (
            aiohttp.ClientSession() as session,
            session.post(server.make_url(CHAT), json={"model": "m", **ask(TOOLS, stream=True)}) as response,
        ):
            got = b""
            while got.count(b": keep-alive\n\n") < 2:
                got += await response.content.readany()
            assert b"tool_calls" not in got
            gate.set()
            got += await response.read()
    answer = WireAnswer(status=200, headers={}, body=got)
    assert said(CHAT, answer, True) == ("Hm.", [("read_file", {"path": "a"})], "")
    assert (ended(CHAT, answer, True), answer.frames()[-1]) == ("tool_calls", "[DONE]")
