"""`response_format` and `text.format`: told to a backend that can be constrained, said in words, checked in the end."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from tests.cases import every
from tests.e2e.conftest import CHAT, USER, function, gateway_before, post
from tests.e2e.meaning import RESPONSES, said
from toolwire.testing import Answer, Asked, Refuse, Say

SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"], "additionalProperties": False}
FORM = {"name": "number", "schema": SCHEMA, "strict": True}
BODIES: dict[str, dict[str, Any]] = {
    CHAT: {"messages": USER, "response_format": {"type": "json_schema", "json_schema": FORM}},
    RESPONSES: {"input": "hi", "text": {"format": {"type": "json_schema", **FORM}}},
}
ERROR = {"defaults": {"format_miss": "error"}}
CALL = '<tool_call>{"name":"look","arguments":"{}"}</tool_call>'


@every("api", BODIES)
async def test_a_backend_that_can_be_told_is_told(api: str) -> None:
    async with gateway_before([Say('{"n": 1}')]) as (server, upstream):
        answer = await post(server, BODIES[api], path=api)
    assert said(api, answer, False)[0] == '{"n": 1}'
    assert upstream.requests[0].json["response_format"]["json_schema"]["schema"] == SCHEMA


@every("api", BODIES)
async def test_with_tools_the_form_is_said_in_words_and_calls_stay_possible(api: str) -> None:
    async with gateway_before([Say(CALL)], **ERROR) as (server, upstream):
        answer = await post(server, {**BODIES[api], "tools": [function("look")]}, path=api)
    assert answer.status == 200
    asked = upstream.requests[0].json
    assert "response_format" not in asked
    assert orjson.dumps(SCHEMA).decode() in asked["messages"][0]["content"]


@every("text, more, fits", [
    ('{"n": 1}', {}, True), ("{", {}, False), ('{"n": "1"}', {}, False), ('{"n": 1} and more', {}, False),
    ("{}", {"text": {"format": {"type": "json_object"}}}, True),
    ("[]", {"text": {"format": {"type": "json_object"}}}, False),
])  # fmt: skip
async def test_what_comes_is_checked(text: str, more: dict[str, Any], fits: bool) -> None:
    body = {**BODIES[RESPONSES], **more}
    async with gateway_before([Say(text)], **ERROR) as (server, _):
        whole = await post(server, body, path=RESPONSES)
        terminal = (await post(server, {**body, "stream": True}, path=RESPONSES)).frames()[-1]
    assert (whole.status, terminal["type"]) == ((200, "response.completed") if fits else (500, "response.failed"))
    if not fits:
        assert whole.json()["error"]["code"] == "output_format_not_satisfied"
        assert whole.headers["x-should-retry"] == "false"
        assert "output_format_not_satisfied" in terminal["response"]["error"]["message"]


@every("text, fits", [('{"n": 1}', True), ("no", False)])
async def test_a_form_that_the_server_refused_is_checked(text: str, fits: bool) -> None:
    """Also if client and server speak one protocol."""

    def script(asked: Asked) -> Answer:
        refusal = Refuse(400, "This model does not support response format `json_schema`.")
        return refusal if "json_schema" in str(asked.json.get("response_format")) else Say(text)(asked)

    async with gateway_before([script], **ERROR) as (server, up):
        for stream in (False, True):
            answer = await post(server, {**BODIES[CHAT], "stream": stream}, path=CHAT)
            assert (b"output_format_not_satisfied" in answer.body) is not fits
    assert up.posts[-1].json["response_format"] == {"type": "json_object"}
    assert orjson.dumps(SCHEMA).decode() in up.posts[-1].json["messages"][0]["content"]


async def test_by_default_a_miss_is_only_noticed(caplog: pytest.LogCaptureFixture) -> None:
    async with gateway_before([Say("no")]) as (server, _):
        answer = await post(server, BODIES[RESPONSES], path=RESPONSES)
    assert said(RESPONSES, answer, False)[0] == "no"
    assert "does not have the requested format" in caplog.text


@every("finish", ["length", "content_filter"])
async def test_a_cut_off_answer_is_not_judged(finish: str) -> None:
    async with gateway_before([Say('{"n":', finish=finish)], **ERROR) as (server, _):
        answer = await post(server, BODIES[RESPONSES], path=RESPONSES)
    assert answer.json()["status"] == "incomplete"
