"""C18 and R6.8 for every word that servers have for a limit of length: what it cut off is never a call."""

from __future__ import annotations

import json

import pytest

from tests.e2e.conftest import CHAT, USER, Gateway, function, post, upstream_config
from tests.e2e.meaning import RESPONSES
from toolwire.testing import Answer, Say, Upstream, chunk, frame

WHOLE = '<tool_call>{"name":"look","arguments":"{}"}</tool_call>'
UNCLOSED = WHOLE.removesuffix("</tool_call>")


@pytest.mark.parametrize("word", ["length", "max_tokens", "model_length"])
@pytest.mark.parametrize("stream", [False, True])
async def test_what_a_limit_cut_off_is_no_call(gateway: Gateway, word: str, stream: bool) -> None:
    async with Upstream([Say("one ", UNCLOSED, finish=word), Say(WHOLE, " ", UNCLOSED, finish=word)]) as upstream:
        server = await gateway(upstream_config(upstream.url))
        body = {"messages": USER, "tools": [function("look")], "stream": stream}
        cut, kept = await post(server, body), await post(server, body)
    if stream:
        reasons = [answer.frames()[-2]["choices"][0]["finish_reason"] for answer in (cut, kept)]
        calls = [answer.body.count(b'"id":"call_') for answer in (cut, kept)]
    else:
        reasons = [answer.json()["choices"][0]["finish_reason"] for answer in (cut, kept)]
        calls = [len(answer.json()["choices"][0]["message"].get("tool_calls", ())) for answer in (cut, kept)]
    assert (reasons, calls) == (["length", "tool_calls"], [0, 1])


HALF = {"type": "custom", "custom": {"name": "patch", "input": "*** half"}}
WHOLE_ONE = {"type": "custom", "custom": {"name": "patch", "input": "*** whole"}}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", [CHAT, RESPONSES])
async def test_half_a_text_of_a_native_server_is_no_call(gateway: Gateway, path: str, stream: bool) -> None:
    """The text of a custom tool looks whole wherever it is cut, and the limit cuts what comes last."""
    calls = [{"id": f"call_{n}", "index": n, **call} for n, call in enumerate((WHOLE_ONE, HALF))]
    message = {"role": "assistant", "content": "So.", "tool_calls": calls}
    body = {"id": "c", "object": "chat.completion", "created": 1, "model": "m"}
    whole = {**body, "choices": [{"index": 0, "message": message, "finish_reason": "length"}]}
    pieces = [chunk({"content": "So."}), *(chunk({"tool_calls": [call]}) for call in calls), chunk({}, "length")]
    answer = (
        Answer([*map(frame, pieces), frame("[DONE]")], headers={"Content-Type": "text/event-stream"})
        if stream
        else Answer([json.dumps(whole).encode()], headers={"Content-Type": "application/json"})
    )
    tool = {"type": "custom", "name": "patch"} if path == RESPONSES else {"type": "custom", "custom": {"name": "patch"}}
    asked = {"input": "hi"} if path == RESPONSES else {"messages": USER}
    async with Upstream([answer]) as upstream:
        server = await gateway(upstream_config(upstream.url, backend={"preset": "openai"}, defaults={"mode": "native"}))
        got = await post(server, {**asked, "tools": [tool], "stream": stream}, path=path)
    assert (got.status, b"*** whole" in got.body, b"*** half" in got.body) == (200, True, False)


@pytest.mark.parametrize("status", ["completed", "incomplete"])
async def test_half_a_text_of_a_responses_server_is_no_call(gateway: Gateway, status: str) -> None:
    item = {"type": "custom_tool_call", "id": "ctc_1", "call_id": "call_1", "name": "patch", "input": "*** a text"}
    body = {"id": "resp_1", "object": "response", "created_at": 1, "model": "m", "status": "incomplete"}
    more = {"incomplete_details": {"reason": "max_output_tokens"}, "output": [{**item, "status": status}]}
    answer = Answer([json.dumps({**body, **more}).encode()], headers={"Content-Type": "application/json"})
    async with Upstream([answer]) as upstream:
        backend = {"kind": "openai_responses"}
        server = await gateway(upstream_config(upstream.url, backend=backend, defaults={"mode": "native"}))
        got = await post(server, {"input": "hi", "tools": [{"type": "custom", "name": "patch"}]}, path=RESPONSES)
    assert (got.status, b"*** a text" in got.body) == (200, status == "completed")
