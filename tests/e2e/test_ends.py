"""The ends of answers (R29.3): every word that servers use, and what each client protocol is told of it, streamed and
whole; and errors inside answers that were accepted, which keep their status."""

from __future__ import annotations

import logging
from itertools import product
from typing import Any

import orjson
import pytest

from tests.cases import every, first_and_in_turn
from tests.e2e.conftest import CHAT, Gateway, function, gateway_before, post, serving
from tests.e2e.meaning import BODIES, MESSAGES, RESPONSES, asking
from tests.e2e.speaking import JSON, SSE
from tests.e2e.test_cut_calls import SERVERS, behind, end_of
from tests.e2e.test_unconstrained import ask, calls, constrained
from tests.e2e.test_unconstrained import config as llamacpp
from toolwire.model import FinishReason
from toolwire.protocols.shared.ends import ERROR, FINISH_WORDS, MEANS
from toolwire.testing import Answer, Asked, Say, Upstream, WireAnswer, frame

STOP, LENGTH, FILTERED = FinishReason.STOP, FinishReason.LENGTH, FinishReason.CONTENT_FILTER
WORDS = {
    STOP: ["stop", "end_turn", "stop_sequence", "STOP", "eos", "word", "eos_token"],
    LENGTH: [
        *("length", "max_output_tokens", "max_tokens", "model_context_window_exceeded", "MAX_TOKENS", "repetition"),
        *("limit", "model_length"),
    ],
    FILTERED: [
        *("content_filter", "refusal", "SAFETY", "RECITATION", "PROHIBITED_CONTENT", "content_filter: SAFETY"),
        *("sensitive", "guardrail_intervened", "content_filtered"),
    ],
    FinishReason.PAUSED: ["pause_turn"],
    ERROR: [
        *("MALFORMED_FUNCTION_CALL", "function_call_filter: MALFORMED_FUNCTION_CALL", "network_error", "error"),
        *("malformed_tool_use", "abort", "insufficient_system_resource"),
    ],
}
"""Of OpenAI, Anthropic, Gemini, z.ai, Bedrock, DeepSeek, Mistral, and the engines, by what they mean."""


def chat_text(word: str | None, stream: bool) -> Answer:
    if not stream:
        choice = {"index": 0, "message": {"role": "assistant", "content": "Now."}, "finish_reason": word}
        return Answer([orjson.dumps({"id": "x", "model": "m", "choices": [choice]})], headers=JSON, framing="length")
    deltas: list[tuple[dict[str, Any], str | None]] = [({"role": "assistant", "content": "Now."}, None), ({}, word)]
    chunks = [
        frame({"id": "x", "choices": [{"index": 0, "delta": delta, "finish_reason": end}]}) for delta, end in deltas
    ]
    return Answer([*chunks, frame("[DONE]")], headers=SSE)


def failed(path: str, answer: WireAnswer, stream: bool) -> bool:
    """Whether the client was told of an error."""
    if not stream or answer.status != 200:
        return answer.status >= 500
    return any(
        isinstance(one, dict) and (one.get("error") or one.get("type") in ("error", "response.failed"))
        for one in answer.frames()
    )


def test_every_meaning_is_told() -> None:
    assert {*MEANS.values()} == {*FINISH_WORDS, ERROR}
    assert all(word == word.lower() for word in MEANS)


@every("path, stream", [(path, stream) for path in BODIES for stream in (False, True)])
async def test_what_clients_are_told(path: str, stream: bool) -> None:
    """Chat servers say all of these words."""
    words = [(word, means) for means, words in WORDS.items() for word in words]
    now = iter(words)

    def answer(asked: Asked) -> Answer:
        return chat_text(next(now)[0], bool(asked.json.get("stream")))

    async with gateway_before([answer] * len(words), defaults={"mode": "native"}) as (server, _):
        for word, means in words:
            got = await post(server, asking(path, stream), path=path)
            if means == ERROR:
                assert failed(path, got, stream), (word, got.body)
                continue
            told = FINISH_WORDS[means]
            expected = {CHAT: told.chat, MESSAGES: told.messages, RESPONSES: told.responses or "completed"}[path]
            assert end_of(path, got, stream) == expected, (word, got.body)


