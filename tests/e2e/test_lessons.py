"""What one client's refusal teaches counts for that client, a second one's for all; both are shown and forgotten
(R33.6)."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import aiohttp

from tests.cases import every
from tests.e2e.conftest import CHAT, gateway_before, post, serving, upstream_config
from tests.e2e.meaning import CLIENTS, MESSAGES, RESPONSES, asking, meant, said, says
from tests.e2e.test_taught_together import PARSE, READ, TAUGHT, asks, bearer, no_objects
from tests.e2e.test_tool_mode import NAMED
from toolwire.model import Text, ToolUse
from toolwire.testing import Answer, Asked, Refuse, Say, Upstream

IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}
PICTURE = {"messages": [{"role": "user", "content": [{"type": "text", "text": "hi"}, IMAGE]}]}


def no_images(asked: Asked) -> Answer:
    return (
        Refuse(404, "No endpoints found that support image input") if b"image_url" in asked.body else Say("ok")(asked)
    )


def no_top_k(asked: Asked) -> Answer:
    return Refuse(400, "top_k is not supported") if "top_k" in asked.json else Say("ok")(asked)


def no_grammar(asked: Asked) -> Answer:
    return Refuse(400, PARSE) if "grammar" in asked.json else TAUGHT(asked)


KINDS: dict[str, tuple[Callable[[Asked], Answer], dict[str, Any], dict[str, Any], Callable[[Asked], bool]]] = {
    "images": (no_images, PICTURE, {}, lambda asked: b"image_url" in asked.body),
    "sampling": (
        no_top_k,
        {"messages": [{"role": "user", "content": "hi"}], "top_k": 3},
        {"extra_parameters": ["top_k"]},
        lambda asked: "top_k" in asked.json,
    ),
    "choice_objects": (no_objects, asks(NAMED), {}, lambda asked: isinstance(asked.json.get("tool_choice"), dict)),
    "constraint": (no_grammar, asks("required", READ), {"preset": "llamacpp"}, lambda asked: "grammar" in asked.json),
}
"""A server that refuses it, a request with it, how the server is configured, and whether a request has it."""


async def refused(server: Any, place: str = "/ready", key: str = "one") -> Any:
    async with aiohttp.ClientSession(headers=bearer(key)) as session, session.get(server.make_url(place)) as answer:
        return await answer.json()


TURNS = [{"role": role, "content": role} for role in ("user", "user", "assistant", "system", "user")]
ROLES = {
    "alternating": (
        "Conversation roles must alternate user/assistant/user/assistant/...",
        lambda roles: any(one == other for one, other in pairwise(roles)) or "system" in roles[1:],
    ),
    "late_system": ("System message must be at the beginning.", lambda roles: "system" in roles[1:]),
    "system": ("System role not supported", lambda roles: "system" in roles),
    "system in other words": ("Only user and assistant roles are supported!", lambda roles: "system" in roles),
}
"""Words of chat templates, and which roles make them say so."""


@every("status", [400, 500])
@every("name", ROLES)
async def test_roles_that_a_template_refuses(name: str, status: int) -> None:
    words, refuses = ROLES[name]

    def script(asked: Asked) -> Answer:
        roles = [one["role"] for one in asked.json["messages"]]
        return Refuse(status, words) if refuses(roles) else Say("ok")(asked)

    async with gateway_before([script], backend={"preset": "generic"}) as (server, up):
        for _ in range(2):
            assert (await post(server, {"model": "m", "messages": TURNS})).status == 200
        assert (await refused(server))["refused"] == {"up": {"m": {"roles": "all"}}}
    assert len(up.posts) == 3
    assert all(word["content"] in up.posts[-1].body.decode() for word in TURNS), "nothing is left out"


def thoughtful(path: str) -> dict[str, Any]:
    """A conversation with a thought of the model, in the words of a client."""
    user, said = {"role": "user", "content": "hi"}, {"role": "assistant", "content": "Hello"}
    if path == RESPONSES:
        thought = {
            "type": "reasoning",
            "id": "rs_1",
            "summary": [],
            "content": [{"type": "reasoning_text", "text": "Hm."}],
        }
        return {"input": [user, thought, said, user]}
    if path == MESSAGES:
        blocks = [{"type": "thinking", "thinking": "Hm.", "signature": "s"}, {"type": "text", "text": "Hello"}]
        return {"messages": [user, {"role": "assistant", "content": blocks}, user]}
    return {"messages": [user, {**said, "reasoning_content": "Hm."}, user]}


def called(path: str) -> dict[str, Any]:
    """A conversation with a call, its result, and a user who speaks right after it."""
    user, arguments, ident = {"role": "user", "content": "hi"}, '{"path": "a"}', "call_0123456789"
    if path == RESPONSES:
        call = {"type": "function_call", "call_id": ident, "name": "read", "arguments": arguments}
        return {"input": [user, call, {"type": "function_call_output", "call_id": ident, "output": "x"}, user]}
    if path == MESSAGES:
        use = {"type": "tool_use", "id": ident, "name": "read", "input": {"path": "a"}}
        result = {"type": "tool_result", "tool_use_id": ident, "content": "x"}
        turn = {"role": "user", "content": [result, {"type": "text", "text": "hi"}]}
        return {"messages": [user, {"role": "assistant", "content": [use]}, turn]}
    call = {"id": ident, "type": "function", "function": {"name": "read", "arguments": arguments}}
    result = {"role": "tool", "tool_call_id": ident, "content": "x"}
    return {"messages": [user, {"role": "assistant", "content": None, "tool_calls": [call]}, result, user]}


def ids_of(body: Any) -> set[str]:
    """The ids of calls and results in a request of Chat, of which Mistral takes only those with nine signs."""
    calls = {call["id"] for one in body["messages"] for call in one.get("tool_calls") or ()}
    results = {one["tool_call_id"] for one in body["messages"] if one["role"] == "tool"}
    assert calls == results
    return calls


SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"], "additionalProperties": False}


def formed(kind: str) -> dict[str, dict[str, Any]]:
    """A demand for JSON, in the words of each client that has one."""
    form = {"type": kind, "name": "n", "schema": SCHEMA} if kind == "json_schema" else {"type": kind}
    chat = {"type": kind, "json_schema": {"name": "n", "schema": SCHEMA}} if kind == "json_schema" else form
    return {CHAT: {"response_format": chat}, RESPONSES: {"text": {"format": form}}}


PLAIN = says("openai_chat", Text("{}"))
PATH = {"type": "string"}
BOUNDED = {
    "type": "object",
    "properties": {"path": {**PATH, "pattern": "a{0,9999}"}, "pattern": {**PATH, "maxLength": 9}},
}
SCHEMA_A = {"type": "object", "properties": {"path": PATH}, "required": ["path"], "additionalProperties": False}

Field = tuple[tuple[str, ...], dict[str, dict[str, Any]], Callable[[Any], bool]]
FIELDS: dict[str, Field] = {
    "reasoning of earlier turns": (
        (
            "'messages.1' : for 'role:assistant' the following must be satisfied[('messages.1' : property "
            "'reasoning_content' is unsupported)]",
            '{"detail":[{"type":"extra_forbidden","loc":["body","messages",1,"assistant","reasoning_content"]}]}',
            "Unknown parameter: 'messages[1].reasoning_content'.",
        ),
        {path: thoughtful(path) for path in CLIENTS},
        lambda body: any("reasoning_content" in one for one in body["messages"]),
    ),
    "earlier turns without reasoning": (
        (
            "The `reasoning_content` in the thinking mode must be passed back to the API.",
            "thinking is enabled but reasoning_content is missing in assistant tool call message at index 1",
            "Missing `reasoning_content` field in the assistant message at message index 1.",
        ),
        {path: called(path) for path in CLIENTS},
        lambda body: not all(one.get("reasoning_content") for one in body["messages"] if one["role"] == "assistant"),
    ),
    "content in parts": (
        (
            "Invalid type for 'messages[0].content': expected a string, but got an array instead.",
            "Failed to deserialize the JSON body: messages[0].content: invalid type: sequence, expected a string",
            "json: cannot unmarshal array into Go struct field ChatRequest.messages.content of type string",
            "invalid message format",
        ),
        {
            CHAT: {"messages": [{"role": "user", "content": [{"type": "text", "text": text} for text in "ab"]}]},
        },
        lambda body: not all(isinstance(one["content"], str | None) for one in body["messages"]),
    ),
    "bounds in schemas": (
        (
            "Failed to initialize samplers: failed to parse grammar",
            "JSON schema conversion failed:\nPattern must start with '^' and end with '$'",
        ),
        {
            CHAT: {"tools": [{"type": "function", "function": {"name": "read", "parameters": BOUNDED}}]},
            RESPONSES: {"tools": [{"type": "function", "name": "read", "parameters": BOUNDED}]},
            MESSAGES: {"tools": [{"name": "read", "input_schema": BOUNDED}]},
        },
        lambda body: body["tools"][0]["function"]["parameters"]["properties"] != {"path": PATH, "pattern": PATH},
    ),
    "strict": (
        (
            "Tools with strict=True are not supported by this model",
            "tools.0.function.strict Extra inputs are not permitted [type=extra_forbidden, input_value=False]",
        ),
        {
            CHAT: {
                "tools": [{"type": "function", "function": {"name": "read", "strict": True, "parameters": SCHEMA_A}}]
            },
            RESPONSES: {"tools": [{"type": "function", "name": "read", "strict": True, "parameters": SCHEMA_A}]},
        },
        lambda body: "strict" in body["tools"][0]["function"],
    ),
    "parallel_tool_calls": (
        (
            "property 'parallel_tool_calls' is unsupported",
            'Invalid JSON payload received. Unknown name "parallel_tool_calls": Cannot find field.',
        ),
        {
            CHAT: {"parallel_tool_calls": True},
            RESPONSES: {"parallel_tool_calls": False},
            MESSAGES: {"tool_choice": {"type": "auto", "disable_parallel_tool_use": True}},
        },
        lambda body: "parallel_tool_calls" in body,
    ),
    "stream_options": (
        ("Unrecognized request argument supplied: stream_options",),
        {CHAT: {"stream_options": {"include_usage": True}}, RESPONSES: {}, MESSAGES: {}},
        lambda body: "stream_options" in body,
    ),
    "a choice that demands a call": (
        (
            "tool_choice 'required' is incompatible with thinking enabled",
            "The tool_choice parameter does not support being set to required or object in thinking mode",
            "No endpoints found that support the provided 'tool_choice' value.",
        ),
        {
            CHAT: {"tool_choice": "required"},
            RESPONSES: {"tool_choice": {"type": "function", "name": "read"}},
            MESSAGES: {"tool_choice": {"type": "any"}},
        },
        lambda body: body.get("tool_choice", "auto") != "auto",
    ),
    "max_tokens": (
        ("Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.",),
        {CHAT: {"max_tokens": 7}, RESPONSES: {"max_output_tokens": 7}, MESSAGES: {"max_tokens": 7}},
        lambda body: body.get("max_completion_tokens") != 7,
    ),
    "max_completion_tokens": (
        ('{"detail":[{"type":"extra_forbidden","loc":["body","max_completion_tokens"],"input":7}]}',),
        {CHAT: {"max_completion_tokens": 7}},
        lambda body: body.get("max_tokens") != 7,
    ),
    "stop": (
        (
            "Argument not supported on this model: stop",
            "Unsupported parameter: 'stop' is not supported with this model.",
        ),
        {CHAT: {"stop": ["#"]}},
        lambda body: "stop" in body,
    ),
    "json_schema": (
        (
            "This response_format type is unavailable now",
            "This model does not support response format `json_schema`.",
        ),
        formed("json_schema"),
        lambda body: body.get("response_format", {}).get("type") == "json_schema" or "additional" not in str(body),
    ),
    "json_object": (
        ("'response_format.type' must be 'json_schema' or 'text'",),
        formed("json_object"),
        lambda body: body.get("response_format", {}).get("type") != "json_schema",
    ),
    "streams": (
        (
            "Your organization must be verified to stream this model.",
            "This model doesn't support tool use in streaming mode.",
            "Unsupported value: 'stream' does not support true with this model. Only the default (false) is supported.",
        ),
        {path: {} for path in CLIENTS},
        lambda body: body.get("stream") is True,
    ),
    "whole answers": (
        (
            "Stream must be set to true",
            "This model only support stream mode, please enable the stream parameter to access the model.",
            "parameter.enable_thinking must be set to false for non-streaming calls",
            "Requests with max_tokens > 4096 must have stream=true",
        ),
        {path: {"stream": False} for path in CLIENTS},
        lambda body: body.get("stream") is not True,
    ),
    "ids of calls": (
        (
            "Tool call id was call_0123456789 but must be a-z, A-Z, 0-9, with a length of 9.",
            "Tool call IDs should be alphanumeric strings with length 9!",
        ),
        {path: called(path) for path in CLIENTS},
        lambda body: any(len(ident) != 9 or not ident.isalnum() for ident in ids_of(body)),
    ),
    "a user message after a result": (
        ("Unexpected role 'user' after role 'tool'",),
        {path: called(path) for path in CLIENTS},
        lambda body: any((one["role"], other["role"]) == ("tool", "user") for one, other in pairwise(body["messages"])),
    ),
    "calls without a signature": (
        (
            "Function call is missing a thought_signature in functionCall parts. This is required for tools to work.",
            "Unable to submit request because function call `default_api:read` in the 2. content block is missing a "
            "`thought_signature`.",
        ),
        {path: called(path) for path in CLIENTS},
        lambda body: '"google": {"thought_signature": "skip_' not in json.dumps(body["messages"][1]),
    ),
    "prompt_cache_key": (
        ("body.prompt_cache_key: property 'body.prompt_cache_key' is unsupported",),
        {CHAT: {"prompt_cache_key": "k"}},
        lambda body: "prompt_cache_key" in body,
    ),
    "store": (
        (
            "property 'store' is unsupported",
            "Extra inputs are not permitted, field: 'store', value: False",
            '{"detail":[{"type":"extra_forbidden","loc":["body","store"],"msg":"Extra inputs are not permitted"}]}',
        ),
        {CHAT: {"store": False}},
        lambda body: "store" in body,
    ),
    "user": (("Unknown parameter: 'user'.",), {CHAT: {"user": "u"}}, lambda body: "user" in body),
    "presence_penalty": (
        ("Argument not supported on this model: presencePenalty",),
        {CHAT: {"presence_penalty": 0.5}},
        lambda body: "presence_penalty" in body,
    ),
    "reasoning_effort": (
        (
            "This model does not support parameter reasoningEffort",
            '"qwen2.5:7b" does not support thinking',
            'invalid reasoning value: \'xhigh\' (must be "high", "medium", "low", or "none")',
            "Unsupported value: 'xhigh' is not supported with this model. Supported values are: 'low' and 'high'.",
        ),
        {CHAT: {"reasoning_effort": "xhigh"}},
        lambda body: body.get("reasoning_effort") == "xhigh",
    ),
}
"""Words of hosted services that refuse a field, requests that have it, and whether the server was sent it, or the limit
of the answer in no other one."""


@every("name, path", [(name, path) for name, (_, bodies, _) in FIELDS.items() for path in bodies])
async def test_fields_that_a_service_refuses(name: str, path: str) -> None:
    """They are sent once. The call that is asked for comes, and no second one where one alone is wanted."""
    words, more, has_it = FIELDS[name]
    called = says("openai_chat", *(ToolUse(f"c{at}", "read", f'{{"path": "{at}"}}') for at in range(2)))
    body = {**asking(path, True), "stream_options": None, **more[path]}
    for word in words:
        status = 422 if "detail" in word else 404 if "No endpoints" in word else 400
        refusal = Refuse(status, word)

        def script(asked: Asked, refusal: Answer = refusal) -> Answer:
            return refusal if has_it(asked.json) else called(asked)

        async with gateway_before([script], defaults={"mode": "native"}) as (server, up):
            for _ in range(2):
                answer = await post(server, body, path=path)
                alone = name == "parallel_tool_calls" and path != CHAT
                calls = [("read", {"path": str(at)}) for at in range(1 if alone else 2)]
                assert said(path, answer, body["stream"])[1] == calls, answer.body
        assert [has_it(one.json) for one in up.posts] == [True, False, False], word


BESIDE_TOOLS: dict[str, tuple[dict[str, Any], Callable[[Any], bool]]] = {
    "This model doesn't support tool use in streaming mode.": ({}, lambda body: body.get("stream") is True),
    "json mode cannot be combined with tool/function calling": (
        formed("json_object")[CHAT],
        lambda body: body.get("response_format") == {"type": "json_object"},
    ),
    "Function tools with reasoning_effort are not supported for gpt-5.6 in /v1/chat/completions. To use function tools, "
    "use /v1/responses or set reasoning_effort to 'none'.": (
        {"reasoning_effort": "high"},
        lambda body: body.get("reasoning_effort") != "none",
    ),
}
"""Words that refuse a field beside tools, a request with it, and whether the server was sent it."""


@every("words", BESIDE_TOOLS)
async def test_what_is_refused_beside_tools_is_sent_without_them(words: str) -> None:
    more, has_it = BESIDE_TOOLS[words]
    called = says("openai_chat", ToolUse("c1", "read", '{"path": "a"}'))

    def script(asked: Asked) -> Answer:
        body = asked.json
        return Refuse(400, words) if has_it(body) and "tools" in body else (called if "tools" in body else PLAIN)(asked)

    body = {**asking(CHAT, True), "stream_options": None, **more}
    alone = {key: value for key, value in body.items() if key not in ("tools", "tool_choice")}
    async with gateway_before([script], backend={"reasoning_effort": True}, defaults={"mode": "native"}) as (
        server,
        up,
    ):
        for one in (body, body, alone):
            answer = await post(server, one, path=CHAT)
            assert answer.status == 200, answer.body
    assert [has_it(one.json) for one in up.posts] == [True, False, False, True]


async def test_an_effort_that_openai_has_beside_tools_though_none_is_asked_for() -> None:
    words = "Function tools with reasoning_effort are not supported for gpt-5.6-sol in /v1/chat/completions."
    called = says("openai_chat", ToolUse("c1", "read", '{"path": "a"}'))

    def script(asked: Asked) -> Answer:
        return called(asked) if asked.json.get("reasoning_effort") == "none" else Refuse(400, words)

    for path in CLIENTS:
        async with gateway_before([script], defaults={"mode": "native"}) as (server, up):
            for _ in range(2):
                answer = await post(server, asking(path, True), path=path)
                assert said(path, answer, True)[1] == [("read", {"path": "a"})], answer.body
        assert len(up.posts) == 3


@every("path", CLIENTS)
@every("stream", [False, True])
async def test_an_answer_in_the_other_form_has_the_servers_counts(path: str, stream: bool) -> None:
    """Not those that the gateway guesses."""
    words = "Stream must be set to true" if not stream else "Your organization must be verified to stream this model."
    says_so = says("openai_chat", Text("ok"))

    def script(asked: Asked) -> Answer:
        return Refuse(400, words) if asked.json.get("stream", False) is stream else says_so(asked)

    async with gateway_before([script]) as (server, _):
        answer = await post(server, asking(path, stream), path=path)
        assert meant(path, answer, stream)[3] == 9


@every("kind", KINDS)
async def test_two_keys_teach_the_third(kind: str) -> None:
    script, body, backend, has_it = KINDS[kind]
    mode = "prompt" if kind == "constraint" else "native"
    async with Upstream([script]) as up:
        sections = {"auth": {"keys": ["one", "two", "three"]}, "defaults": {"mode": mode}, "inspect": True}
        config = upstream_config(up.url, backend={"preset": "generic", **backend}, **sections)
        async with serving(config) as server:
            assert "refused" not in await refused(server)
            sent, shown = [], []
            for key in ("one", "one", "two", "three"):
                before = len(up.posts)
                assert (await post(server, {"model": "m", **body}, headers=bearer(key))).status == 200
                sent.append([has_it(one) for one in up.posts[before:]])
                shown.append((await refused(server))["refused"]["up"]["m"][kind])
            (overview,) = (await refused(server, "/inspect/api/overview"))["backends"]
    assert sent == [[True, False], [False], [True, False], [False]]
    assert shown == ["some", "some", "all", "all"]
    assert overview["refused"]["m"][kind] == "all"


@every(
    "words",
    [
        "This model does not support assistant message prefill. The conversation must end with a user message.",
        "Expected last role User or Tool (or Assistant with prefix True) for serving but got assistant",
        "Assistant response prefill is incompatible with enable_thinking.",
        "Cannot have 2 or more assistant messages at the end of the list.",
    ],
)
async def test_a_turn_of_the_model_at_the_end_that_is_refused(words: str) -> None:
    """The user goes on behind it. Another request's turn may be one that the server continues."""
    turns = [{"role": role, "content": role} for role in ("user", "assistant")]

    def script(asked: Asked) -> Answer:
        last = asked.json["messages"][-1]
        return Refuse(400, words) if last == turns[1] else Say("ok")(asked)

    async with gateway_before([script], backend={"preset": "llamacpp"}) as (server, up):
        for content in ("assistant", "{", "assistant"):
            body = {"messages": [turns[0], {"role": "assistant", "content": content}]}
            answer = await post(server, body, path=CHAT)
            assert answer.status == 200, answer.body
    user, go_on = turns[0]["content"], "Continue."
    assert [[one["content"] for one in asked.json["messages"]] for asked in up.posts] == [
        [user, "assistant"],
        [user, "assistant", go_on],
        [user, "{"],
        [user, "assistant"],
        [user, "assistant", go_on],
    ]


