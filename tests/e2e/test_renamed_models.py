"""A route that renames: the client reads the name that it asked for, and no other byte changes (R28.8)."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from hypothesis import given
from hypothesis import strategies as st

from tests.cases import every
from tests.e2e.conftest import Gateway, post, read_config
from toolwire.pipeline.answers.renaming import Renaming, find_model

TEXT = 'It is "model":"real", and {"model": "real"}. é'
ARGUMENTS = {"model": "real", "deep": {"model": "real"}}
USAGE = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2, "input_tokens": 1, "output_tokens": 1}
PATHS = {
    "/v1/chat/completions": "openai_chat",
    "/v1/messages": "anthropic_messages",
    "/v1/responses": "openai_responses",
}


def chat(stream: bool) -> str:
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": json.dumps(ARGUMENTS)}}
    if not stream:
        message = {"role": "assistant", "content": TEXT, "tool_calls": [call]}
        choice = {"index": 0, "message": message, "finish_reason": "tool_calls"}
        return json.dumps({"id": "x", "choices": [choice], "created": 1, "model": "real", "usage": USAGE})
    deltas = [{"role": "assistant", "content": TEXT}, {"tool_calls": [{"index": 0, **call}]}, {}]
    frames = [
        {"choices": [{"index": 0, "delta": delta, "finish_reason": None if delta else "tool_calls"}], "model": "real"}
        for delta in deltas
    ]
    return "".join(f"data: {json.dumps({'id': 'x', 'created': 1, **f})}\n\n" for f in frames) + "data: [DONE]\n\n"


def messages(stream: bool) -> str:
    use = {"type": "tool_use", "id": "toolu_1", "name": "f", "input": ARGUMENTS}
    answer = {"id": "msg_1", "type": "message", "role": "assistant", "content": [{"type": "text", "text": TEXT}, use]}
    answer |= {"model": "real", "stop_reason": "tool_use", "stop_sequence": None, "usage": USAGE}
    if not stream:
        return json.dumps(answer)
    begun = {**answer, "content": [], "stop_reason": None}
    frames: list[dict[str, Any]] = [
        {"type": "message_start", "message": begun},
        {"type": "content_block_start", "index": 0, "content_block": use},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 1}},
        {"type": "message_stop"},
    ]
    return "".join(f"event: {frame['type']}\ndata: {json.dumps(frame)}\n\n" for frame in frames)


def responses(stream: bool) -> str:
    content = [{"type": "output_text", "text": TEXT, "annotations": []}]
    item: dict[str, Any] = {
        "type": "message",
        "id": "msg_1",
        "role": "assistant",
        "status": "completed",
        "phase": "commentary",
    }
    item |= {"content": content}
    answer = {"id": "resp_1", "object": "response", "created_at": 1, "status": "completed", "output": [item]}
    answer |= {"metadata": {"model": "real"}, "model": "real", "usage": USAGE}
    if not stream:
        return json.dumps(answer)
    frames = [
        {"type": "response.created", "response": {**answer, "status": "in_progress", "output": []}},
        {"type": "response.output_item.added", "output_index": 0, "item": {**item, "content": []}},
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {"type": "response.completed", "response": answer},
    ]
    return "".join(f"event: {frame['type']}\ndata: {json.dumps(frame)}\n\n" for frame in frames)


ANSWERS = {"/v1/chat/completions": chat, "/v1/messages": messages, "/v1/responses": responses}


@pytest.fixture
async def server() -> AsyncIterator[str]:
    async def answer(request: web.Request) -> web.Response:
        stream = (await request.json()).get("stream") is True
        kind = "text/event-stream" if stream else "application/json"
        return web.Response(text=ANSWERS[request.path](stream), content_type=kind)

    app = web.Application()
    for path in PATHS:
        app.router.add_post(path, answer)
    async with TestServer(app, host="127.0.0.1") as running:
        yield str(running.make_url("/v1"))


def named(text: str, path: str, name: str) -> str:
    """The answer of the server, with another name in the places that name the model."""
    lines = []
    for line in text.splitlines(keepends=True):
        data = line.removeprefix("data: ")
        if not data.startswith("{"):
            lines.append(line)
            continue
        value = json.loads(data)
        holder = (
            value if path == "/v1/chat/completions" or line == data else value.get("message", value.get("response"))
        )
        if holder is not None:
            holder["model"] = name
        lines.append(line.removesuffix(data) + json.dumps(value) + data[len(data.rstrip("\n")) :])
    return "".join(lines)


@every("stream", [False, True])
@every("path", PATHS)
@every("asked", ["asked", "real"])
async def test_bytes_that_pass(gateway: Gateway, server: str, path: str, stream: bool, asked: str) -> None:
    backend = {"kind": PATHS[path], "url": server}
    routes = [{"model": "asked", "backend": "m", "upstream_model": "real"}, {"model": "real", "backend": "m"}]
    started = await gateway(read_config({"backends": {"m": backend}, "routes": routes, "defaults": {"mode": "native"}}))
    body = {"model": asked, "stream": stream, "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]}
    if path == "/v1/responses":
        body = {"model": asked, "stream": stream, "input": "hi", "store": False}
    answer = await post(started, body, path=path)
    said = answer.body.decode()
    assert said == named(ANSWERS[path](stream), path, asked)


@every("stream", [False, True])
async def test_what_a_server_says_of_a_message(gateway: Gateway, server: str, stream: bool) -> None:
    """Its `phase` is in answers that the gateway writes anew, as those that it stores (R28.8)."""
    backend = {"kind": "openai_responses", "url": server}
    started = await gateway(read_config({"backends": {"m": backend}, "defaults": {"mode": "native"}}))
    answer = await post(started, {"model": "m", "input": "hi", "stream": stream}, path="/v1/responses")
    assert '"phase":"commentary"' in answer.body.decode()


JSON = st.recursive(
    st.none() | st.text(alphabet='mo"del:\\{}[]real ') | st.just("real"),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["model", "message", "a"]), inner, max_size=3)
    ),
    max_leaves=12,
)


@given(
    st.dictionaries(st.sampled_from(["model", "message", "a"]), JSON, max_size=3), st.sampled_from([None, "message"])
)
def test_only_the_models_name_is_replaced(value: dict[str, Any], parent: str | None) -> None:
    """Law: what comes out is the value with that one name changed."""
    found = find_model(json.dumps(value).encode(), None if parent is None else json.dumps(parent).encode())
    holder = value if parent is None else value.get(parent)
    right = isinstance(holder, dict) and isinstance(holder.get("model"), str)
    assert (found is not None) == right
    renaming = Renaming("new", parent)
    line = b"data: " + json.dumps(value).encode() + b"\n\n"
    out = json.loads(renaming.frames(line)[6:])
    if right:
        assert isinstance(holder, dict)
        holder["model"] = "new"
    assert out == value
