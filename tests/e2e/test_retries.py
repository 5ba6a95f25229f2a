"""Servers that fail before they answer (R10.5): what the client gets, how often each server is asked, nothing doubled.

Every answer goes over real sockets, streamed and not, unread and scanned for calls.
"""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import aiohttp
import pytest
from aiohttp.test_utils import TestServer

from tests.cases import every, named
from tests.e2e.conftest import CHAT, USER, Gateway, function, get, post, read_config
from tests.e2e.speaking import SSE
from tests.waiting import GUARD_S
from toolwire.config import GatewayConfig
from toolwire.pipeline.exchange.routing import ROUTER
from toolwire.testing import Answer, Asked, Raw, Refuse, Say, Script, Upstream, WireAnswer, chunk, frame

TOOLS = [function("read_file", path="string")]
QUICK = {"backoff_s": 0.01, "attempts": 2}

LANES = pytest.mark.parametrize("tools", [[], TOOLS], ids=["raw", "scanned"])
WAYS = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])


def config(*urls: str, retry: dict[str, Any] | None = None, backend: dict[str, Any] | None = None) -> GatewayConfig:
    """A route to the first server, with the others as its fallback."""
    names = [f"server{number}" for number in range(len(urls))]
    backends = {name: {"url": url, **(backend or {})} for name, url in zip(names, urls, strict=True)}
    route = {"model": "m", "backend": names[0], "fallback": names[1:]}
    return read_config({"backends": backends, "defaults": {"retry": retry or QUICK}, "routes": [route]})


def ask(tools: list[Any], *, stream: bool) -> dict[str, Any]:
    return {"messages": USER, "stream": stream, **({"tools": tools} if tools else {})}


def check_once(answer: WireAnswer, text: str, *, stream: bool) -> None:
    """One whole answer with this text, and nothing of another one."""
    assert answer.status == 200, answer.body
    if not stream:
        assert answer.json()["choices"][0]["message"]["content"] == text
        return
    *chunks, done = answer.frames()
    assert done == "[DONE]"
    assert not any("error" in c for c in chunks)
    choices = [choice for c in chunks for choice in c["choices"]]
    assert "".join(choice["delta"].get("content") or "" for choice in choices) == text
    assert [choice["delta"]["role"] for choice in choices if "role" in choice["delta"]] == ["assistant"]
    assert [choice["finish_reason"] for choice in choices if choice["finish_reason"]] == ["stop"]


def _cut(asked: Asked) -> Answer:
    """The head, and of a whole answer the begin; then the connection is cut."""
    if asked.json.get("stream"):
        return Answer(headers=SSE, cut=True)
    return Answer([b'{"id":"x","choices":[{"mess'], headers={"Content-Type": "application/json"}, cut=True)


def _cut_after(*frames: Any, framing: str = "chunked", cut: bool = True) -> Script:
    """These frames, and then the connection is cut, or ends as if that were all; of a whole answer the begin."""

    def turn(asked: Asked) -> Answer:
        if asked.json.get("stream"):
            steps = [item if isinstance(item, bytes) else frame(item) for item in frames]
            return Answer(steps, headers=SSE, framing=framing, cut=cut)
        return _cut(asked)

    return turn


ROLE = chunk({"role": "assistant", "content": ""})
AZURE = {"id": "", "object": "", "model": "", "choices": [], "prompt_filter_results": [{"prompt_index": 0}]}
AGAIN: dict[str, Script] = {
    "closed at once": Raw(),
    "half a status line": Raw(b"HTTP/1.1 20"),
    "half a head": Raw(b"HTTP/1.1 200 OK\r\nContent-Type: text/ev"),
    "cut after the head": _cut,
    "cut after a role": _cut_after(ROLE),
    "cut after a role in a comment's company": _cut_after(
        b": hello\n\n", AZURE, ROLE, chunk({"content": None, "reasoning": ""})
    ),
    "cut inside the frame after a role": _cut_after(ROLE, b'data: {"id":"x","cho'),
    "ended after a role": _cut_after(ROLE, cut=False),
    "ended after a role, and its connection with it": _cut_after(ROLE, framing="close"),
    **{str(status): Refuse(status) for status in (408, 429, 500, 502, 503, 504)},
    "429 for no time": Refuse(429, headers={"Retry-After": "0"}),
    "429 until then": Refuse(429, headers={"Retry-After": "Sun, 06 Nov 1994 08:49:37 GMT"}),
    "429 for some time": Refuse(429, headers={"Retry-After": "soon"}),
}
"""Faults after which the same server is asked again."""


