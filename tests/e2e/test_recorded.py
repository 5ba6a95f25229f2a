"""Recorded requests of real clients: none is refused (SC-004), and those without tools pass byte for byte (R1.6,
SC-010)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import pytest
from aiohttp.test_utils import TestClient, TestServer
from hypothesis import given
from hypothesis import strategies as st

from tests.cases import named
from tests.e2e.conftest import CHAT, Gateway, mock_config, post, read_config, upstream_config
from tests.protocols.published import SHARED, captured_chat_requests, validator
from toolwire.app import create_app
from toolwire.testing import Answer, Asked, Say, Upstream, chunk, frame

RECORDED = captured_chat_requests()
SSE = {"Content-Type": "text/event-stream"}


def body_of(path: Path) -> dict[str, Any]:
    value: dict[str, Any] = json.loads(path.read_bytes())
    return value.get("body", value)


def test_there_are_recorded_requests() -> None:
    if not SHARED.exists():
        pytest.skip(f"no recorded requests at {SHARED}; set TOOLWIRE_SHARED")
    assert len(RECORDED) >= 10
    assert any(body_of(path).get("tools") for path in RECORDED)
    assert any(not body_of(path).get("tools") for path in RECORDED)


@pytest.mark.parametrize("mode", ["prompt", "native"])
async def test_every_recorded_request_is_served(gateway: Gateway, mode: str) -> None:
    """As it was sent, streamed if it asked for that, by the built-in answer: a call of its first tool, or its own
    words."""
    server = await gateway(mock_config(None, mode=mode))
    for path in RECORDED:
        body = body_of(path)
        answer = await post(server, body)
        assert answer.status == 200, (path, answer.body)
        with named({"path": path}):
            if body.get("stream"):
                *chunks, done = answer.frames()
                assert done == "[DONE]"
                for value in chunks:
                    validator("CreateChatCompletionStreamResponse").validate(value)
                wanted = (body.get("stream_options") or {}).get("include_usage") is True
                assert (chunks[-1]["choices"] == []) == wanted
            else:
                validator("CreateChatCompletionResponse").validate(answer.json())


async def test_every_recorded_request_reaches_a_text_only_backend(gateway: Gateway) -> None:
    """Nothing that a strict template would refuse goes out: no tool fields, no tool roles, a user's turn at the end."""
    async with Upstream([Say("ok")]) as upstream:
        server = await gateway(upstream_config(upstream.url))
        for path in RECORDED:
            answer = await post(server, body_of(path))
            assert answer.status == 200, (path, answer.body)
            with named({"path": path}):
                fits_texts(body_of(path), upstream.requests[-1].json)


def fits_texts(body: dict[str, Any], sent: dict[str, Any]) -> None:
    if body.get("tools"):
        assert not {"tools", "tool_choice", "parallel_tool_calls", "functions"} & set(sent)
        assert all(message["role"] in ("system", "user", "assistant") for message in sent["messages"])
        assert not any("tool_calls" in message for message in sent["messages"])
        assert sent["messages"][-1]["role"] == "user"
    transcript = json.dumps(sent["messages"])
    results = tool_results(body)
    for value in results:
        assert transcript.count(json.dumps(value)[1:-1]) == results.count(value)


def tool_results(body: dict[str, Any]) -> list[str]:
    texts = [message["content"] for message in body["messages"] if message["role"] == "tool"]
    return [text for text in texts if isinstance(text, str) and text and "<" not in text]


# --- byte for byte --------------------------------------------------------------------------------------------------

STREAM = [
    b": a comment\n\n",
    frame(chunk({"role": "assistant", "content": ""}, system_fingerprint="fp")),
    b'data: {"id": "x",  "odd": 1.0, "choices":[{"index":0,"delta":{"content":"\\u003ctool_call> <think>"}}]}\n\n',
    b'data: {"choices":[], "nothing known": 1e400}\n\n',
    frame(chunk({}, "stop")),
    b"data: [DONE]\n\n",
]
WHOLE = (
    b'{ "id":"x", "choices" : [ {"index":0, "message":{"role":"assistant","content":"<tool_call>"}, "odd":1.0} ] }\n'
)


def unread(asked: Asked) -> Answer:
    """An answer that nobody could write the same way."""
    if asked.json.get("stream"):
        return Answer(STREAM, headers=SSE)
    return Answer([WHOLE], headers={"Content-Type": "application/json"}, framing="length")


PLAIN = [path for path in RECORDED if not body_of(path).get("tools")]


@pytest.mark.parametrize("mode", ["prompt", "native"])
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_recorded_requests_without_tools_pass_unchanged(gateway: Gateway, stream: bool, mode: str) -> None:
    async with Upstream([unread]) as upstream:
        server = await gateway(upstream_config(upstream.url, defaults={"mode": mode}))
        for path in PLAIN:
            body = {**body_of(path), "stream": stream}
            if not stream:
                body.pop("stream_options", None)
            with_calls = any(said["role"] == "tool" or said.get("tool_calls") for said in body["messages"])
            if with_calls and mode == "prompt":
                continue  # a conversation with calls is flattened for a text-only backend
            raw = json.dumps(body, indent=1).encode()
            answer = await post(server, raw)
            assert upstream.requests[-1].body == raw, path
            assert answer.body == (b"".join(STREAM) if stream else WHOLE), path


