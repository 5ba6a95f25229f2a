"""`response_format` and `text.format`: told to a backend that can be constrained, said in words, checked in the end."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from tests.e2e.conftest import USER, Gateway, function, post, upstream_config
from toolwire.testing import Say, Upstream

SCHEMA = {
    "type": "object",
    "properties": {"n": {"type": "integer"}},
    "required": ["n"],
    "additionalProperties": False,
}
CHAT_FORM = {"type": "json_schema", "json_schema": {"name": "number", "schema": SCHEMA, "strict": True}}
TEXT_FORM = {"format": {"type": "json_schema", "name": "number", "schema": SCHEMA, "strict": True}}
RESPONSES = "/v1/responses"
CALL = '<tool_call>{"name":"look","arguments":"{}"}</tool_call>'


def body(api: str, **more: Any) -> dict[str, Any]:
    if api == RESPONSES:
        return {"input": "hi", "text": TEXT_FORM, **more}
    return {"messages": USER, "response_format": CHAT_FORM, **more}


def text_of(api: str, answer: Any) -> str:
    if api == RESPONSES:
        return str(answer["output"][0]["content"][0]["text"])
    return str(answer["choices"][0]["message"]["content"])


@pytest.mark.parametrize("api", ["/v1/chat/completions", RESPONSES])
async def test_a_backend_that_can_be_told_is_told(gateway: Gateway, api: str) -> None:
    async with Upstream([Say('{"n": 1}')]) as upstream:
        server = await gateway(upstream_config(upstream.url))
        answer = await post(server, body(api), path=api)
    assert text_of(api, answer.json()) == '{"n": 1}'
    told = upstream.requests[0].json["response_format"]
    assert told["json_schema"]["schema"] == SCHEMA


@pytest.mark.parametrize("api", ["/v1/chat/completions", RESPONSES])
async def test_with_tools_the_form_is_said_in_words_and_calls_stay_possible(gateway: Gateway, api: str) -> None:
    async with Upstream([Say(CALL)]) as upstream:
        server = await gateway(upstream_config(upstream.url, defaults={"format_miss": "error"}))
        answer = await post(server, body(api, tools=[function("look")]), path=api)
    assert answer.status == 200
    asked = upstream.requests[0].json
    assert "response_format" not in asked
    assert orjson.dumps(SCHEMA).decode() in asked["messages"][0]["content"]


@pytest.mark.parametrize("text", ['{"n": 1}', "{", '{"n": "1"}', '{"n": 1} and more'])
@pytest.mark.parametrize("stream", [False, True])
async def test_what_comes_is_checked(gateway: Gateway, text: str, stream: bool) -> None:
    fits = text == '{"n": 1}'
    async with Upstream([Say(text)]) as upstream:
        server = await gateway(upstream_config(upstream.url, defaults={"format_miss": "error"}))
        answer = await post(server, body(RESPONSES, stream=stream), path=RESPONSES)
    if stream:
        terminal = answer.frames()[-1]
        assert terminal["type"] == ("response.completed" if fits else "response.failed")
        if not fits:
            assert "output_format_not_satisfied" in terminal["response"]["error"]["message"]
    else:
        assert answer.status == (200 if fits else 500)
        if not fits:
            assert answer.json()["error"]["code"] == "output_format_not_satisfied"
            assert answer.headers["x-should-retry"] == "false"


async def test_by_default_a_miss_is_only_noticed(gateway: Gateway, caplog: pytest.LogCaptureFixture) -> None:
    async with Upstream([Say("no")]) as upstream:
        server = await gateway(upstream_config(upstream.url))
        answer = await post(server, body(RESPONSES), path=RESPONSES)
    assert text_of(RESPONSES, answer.json()) == "no"
    assert "does not have the requested format" in caplog.text


async def test_a_cut_off_answer_is_not_judged(gateway: Gateway) -> None:
    async with Upstream([Say('{"n":', finish="length")]) as upstream:
        server = await gateway(upstream_config(upstream.url, defaults={"format_miss": "error"}))
        answer = await post(server, body(RESPONSES), path=RESPONSES)
    assert answer.json()["status"] == "incomplete"


async def test_any_object_is_a_json_object(gateway: Gateway) -> None:
    async with Upstream([Say("{}"), Say("[]")]) as upstream:
        server = await gateway(upstream_config(upstream.url, defaults={"format_miss": "error"}))
        asked = {"input": "hi", "text": {"format": {"type": "json_object"}}}
        assert (await post(server, asked, path=RESPONSES)).status == 200
        assert (await post(server, asked, path=RESPONSES)).status == 500
