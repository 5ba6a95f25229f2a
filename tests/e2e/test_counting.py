"""Tokens of a prompt, by the server that would get it: each engine's own way, and what is done where there is none
(R11.6); and what a request over Responses would cost, before it is sent (R8.15)."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.cases import every
from tests.e2e.conftest import USER, Gateway, function, gateway_before, post, serving, upstream_config
from tests.e2e.responses_answers import RESPONSES
from tests.protocols.messages_wires import frames
from toolwire.pipeline.conversations.stored import CONVERSATIONS
from toolwire.testing import Answer, Asked, Refuse, Say, Upstream

PATH = "/v1/messages/count_tokens"
COUNT = "/v1/responses/input_tokens"
TOOL = {"name": "read", "input_schema": function("read", path="string")["function"]["parameters"]}
BODY: dict[str, Any] = {"messages": USER, "tools": [TOOL]}


def answering(paths: dict[str, Any]) -> Callable[[Asked], Answer]:
    """A server that has these paths: what it answers there, a body or a status."""

    def answer(asked: Asked) -> Answer:
        said = paths.get(asked.path, 404)
        status, body = (said, b"{}") if isinstance(said, int) else (200, json.dumps(said).encode())
        return Answer([body], status=status, headers={"Content-Type": "application/json"}, framing="length")

    return answer


WAYS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "vllm": ({"preset": "vllm"}, {"/tokenize": {"count": 7, "max_model_len": 9, "tokens": [1] * 7}}),
    "sglang": ({"preset": "sglang"}, {"/tokenize": {"tokens": [1] * 7, "count": 7}}),
    "llamacpp": ({"preset": "llamacpp"}, {"/apply-template": {"prompt": "hi"}, "/tokenize": {"tokens": [1] * 7}}),
    "unknown": ({}, {"/tokenize": {"count": 7}}),
    "responses": ({"kind": "openai_responses"}, {COUNT: {"object": "response.input_tokens", "input_tokens": 7}}),
    "messages": ({"kind": "anthropic_messages"}, {"/v1/messages/count_tokens": {"input_tokens": 7}}),
}


@every("mode", ["prompt", "native"])
@every("way", WAYS)
async def test_the_server_counts_what_it_would_be_sent(way: str, mode: str) -> None:
    backend, paths = WAYS[way]
    async with Upstream([answering(paths)]) as up:
        config = upstream_config(up.url, backend=backend, defaults={"mode": mode})
        async with serving(config) as server:
            answer = await post(server, BODY, path=PATH, headers={"anthropic-beta": "b-1"})
    assert (answer.status, answer.json()) == (200, {"input_tokens": 7})
    assert (answer.headers["x-usage-source"], answer.headers["x-usage-tokenizer"]) == ("backend", "backend")
    asked = next(asked for asked in up.requests if asked.path in paths)
    sent = asked.json
    assert "read" in json.dumps(sent)  # the tool, taught or given
    assert ("tools" in sent) is (mode == "native")
    assert not {"max_tokens", "max_output_tokens", "stream", "store"} & sent.keys()
    if way == "messages":
        assert (asked.headers["anthropic-beta"], asked.headers["anthropic-version"]) == ("b-1", "2023-06-01")
    if way == "llamacpp":
        text = next(asked.json for asked in up.requests if asked.path == "/tokenize")
        assert text == {"content": "hi", "add_special": True, "parse_special": True}


NONSENSE: dict[str, Any] = {
    "not found": 404,
    "broken": 500,
    "no object": [7],
    "no number": {"count": "7"},
    "nothing": {"count": 0},
    "true": {"count": True},
    "not JSON": 200,
}


@every("preset, case", [(preset, case) for preset in ("vllm", "auto") for case in NONSENSE])
async def test_nonsense_is_no_count(preset: str, case: str) -> None:
    async with gateway_before([answering({"/tokenize": NONSENSE[case]})], backend={"preset": preset}) as (server, up):
        answers = [await post(server, BODY, path=PATH) for _ in range(2)]
    assert [answer.status for answer in answers] == [200, 200]
    assert answers[0].json()["input_tokens"] > 7
    assert answers[0].headers["x-usage-source"] == "estimate"
    asked = [asked for asked in up.requests if asked.path == "/tokenize"]
    assert len(asked) == (1 if preset == "auto" else 2)  # one of which nothing is known is not asked for ever


async def test_nobody_is_asked_who_shall_not_be() -> None:
    """Nor is one that is gone a fault."""
    async with Upstream([answering(WAYS["vllm"][1])]) as up:
        for url, defaults in ((up.url, {"usage": {"count": "estimate"}}), ("http://127.0.0.1:9", {})):
            async with serving(upstream_config(url, backend={"preset": "vllm"}, defaults=defaults)) as server:
                answer = await post(server, BODY, path=PATH)
            assert (answer.status, answer.headers["x-usage-source"]) == (200, "estimate"), url
    assert "/tokenize" not in {asked.path for asked in up.requests}


ENGINES = {
    "vllm": ({"preset": "vllm"}, lambda body: {"count": 30 if "messages" in body else 2}),
    "llamacpp": ({"preset": "llamacpp"}, lambda body: {"tokens": [1] * (30 if body["add_special"] else 2)}),
}


@every("stream", [False, True])
@every("engine", ENGINES)
async def test_it_counts_what_it_has_not_said(engine: str, stream: bool) -> None:
    """Where that is configured: the prompt in its template, and what the model wrote by itself."""
    backend, tokenize = ENGINES[engine]

    def answer(asked: Asked) -> Answer:
        if asked.path == "/tokenize":
            return answering({"/tokenize": tokenize(asked.json)})(asked)
        if asked.path == "/apply-template":
            return answering({"/apply-template": {"prompt": "hi"}})(asked)
        return Say("Hello there.")(asked) if asked.path == "/v1/chat/completions" else answering({})(asked)

    body = {"messages": USER, "max_tokens": 9, "stream": stream, "tools": [TOOL]}
    async with Upstream([answer]) as up:
        config = upstream_config(up.url, backend=backend, defaults={"usage": {"count": "backend_tokenize"}})
        async with serving(config) as server:
            whole = await post(server, body, path="/v1/messages")
    usage = frames(whole.body)[-2]["usage"] if stream else whole.json()["usage"]
    assert (usage["input_tokens"], usage["output_tokens"]) == (30, 2)
    if not stream:
        assert (whole.headers["x-usage-source"], whole.headers["x-usage-tokenizer"]) == ("estimate", "backend")


async def test_what_it_cannot_count_of_one_request_says_nothing_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server of no known kind that has counted is asked again, and one that never has after a while."""

    def counts(asked: Asked) -> Answer:
        return Refuse(400) if b"poison" in asked.body else answering({"/tokenize": {"count": 7}})(asked)

    async def source(text: str) -> str:
        body = {"messages": [{"role": "user", "content": text}]}
        return str((await post(server, body, path=PATH)).headers["x-usage-source"])

    async with gateway_before([counts]) as (server, _):
        assert [await source("hi"), await source("poison"), await source("hi")] == ["backend", "estimate", "backend"]
    async with gateway_before([counts]) as (server, _):
        assert [await source("poison"), await source("hi")] == ["estimate", "estimate"]
    monkeypatch.setattr("toolwire.upstream.servers.http.COUNT_AGAIN_S", 0.0)
    async with gateway_before([counts]) as (server, _):
        assert [await source("poison"), await source("hi")] == ["estimate", "backend"]


# --- over Responses -------------------------------------------------------------------------------------------------


async def count(server: Any, **body: Any) -> int:
    answer = await post(server, {"input": "hi", **body}, path=COUNT)
    counted = answer.json()
    assert (counted.keys(), counted["object"]) == ({"object", "input_tokens"}, "response.input_tokens")
    assert answer.headers["x-usage-source"] == "estimate"
    return int(counted["input_tokens"])


@pytest.mark.parametrize("stream", [False, True])
async def test_the_conversation_before_is_counted_and_nothing_is_kept(gateway: Gateway, stream: bool) -> None:
    async with Upstream([Say("A long answer. " * 50)]) as upstream:
        server = await gateway(upstream_config(upstream.url))
        first = (await post(server, {"input": "hi"}, path=RESPONSES)).json()
        assert await count(server, previous_response_id=first["id"], stream=stream) > await count(server) + 100
        assert sum(asked.path != "/tokenize" for asked in upstream.requests) == 1
        assert not server.app[CONVERSATIONS].running
        gone = await post(server, {"input": "hi", "previous_response_id": "resp_gone"}, path=COUNT)
        assert (gone.status, gone.json()["error"]["code"]) == (400, "previous_response_not_found")
