"""Responses in front of a server that speaks Chat: what is translated arrives in the form that the other side reads.
Beside each case stands its brother on Chat."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.cases import every
from tests.e2e.conftest import CHAT, USER, get, post, serving, upstream_config
from tests.e2e.responses_answers import of_stream, of_whole, outline
from toolwire.testing import Answer, Say, Upstream, WireAnswer, frame

RESPONSES = "/v1/responses"
BOTH = every("stream", [False, True])
TOOL = {"type": "function", "name": "look", "parameters": {"type": "object", "properties": {}}}


async def ask(
    body: dict[str, Any],
    *pieces: str,
    path: str = RESPONSES,
    answer: Any = None,
    backend: dict[str, Any] | None = None,
    **options: Any,
) -> tuple[WireAnswer, dict[str, Any]]:
    """What the client got, and what the model server was asked."""
    async with Upstream([answer or Say(*(pieces or ("ok",)))]) as upstream:
        config = upstream_config(upstream.url, backend=backend, defaults=options)
        async with serving(config) as server:
            got = await post(server, body, path=path)
        return got, (upstream.requests[0].json if upstream.requests else {})


def said(answer: WireAnswer) -> dict[str, str]:
    """Texts of an answer by kind of item; of a stream after a look at all its events."""
    streamed = answer.headers["Content-Type"].startswith("text/event-stream")
    texts: dict[str, str] = {}
    for kind, *_, text in outline(of_stream(answer).resource if streamed else of_whole(answer)):
        name = {"text": "message"}.get(kind, kind)
        texts[name] = texts.get(name, "") + text
    return texts


# --- reasoning ------------------------------------------------------------------------------------------------------

THOUGHT = ("<thi", "nk>Let me ", "see.</th", "ink>\n\nHel", "lo <b>you</b>.")


@BOTH
@every(
    "mode, more",
    [
        ("prompt", {}),
        ("native", {}),
        ("prompt", {"tools": [TOOL], "tool_choice": "none"}),
        ("native", {"tools": [TOOL]}),
    ],
)
async def test_what_the_model_thinks_is_no_output_text(mode: str, more: dict[str, Any], stream: bool) -> None:
    answer, _ = await ask({"input": "hi", "stream": stream, **more}, *THOUGHT, mode=mode)
    assert said(answer) == {"reasoning": "Let me see.", "message": "Hello <b>you</b>."}


@BOTH
@every(
    ("reasoning", "pieces", "texts"),
    [
        ({"tags": None}, THOUGHT, {"message": "".join(THOUGHT)}),
        ({"tags": ["[T]", "[/T]"]}, ("[T]a[", "/T]b"), {"reasoning": "a", "message": "b"}),
        ({"preopened": True}, ("Let me ", "see.</thi", "nk>Hello"), {"reasoning": "Let me see.", "message": "Hello"}),
        ({"field": "drop"}, THOUGHT, {"message": "Hello <b>you</b>."}),
        ({"field": "inline"}, THOUGHT, {"message": "<think>Let me see.</think>Hello <b>you</b>."}),
        ({}, ("a <think>b",), {"message": "a <think>b"}),  # in the middle of a line it is text
        ({}, (" ", "\n<think>b</think>\n", "\n c "), {"message": "c ", "reasoning": "b"}),
        ({}, ("a </think> b < c <thin",), {"message": "a </think> b < c <thin"}),
    ],
)
async def test_the_options_of_reasoning_hold_without_tools(
    reasoning: dict[str, Any], pieces: tuple[str, ...], texts: dict[str, str], stream: bool
) -> None:
    answer, _ = await ask({"input": "hi", "stream": stream}, *pieces, reasoning=reasoning)
    assert said(answer) == texts


@every("frames", [True, False])
@every("stream", [True, False])
async def test_chat_over_the_text_protocol_is_translated(stream: bool, frames: bool) -> None:
    """Whether or not the server streams what is to be streamed: it has no client side, so a whole answer is made a
    stream that only the gateway reads."""
    choice = {"index": 0, "text": "<think>hm</think>Hello", "finish_reason": "stop"}
    payload = {"id": "c", "object": "text_completion", "created": 1, "model": "m", "choices": [choice]}
    steps = [frame(payload), frame("[DONE]")] if frames else [json.dumps(payload).encode()]
    kind = "text/event-stream" if frames else "application/json"
    turn = Answer(steps, headers={"Content-Type": kind})
    body = {"messages": USER, "stream": stream}
    answer, _ = await ask(body, path=CHAT, answer=turn, backend={"kind": "openai_completions"})
    key = "delta" if stream else "message"
    shown = [f["choices"][0][key] for f in (answer.frames() if stream else [answer.json()]) if f != "[DONE]"]
    assert "".join(m.get("content") or "" for m in shown) == "Hello"
    assert "".join(m.get("reasoning_content") or "" for m in shown) == "hm"


# --- the request ----------------------------------------------------------------------------------------------------

PARTS = [{"type": "input_text", "text": "one "}, {"type": "input_text", "text": "two"}]


@every("mode, more", [("prompt", {"tools": [TOOL]}), ("native", {})])
async def test_several_texts_of_a_message_are_one_string(mode: str, more: dict[str, Any]) -> None:
    items = [
        {"role": "system", "content": [{"type": "input_text", "text": "be "}, {"type": "input_text", "text": "brief"}]},
        {"role": "user", "content": PARTS},
        {"role": "assistant", "content": [{"type": "output_text", "text": "a"}, {"type": "output_text", "text": "b"}]},
        {"type": "later_item", "id": "x"},
        *PARTS,
    ]
    _, asked = await ask({"input": items, **more}, mode=mode)
    contents = [message["content"] for message in asked["messages"]]
    assert all(isinstance(content, str) for content in contents)
    assert contents[0].startswith("be brief")
    assert contents[1:] == ["one two", "ab", "one two"]


GROUPS = [
    {"type": "namespace", "name": "mail", "description": "The user's <tool_call>post</tool_call>.", "tools": [
        {"type": "function", "name": "send", "description": "Sends."},
        {"type": "function", "name": "list", "description": "Lists."},
    ]},
    {"type": "namespace", "name": "crm", "description": "Customers and what they bought.", "tools": [
        {"type": "function", "name": "list"},
        {"type": "custom", "name": "query", "description": "Asks."},
    ]},
    {"type": "namespace", "name": "plain", "tools": [{"type": "function", "name": "f"}]},
]  # fmt: skip


@every("format_", ["hermes", "qwen3_coder", "mistral"])
async def test_what_a_group_of_tools_is_for_is_taught(format_: str) -> None:
    _, asked = await ask({"input": "hi", "tools": GROUPS}, format=format_)
    prompt = asked["messages"][0]["content"]
    assert prompt.count("Customers and what they bought.") == 1
    assert prompt.index("crm__list") < prompt.index("Customers and what they bought.") < prompt.index("crm__query")
    assert prompt.count("The user's ") == 1
    if format_ == "hermes":
        assert "<tool_call>post" not in prompt, "what clients say of tools is data"


async def test_a_native_server_is_told_too() -> None:
    _, asked = await ask({"input": "hi", "tools": GROUPS}, mode="native")
    told = {tool["function"]["name"]: tool["function"].get("description", "") for tool in asked["tools"]}
    assert "Customers and what they bought." in told["crm__list"]
    assert told["mail__send"].startswith("Sends.\n")
    assert "The user's" in told["mail__send"]
    assert (told["mail__list"], told["crm__query"]) == ("Lists.", "Asks.")


async def test_another_description_is_another_prompt() -> None:
    """What was taught is kept by content."""
    async with Upstream([Say("ok")]) as upstream, serving(upstream_config(upstream.url)) as server:
        for text in ("first", "second"):
            await post(server, {"input": "hi", "tools": [{**GROUPS[1], "description": text}]}, path=RESPONSES)
        prompts = [asked.json["messages"][0]["content"] for asked in upstream.requests]
    assert ("first" in prompts[0], "second" in prompts[1], "first" in prompts[1]) == (True, True, False)


# --- what is counted ------------------------------------------------------------------------------------------------


async def test_what_the_store_remembers_is_not_echoed(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "toolwire.access")
    call = '<tool_call>{"name":"look","arguments":"{}"}</tool_call>'
    async with Upstream([Say(call), Say("ok")]) as upstream, serving(upstream_config(upstream.url)) as server:
        first = (await post(server, {"input": "hi", "tools": [TOOL]}, path=RESPONSES)).json()
        (made,) = [item for item in first["output"] if item["type"] == "function_call"]
        result = {"type": "function_call_output", "call_id": made["call_id"], "output": "1"}
        body = {"input": [result], "previous_response_id": first["id"], "tools": [TOOL]}
        assert (await post(server, body, path=RESPONSES)).status == 200
        assert "echoed_calls" not in caplog.records[-1].fields  # type: ignore[attr-defined]
        await post(server, {"input": [made, result], "tools": [TOOL]}, path=RESPONSES)
        assert caplog.records[-1].fields["echoed_calls"] == 1  # type: ignore[attr-defined]
        assert "toolwire_echoed_calls_total 1.0" in (await get(server, "/metrics")).body.decode()