async def test_what_is_refused_beside_thinking_is_sent_without_it() -> None:
    """Also beside thinking without a budget."""
    ok = says("anthropic_messages", Text("ok"))
    words = "`top_p` must be greater than or equal to 0.95 or unset when thinking is enabled or in adaptive mode."

    def script(asked: Asked) -> Answer:
        return Refuse(400, words) if {"top_p", "thinking"} <= asked.json.keys() else ok(asked)

    body = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "top_p": 0.9, "max_tokens": 4096}
    for thinking in ({"type": "adaptive"}, {"type": "enabled", "budget_tokens": 1024}):
        async with gateway_before([script], backend={"kind": "anthropic_messages"}) as (server, up):
            for one in (thinking, thinking, None):
                answer = await post(server, {**body, **({"thinking": one} if one else {})}, path=MESSAGES)
                assert answer.status == 200, answer.body
        assert ["top_p" in one.json for one in up.posts] == [True, False, False, True]


async def test_a_refusal_that_another_request_has_just_taught_ends_no_request() -> None:
    """Of two concurrent requests with the same field one is refused after the other has been accepted without it."""
    late = asyncio.Event()
    refusals: list[Asked] = []

    def script(asked: Asked) -> Answer:
        if "top_k" not in asked.json:
            return Say("ok")(asked)
        refusals.append(asked)
        return dataclasses.replace(Refuse(400, "top_k is not supported"), wait=late if len(refusals) == 2 else None)

    _, body, backend, _ = KINDS["sampling"]
    async with gateway_before([script], backend=backend) as (server, _):
        both = [asyncio.ensure_future(post(server, {"model": "m", **body}, path=CHAT)) for _ in range(2)]
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        late.set()
        assert [(await one).status for one in both] == [200, 200]
    assert len(refusals) == 2