async def test_a_server_is_asked_again(gateway: Gateway) -> None:
    ways = [(name, tools, stream) for name in AGAIN for tools in ([], TOOLS) for stream in (False, True)]
    script: list[Script] = [turn for name, _, _ in ways for turn in (AGAIN[name], Say("fine"))]
    async with asyncio.timeout(GUARD_S), Upstream(script) as upstream:
        server = await gateway(config(upstream.url))
        for number, (name, tools, stream) in enumerate(ways, 1):
            with named({"name": name, "tools": tools, "stream": stream}):
                check_once(await post(server, ask(tools, stream=stream)), "fine", stream=stream)
                first, second = upstream.requests[2 * number - 2 :]
                assert first.body == second.body


def _error_first(asked: Asked) -> Answer:
    return Answer([frame({"error": {"message": "no memory", "type": "server_error", "code": None}})], headers=SSE)


def _error_after_a_role(asked: Asked) -> Answer:
    return Answer([frame(ROLE), *_error_first(asked).steps], headers=SSE)


FINAL: dict[str, tuple[Script, int, str]] = {
    **{
        str(status): (Refuse(status), to, code)
        for status, to, code in (
            (400, 400, "upstream_rejected"),
            (401, 502, "upstream_auth"),
            (404, 502, "upstream_error"),
            (501, 502, "upstream_error"),
        )
    },
    "no HTTP": (Raw(b"\x00\xff garbage\r\n\r\n"), 502, "upstream_invalid_response"),
    "silence": (Raw(hang=True), 504, "upstream_timeout"),
    "silence after the head": (Answer(headers=SSE, hang=True), 504, "upstream_timeout"),
    "silence after a role": (Answer([frame(ROLE)], headers=SSE, hang=True), 504, "upstream_timeout"),
    "an error after a role": (_error_after_a_role, 502, "upstream_error"),
    "an error in the answer": (_error_first, 502, "upstream_error"),
}
"""Faults that are the answer."""


@pytest.mark.parametrize("name", FINAL)
async def test_nobody_is_asked_again(gateway: Gateway, name: str) -> None:
    turn, status, code = FINAL[name]
    short = {"timeouts": {"first_byte_s": 0.1, "idle_s": 0.1}} if code == "upstream_timeout" else {}
    async with asyncio.timeout(GUARD_S), Upstream([turn]) as one, Upstream([Say("never")]) as two:
        answer = await post(await gateway(config(one.url, two.url, backend=short)), ask([], stream=True))
    assert (answer.status, answer.json()["error"]["code"]) == (status, code)
    assert (len(one.requests), len(two.requests)) == (1, 0)


@every(
    ("scripts", "balanced"), [([Refuse(401)], False), ([Refuse(503), Refuse(401)], False), ([Refuse(401)] * 2, True)]
)
async def test_another_server_may_take_its_key(gateway: Gateway, scripts: list[Script], balanced: bool) -> None:
    """Clients are only told not to retry (`x-should-retry`) if all would go the same way."""
    async with AsyncExitStack() as stack:
        servers = [await stack.enter_async_context(Upstream([script])) for script in scripts]
        asked = config(*(server.url for server in servers))
        if balanced:
            route = {"model": "m", "backends": ["server0", "server1"]}
            backends = {f"server{at}": {"url": server.url} for at, server in enumerate(servers)}
            asked = read_config({"backends": backends, "defaults": {"retry": QUICK}, "routes": [route]})
        answer = await post(await gateway(asked), ask([], stream=True))
    assert (answer.status, answer.json()["error"]["code"]) == (502, "upstream_auth")
    assert answer.headers.get("x-should-retry") == ("false" if len(scripts) == 1 else None)


@LANES
async def test_a_stream_that_began_is_never_begun_again(gateway: Gateway, tools: list[Any]) -> None:
    """Which chunks begin one: `tests/unit/test_first_content.py`."""
    first = _cut_after(ROLE, chunk({"reasoning_content": "Hel"}))
    async with asyncio.timeout(GUARD_S), Upstream([first]) as one, Upstream([Say("never")]) as two:
        answer = await post(await gateway(config(one.url, two.url)), ask(tools, stream=True))
    *chunks, error, _ = answer.frames()
    assert "".join(c["choices"][0]["delta"].get("reasoning_content", "") for c in chunks) == "Hel"
    assert error["error"]["code"] == "upstream_disconnected"
    assert (len(one.requests), len(two.requests)) == (1, 0)


async def test_signs_of_life_do_not_count_as_an_answer(gateway: Gateway) -> None:
    """The head and a comment went out while the server was silent; the second try is the first of which a client sees
    text."""
    broken = asyncio.Event()
    first = Answer([broken], headers=SSE, cut=True)
    async with asyncio.timeout(GUARD_S), Upstream([first, Say("fine")]) as upstream:
        server = await gateway(
            read_config(
                {
                    "server": {"keepalive_s": 0.01},
                    "backends": {"up": {"url": upstream.url}},
                    "defaults": {"retry": QUICK},
                }
            )
        )
        body = {"model": "m", **ask([], stream=True)}
        async with aiohttp.ClientSession() as session, session.post(server.make_url(CHAT), json=body) as response:
            assert (await response.content.readuntil(b"\n\n")).startswith(b":")
            broken.set()
            rest = await response.read()
    frames = [line for line in rest.split(b"\n") if line.startswith(b"data:")]
    check_once(WireAnswer(status=200, headers={}, body=b"\n".join(frames)), "fine", stream=True)


