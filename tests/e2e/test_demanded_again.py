"""The second request after a near miss (R30.4): it demands the tool that was tried, and a server that can enforces it,
in every mode and protocol."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from tests.e2e.conftest import CHAT, USER, Gateway, function, post, read_config
from toolwire.config import GatewayConfig
from toolwire.testing import Answer, Asked, Say, Upstream

RESPONSES, MESSAGES = "/v1/responses", "/v1/messages"
READ = function("read_file", path="string")
WRITE = function("write_file", path="string", content="string")
TOOLS = [READ, WRITE]
GOOD = '<tool_call>{"name":"read_file","arguments":"{\\"path\\":\\"a\\"}"}</tool_call>'
NEAR = '<tool_call>{"name":"read_file","arguments":{"path": }}</tool_call>'
BOTH = NEAR + '<tool_call>{"name":"write_file","arguments":{"path": }}</tool_call>'
RECITED = (
    '{"name":"read_file","description":"Reads a file.",'
    '"parameters":{"type":"object","properties":{"path":{"type":"string"}}}}'
)

WAYS = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])


def config(url: str, **options: Any) -> GatewayConfig:
    backend = {"url": url, **options.pop("backend", {"preset": "llamacpp"})}
    route = {"model": "m", "backend": "s"}
    defaults = {"retry": {"attempts": 1}, **options}
    return read_config({"backends": {"s": backend}, "routes": [route], "defaults": defaults})


def body(path: str, *, stream: bool, choice: Any = "auto") -> dict[str, Any]:
    asked: dict[str, Any] = {"model": "m", "stream": stream}
    if path == CHAT:
        return {**asked, "messages": USER, "tools": TOOLS, "tool_choice": choice}
    if path == RESPONSES:
        return {**asked, "input": "hi", "tools": [{"type": "function", **tool["function"]} for tool in TOOLS]}
    described = [{"name": t["function"]["name"], "input_schema": t["function"]["parameters"]} for t in TOOLS]
    return {**asked, "max_tokens": 99, "messages": USER, "tools": described}


def grammars(upstream: Upstream) -> list[str]:
    return [asked.json.get("grammar", "") for asked in upstream.posts]


@WAYS
@pytest.mark.parametrize(
    ("path", "near"), [(CHAT, NEAR), (CHAT, RECITED), (RESPONSES, RECITED), (MESSAGES, f"```json\n{RECITED}\n```")]
)
async def test_the_tool_that_was_tried_is_enforced(gateway: Gateway, path: str, stream: bool, near: str) -> None:
    async with Upstream([Say(near), Say(GOOD)]) as upstream:
        server = await gateway(config(upstream.url))
        answer = await post(server, body(path, stream=stream), path=path)
        assert answer.status == 200
        assert b"Reads a file." not in answer.body
        assert answer.body.count(b"read_file") >= 1
    first, second = grammars(upstream)
    assert "write_file" in first, "under `auto` any tool may be called"
    assert "read_file" in second
    assert "write_file" not in second
    assert "[^" not in second.partition("\n")[0], "no text may stand before the call"
    messages = upstream.posts[1].json["messages"]
    assert messages[: len(upstream.posts[0].json["messages"])] == upstream.posts[0].json["messages"]
    assert messages[-1]["content"].endswith('Answer again: call the tool "read_file", and write nothing else.')


@pytest.mark.parametrize(("size", "stream"), [(1, True), (8, True), (999, False)])
@pytest.mark.parametrize(
    "near",
    [
        '{"name":"plot","arguments":{"end":2*pi}}',
        '{"name":"plot","arguments":{"end":"I", \'V\'}}',
        '```json\n{"name":"plot","arguments":{"end":2*pi}}\n```',
        '{"name":"plot","arguments":{"end":{"of":"x"}}}',
        "plot(end=2*pi)",
    ],
)
async def test_nothing_of_a_broken_attempt_is_sent(gateway: Gateway, stream: bool, size: int, near: str) -> None:
    good = '{"name":"plot","arguments":{"end":6.28}}'
    pieces = [near[at : at + size] for at in range(0, len(near), size)]
    async with Upstream([Say(*pieces), Say(good)]) as upstream:
        server = await gateway(config(upstream.url))
        answer = await post(server, {**body(CHAT, stream=stream), "tools": [function("plot", end="number")]})
    assert b"plot" in answer.body
    assert b"pi" not in answer.body.replace(b"completion", b"")
    assert answer.body.count(b'"content":"') == 0
    assert len(upstream.posts) == 2


async def test_several_tools_are_demanded_together(gateway: Gateway) -> None:
    async with Upstream([Say(BOTH), Say(GOOD)]) as upstream:
        server = await gateway(config(upstream.url))
        await post(server, body(CHAT, stream=False))
    second = grammars(upstream)[1]
    assert "read_file" in second
    assert "write_file" in second
    assert (
        upstream.posts[1]
        .json["messages"][-1]["content"]
        .endswith('Answer again: call "read_file", "write_file", and write nothing else.')
    )


@pytest.mark.parametrize(
    ("backend", "field"),
    [
        ({"preset": "vllm"}, "structured_outputs"),
        ({"preset": "sglang"}, "ebnf"),
        ({"constrain": "none"}, None),
    ],
)
async def test_on_every_engine(gateway: Gateway, backend: dict[str, Any], field: str | None) -> None:
    async with Upstream([Say(NEAR), Say(GOOD)]) as upstream:
        server = await gateway(config(upstream.url, backend=backend, mode="prompt"))
        await post(server, body(CHAT, stream=False))
    second = upstream.posts[1].json
    said = {"grammar", "structured_outputs", "response_format", "ebnf"} & second.keys()
    assert said == ({field} if field else set())
    assert field is None or "write_file" not in str(second[field])


async def test_what_cannot_be_enforced_is_no_fault_of_the_client(gateway: Gateway) -> None:
    """`constrain: required` is about choices that clients demand."""
    async with Upstream([Say(NEAR), Say(GOOD)]) as upstream:
        options = {"backend": {"constrain": "none"}, "constrain": "required"}
        server = await gateway(config(upstream.url, mode="prompt", **options))
        answer = await post(server, body(CHAT, stream=False))
        assert answer.status == 200
    assert len(upstream.posts) == 2


def called(name: str, arguments: str) -> Answer:
    call = {"id": "call_1", "type": "function", "function": {"name": name, "arguments": arguments}}
    message = {"role": "assistant", "content": None, "tool_calls": [call]}
    return whole(message, "tool_calls")


def whole(message: dict[str, Any], reason: str = "stop") -> Answer:
    made = [{"index": 0, "message": message, "finish_reason": reason}]
    answer = {"id": "c", "object": "chat.completion", "created": 1, "model": "m", "choices": made}
    return sent(answer)


def sent(body: Any, status: int = 200) -> Answer:
    return Answer([orjson.dumps(body)], status, {"Content-Type": "application/json"}, framing="length")


@pytest.mark.parametrize("refuses", [False, True])
async def test_a_server_that_makes_calls_itself(gateway: Gateway, refuses: bool) -> None:
    """It is told in its own words; one that refuses such a choice is asked without."""

    def second(asked: Asked) -> Answer:
        assert asked.json["tool_choice"] == {"type": "function", "function": {"name": "read_file"}}
        if refuses:
            return sent({"error": {"message": "no named choice here", "code": 400}}, 400)
        return called("read_file", '{"path":"a"}')

    async with Upstream([called("red_file", '{"path":"a"}'), second, called("read_file", '{"path":"a"}')]) as upstream:
        server = await gateway(config(upstream.url, mode="native", backend={}))
        answer = (await post(server, body(CHAT, stream=False))).json()
        (call,) = answer["choices"][0]["message"]["tool_calls"]
        assert call["function"]["name"] == "read_file"
    assert len(upstream.posts) == 2 + refuses
    assert "tool_choice" not in upstream.posts[-1].json or not refuses


@pytest.mark.parametrize("path", [CHAT, RESPONSES, MESSAGES])
@pytest.mark.parametrize("native", [False, True])
async def test_a_call_in_a_thought_that_never_closes(gateway: Gateway, path: str, native: bool) -> None:
    thought = f"I have to read it.\n{GOOD}\n"
    first = (
        whole({"role": "assistant", "content": "", "reasoning_content": thought})
        if native
        else Say(f"<think>{thought}")
    )
    async with Upstream([first, Say(GOOD)]) as upstream:
        server = await gateway(config(upstream.url, **({"mode": "native"} if native else {})))
        answer = await post(server, body(path, stream=False), path=path)
        assert b"I have to read it" not in answer.body
        assert b"read_file" in answer.body
    assert len(upstream.posts) == 2
    assert "inside of a thought that has no end" in upstream.posts[1].json["messages"][-1]["content"]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (f"<think>I could write\n{GOOD}\nbut need not.", "stop"),
        (f"<think>I could write {GOOD}</think>No.", "stop"),
        (f"<think>{GOOD}", "length"),
        ("<think>Hm.", "stop"),
    ],
)
async def test_what_is_only_considered(gateway: Gateway, text: str, reason: str) -> None:
    async with Upstream([Say(text, finish=reason)]) as upstream:
        server = await gateway(config(upstream.url))
        await post(server, body(CHAT, stream=False))
    assert len(upstream.posts) == 1
