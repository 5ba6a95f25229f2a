"""Recorded requests of real clients: none is refused (SC-004), and those without tools pass byte for byte (R1.6,
SC-010)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cases import named
from tests.e2e.conftest import Gateway, gateway_before, mock_config, post
from tests.e2e.speaking import SSE
from tests.protocols.published import SHARED, captured_chat_requests, validator
from toolwire.testing import Answer, Asked, Say, chunk, frame

RECORDED = captured_chat_requests()


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
                assert answer.headers["Content-Type"] == "text/event-stream; charset=utf-8"
                assert (answer.headers["Cache-Control"], answer.headers["X-Accel-Buffering"]) == ("no-cache", "no")
                for value in chunks:
                    validator("CreateChatCompletionStreamResponse").validate(value)
                wanted = (body.get("stream_options") or {}).get("include_usage") is True
                assert (chunks[-1]["choices"] == []) == wanted
            else:
                validator("CreateChatCompletionResponse").validate(answer.json())


async def test_every_recorded_request_reaches_a_text_only_backend() -> None:
    """Nothing that a strict template would refuse goes out: no tool fields, no tool roles, a user's turn at the end."""
    async with gateway_before([Say("ok")]) as (server, upstream):
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
async def test_recorded_requests_without_tools_pass_unchanged(stream: bool, mode: str) -> None:
    async with gateway_before([unread], defaults={"mode": mode}) as (server, upstream):
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