@WAYS
async def test_after_the_last_try_the_client_gets_the_last_error(gateway: Gateway, stream: bool) -> None:
    async with asyncio.timeout(GUARD_S), Upstream([Refuse(500, "no memory"), Refuse(503, "busy")]) as upstream:
        answer = await post(await gateway(config(upstream.url)), ask([], stream=stream))
    assert (answer.status, answer.json()["error"]["code"]) == (502, "upstream_error")
    assert "busy" in answer.json()["error"]["message"]
    assert len(upstream.requests) == 2


async def test_the_fallback_goes_in_order(gateway: Gateway, nobody: str) -> None:
    async with asyncio.timeout(GUARD_S), Upstream([Refuse(500)]) as two, Upstream([Say("fine")]) as three:
        answer = await post(await gateway(config(nobody, two.url, three.url)), ask([], stream=True))
    check_once(answer, "fine", stream=True)
    assert (len(two.requests), len(three.requests)) == (1, 1)


# --- Retry-After ----------------------------------------------------------------------------------------------------


async def test_a_short_wait_is_kept(gateway: Gateway) -> None:
    busy = Refuse(429, headers={"retry-after-ms": "200"})
    async with asyncio.timeout(GUARD_S), Upstream([busy, Say("fine")]) as upstream:
        server = await gateway(config(upstream.url))
        before = time.monotonic()
        answer = await post(server, ask([], stream=False))
        assert time.monotonic() - before >= 0.2
    check_once(answer, "fine", stream=False)


@pytest.mark.parametrize("form", ["seconds", "date"])
async def test_a_long_wait_is_the_clients(gateway: Gateway, form: str) -> None:
    date = format_datetime(datetime.now(UTC) + timedelta(hours=1), usegmt=True)
    wait = "3600" if form == "seconds" else date
    async with asyncio.timeout(GUARD_S), Upstream([Refuse(429, headers={"Retry-After": wait})]) as upstream:
        answer = await post(await gateway(config(upstream.url)), ask([], stream=True))
    assert (answer.status, answer.json()["error"]["code"]) == (429, "rate_limit_exceeded")
    assert answer.headers["Retry-After"] == wait
    assert len(upstream.requests) == 1


async def test_a_server_that_wants_rest_gets_none_of_the_next_requests(gateway: Gateway) -> None:
    resting = Refuse(429, headers={"Retry-After": "3600"})
    async with asyncio.timeout(GUARD_S), Upstream([resting]) as one, Upstream([Say("fine")]) as two:
        server = await gateway(config(one.url, two.url))
        for _ in range(3):
            check_once(await post(server, ask([], stream=True)), "fine", stream=True)
    assert (len(one.requests), len(two.requests)) == (1, 3)


# --- what is said of it ---------------------------------------------------------------------------------------------


async def page_of(server: TestServer) -> str:
    return (await get(server, "/metrics")).body.decode()


async def at_rest(server: TestServer) -> None:
    """Wait until the gateway serves nothing; then no server may count as busy."""
    while "toolwire_inflight_requests 0.0" not in await page_of(server):
        pass
    assert server.app is not None
    for route in server.app[ROUTER].routes:
        assert not any(member.busy for member in (*route.pool.members, *route.pool.fallback))


async def test_the_log_and_the_metrics_say_it(gateway: Gateway, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "toolwire")
    async with asyncio.timeout(GUARD_S), Upstream([Refuse(500, "no memory")]) as one, Upstream([Say("fine")]) as two:
        server = await gateway(config(one.url, two.url))
        await post(server, ask([], stream=True))
        await at_rest(server)
        page = await page_of(server)
    retries = [record.getMessage() for record in caplog.records if record.name == "toolwire.retry"]
    assert len(retries) == 2
    assert "upstream_error" in retries[0]
    assert "no memory" in retries[0]
    assert "server1" in retries[1]
    (access,) = [record for record in caplog.records if record.name == "toolwire.access"]
    fields = vars(access)["fields"]
    assert (fields["backend"], fields["attempts"], fields["retries"]) == ("server1", 3, 2)
    assert 'toolwire_retries_total{code="upstream_error"} 2.0' in page
    assert 'toolwire_backend_errors_total{backend="server0",code="upstream_error"} 2.0' in page
