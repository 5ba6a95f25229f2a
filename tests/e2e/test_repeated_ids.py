"""A server that gives every call the same id, in conversations of several turns over each protocol (R28.6)."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from tests.e2e.conftest import Gateway, post, read_config

READ = {"type": "object", "properties": {"path": {"type": "string"}}}
IDS = ("call_0", "functions.read:0", "Ab1Cd2Ef3")
Sent = list[dict[str, Any]]


@pytest.fixture
async def server() -> AsyncIterator[tuple[TestServer, Sent, list[str]]]:
    """A Chat server that answers each request with one call; what it was sent, and the id that it gives."""
    sent: Sent = []
    ident: list[str] = []

    async def answer(request: web.Request) -> web.StreamResponse:
        body = await request.json()
        sent.append(body)
        function = {"name": "read", "arguments": json.dumps({"path": f"file {len(sent)}"})}
        call = {"id": ident[0], "type": "function", "function": function}
        head = {"id": "x", "created": 1, "model": "m"}
        if not body.get("stream"):
            message = {"role": "assistant", "content": None, "tool_calls": [call]}
            choice = {"index": 0, "message": message, "finish_reason": "tool_calls"}
            return web.json_response({**head, "object": "chat.completion", "choices": [choice]})
        delta = {"role": "assistant", "tool_calls": [{"index": 0, **call}]}
        chunks = [{"index": 0, "delta": delta}, {"index": 0, "delta": {}, "finish_reason": "tool_calls"}]
        frames = [{**head, "object": "chat.completion.chunk", "choices": [chunk]} for chunk in chunks]
        text = "".join(f"data: {json.dumps(frame)}\n\n" for frame in frames)
        return web.Response(text=f"{text}data: [DONE]\n\n", content_type="text/event-stream")

    async def models(_: web.Request) -> web.Response:
        return web.json_response({"object": "list", "data": [{"id": "m"}]})

    app = web.Application()
    app.router.add_post("/v1/chat/completions", answer)
    app.router.add_get("/v1/models", models)
    async with TestServer(app, host="127.0.0.1") as running:
        yield running, sent, ident


def chat(turns: list[str]) -> tuple[str, dict[str, Any]]:
    messages: list[Any] = [{"role": "user", "content": "hi"}]
    for ident in turns:
        call = {"id": ident, "type": "function", "function": {"name": "read", "arguments": "{}"}}
        messages += [
            {"role": "assistant", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": ident, "content": "x"},
        ]
    tool = {"type": "function", "function": {"name": "read", "parameters": READ}}
    return "/v1/chat/completions", {"messages": messages, "tools": [tool]}


def responses(turns: list[str]) -> tuple[str, dict[str, Any]]:
    items: list[Any] = [{"role": "user", "content": "hi"}]
    for ident in turns:
        items += [
            {"type": "function_call", "call_id": ident, "name": "read", "arguments": "{}"},
            {"type": "function_call_output", "call_id": ident, "output": "x"},
        ]
    return "/v1/responses", {"input": items, "tools": [{"type": "function", "name": "read", "parameters": READ}]}


def messages(turns: list[str]) -> tuple[str, dict[str, Any]]:
    said: list[Any] = [{"role": "user", "content": "hi"}]
    for ident in turns:
        use = {"type": "tool_use", "id": ident, "name": "read", "input": {}}
        result = {"type": "tool_result", "tool_use_id": ident, "content": "x"}
        said += [{"role": "assistant", "content": [use]}, {"role": "user", "content": [result]}]
    return "/v1/messages", {"messages": said, "max_tokens": 99, "tools": [{"name": "read", "input_schema": READ}]}


def ident_in(body: str) -> str:
    """The id of the call in an answer of any protocol, streamed or not."""
    lines = [body] if body.startswith("{") else [line[6:] for line in body.splitlines() if line.startswith("data: {")]

    def search(value: Any) -> str | None:
        if isinstance(value, dict):
            if value.get("type") in ("function", "tool_use") and isinstance(value.get("id"), str):
                return str(value["id"])
            if value.get("type") == "function_call":
                return str(value["call_id"])
            value = list(value.values())
        found = map(search, value) if isinstance(value, list) else ()
        return next(filter(None, found), None)

    found = search([json.loads(line) for line in lines])
    assert found is not None, body
    return found


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("ident", IDS)
@pytest.mark.parametrize("asking", [chat, responses, messages], ids=lambda ask: ask.__name__)
async def test_each_call_has_an_id_of_its_own_and_the_server_gets_its_own_form(
    gateway: Gateway,
    server: tuple[TestServer, Sent, list[str]],
    asking: Callable[[list[str]], tuple[str, dict[str, Any]]],
    ident: str,
    stream: bool,
) -> None:
    running, sent, given = server
    given.append(ident)
    backend = {"url": str(running.make_url("/v1")), "preset": "generic"}
    started = await gateway(read_config({"backends": {"m": backend}, "defaults": {"mode": "native"}}))
    turns: list[str] = []
    for _ in range(4):
        path, body = asking(turns)
        answer = await post(started, {"model": "m", "stream": stream, **body}, path=path)
        assert answer.status == 200, answer.body
        turns.append(ident_in(answer.body.decode()))
    assert len(set(turns)) == 4
    last = sent[-1]["messages"]
    assert [call["id"] for message in last for call in message.get("tool_calls", ())] == [ident] * 3
    assert [message["tool_call_id"] for message in last if message["role"] == "tool"] == [ident] * 3
