"""Paths at which requests pass as they are, over real sockets (R24.3): bytes, routes, keys, limits, errors, retries."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from tests.cases import every
from tests.e2e.conftest import gateway_before, post, read_config, serving
from tests.e2e.test_messages_backend import JSON, SSE
from toolwire.app import create_app
from toolwire.support.conversion import ConfigError
from toolwire.testing import Answer, Raw, Refuse, Upstream, WireAnswer, frame
from toolwire.upstream.servers.hops import HEADER as HOPS

VECTORS = {
    "object": "list",
    "data": [{"object": "embedding", "index": 0, "embedding": [0.1, -2e-05]}],
    "model": "m",
    "usage": {"prompt_tokens": 3, "total_tokens": 3},
}
PATHS = {
    "/v1/embeddings": ("/v1/embeddings", {"input": "hi"}),
    "/v1/rerank": ("/v1/rerank", {"query": "q", "documents": ["a"]}),
    "/v1/completions": ("/v1/completions", {"prompt": "Once", "odd": {"kept": [1]}}),
    "/tokenize": ("/tokenize", {"content": "hi"}),
    "/detokenize": ("/detokenize", {"tokens": [1]}),
    "/embeddings": ("/v1/embeddings", {"input": "hi"}),
    "/v1/tokenize": ("/tokenize", {"content": "hi"}),
}


def whole(value: Any) -> Answer:
    return Answer([orjson.dumps(value)], headers=JSON, framing="length")


def text_frames(*texts: str) -> list[bytes]:
    chunks = [{"id": "cmpl-1", "object": "text_completion", "choices": [{"index": 0, "text": text}]} for text in texts]
    return [*map(frame, chunks), frame({"choices": [], "usage": {"prompt_tokens": 2, "completion_tokens": 4}})]


@every("path", PATHS)
async def test_bytes_pass_both_ways(path: str) -> None:
    there, fields = PATHS[path]
    body = orjson.dumps({"model": "m", **fields}, option=orjson.OPT_INDENT_2)
    said = b'{"data" : [1.50, 2],\n "x":"\\u00e4"}'
    turn = Answer([said], headers=JSON, framing="length")
    headers = {"X-Request-Id": "req-7", "X-Client-Request-Id": "mine", HOPS: "0123456789abcdef"}
    async with gateway_before([turn], backend={"api_key": "k1"}) as (server, up):
        answer = await post(server, body, path=path, headers=headers)
    (asked,) = up.posts
    assert (asked.path, asked.body) == (there, body)
    assert asked.headers["x-client-request-id"] == "mine"
    assert asked.headers[HOPS.lower()].startswith("0123456789abcdef, ")
    assert (asked.headers["authorization"], asked.headers["x-request-id"]) == ("Bearer k1", "req-7")
    assert (answer.status, answer.body, answer.headers["X-Request-Id"]) == (200, said, "req-7")


@every("split", [1, 1000])
async def test_a_stream_passes_as_it_is(split: int) -> None:
    data = b"".join([*text_frames("Once", " upon"), frame("[DONE]")])
    pieces = [data[at : at + split] for at in range(0, len(data), split)]
    async with gateway_before([Answer(pieces, headers=SSE)]) as (server, _):
        answer = await post(server, {"prompt": "x", "stream": True}, path="/v1/completions")
    assert (answer.status, answer.body) == (200, data)
    assert answer.headers["Content-Type"] == "text/event-stream"


async def test_a_stream_that_breaks_off_ends_with_an_error() -> None:
    async with gateway_before([Answer(text_frames("one")[:1], headers=SSE, cut=True)]) as (server, _):
        answer = await post(server, {"prompt": "x", "stream": True}, path="/v1/completions")
    first, error, done = answer.frames()
    assert first["choices"][0]["text"] == "one"
    assert (error["error"]["code"], done) == ("upstream_disconnected", "[DONE]")


async def test_the_model_decides_who_is_asked_and_by_which_name() -> None:
    async with Upstream([whole(VECTORS)]) as one, Upstream([whole(VECTORS)]) as two:
        config = read_config(
            {
                "backends": {"one": {"url": one.url + "/api/v1"}, "two": {"url": two.url}},
                "routes": [
                    {"model": "small", "backend": "one", "upstream_model": "bge"},
                    {"model": "*", "backend": "two"},
                ],
            }
        )
        async with serving(config) as server:
            await post(server, {"model": "small", "input": 1.50, "big": 12345678901234567890}, path="/v1/embeddings")
            await post(server, {"model": "m"}, path="/tokenize")
    assert [(asked.path, asked.json["model"]) for asked in one.posts] == [("/api/v1/embeddings", "bge")]
    assert b"12345678901234567890" in one.posts[0].body
    assert [(asked.path, asked.json["model"]) for asked in two.posts] == [("/tokenize", "m")]


@every(
    ("refusal", "status", "code"),
    [
        (Refuse(400, "no"), 400, "upstream_rejected"),
        (Refuse(404, "no such route"), 404, "not_found"),
        (Refuse(429, "no", headers={"Retry-After": "7"}), 429, "rate_limit_exceeded"),
        (Raw(reset=True), 502, "upstream_disconnected"),
        (
            Answer([b"<html>"], headers={"Content-Type": "text/html"}, framing="length"),
            502,
            "upstream_invalid_response",
        ),
        (Answer([b'{"error":{"message":"no"}}'], headers=JSON, framing="length"), 502, "upstream_error"),
        (Answer(text_frames("x"), headers=SSE), 502, "upstream_invalid_response"),
    ],
)
async def test_errors(refusal: Answer, status: int, code: str) -> None:
    async with gateway_before([refusal]) as (server, _):
        answer = await post(server, {"input": "hi"}, path="/v1/embeddings")
    assert (answer.status, answer.json()["error"]["code"]) == (status, code)


async def test_a_whole_answer_in_place_of_a_stream() -> None:
    async with gateway_before([whole({"choices": []})]) as (server, _):
        answer = await post(server, {"prompt": "x", "stream": True}, path="/v1/completions")
    assert (answer.status, answer.json()["error"]["code"]) == (502, "upstream_invalid_response")


async def test_keys_and_limits_hold() -> None:
    sections: dict[str, Any] = {
        "auth": {"keys": [{"key": "secret-key-1", "requests_per_min": 1, "routes": ["m"]}]},
        "routes": [{"model": "m", "backend": "up"}, {"model": "n", "backend": "up"}],
        "limits": {"body_bytes": 1000},
    }

    async def ask(server: Any, key: str | None, **body: Any) -> WireAnswer:
        headers = {} if key is None else {"Authorization": f"Bearer {key}"}
        return await post(server, body, path="/v1/embeddings", headers=headers)

    async with gateway_before([whole(VECTORS)], **sections) as (server, up):
        assert (await ask(server, None)).status == 401
        assert (await ask(server, "secret-key-1", model="n")).status == 403
        assert (await ask(server, "secret-key-1", model="other")).status == 404
        assert (await ask(server, "secret-key-1", input="x" * 2000)).status == 413
        first = await ask(server, "secret-key-1", input="x")
        assert (first.status, first.headers["x-ratelimit-limit-requests"]) == (200, "1")
        assert (await ask(server, "secret-key-1", input="x")).status == 429
    assert len(up.posts) == 1


@every("body", [b"no", b"[]", b"{}", b'{"model":1}'])
async def test_what_is_no_request(body: bytes) -> None:
    async with gateway_before([whole(VECTORS)]) as (server, up):
        answer = await post(server, body, path="/v1/embeddings")
    assert (answer.status, answer.json()["error"]["type"]) == (400, "invalid_request_error")
    assert not up.posts


async def test_which_paths_is_an_option() -> None:
    paths = {"pass_through": ["/v1/audio/speech", "/pooling"]}
    async with gateway_before([whole({"ok": True})], server=paths) as (server, up):
        for path in ("/v1/audio/speech", "/pooling"):
            assert (await post(server, {}, path=path)).status == 200
        missing = await post(server, {"input": "hi"}, path="/v1/embeddings")
    assert [asked.path for asked in up.posts] == ["/v1/audio/speech", "/pooling"]
    assert (missing.status, missing.json()["error"]["code"]) == (404, "not_found")


@every("path", ["/v1/chat/completions", "/responses", "/v1/models", "/v1/messages"])
def test_a_path_that_is_taken_is_a_mistake(path: str) -> None:
    with pytest.raises(ConfigError, match="the gateway serves"):
        create_app(read_config({"backends": {"m": {"kind": "mock"}}, "server": {"pass_through": [path]}}))


@every("path", ["embeddings", "/v1/{x}", "/a b", ""])
def test_a_path_that_is_none_is_a_mistake(path: str) -> None:
    with pytest.raises(ConfigError, match="expected a path"):
        read_config({"backends": {"m": {"kind": "mock"}}, "server": {"pass_through": [path]}})


async def test_nothing_passes_by_who_has_to_see_it() -> None:
    chain = [{"use": "prompt_guard", "options": {"characters": 5}}, "forwarding"]
    async with gateway_before([whole({})], chain=chain) as (server, up):
        answer = await post(server, {"prompt": "evil"}, path="/v1/completions")
    assert (answer.status, answer.json()["error"]["code"]) == (404, "not_found")
    assert "prompt_guard" in answer.json()["error"]["message"]
    assert not up.posts
