"""The middleware `cache`."""

from __future__ import annotations

import re
from typing import Any

import pytest
from aiohttp import web

from tests.e2e.conftest import CHAT, post, read_config, serving
from tests.e2e.meaning import RESPONSES, ended, meant
from toolwire.config import MiddlewareConfig, RetryConfig, RouteOptions
from toolwire.extras.middlewares.cache import Cache, CacheOptions
from toolwire.testing import ScriptedBackend, WireAnswer, run_chain

SAID = [{"role": "user", "content": "hi"}]
CHAT_BODY: dict[str, Any] = {"messages": SAID, "temperature": 0}
CALL = {"text": "Look.", "calls": [{"name": "look", "arguments": {"at": 1}}], "usage": {"input": 7, "output": 5}}
TOOLS = [{"type": "function", "function": {"name": "look"}}]


class LastingCache(Cache):
    """Keeps its answers although each request of a test has an application of its own."""

    async def start(self, app: web.Application) -> None:
        pass


class Asked:
    """Requests to one cache in front of one model server."""

    def __init__(self, reply: Any = "ok", *, mode: str = "native", **options: Any) -> None:
        self.backend = ScriptedBackend([reply])
        self.cache = LastingCache(CacheOptions(**options))
        self.options = RouteOptions(mode=mode, retry=RetryConfig(attempts=1))

    async def __call__(self, body: dict[str, Any], path: str = CHAT, **headers: str) -> WireAnswer:
        chain = ["conversation", "validation", self.cache, "arguments", "transformation", "injection"]
        return await run_chain(chain, body, backend=self.backend, path=path, headers=headers, options=self.options)

    @property
    def times(self) -> int:
        """How often the model server was asked."""
        return len(self.backend.requests)


@pytest.mark.parametrize("first", [False, True], ids=["whole first", "streamed first"])
@pytest.mark.parametrize(("path", "mode"), [(CHAT, "prompt"), (RESPONSES, "native")])
async def test_one_entry_serves_streams_and_whole_answers(first, path, mode):
    text = '<tool_call>{"name":"look","arguments":"{\\"at\\":1}"}</tool_call>'
    ask = Asked(CALL if mode == "native" else {"text": "Look." + text, "usage": CALL["usage"]}, mode=mode)
    body = {**CHAT_BODY, "tools": TOOLS} if path == CHAT else {"input": "hi", "temperature": 0, "tools": TOOLS}
    for number, stream in enumerate((first, not first, first)):
        counts = {"stream_options": {"include_usage": True}} if path == CHAT and stream else {}
        answer = await ask({**body, "stream": stream, **counts}, path)
        assert answer.headers["x-cache"] == ("hit" if number else "miss")
        assert meant(path, answer, stream) == ("Look.", [("look", {"at": 1})], "", 7)
        assert ended(path, answer, stream) == "tool_calls"
    assert ask.times == 1
    fresh = await ask(body, path, **{"Cache-Control": "no-store"})
    assert "x-cache" not in fresh.headers
    assert outline(fresh) == outline(await ask(body, path))


def outline(answer: WireAnswer) -> Any:
    """A whole answer without ids and times."""
    return re.sub(r'"(id|call_id|\w*created\w*|completed_at)":("[^"]*"|\d+)', "", answer.body.decode())


LOOKED = {
    "role": "assistant",
    "tool_calls": [{"id": "c", "type": "function", "function": {"name": "look", "arguments": "{}"}}],
}
DIFFERENT: list[dict[str, Any]] = [
    *({"messages": [*SAID, LOOKED, {"role": "tool", "tool_call_id": "c", "content": seen}]} for seen in ("1", "2")),
    {"messages": [{"role": "user", "content": "ho"}]},
    {"messages": [{"role": "system", "content": "hi"}]},
    {"messages": [*SAID, {"role": "assistant", "refusal": "no"}, *SAID]},
    {"messages": [*SAID, {"role": "assistant", "content": "no"}, *SAID]},
    {"model": "another"},
    {"seed": 1},
    {"max_tokens": 5},
    {"tools": TOOLS},
    {"tools": [{"type": "function", "function": {"name": "look", "strict": True, "parameters": {"type": "object", "properties": {}, "required": [], "additionalProperties": False}}}]},
    {"tools": TOOLS, "tool_choice": "none"},
    {"response_format": {"type": "json_object"}},
    {"top_k": 3},
]  # fmt: skip


