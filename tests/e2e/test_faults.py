"""Model servers that fail, and clients that go: what R7.9, R10.7 and R10.8 say about it, through the whole gateway.

Each fault is tried on both stream paths (without tools bytes pass unread, with tools they are scanned), streamed and
not. After each series nothing may be left behind: no task, no socket, no file descriptor.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import openai
import pytest
from aiohttp.test_utils import TestServer

from proxy.testing import Answer, Raw, Refuse, Say, Script, Upstream, WireAnswer, chunk, frame
from tests.e2e.conftest import CHAT, USER, Gateway, function, post, sdk, serving, upstream_config
from tests.waiting import GUARD_S, until

TOOLS = [function("read_file", path="string")]
CALL = '<tool_call>{"name":"read_file","arguments":"{\\"path\\":\\"a\\"}"}</tool_call>'
SSE = {"Content-Type": "text/event-stream"}
JSON = {"Content-Type": "application/json"}
ERROR = {"error": {"message": "no memory", "type": "server_error", "code": None}}

SHORT = {"timeouts": {"first_byte_s": 0.2, "idle_s": 0.2}}
UNUSED = {"pool": {"idle_s": 0.2}}
"""Unused connections are soon closed: how many there are else depends on how fast requests follow each other."""


def limits(code: str) -> dict[str, Any]:
    """Short limits only where they are to be exceeded: a machine that pauses would exceed them elsewhere too."""
    return SHORT if code == "upstream_timeout" else {}


LANES = pytest.mark.parametrize("tools", [[], TOOLS], ids=["raw", "scanned"])
WAYS = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])

BEFORE: dict[str, tuple[Script, int, str]] = {
    "no answer": (Raw(hang=True), 504, "upstream_timeout"),
    "closed at once": (Raw(), 502, "upstream_disconnected"),
    "no HTTP": (Raw(b"\x00\xff garbage\r\n\r\n"), 502, "upstream_invalid_response"),
    "half a status line": (Raw(b"HTTP/1.1 20"), 502, "upstream_disconnected"),
    "headers and no byte": (Answer(headers=SSE, hang=True), 504, "upstream_timeout"),
    "a web page": (
        Answer([b"<html>hi</html>"], headers={"Content-Type": "text/html"}),
        502,
        "upstream_invalid_response",
    ),
    "an error frame first": (Answer([frame(ERROR)], headers=SSE), 502, "upstream_error"),
    "400": (Refuse(400, "no such sampler"), 400, "upstream_rejected"),
    "400 too long": (
        Refuse(400, "This model's maximum context length is 4096 tokens"),
        400,
        "context_length_exceeded",
    ),
    "401": (Refuse(401), 502, "upstream_auth"),
    "403": (Refuse(403), 502, "upstream_auth"),
    "404": (Refuse(404), 502, "upstream_error"),
    "408": (Refuse(408), 504, "upstream_timeout"),
    "413": (Refuse(413), 413, "request_too_large"),
    "429": (Refuse(429, headers={"Retry-After": "3"}), 429, "rate_limit_exceeded"),
    "500": (Refuse(500), 502, "upstream_error"),
    "503 as a page": (Refuse(503, body=b"<html>x</html>"), 502, "upstream_error"),
    "504": (Refuse(504), 504, "upstream_timeout"),
}
"""Faults before the first event: always a status, streamed or not."""


def _partly(*steps: Any, **more: Any) -> Callable[[Any], Answer]:
    """A fault after some of the answer; a request for a whole answer gets the begin of one."""

    def turn(asked: Any) -> Answer:
        if asked.json.get("stream"):
            return Answer([frame(chunk({"role": "assistant", "content": "Hel"})), *steps], headers=SSE, **more)
        return Answer([b'{"id":"x","choices":[{"message":{"content":"Hel'], headers=JSON, **more)

    return turn


DURING: dict[str, tuple[Script, str, int, str]] = {
    "silence": (_partly(hang=True), "upstream_timeout", 504, "upstream_timeout"),
    "cut between frames": (_partly(cut=True), "upstream_disconnected", 502, "upstream_disconnected"),
    "cut inside a frame": (
        _partly(b'data: {"id":"chatcmpl-up","cho', cut=True),
        "upstream_disconnected",
        502,
        "upstream_disconnected",
    ),
    "cut inside a call": (
        _partly(frame(chunk({"content": CALL[:50]})), cut=True),
        "upstream_disconnected",
        502,
        "upstream_disconnected",
    ),
    "it just ends": (_partly(), "upstream_disconnected", 502, "upstream_invalid_response"),
    "an error frame later": (_partly(frame(ERROR)), "upstream_error", 502, "upstream_invalid_response"),
}
"""Faults after the first event: the code in the stream; the status and the code of a whole answer."""


def ask(tools: list[Any], *, stream: bool) -> dict[str, Any]:
    return {"messages": USER, "tools": tools, "stream": stream} if tools else {"messages": USER, "stream": stream}


def check_envelope(answer: WireAnswer, status: int, code: str) -> None:
    assert (answer.status, answer.headers["Content-Type"].partition(";")[0]) == (status, "application/json")
    error = answer.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["code"] == code
    assert error["message"]
    assert answer.headers["X-Request-Id"]


def check_broken_stream(answer: WireAnswer, code: str) -> str:
    """A stream that ends as R7.9 says. Gives its visible text."""
    assert answer.status == 200
    *chunks, error, done = answer.frames()
    assert done == "[DONE]"
    assert (set(error), set(error["error"])) == ({"error"}, {"message", "type", "param", "code"})
    assert error["error"]["code"] == code
    choices = [choice for chunk in chunks for choice in chunk["choices"]]
    assert [choice["finish_reason"] for choice in choices] == [None] * len(choices)
    assert not any("tool_calls" in choice["delta"] for choice in choices)
    return "".join(choice["delta"].get("content") or "" for choice in choices)


@LANES
@WAYS
@pytest.mark.parametrize("name", BEFORE)
async def test_a_fault_before_the_first_event_is_a_status(
    gateway: Gateway, name: str, tools: list[Any], stream: bool
) -> None:
    turn, status, code = BEFORE[name]
    async with asyncio.timeout(GUARD_S), Upstream([turn]) as upstream:
        answer = await post(
            await gateway(upstream_config(upstream.url, backend=limits(code))), ask(tools, stream=stream)
        )
    check_envelope(answer, status, code)
    assert answer.headers.get("Retry-After") == ("3" if name == "429" else None)


@LANES
@pytest.mark.parametrize("name", DURING)
async def test_a_fault_in_the_stream_is_an_error_frame(gateway: Gateway, name: str, tools: list[Any]) -> None:
    turn, code, *_ = DURING[name]
    async with asyncio.timeout(GUARD_S), Upstream([turn]) as upstream:
        answer = await post(await gateway(upstream_config(upstream.url, backend=limits(code))), ask(tools, stream=True))
    text = check_broken_stream(answer, code)
    assert text.startswith("Hel")
    if tools:
        assert "<tool_call>" not in text


@LANES
@pytest.mark.parametrize("name", DURING)
async def test_a_fault_in_a_whole_answer_is_a_status(gateway: Gateway, name: str, tools: list[Any]) -> None:
    turn, _, status, code = DURING[name]
    async with asyncio.timeout(GUARD_S), Upstream([turn]) as upstream:
        answer = await post(
            await gateway(upstream_config(upstream.url, backend=limits(code))), ask(tools, stream=False)
        )
    check_envelope(answer, status, code)


@LANES
@WAYS
async def test_nobody_listens(gateway: Gateway, tools: list[Any], stream: bool) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    async with asyncio.timeout(GUARD_S):
        answer = await post(await gateway(upstream_config(f"http://127.0.0.1:{port}")), ask(tools, stream=stream))
    check_envelope(answer, 502, "upstream_disconnected")
    assert str(port) not in answer.body.decode()


async def test_calls_before_the_break_were_whole(gateway: Gateway) -> None:
    async with asyncio.timeout(GUARD_S), Upstream([Say(CALL, " and ", CALL[:40], cut=True)]) as upstream:
        answer = await post(await gateway(upstream_config(upstream.url)), ask(TOOLS, stream=True))
    *chunks, error, _ = answer.frames()
    calls = [call for c in chunks for choice in c["choices"] for call in choice["delta"].get("tool_calls", ())]
    assert [call["index"] for call in calls] == [0, 0]
    assert calls[1]["function"]["arguments"] == '{"path":"a"}'
    assert error["error"]["code"] == "upstream_disconnected"
    assert all(choice["finish_reason"] is None for c in chunks for choice in c["choices"])


@LANES
async def test_the_sdk_raises_on_a_broken_stream(gateway: Gateway, tools: list[Any]) -> None:
    """A client must never take half an answer for a whole one (R10.8)."""
    async with asyncio.timeout(GUARD_S), Upstream([DURING["cut inside a frame"][0]]) as upstream:
        server = await gateway(upstream_config(upstream.url))
        async with sdk(server) as client:
            request: dict[str, Any] = {"model": "m", **ask(tools, stream=True)}
            with pytest.raises(openai.APIError) as caught:
                async for _ in await client.chat.completions.create(**request):
                    pass
    assert caught.value.code == "upstream_disconnected"


@LANES
async def test_an_answer_ends_with_done_whatever_the_server_does(tools: list[Any], gateway: Gateway) -> None:
    """It sends more, and keeps the stream open: the client has its end, and none of it."""
    text = [frame(chunk({"role": "assistant", "content": "Hel"})), frame(chunk({"content": "lo"}, "stop"))]
    done = frame("[DONE]")
    late = [frame(chunk({"content": "late"})), frame(ERROR), b": late\n\n"]
    async with Upstream() as upstream:
        server = await gateway(upstream_config(upstream.url))
        for steps in ([*text, done, *late], [*text, done + b"".join(late)], [b"".join([*text, done, *late])]):
            upstream.script = [Answer(steps, headers=SSE, hang=True)]
            async with asyncio.timeout(GUARD_S):
                answer = await post(server, {"messages": USER, "stream": True, "tools": tools})
            assert answer.body.endswith(done)
            assert b"late" not in answer.body
            assert b"error" not in answer.body
            if not tools:
                assert answer.body == b"".join([*text, done])


# --- clients that go ------------------------------------------------------------------------------------------------

GONE: dict[str, Script] = {
    "before headers": Raw(hang=True),
    "before the first token": Answer(headers=SSE, hang=True),
    "during the stream": Say("Hel", hang=True),
    "inside a call": Say("Hel", CALL[:30], hang=True),
}


@LANES
@WAYS
@pytest.mark.parametrize("name", GONE)
async def test_a_client_that_goes_takes_the_backends_work_along(
    gateway: Gateway, name: str, tools: list[Any], stream: bool
) -> None:
    async with Upstream([GONE[name]]) as upstream:
        server = await gateway(upstream_config(upstream.url))
        async with aiohttp.ClientSession() as session:
            body = {"model": "m", **ask(tools, stream=stream)}
            asking = asyncio.create_task(session.post(server.make_url(CHAT), json=body))
            async with asyncio.timeout(GUARD_S):
                asked = await upstream.next_request()
                if stream and isinstance(GONE[name], Callable):
                    response = await asking
                    assert b"Hel" in await response.content.readany()
                    response.close()
            asking.cancel()
        async with asyncio.timeout(GUARD_S):
            await asked.dropped.wait()
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
async def test_faults_leave_nothing_behind() -> None:
    async with (
        Upstream([Say("ok")]) as upstream,
        serving(upstream_config(upstream.url, backend=SHORT | UNUSED)) as server,
        leaving_nothing(server, upstream),
    ):
        for turn in [*(t for t, *_ in BEFORE.values()), *(t for t, *_ in DURING.values())]:
            for tools in ([], TOOLS):
                for stream in (False, True):
                    upstream.script = [turn]
                    async with asyncio.timeout(GUARD_S):
                        await post(server, ask(tools, stream=stream))


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="counts descriptors in /proc")
async def test_clients_that_go_leave_nothing_behind() -> None:
    async with (
        Upstream([Say("ok")]) as upstream,
        serving(upstream_config(upstream.url, backend=UNUSED)) as server,
        leaving_nothing(server, upstream),
    ):
        async with aiohttp.ClientSession() as session:
            upstream.script = [Say("Hel", hang=True)]
            bodies = [{"model": "m", **ask(tools, stream=True)} for tools in ([], TOOLS)] * 10
            answers = await asyncio.gather(*(session.post(server.make_url(CHAT), json=body) for body in bodies))
            for response in answers:
                response.close()
        async with asyncio.timeout(GUARD_S):
            for asked in upstream.requests[-len(bodies) :]:
                await asked.dropped.wait()


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
    *chunks, done = answer.frames()
    assert done == "[DONE]"
    assert chunks[-1]["choices"][0]["finish_reason"] == "tool_calls"
    assert b"<tool_call>" not in got


async def test_no_comment_while_text_flows(gateway: Gateway) -> None:
    async with Upstream([Say("a", "b")]) as upstream:
        answer = await post(await gateway(upstream_config(upstream.url)), ask(TOOLS, stream=True))
    assert b": keep-alive" not in answer.body


async def test_a_number_beyond_64_bits_is_no_fault(gateway: Gateway) -> None:
    """Python's whole numbers have no end; those of the fast JSON writer do."""
    async with Upstream([Say("ok")]) as upstream:
        answer = await post(await gateway(upstream_config(upstream.url)), {**ask(TOOLS, stream=False), "seed": 1e25})
    assert answer.status == 200
    assert b'"seed":10000000000000000905969664' in upstream.requests[0].body
