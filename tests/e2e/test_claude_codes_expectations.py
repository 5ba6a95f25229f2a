"""Claude Code's needs from every kind of server: an overflow in Anthropic's words, and failed results (R28.6)."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from functools import partial
from itertools import product
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from tests.e2e.conftest import Gateway, post, read_config

KINDS = {
    "openai_chat": "/v1/chat/completions",
    "openai_responses": "/v1/responses",
    "anthropic_messages": "/v1/messages",
    "openai_completions": "/v1/completions",
}
VLLM = (
    "This model's maximum context length is 4096 tokens. However, you requested 4000 output tokens and your prompt"
    " contains at least 97 input tokens, for a total of at least 4097 tokens."
)
LLAMACPP = "request (6030 tokens) exceeds the available context size (4096 tokens), try increasing it"
OVERFLOWS = [
    (LLAMACPP, "prompt is too long: 6030 tokens > 4096 maximum"),
    (VLLM, "input length and `max_tokens` exceed context limit: 97 + 4000 > 4096, decrease input length or"),
    ("Your input exceeds the context window of this model.", "prompt is too long: Your input exceeds the context"),
]
READ = {"name": "read", "description": "Reads.", "input_schema": {"type": "object", "properties": {}}}


class Upstream:
    """A server of every protocol; `answer` makes its answers, `sent` is the last request's body."""

    def __init__(self) -> None:
        self.answer: Callable[[], web.Response] = web.Response
        self.sent: dict[str, Any] = {}

    async def serve(self, request: web.Request) -> web.Response:
        self.sent = await request.json()
        return self.answer()


@pytest.fixture
async def upstream() -> AsyncIterator[tuple[Upstream, str]]:
    """The server and its base URL."""
    own = Upstream()
    app = web.Application()
    for path in KINDS.values():
        app.router.add_post(path, own.serve)
    async with TestServer(app, host="127.0.0.1") as running:
        yield own, str(running.make_url("/v1"))


def config(kind: str, url: str, mode: str = "native") -> Any:
    backend = {"kind": kind, "url": url, **({"preset": "generic"} if kind == "openai_chat" else {})}
    return read_config({"backends": {"m": backend}, "defaults": {"mode": mode}})


def asked(*messages: Any, **fields: Any) -> dict[str, Any]:
    said = [{"role": "user", "content": "hi"}, *messages]
    return {"model": "m", "max_tokens": 4000, "messages": said, **fields}


def refusal(kind: str, status: int, said: str) -> web.Response:
    error = {"type": "invalid_request_error", "message": said}
    body: dict[str, Any] = {"error": error}
    if kind == "anthropic_messages":
        body["type"] = "error"
    return web.json_response(body, status=status)


def broken_stream(kind: str, said: str) -> web.Response:
    error = {"type": "invalid_request_error", "message": said}
    named = kind in ("openai_responses", "anthropic_messages")
    frame = json.dumps({"type": "error", "error": error} if named else {"error": error})
    text = f"event: error\ndata: {frame}\n\n" if named else f"data: {frame}\n\n"
    return web.Response(text=text, content_type="text/event-stream")


@pytest.mark.parametrize(("said", "words"), OVERFLOWS, ids=["prompt", "output", "no counts"])
@pytest.mark.parametrize("status", [400, 413, 500])
@pytest.mark.parametrize("kind", KINDS)
async def test_an_overflow_is_said_in_anthropics_words(
    gateway: Gateway, upstream: tuple[Upstream, str], kind: str, status: int, said: str, words: str
) -> None:
    own, url = upstream
    own.answer = partial(refusal, kind, status, said)
    started = await gateway(config(kind, url, "prompt" if kind == "openai_completions" else "native"))
    for stream in (False, True):
        answer = await post(started, asked(stream=stream), path="/v1/messages")
        error = json.loads(answer.body)["error"]
        assert (answer.status, error["type"]) == (400, "invalid_request_error")
        assert error["message"].startswith(words)


@pytest.mark.parametrize("kind", KINDS)
async def test_an_overflow_inside_of_a_stream(gateway: Gateway, upstream: tuple[Upstream, str], kind: str) -> None:
    own, url = upstream
    own.answer = partial(broken_stream, kind, LLAMACPP)
    started = await gateway(config(kind, url, "prompt" if kind == "openai_completions" else "native"))
    answer = await post(started, asked(stream=True), path="/v1/messages")
    assert b"prompt is too long: 6030 tokens > 4096 maximum" in answer.body


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/responses"])
async def test_openais_clients_get_their_code_and_the_servers_words(
    gateway: Gateway, upstream: tuple[Upstream, str], path: str
) -> None:
    own, url = upstream
    own.answer = partial(refusal, "openai_chat", 400, LLAMACPP)
    started = await gateway(config("openai_chat", url))
    body = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "input": "hi"}
    del body["input" if "chat" in path else "messages"]
    answer = await post(started, body, path=path)
    error = json.loads(answer.body)["error"]
    assert (answer.status, error["code"]) == (400, "context_length_exceeded")
    assert LLAMACPP in error["message"]


FAILED = [
    ("no such file", "Error: no such file"),
    ("Error: no such file", "Error: no such file"),
    ([{"type": "text", "text": "no such file"}], "Error: no such file"),
    ([], "Error: "),
]


@pytest.mark.parametrize(("content", "told"), FAILED, ids=["text", "says so", "blocks", "empty"])
@pytest.mark.parametrize(
    ("kind", "mode"),
    [pair for pair in product(KINDS, ["native", "prompt"]) if pair != ("openai_completions", "native")],
)
async def test_a_failed_result_reaches_the_model(
    gateway: Gateway, upstream: tuple[Upstream, str], kind: str, mode: str, content: Any, told: str
) -> None:
    own, url = upstream
    own.answer = partial(refusal, kind, 400, "no")
    started = await gateway(config(kind, url, mode))
    use = {"type": "tool_use", "id": "toolu_1", "name": "read", "input": {}}
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": content, "is_error": True}
    body = asked({"role": "assistant", "content": [use]}, {"role": "user", "content": [result]}, tools=[READ])
    await post(started, body, path="/v1/messages")
    if kind == "anthropic_messages" and mode == "native":
        assert own.sent["messages"][-1]["content"] == [result]
    else:
        assert told.strip() in json.dumps(own.sent)
        assert json.dumps(own.sent).count("Error: ") == 1