async def test_whatever_differs_is_another_request():
    ask = Asked()
    for body in DIFFERENT:
        assert (await ask({**CHAT_BODY, **body})).headers["x-cache"] == "miss", body
    assert ask.times == len(DIFFERENT)
    assert (await ask({**CHAT_BODY, **DIFFERENT[0]})).headers["x-cache"] == "hit"


@pytest.mark.parametrize("body", [{}, {"temperature": 0.1}, {"seed": 1}], ids=str)
async def test_only_what_is_deterministic_unless_asked_for(body):
    body = {"messages": SAID, **body}
    ask, always = Asked(), Asked(when="always")
    for _ in range(2):
        assert "x-cache" not in (await ask(body)).headers
    assert [(await always(body)).headers["x-cache"] for _ in range(2)] == ["miss", "hit"]


@pytest.mark.parametrize(
    "reply",
    [
        {"text": "cut", "finish": "length"},
        {"text": "cut", "finish": "content_filter"},
        {"text": "broken off", "error": {"after": 4}},
        {"error": {"status": 500}},
    ],
    ids=["length", "filtered", "in the middle", "at once"],
)
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_what_is_not_whole_is_not_kept(reply, stream):
    ask = Asked(reply)
    for _ in range(2):
        answer = await ask({**CHAT_BODY, "stream": stream})
        assert answer.headers.get("x-cache") in (None, "miss")
    assert ask.times == 2


async def test_a_client_may_ask_for_a_fresh_answer():
    ask = Asked()
    await ask(CHAT_BODY)
    assert (await ask(CHAT_BODY, **{"Cache-Control": "no-cache"})).headers["x-cache"] == "miss"
    assert "x-cache" not in (await ask(CHAT_BODY, **{"Cache-Control": "max-age=0, no-store"})).headers
    assert (await ask(CHAT_BODY)).headers["x-cache"] == "hit"
    assert ask.times == 3


async def test_bounds_in_bytes_and_age():
    def body(text: str) -> dict[str, Any]:
        return {**CHAT_BODY, "messages": [{"role": "user", "content": text}]}

    large = Asked("x" * 3000, answer_bytes=2000)
    assert [(await large(body("a"))).headers["x-cache"] for _ in range(2)] == ["miss", "miss"]
    old = Asked(max_age_s=1e-9)
    assert [(await old(body("a"))).headers["x-cache"] for _ in range(2)] == ["miss", "miss"]


async def test_owners_are_apart():
    cache = {"use": "cache", "options": {"when": "always"}}
    script = [{"text": "ok"}]
    config = read_config(
        {
            "auth": {"keys": ["one", "two"]},
            "backends": {"mock": {"kind": "mock", "script": script}},
            "chain": ["conversation", "validation", cache, "injection", "forwarding"],
        }
    )
    async with serving(config) as server:
        told = [
            (await post(server, {"messages": SAID}, headers={"Authorization": f"Bearer {key}"})).headers["x-cache"]
            for key in ("one", "two", "one")
        ]
    assert told == ["miss", "miss", "hit"]


async def test_earlier_turns_are_part_of_the_request():
    ask = Asked()
    body = {"input": "go on", "temperature": 0}
    config = read_config(
        {
            "backends": {"mock": {"kind": "mock", "script": [{"text": "first"}, {"text": "second"}]}},
            "chain": ["conversation", "validation", "cache", "injection", "forwarding"],
        }
    )
    async with serving(config) as server:
        first = await post(server, body, path=RESPONSES)
        second = await post(server, {**body, "previous_response_id": first.json()["id"]}, path=RESPONSES)
        again = await post(server, body, path=RESPONSES)
        assert [a.headers["x-cache"] for a in (first, second, again)] == ["miss", "miss", "hit"]
        # An answer from the cache is a response like any other: one can go on from it.
        third = await post(server, {**body, "previous_response_id": again.json()["id"]}, path=RESPONSES)
        assert third.json()["output"] != first.json()["output"]
        assert third.status == 200
    # Where nobody loads them, nothing is kept.
    outside = [MiddlewareConfig(use="cache"), "conversation"]
    assert "x-cache" not in (await run_chain(outside, body, replies=["ok"], path=RESPONSES)).headers
    assert ask.times == 0


@pytest.mark.parametrize("options", [{"answer_bytes": 0}, {"max_age_s": 0.0}, {"answer_bytes": -1}])
def test_bounds_that_keep_nothing(options):
    with pytest.raises(ValueError, match="above 0"):
        CacheOptions(**options)
