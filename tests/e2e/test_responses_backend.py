"""A backend that speaks Responses: its healthy streams pass as they are, and clients of another protocol get what it
said."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.e2e.conftest import CHAT, USER, function, post, serving, upstream_config
from tests.protocols.responses_wires import RESPONSES, options, read, write
from toolwire.events import BlockKind, Close, Delta, Event, Finish, Open, Start
from toolwire.folding import unfold
from toolwire.model import ModelReply, Reasoning, ReplyChoice, Text, ToolUse, Usage
from toolwire.testing import Answer, Asked, Refuse, Upstream, WireAnswer

PATH = "/v1/responses"
GOLDEN = Path(__file__).parents[1] / "golden"
REPLY = ModelReply("resp_up", "m", 1, (ReplyChoice((Text("Hello."),), "stop"),), Usage(3, 2))
CALLING = ModelReply(
    "resp_up",
    "m",
    1,
    (ReplyChoice((Text("Reading."), ToolUse("call_1", "read", '{"path":"a"}')), "tool_calls"),),
    Usage(3, 2),
)
SSE = {"Content-Type": "text/event-stream"}


def streamed(data: bytes, *, cut: bool = False, pieces: int = 1) -> Answer:
    size = -(-len(data) // pieces)
    return Answer([data[at : at + size] for at in range(0, len(data), size)], headers=SSE, cut=cut)


def speaking(reply: ModelReply) -> Callable[[Asked], Answer]:
    """A server that gives this answer, streamed or whole, as it is asked."""

    def answer(asked: Asked) -> Answer:
        if asked.json.get("stream"):
            return streamed(write(unfold(reply)))
        body = RESPONSES.write_reply(reply, options())
        return Answer([body], headers={"Content-Type": "application/json"}, framing="length")

    return answer


async def ask(answer: Any, body: dict[str, Any], *, path: str = PATH, **options: Any) -> tuple[WireAnswer, Upstream]:
    async with Upstream([answer]) as up:
        config = upstream_config(up.url, backend={"kind": "openai_responses", "api_key": "k1"}, defaults=options)
        async with serving(config) as server:
            return await post(server, body, path=path), up


def types(body: bytes) -> list[str]:
    return [orjson.loads(line[6:])["type"] for line in body.split(b"\n") if line.startswith(b"data: {")]


@pytest.mark.parametrize("pieces", [1, 7, 400])
@pytest.mark.parametrize("name", ["responses-all-kinds.sse", "responses-incomplete.sse"])
async def test_a_healthy_stream_passes_as_it_is(name: str, pieces: int) -> None:
    """Its end is `response.completed`, or `response.incomplete`: nothing was broken off, and nothing is added."""
    data = (GOLDEN / name).read_bytes()
    body = {"input": "hi", "store": False, "stream": True, "odd": {"kept": 1}}
    answer, up = await ask(streamed(data, pieces=pieces), body, mode="native")
    assert (answer.status, answer.body) == (200, data)
    assert [(asked.path, asked.headers["authorization"]) for asked in up.requests] == [(PATH, "Bearer k1")]
    assert up.requests[0].json == {"model": "m", **body}  # the client's own bytes


async def test_a_healthy_stream_that_is_kept_ends_well() -> None:
    answer, up = await ask(speaking(REPLY), {"input": "hi", "stream": True}, mode="native")
    assert types(answer.body)[-1] == "response.completed"
    assert up.requests[0].json == {"model": "m", "input": "hi", "stream": True, "store": False}


async def test_a_stream_without_its_end_was_broken_off() -> None:
    data = write(unfold(REPLY))
    half = data[: data.index(b"event: response.output_text.done")]
    answer, _ = await ask(streamed(half), {"input": "hi", "store": False, "stream": True}, mode="native")
    assert answer.body.startswith(half)
    said = types(answer.body)
    assert said[-2:] == ["error", "response.failed"]
    assert (said.count("response.created"), said.count("response.in_progress")) == (1, 1)  # the server's own
    assert b"upstream_disconnected" in answer.body


async def test_what_stands_behind_the_end_does_not_count() -> None:
    data = write(unfold(REPLY))
    more = b'data: {"type":"error","error":{"message":"late"}}\n\ndata: [DONE]\n\n'
    answer, _ = await ask(streamed(data + more), {"input": "hi", "store": False, "stream": True}, mode="native")
    assert answer.body == data


async def test_a_failed_response_is_the_gateways_error() -> None:
    failed = orjson.dumps(
        {
            "type": "response.failed",
            "response": {"status": "failed", "error": {"code": "server_error", "message": "no memory at 10.0.0.7:80"}},
        }
    )
    data = write([Start("resp_up", "m", 1), Open(0, BlockKind.TEXT), Delta(0, "Hel")]) + b"data: " + failed + b"\n\n"
    answer, _ = await ask(streamed(data), {"input": "hi", "store": False, "stream": True}, mode="native")
    assert b"no memory" in answer.body
    assert b"10.0.0.7" not in answer.body
    said = types(answer.body)
    assert said[-1] == "response.failed"
    assert (said.count("response.created"), said.count("response.failed")) == (1, 1)


async def test_a_whole_answer_passes_as_it_is() -> None:
    reply = replace(REPLY, extra={"completed_at": 5})  # else it is the second in which it is written
    body = RESPONSES.write_reply(reply, options())
    answer, _ = await ask(speaking(reply), {"input": "hi", "store": False}, mode="native")
    assert (answer.status, answer.body) == (200, body)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_a_client_of_chat_gets_what_it_said(stream: bool) -> None:
    body = {"messages": USER, "tools": [function("read", path="string")], "stream": stream}
    answer, up = await ask(speaking(CALLING), body, path=CHAT, mode="native")
    sent = up.requests[0].json
    assert sent["input"] == [{"type": "message", "role": "user", "content": "hi"}]
    assert (sent["store"], [tool["name"] for tool in sent["tools"]]) == (False, ["read"])
    if stream:
        frames = [frame["choices"][0] for frame in answer.frames() if frame != "[DONE]" and frame["choices"]]
        text = "".join(choice["delta"].get("content") or "" for choice in frames)
        calls = [call for choice in frames for call in choice["delta"].get("tool_calls") or ()]
        arguments = "".join(call["function"].get("arguments", "") for call in calls)
        assert (text, arguments, frames[-1]["finish_reason"]) == ("Reading.", '{"path":"a"}', "tool_calls")
        assert answer.frames()[-1] == "[DONE]"
    else:
        choice = answer.json()["choices"][0]
        assert (choice["message"]["content"], choice["finish_reason"]) == ("Reading.", "tool_calls")
        assert choice["message"]["tool_calls"][0]["function"] == {"name": "read", "arguments": '{"path":"a"}'}


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_calls_are_found_in_its_text(stream: bool) -> None:
    text = '<tool_call>{"name":"read","arguments":{"path":"a"}}</tool_call>'
    reply = ModelReply("resp_up", "m", 1, (ReplyChoice((Text(text),), "stop"),), Usage(3, 2))
    body = {
        "input": "hi",
        "tools": [{"type": "function", **function("read", path="string")["function"]}],
        "stream": stream,
    }
    answer, up = await ask(speaking(reply), body, format="hermes")
    assert "tools" not in up.requests[0].json
    found = read(answer.body) if stream else unfold(RESPONSES.read_reply(answer.body))
    assert [event.name for event in found if isinstance(event, Open) and event.name] == ["read"]


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("mode", ["prompt", "native"])
async def test_what_it_thinks_between_tags_is_no_text_where_the_answer_is_written_anew(mode: str, stream: bool) -> None:
    """R7.8, also without tools. Only bytes that pass keep such text as it is (R1.6)."""
    reply = ModelReply(
        "resp_up", "m", 1, (ReplyChoice((Text("<think>Let me see.</think>Hello."),), "stop"),), Usage(3, 2)
    )
    answer, _ = await ask(speaking(reply), {"input": "hi", "stream": stream}, mode=mode)
    resource = answer.frames()[-1]["response"] if stream else answer.json()
    said = [(item["type"], item["content"][0]["text"]) for item in resource["output"]]
    assert said == [("reasoning", "Let me see."), ("message", "Hello.")]
    if stream:
        assert types(answer.body).count("response.reasoning_text.done") == 1
    answer, _ = await ask(speaking(reply), {"input": "hi", "stream": stream, "store": False}, mode="native")
    assert b"<think>Let me see.</think>Hello." in answer.body


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("store", [False, True], ids=["passing", "kept"])
async def test_what_it_thinks_as_an_item_stays_one(store: bool, stream: bool) -> None:
    reply = replace(REPLY, choices=(ReplyChoice((Reasoning("Let me see."), Text("Hello.")), "stop"),))
    answer, _ = await ask(speaking(reply), {"input": "hi", "stream": stream, "store": store}, mode="native")
    resource = answer.frames()[-1]["response"] if stream else answer.json()
    said = [(item["type"], item["content"][0]["text"]) for item in resource["output"]]
    assert said == [("reasoning", "Let me see."), ("message", "Hello.")]


async def test_it_streams_what_was_not_to_be_and_the_other_way_round() -> None:
    def contrary(asked: Asked) -> Answer:
        return speaking(REPLY)(
            Asked(asked.method, asked.path, asked.headers, orjson.dumps({"stream": not asked.json.get("stream")}), 0)
        )

    for stream in (False, True):
        answer, _ = await ask(contrary, {"input": "hi", "store": False, "stream": stream}, mode="native")
        found: list[Event] = read(answer.body) if stream else unfold(RESPONSES.read_reply(answer.body))
        assert "".join(event.text for event in found if isinstance(event, Delta)) == "Hello."
        assert isinstance(found[-1], Finish)
        assert any(isinstance(event, Close) for event in found)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_its_refusals_are_those_of_any_server(stream: bool) -> None:
    refusal = Refuse(400, body=b'{"error":{"message":"too much","code":"context_length_exceeded"}}')
    answer, _ = await ask(refusal, {"input": "hi", "store": False, "stream": stream}, mode="native")
    assert (answer.status, answer.json()["error"]["code"]) == (400, "context_length_exceeded")


async def test_a_completions_server_that_streams_nothing_is_read_all_the_same() -> None:
    """It has no client side, so a whole answer is made a stream that only the gateway reads."""
    body = orjson.dumps(
        {
            "id": "cmpl-1",
            "object": "text_completion",
            "choices": [{"index": 0, "text": "Hello.", "finish_reason": "stop"}],
        }
    )
    server_says = Answer([body], headers={"Content-Type": "application/json"}, framing="length")
    async with Upstream([server_says]) as up:
        config = upstream_config(up.url, backend={"kind": "openai_completions"})
        async with serving(config) as server:
            answer = await post(server, {"messages": USER, "stream": True})
    assert answer.status == 200
    texts = [
        frame["choices"][0]["delta"].get("content") or ""
        for frame in answer.frames()
        if frame != "[DONE]" and frame["choices"]
    ]
    assert "".join(texts) == "Hello."