async def test_only_the_models_name_changes(gateway: Gateway) -> None:
    """With another name at the backend the JSON content is the same otherwise, numbers and unknown fields included."""
    raw = b'{"model":"m","messages":[{"role":"user","content":"hi","odd":[]}],"top_k":1.50,"seed":9007199254740993}'
    async with Upstream([unread]) as upstream:
        config = read_config(
            {
                "backends": {"up": {"url": upstream.url}},
                "routes": [{"model": "m", "backend": "up", "upstream_model": "real"}],
            }
        )
        assert (await post(await gateway(config), raw)).body == WHOLE
    assert upstream.requests[0].json == {**orjson.loads(raw), "model": "real"}


# --- generated ------------------------------------------------------------------------------------------------------

JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
MESSAGES = st.lists(
    st.fixed_dictionaries(
        {
            "role": st.sampled_from(["system", "developer", "user", "assistant"]),
            "content": st.text(st.characters(codec="utf-8"), max_size=20),
        },
        optional={"name": st.text(st.characters(codec="utf-8"), min_size=1, max_size=5), "odd": JSON_VALUES},
    ),
    min_size=1,
    max_size=4,
)
BODIES = st.fixed_dictionaries(
    {"model": st.just("m"), "messages": MESSAGES},
    optional={
        "temperature": st.floats(0, 2),
        "max_tokens": st.integers(1, 9999),
        "stop": st.text(max_size=3) | st.lists(st.text(max_size=3), min_size=1, max_size=4),
        "top_k": st.integers(),
        "metadata": st.dictionaries(st.text(max_size=3), st.text(max_size=3), max_size=2),
        "x-unknown": JSON_VALUES,
        "tools": st.just([]),
        "stream": st.booleans(),
    },
)


@pytest.fixture(scope="module")
def passing() -> Iterator[Callable[[bytes, Answer], tuple[bytes, bytes]]]:
    """Send a body through a gateway whose model server gives this answer: what reached the server, what came back."""
    upstream = Upstream()

    async def start() -> TestClient[Any, Any]:
        await upstream.__aenter__()
        client: TestClient[Any, Any] = TestClient(TestServer(create_app(upstream_config(upstream.url))))
        await client.start_server()
        return client

    async def send(raw: bytes, answer: Answer) -> tuple[bytes, bytes]:
        upstream.script = [answer]
        upstream.requests.clear()
        async with client.post(CHAT, data=raw, headers={"Content-Type": "application/json"}) as response:
            assert response.status == 200, await response.text()
            return upstream.requests[0].body, await response.read()

    async def stop() -> None:
        await client.close()
        await upstream.__aexit__()

    with asyncio.Runner() as runner:
        client = runner.run(start())
        yield lambda raw, answer: runner.run(send(raw, answer))
        runner.run(stop())


@given(
    body=BODIES,
    contents=st.lists(st.text(st.characters(codec="utf-8"), max_size=12) | st.just("<tool_call>{}"), max_size=5),
    ensure_ascii=st.booleans(),
    cuts=st.lists(st.integers(1, 400), max_size=6),
)
def test_a_request_without_tools_passes_unchanged(
    passing: Callable[[bytes, Answer], tuple[bytes, bytes]],
    body: dict[str, Any],
    contents: list[str],
    ensure_ascii: bool,
    cuts: list[int],
) -> None:
    """R1.6 for any such request, any text, and any way in which the server's bytes are cut."""
    raw = json.dumps(body, ensure_ascii=False).encode("utf-8", "replace")
    dumped = [json.dumps(chunk({"content": text}), ensure_ascii=ensure_ascii) for text in contents]
    frames = [f"data: {text}\n\n".encode() for text in dumped] + [frame(chunk({}, "stop")), frame("[DONE]")]
    if body.get("stream"):
        wire = b"".join(frames)
        points = sorted({0, len(wire), *(cut % (len(wire) + 1) for cut in cuts)})
        answer = Answer([wire[a:b] for a, b in pairwise(points)], headers=SSE)
    else:
        wire = json.dumps({"choices": dumped}, indent=2).encode()
        answer = Answer([wire], headers={"Content-Type": "application/json"})
    assert passing(raw, answer) == (raw, wire)


# --- with calls in the history --------------------------------------------------------------------------------------


async def test_a_conversation_with_calls_is_flattened_without_tools_too(gateway: Gateway) -> None:
    """Tools may be gone from the last request of a loop; a text-only backend still must not see tool messages."""
    call = {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    messages = [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_1", "content": "the result"},
    ]
    async with Upstream([Say("ok")]) as upstream:
        assert (await post(await gateway(upstream_config(upstream.url)), {"messages": messages})).status == 200
    sent = upstream.requests[0].json["messages"]
    assert {message["role"] for message in sent} <= {"system", "user", "assistant"}
    assert json.dumps(sent).count("the result") == 1


async def test_the_backend_sees_the_gateways_key_and_not_the_clients(gateway: Gateway) -> None:
    async with Upstream([Say("ok")]) as upstream:
        server = await gateway(upstream_config(upstream.url, backend={"api_key": "upstream-key"}))
        async with (
            aiohttp.ClientSession() as session,
            session.post(
                server.make_url(CHAT),
                json={"model": "m", "messages": [{"role": "user", "content": "hi"}]},
                headers={"Authorization": "Bearer clients-key", "Cookie": "a=b"},
            ) as response,
        ):
            assert response.status == 200
    headers = upstream.requests[0].headers
    assert headers["authorization"] == "Bearer upstream-key"
    assert "cookie" not in headers
