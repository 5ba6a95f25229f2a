"""What a server is told, where that is a fact about the server: each key of its configuration has an effect, whatever
the client and whoever does tools (R24.4)."""

from __future__ import annotations

from typing import Any

from tests.cases import every
from tests.e2e.conftest import CHAT, USER, function, gateway_before, post
from tests.e2e.meaning import says
from toolwire.model import Text
from toolwire.testing import Asked, Say

MESSAGES, RESPONSES = "/v1/messages", "/v1/responses"
OBJECT = {"type": "json_object"}
SCHEMA = {"type": "json_schema", "json_schema": {"name": "it", "schema": {"type": "object", "title": "Marked"}}}
READ = function("read", path="string")
modes = every("mode", ["prompt", "native"])


async def sent(body: dict[str, Any], *, path: str = CHAT, mode: str = "native", **backend: Any) -> Any:
    """What the server gets."""
    kind = backend.get("kind", "openai_chat")
    answer = Say("{}") if kind == "openai_chat" else says(kind, Text("{}"))
    async with gateway_before([answer], backend=backend, defaults={"mode": mode}) as (server, up):
        got = await post(server, body, path=path)
    assert got.status == 200, got.body
    asked: Asked = up.posts[0]
    return asked.json


@modes
@every("name", ["max_tokens", "max_completion_tokens"])
@every("said", ["max_tokens", "max_completion_tokens"])
async def test_the_name_of_the_limit(mode: str, said: str, name: str) -> None:
    body = await sent({"messages": USER, said: 7, "odd": 1}, mode=mode, max_tokens_field=name)
    assert {key: body[key] for key in body if "max" in key} == {name: 7}
    assert body["odd"] == 1, "nothing else changes"


@modes
@every("path", [CHAT, RESPONSES, MESSAGES])
async def test_the_name_of_the_limit_for_each_client(path: str, mode: str) -> None:
    limit = {CHAT: "max_tokens", RESPONSES: "max_output_tokens", MESSAGES: "max_tokens"}[path]
    body = {limit: 17, **({"input": "hi"} if path == RESPONSES else {"messages": USER})}
    got = await sent(body, path=path, mode=mode, max_tokens_field="max_completion_tokens")
    assert {key: got[key] for key in got if "max" in key} == {"max_completion_tokens": 17}


async def test_openai_is_told_in_its_present_words() -> None:
    body = {"max_tokens": 17, "messages": USER}
    assert "max_completion_tokens" in await sent(body, path=MESSAGES, preset="openai")
    assert "max_tokens" in await sent(body, path=CHAT, preset="openai"), "a client's own bytes stay what they are"


@modes
@every(
    ("kind", "field"),
    [("openai_chat", "max_tokens"), ("openai_responses", "max_output_tokens"), ("anthropic_messages", "max_tokens")],
)
async def test_a_limit_where_the_client_sets_none(mode: str, kind: str, field: str) -> None:
    assert (await sent({"messages": USER}, mode=mode, kind=kind, default_max_tokens=99))[field] == 99
    assert (await sent({"messages": USER, "max_tokens": 33}, mode=mode, kind=kind, default_max_tokens=99))[field] == 33


async def test_the_default_under_the_name_that_it_has_there() -> None:
    got = await sent({"messages": USER}, default_max_tokens=99, max_tokens_field="max_completion_tokens")
    assert {key: got[key] for key in got if "max" in key} == {"max_completion_tokens": 99}


@modes
@every(
    ("takes", "form", "told", "words"),
    [
        (["json_object", "json_schema"], SCHEMA, SCHEMA, False),
        (["json_object", "json_schema"], OBJECT, OBJECT, False),
        (["json_object"], SCHEMA, OBJECT, True),
        (["json_object"], OBJECT, OBJECT, False),
        (["json_schema"], SCHEMA, SCHEMA, False),
        (["json_schema"], OBJECT, "any object", False),
        ([], SCHEMA, None, True),
        ([], OBJECT, None, True),
    ],
)
async def test_forms_that_it_does_not_take(mode: str, takes: list[str], form: Any, told: Any, words: bool) -> None:
    got = await sent({"messages": USER, "response_format": form}, mode=mode, response_format=takes)
    if told == "any object":
        assert got["response_format"]["json_schema"]["schema"] == {"type": "object"}
    else:
        assert got.get("response_format") == told
    said = str(got["messages"])
    assert ("JSON" in said) is words
    assert ("Marked" in said) is (words and form is SCHEMA)


async def test_forms_beside_tools_of_a_native_server() -> None:
    got = await sent({"messages": USER, "tools": [READ], "response_format": SCHEMA}, response_format=[])
    assert (got["tools"][0]["function"]["name"], got.get("response_format")) == ("read", None)
    assert "Marked" in str(got["messages"])


@every(
    ("types", "sent_types"),
    [
        (None, ["custom", "function", "web_search"]),
        (["function"], ["function", "function"]),
        (["function", "custom"], ["custom", "function"]),
        (["function", "web_search"], ["function", "function", "web_search"]),
    ],
)
async def test_types_of_tools(types: list[str] | None, sent_types: list[str]) -> None:
    custom = {"type": "custom", "custom": {"name": "free"}}
    body = {"messages": USER, "tools": [READ, custom, {"type": "web_search"}]}
    got = await sent(body, **({} if types is None else {"tool_types": types}))
    assert sorted(tool["type"] for tool in got["tools"]) == sent_types
