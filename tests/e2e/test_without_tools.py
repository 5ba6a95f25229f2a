"""Requests without tools: what is not known of a server is for the server to decide (R1.6)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.e2e.conftest import CHAT, USER, Gateway, function, post, read_config, upstream_config
from tests.e2e.responses_answers import RESPONSES
from toolwire.testing import Answer, Say, Upstream, frame

URL = "data:image/png;base64,AA=="
SEEN = {
    "role": "user",
    "content": [{"type": "text", "text": "what?"}, {"type": "image_url", "image_url": {"url": URL}}],
}
SHOWN = {
    "role": "user",
    "content": [{"type": "input_text", "text": "what?"}, {"type": "input_image", "image_url": URL}],
}
CALLED = {
    "role": "assistant",
    "content": None,
    "tool_calls": [{"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
}
RESULT = {"role": "tool", "tool_call_id": "a", "content": "done"}
TOOL = function("f", path="string")


def asked_with(path: str, **more: Any) -> dict[str, Any]:
    return {"messages": [SEEN], **more} if path == CHAT else {"input": [SHOWN], **more}


# --- images ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", [CHAT, RESPONSES])
async def test_images_beside_earlier_calls(gateway: Gateway, path: str) -> None:
    """Calls of earlier turns are written as text, so the request is not passed on as it is."""
    items = [{"type": "function_call", "call_id": "a", "name": "f", "arguments": "{}"}]
    items += [{"type": "function_call_output", "call_id": "a", "output": "done"}, SHOWN]
    body = {"messages": [*USER, CALLED, RESULT, SEEN]} if path == CHAT else {"input": items}
    async with Upstream([Say("a cat")]) as server:
        answer = await post(await gateway(upstream_config(server.url)), body, path=path)
        assert answer.status == 200
        assert URL in server.requests[0].body.decode()


@pytest.mark.parametrize("path", [CHAT, RESPONSES])
async def test_images_are_notes_where_the_protocol_has_none(gateway: Gateway, path: str) -> None:
    async with Upstream([Say("ok")]) as server:
        text = await gateway(upstream_config(server.url, backend={"kind": "openai_completions"}))
        assert (await post(text, asked_with(path), path=path)).status == 200
        assert "[image omitted: this model takes no images]" in server.requests[-1].body.decode()


async def test_several_servers_have_to_agree_on_images(gateway: Gateway) -> None:
    async with Upstream([Say("a cat")]) as server:
        for other, status in (
            ({}, 200),
            ({"preset": "vllm"}, 200),
            ({"images": "false"}, 200),
            ({"images": "error"}, 400),
        ):
            backends = {"one": {"url": server.url}, "two": {"url": server.url, **other}}
            started = await gateway(
                read_config({"backends": backends, "routes": [{"model": "*", "backends": ["one", "two"]}]})
            )
            answers = [await post(started, asked_with(RESPONSES), path=RESPONSES) for _ in range(2)]
            assert [answer.status for answer in answers] == [status] * 2


# --- several answers, and probabilities -----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["openai_chat", "openai_completions"])
@pytest.mark.parametrize("preset", ["generic", "llamacpp", "vllm"])
async def test_several_answers_and_probabilities_alike(gateway: Gateway, kind: str, preset: str) -> None:
    async with Upstream([Say("ok")]) as server:
        started = await gateway(upstream_config(server.url, backend={"kind": kind, "preset": preset}))
        for messages in (USER, [*USER, CALLED, RESULT]):
            for asks in ({"n": 2}, {"logprobs": True, "top_logprobs": 2}):
                assert (await post(started, {"messages": messages, **asks})).status == 200
                sent = server.requests[-1].json
                expected = {"logprobs": 2} if kind == "openai_completions" and "logprobs" in asks else asks
                assert {name: sent.get(name) for name in expected} == expected, messages


async def test_probabilities_over_a_text_server(gateway: Gateway) -> None:
    said = {"tokens": ["ok"], "token_logprobs": [-0.5], "top_logprobs": [{"ok": -0.5}], "text_offset": [0]}
    choice = {"index": 0, "text": "ok", "finish_reason": None, "logprobs": said}
    stream = [frame({"id": "x", "object": "text_completion", "choices": [choice]})]
    stream += [frame({"id": "x", "choices": [{"index": 0, "text": "", "finish_reason": "stop"}]}), frame("[DONE]")]
    async with Upstream([Answer(stream, headers={"Content-Type": "text/event-stream"})]) as server:
        started = await gateway(upstream_config(server.url, backend={"kind": "openai_completions"}))
        answer = await post(started, {"messages": USER, "logprobs": True, "stream": True})
    *chunks, _ = answer.frames()
    [found] = [c["choices"][0]["logprobs"] for c in chunks if c["choices"] and c["choices"][0]["logprobs"]]
    assert [token["logprob"] for token in found["content"]] == [-0.5]


# --- items that a text server has no place for ----------------------------------------------------------------------

ITEMS = {
    "reasoning": {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "x"},
    "told reasoning": {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "hm"}]},
    "search": {
        "type": "web_search_call",
        "id": "ws_1",
        "status": "completed",
        "action": {"type": "search", "query": "q"},
    },
    "unknown": {"type": "shell_call", "id": "sh_1", "action": {}},
}


@pytest.mark.parametrize("tools", [False, True], ids=["no tools", "tools"])
@pytest.mark.parametrize("name", ITEMS)
async def test_what_is_not_modelled_is_no_image(gateway: Gateway, name: str, tools: bool) -> None:
    items = [{"role": "user", "content": "first"}, ITEMS[name], {"role": "assistant", "content": "so"}]
    body: dict[str, Any] = {"input": [*items, {"role": "user", "content": "next"}]}
    if tools:
        body["tools"] = [{"type": "function", **TOOL["function"]}]
    async with Upstream([Say("ok")]) as server:
        started = await gateway(upstream_config(server.url, backend={"kind": "openai_completions"}))
        answer = await post(started, body, path=RESPONSES)
        assert (answer.status, answer.body.decode().count("takes text only")) == (200, 0)
        prompt = server.requests[0].json["prompt"]
    assert all(word in prompt for word in ("first", "so", "next"))


async def test_content_that_a_text_server_cannot_read_is_a_note(gateway: Gateway) -> None:
    async with Upstream([Say("never")]) as server:
        started = await gateway(upstream_config(server.url, backend={"kind": "openai_completions"}))
        for part in (
            {"type": "video_url", "video_url": {"url": "x"}},
            {"type": "input_audio", "input_audio": {"data": ""}},
        ):
            answer = await post(started, {"messages": [{"role": "user", "content": [part]}]})
            assert answer.status == 200
            medium = part["type"].removeprefix("input_").removesuffix("_url")
            assert f"[{medium} omitted" in server.requests[-1].body.decode()