@every(
    "kind, path, words",
    [
        ("anthropic_messages", MESSAGES, "messages.1.content.0: Invalid `signature` in `thinking` block"),
        ("openai_responses", RESPONSES, "The encrypted content gAAA could not be verified."),
    ],
)
async def test_reasoning_that_another_server_signed_ends_no_session(kind: str, path: str, words: str) -> None:
    """A client that goes on with another server sends it along. What this server signs itself is sent the next time."""
    said = says(kind, Text("ok"))

    def script(asked: Asked) -> Answer:
        return Refuse(400, words) if b"Hm." in asked.body else said(asked)

    body = {**asking(path, False), **thoughtful(path)}
    async with gateway_before([script], backend={"kind": kind}) as (server, up):
        for _ in range(2):
            assert (await post(server, body, path=path)).status == 200
        assert "refused" not in await refused(server)
    assert [b"Hm." in one.body for one in up.posts] == [True, False, True, False]
    assert b"Hello" in up.posts[-1].body


SCOPED = {"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral", "scope": "global"}}


@every(
    "kind, path, more, name, words",
    [
        (
            "openai_responses",
            RESPONSES,
            {"prompt_cache_retention": "24h"},
            b"prompt_cache_retention",
            "Unsupported parameter: prompt_cache_retention",
        ),
        (
            "anthropic_messages",
            MESSAGES,
            {"context_management": {"edits": []}},
            b"context_management",
            "context_management: Extra inputs are not permitted",
        ),
        (
            "anthropic_messages",
            MESSAGES,
            {"system": [SCOPED]},
            b"scope",
            "system.0.cache_control.ephemeral.scope: Extra inputs are not permitted",
        ),
        (
            "anthropic_messages",
            MESSAGES,
            {"tools": [{"name": "read", "strict": True, "input_schema": SCHEMA_A}]},
            b"strict",
            "tools.0.custom.strict: Extra inputs are not permitted",
        ),
        (
            "anthropic_messages",
            MESSAGES,
            {"thinking": {"type": "enabled", "budget_tokens": 1024, "display": "summarized"}, "max_tokens": 4096},
            b"budget_tokens",
            '"thinking.type.enabled" is not supported for this model. Use "thinking.type.adaptive" and "output_config.effort".',
        ),
    ],
)
async def test_a_field_that_a_server_of_another_protocol_refuses(
    kind: str, path: str, more: dict[str, Any], name: bytes, words: str
) -> None:
    said = says(kind, Text("ok"))

    def script(asked: Asked) -> Answer:
        return Answer([json.dumps({"detail": words}).encode()], 400) if name in asked.body else said(asked)

    body = {**asking(path, False), **more}
    async with gateway_before([script], backend={"kind": kind}, defaults={"mode": "native"}) as (server, up):
        for _ in range(2):
            assert (await post(server, body, path=path)).status == 200
    assert [name in one.body for one in up.posts] == [True, False, False]
    if name == b"budget_tokens":
        assert up.posts[-1].json["thinking"] == {"type": "adaptive", "display": "summarized"}


async def test_one_image_that_is_refused_teaches_nothing() -> None:
    """The request is answered without it, and the next one has its image."""

    def script(asked: Asked) -> Answer:
        return Refuse(400, "Could not process image") if b"image_url" in asked.body else Say("ok")(asked)

    async with gateway_before([script], backend={"preset": "generic"}) as (server, up):
        for _ in range(2):
            assert (await post(server, {"model": "m", **PICTURE})).status == 200
        assert "refused" not in await refused(server)
    assert [b"image_url" in one.body for one in up.posts] == [True, False, True, False]


async def test_what_is_refused_in_any_case_teaches_nothing() -> None:
    """The request without the image is refused as well, so the image was not the reason."""
    async with gateway_before(
        [Refuse(400, "no image can be read: the prompt is broken")], backend={"preset": "generic"}
    ) as (server, _):
        assert (await post(server, {"model": "m", **PICTURE})).status == 400
        assert "refused" not in await refused(server)
