"""Models whose prompt opens their thinking, over real sockets: what clients get of the first answer, and of the next
ones. The rules one by one: `tests/unit/test_preopened.py`."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from aiohttp.test_utils import TestServer

from tests.e2e.conftest import CHAT, USER, function, get, post, serving, upstream_config
from tests.e2e.test_responses_over_chat import said as of_responses
from toolwire.testing import Say, Upstream, WireAnswer

RESPONSES = "/v1/responses"
BOTH = pytest.mark.parametrize("path", [CHAT, RESPONSES], ids=["chat", "responses"])
TOOLS = [function("look", place="string")]
CALL = '<tool_call>{"name":"look","arguments":{"place":"here"}}</tool_call>'

THINKS = ("I sho", "uld greet.\n</th", "ink>", "\n\nHel", "lo!")
SHOWN = {"message": "I should greet.\n</think>\n\nHello!"}
APART = {"reasoning": "I should greet.\n", "message": "Hello!"}


async def ask(server: TestServer, path: str, *, stream: bool, tools: bool = True, **more: Any) -> dict[str, str]:
    """What one answer says, by kind."""
    asked = {"input": "hi"} if path == RESPONSES else {"messages": USER}
    offered = TOOLS if path == CHAT else [{"type": "function", **TOOLS[0]["function"]}]
    answer = await post(server, {**asked, "stream": stream, **({"tools": offered} if tools else {}), **more}, path=path)
    return of_responses(answer) if path == RESPONSES else of_chat(answer)


def of_chat(answer: WireAnswer) -> dict[str, str]:
    assert answer.status == 200, answer.body
    if answer.headers["Content-Type"].startswith("text/event-stream"):
        messages = [frame["choices"][0]["delta"] for frame in answer.frames() if frame != "[DONE]" and frame["choices"]]
    else:
        messages = [answer.json()["choices"][0]["message"]]
    texts: dict[str, str] = {}
    for message in messages:
        for kind, key in (("reasoning", "reasoning_content"), ("message", "content")):
            if message.get(key):
                texts[kind] = texts.get(kind, "") + message[key]
        for call in message.get("tool_calls") or ():
            texts["call"] = texts.get("call", "") + (call["function"].get("arguments") or "")
    return texts


async def counted(server: TestServer) -> dict[str, int]:
    """What the metrics say of it."""
    page = (await get(server, "/metrics")).body.decode()
    name = "toolwire_unopened_reasoning_total{kind="
    lines = [line.removeprefix(name).split("} ") for line in page.splitlines() if line.startswith(name)]
    return {kind.strip('"'): int(float(number)) for kind, number in lines}


@pytest.mark.parametrize(
    ("path", "tools"), [(CHAT, True), (RESPONSES, True), (RESPONSES, False)], ids=["chat", "responses", "no tools"]
)
async def test_words_before_a_closing_tag_that_nothing_opened_are_thoughts(
    path: str, tools: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "toolwire.reasoning")
    async with Upstream([Say(*THINKS)]) as upstream, serving(upstream_config(upstream.url)) as server:
        assert await ask(server, path, stream=False, tools=tools) == APART
        assert await ask(server, path, stream=True, tools=tools) == APART, "the route knows it by now"
        assert await ask(server, path, stream=False, tools=tools) == APART
        assert await counted(server) == {"moved": 1, "known": 2}
    (line,) = [record.getMessage() for record in caplog.records if record.name == "toolwire.reasoning"]
    assert "begin inside <think>" in line


@BOTH
async def test_what_a_stream_has_shown_stays_and_the_next_one_is_right(path: str) -> None:
    async with Upstream([Say(*THINKS)]) as upstream, serving(upstream_config(upstream.url)) as server:
        assert await ask(server, path, stream=True) == SHOWN
        assert await ask(server, path, stream=True) == APART
        assert await ask(server, path, stream=False) == APART
        assert await counted(server) == {"shown": 1, "known": 2}


@BOTH
async def test_what_was_learned_wrongly_costs_no_answer_and_no_call(path: str) -> None:
    async with (
        Upstream([Say(*THINKS), Say("Hel", "lo!"), Say("Hel", "lo!"), Say(*THINKS), Say("Hello!")]) as upstream,
        serving(upstream_config(upstream.url)) as server,
    ):
        await ask(server, path, stream=True)
        assert await ask(server, path, stream=True) == {"reasoning": "Hello!", "message": "Hello!"}
        assert await ask(server, path, stream=True) == {"message": "Hello!"}
        await ask(server, path, stream=True)
        assert await ask(server, path, stream=False) == {"message": "Hello!"}
        assert await counted(server) == {"shown": 2, "repeated": 1}


async def test_a_call_that_a_stream_took_for_a_thought_is_made() -> None:
    async with Upstream([Say(*THINKS), Say(CALL)]) as upstream, serving(upstream_config(upstream.url)) as server:
        await ask(server, CHAT, stream=True)
        assert await ask(server, CHAT, stream=True) == {"reasoning": CALL, "call": '{"place":"here"}'}


@BOTH
@pytest.mark.parametrize("options", [{"mode": "native"}, {"reasoning": {"preopened": False}}], ids=str)
async def test_what_is_configured_binds(path: str, options: dict[str, Any]) -> None:
    async with Upstream([Say(*THINKS)]) as upstream, serving(upstream_config(upstream.url, defaults=options)) as server:
        for stream in (False, True):
            assert await ask(server, path, stream=stream) == SHOWN
        assert await counted(server) == {}


async def test_chat_without_tools_keeps_its_bytes() -> None:
    """R1.6, whatever has been learned."""
    async with Upstream([Say(*THINKS)]) as upstream, serving(upstream_config(upstream.url)) as server:
        for stream in (False, True):
            await ask(server, CHAT, stream=False)
            assert await ask(server, CHAT, stream=stream, tools=False) == SHOWN