@every("kind", SERVERS)
async def test_a_call_that_an_error_cut_is_an_error(kind: str) -> None:
    """Cut by any other end: `test_cut_calls.py`."""

    def answer(asked: Asked) -> Answer:
        return SERVERS[kind](['{"path": "'], "network_error", bool(asked.json.get("stream")), False)

    async with Upstream([answer]) as up, serving(behind(up, kind)) as server:
        for path, stream in product(BODIES, (False, True)):
            got = await post(server, asking(path, stream), path=path)
            assert failed(path, got, stream), (path, stream, got.body)


async def test_an_unknown_word_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    words = ["odd", "odd", "odder", "stop"]
    async with gateway_before([chat_text(word, True) for word in words], defaults={"mode": "native"}) as (server, _):
        with caplog.at_level(logging.WARNING, "toolwire.backends"):
            for _ in words:
                await post(server, asking(CHAT, True), path=CHAT)
    told = [one.getMessage() for one in caplog.records if "unknown finish reason" in one.getMessage()]
    assert len(told) == 2
    assert "odder" in told[1]


# --- errors in answers that were accepted ---------------------------------------------------------------------------

READ = function("read_file", path="string")
CALL = '<tool_call>{"name":"read_file","arguments":"{\\"path\\":\\"a\\"}"}</tool_call>'
ROLE = frame({"id": "x", "choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]})
GRAMMAR = {
    "vLLM": {"message": "Invalid grammar specification: Failed to convert", "type": "BadRequestError", "code": 400},
    "SGLang": {"object": "error", "message": "Failed to compile ebnf grammar", "type": "BAD_REQUEST", "code": 400},
    "by its type": {"message": "Invalid grammar specification", "type": "BadRequestError"},
    "by its code alone": {"message": "Unsupported: $ref", "code": 400},
    "a number as text": {"message": "Invalid grammar specification", "code": "400"},
}


FIRST: list[tuple[dict[str, Any], int]] = [
    ({"message": "bad schema", "code": 400, "type": "BadRequestError"}, 400),
    ({"message": "bad schema", "type": "invalid_request_error"}, 400),
    ({"message": "too many", "code": 429}, 429),
    ({"message": "EngineCore encountered an issue.", "type": "InternalServerError", "code": 500}, 502),
    ({"message": "boom"}, 502),
    ({"message": "The model `x` does not exist.", "type": "NotFoundError", "code": 404}, 404),
    ({"message": "x is gone", "code": "model_not_found"}, 404),
    ({"message": "model: x", "type": "not_found_error"}, 404),
    ({"message": "no such route", "code": 404}, 502),
]


def in_band(error: dict[str, Any], *before: bytes) -> Answer:
    return Answer([*before, frame({"error": error}), frame("[DONE]")], headers=SSE)


async def test_an_error_that_comes_first_is_a_status() -> None:
    config = {"mode": "native", "retry": {"attempts": 1}}
    async with gateway_before(defaults=config) as (server, up):
        for (error, status), path, before in product(FIRST, BODIES, ((), (ROLE,), (b"data: : keepalive\n\n",))):
            up.script = [in_band(error, *before)]
            got = await post(server, asking(path, True), path=path)
            assert got.status == status, (error, path, before, got.body)
            assert error["message"].encode() in got.body
            assert (b"model_not_found" in got.body) is (status == 404 and path != MESSAGES), got.body


@every("name, before", first_and_in_turn(GRAMMAR, [(), (ROLE,), (b"data: : keepalive\n\n", ROLE)]))
async def test_a_grammar_refused_in_a_stream_is_relaxed_after_others_were_taken(
    gateway: Gateway, name: str, before: tuple[bytes, ...]
) -> None:
    """The first answer proves that the server takes grammars (R10.10)."""
    refuse = in_band(GRAMMAR[name], *before)
    async with Upstream([Say("Well. ", CALL), refuse, Say("Well. ", CALL)]) as upstream:
        server = await gateway(llamacpp(upstream.url))
        for _ in range(2):
            assert calls(await post(server, ask(READ, stream=True)), stream=True) == ["read_file"]
    assert constrained(upstream) == [True, True, False]
