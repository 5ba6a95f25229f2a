"""Servers that refuse the constraint on calls (R10.10, R23.2): the request is answered without it, and the server is
spared it for a while."""

from __future__ import annotations

import asyncio
import logging
from itertools import cycle
from typing import Any

import orjson
import pytest

from tests.cases import every
from tests.e2e.conftest import USER, Gateway, function, get, post, read_config
from tests.waiting import GUARD_S
from toolwire.config import GatewayConfig
from toolwire.testing import Answer, Asked, Refuse, Say, Script, Upstream, WireAnswer

READ = function("read_file", path="string")
WRITE = function("write_file", path="string", content="string")
CALL = '<tool_call>{"name":"read_file","arguments":"{\\"path\\":\\"a\\"}"}</tool_call>'


def config(*urls: str, retry: dict[str, Any] | None = None, **options: Any) -> GatewayConfig:
    """A route to llama.cpp servers, the first one and its fallbacks."""
    names = [f"server{number}" for number in range(len(urls))]
    backends = {name: {"url": url, "preset": "llamacpp"} for name, url in zip(names, urls, strict=True)}
    route = {"model": "m", "backend": names[0], "fallback": names[1:]}
    return read_config(
        {"backends": backends, "routes": [route], "defaults": {"retry": retry or {"attempts": 1}, **options}}
    )


def ask(*tools: Any, choice: Any = "auto", stream: bool = False, **more: Any) -> dict[str, Any]:
    return {"messages": USER, "tools": [*tools], "tool_choice": choice, "stream": stream, **more}


def refuses(answer: Answer, then: Script) -> Script:
    """Does not take a grammar."""

    def turn(asked: Asked) -> Answer:
        if "grammar" in asked.json:
            return answer
        return then(asked) if callable(then) else then

    return turn


def constrained(upstream: Upstream) -> list[bool]:
    return ["grammar" in asked.json for asked in upstream.requests]


def calls(answer: WireAnswer, *, stream: bool) -> list[str]:
    assert answer.status == 200, answer.body
    if not stream:
        return [call["function"]["name"] for call in answer.json()["choices"][0]["message"].get("tool_calls", ())]
    *chunks, done = answer.frames()
    assert done == "[DONE]"
    assert not any("error" in chunk for chunk in chunks)
    parts = [part for chunk in chunks for part in chunk["choices"][0]["delta"].get("tool_calls", ())]
    return [part["function"]["name"] for part in parts if "name" in part["function"]]


async def metric(server: Any, name: str) -> float:
    lines = (await get(server, "/metrics")).body.decode().splitlines()
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(name + "{"))


PARSE = "Failed to initialize samplers: failed to parse grammar"
REFUSALS = {
    "llama.cpp": Refuse(400, PARSE),
    "too large": Refuse(413, "Payload too large"),
    "an unknown field": Refuse(422, "Extra inputs are not permitted: grammar"),
    "not built": Refuse(501, "grammars are not supported"),
    "a fault that says so": Refuse(500, "grammar: std::bad_alloc"),
}


@every("name, way", zip(REFUSALS, cycle([("auto", False), ("required", True)])))
async def test_the_request_does_not_die_of_it(
    gateway: Gateway, caplog: pytest.LogCaptureFixture, name: str, way: tuple[str, bool]
) -> None:
    choice, stream = way
    caplog.clear()
    async with asyncio.timeout(GUARD_S), Upstream([refuses(REFUSALS[name], Say("Well. ", CALL))]) as upstream:
        server = await gateway(config(upstream.url))
        with caplog.at_level(logging.WARNING, "toolwire.constrain"):
            for tools in ([READ], [READ], [READ, WRITE]):  # a server that never took one is spared all
                answer = await post(server, ask(*tools, choice=choice, stream=stream))
                assert calls(answer, stream=stream) == ["read_file"]
        assert await metric(server, "toolwire_unconstrained_total") == 3
    # Asked again once; then it is known.
    assert constrained(upstream) == [True, False, False, False]
    (line,) = [record.getMessage() for record in caplog.records if record.name == "toolwire.constrain"]
    assert "server0" in line
    without = [{k: v for k, v in asked.json.items() if k != "grammar"} for asked in upstream.requests]
    assert without[0] == without[1] == without[2] != without[3]


@every("first", [b"error: ", b"data: "])
async def test_a_refusal_inside_an_accepted_stream(gateway: Gateway, first: bytes) -> None:
    """As llama.cpp gave it until 2025: status 200, then a field that no client reads."""
    frame = first + b'{"error":{"code":400,"message":"' + PARSE.encode() + b'","type":"invalid_request_error"}}\n\n'
    refusal = Answer([frame], headers={"Content-Type": "text/event-stream"})
    async with asyncio.timeout(GUARD_S), Upstream([refuses(refusal, Say("Well. ", CALL))]) as upstream:
        server = await gateway(config(upstream.url))
        for _ in range(2):
            assert calls(await post(server, ask(READ, stream=True)), stream=True) == ["read_file"]
    assert constrained(upstream) == [True, False, False]


ENGINES_OWN = {
    "vllm": ("structured_outputs", "BadRequestError", "Invalid grammar specification: Expected ')' at line 1"),
    "sglang": ("response_format", "BAD_REQUEST", "Failed to compile structural_tag grammar: unknown format"),
}
"""By preset: the field of the constraint under `auto`, and how the engine says that it cannot be (as recorded of vLLM
0.32 and SGLang 0.5.23)."""


@every("preset, stream", [("vllm", False), ("vllm", True), ("sglang", True)])
async def test_structural_tags_are_sent_by_default_and_relaxed(gateway: Gateway, preset: str, stream: bool) -> None:
    """R32.2. The refusal comes with status 200 as the only frame of a stream; a server that took others before may
    refuse the next one."""
    field, kind, words = ENGINES_OWN[preset]
    error = orjson.dumps({"error": {"message": words, "type": kind, "param": None, "code": 400}})
    refusal = (
        Answer([b"data: " + error + b"\n\ndata: [DONE]\n\n"], headers={"Content-Type": "text/event-stream"})
        if stream
        else Answer([error], status=400, headers={"Content-Type": "application/json"})
    )

    def turn(asked: Asked) -> Answer:
        if field in asked.json and "write_file" in asked.body.decode():
            return refusal
        return Say("Well. ", CALL)(asked)

    async with asyncio.timeout(GUARD_S), Upstream([turn]) as upstream:
        config = read_config(
            {
                "backends": {"a": {"url": upstream.url, "preset": preset}},
                "routes": [{"model": "m", "backend": "a", "options": {"mode": "prompt", "retry": {"attempts": 1}}}],
            }
        )
        server = await gateway(config)
        for tools in ((READ,), (READ, WRITE), (READ, WRITE), (READ,)):
            assert calls(await post(server, ask(*tools, stream=stream)), stream=stream) == ["read_file"]
    sent = [asked.json.get(field) for asked in upstream.requests]
    assert [value is not None for value in sent] == [True, True, False, False, True]
    assert "structural_tag" in orjson.dumps(sent[0]).decode()


@every(
    ("turn", "status", "code", "asked"),
    [
        (Refuse(400, "messages: too clever"), 400, "upstream_rejected", [True, False]),
        (Refuse(400, "the request exceeds the available context size"), 400, "context_length_exceeded", [True]),
        (Refuse(401, "grammar of your key"), 502, "upstream_auth", [True]),
        (Refuse(500, "out of memory"), 502, "upstream_error", [True]),
        (Refuse(429, "grammars are busy"), 429, "rate_limit_exceeded", [True]),
    ],
)
async def test_what_is_wrong_in_any_case_is_said_and_not_learned(
    gateway: Gateway, turn: Answer, status: int, code: str, asked: list[bool]
) -> None:
    async with asyncio.timeout(GUARD_S), Upstream([turn]) as upstream:
        server = await gateway(config(upstream.url))
        for _ in range(2):
            answer = await post(server, ask(READ))
            assert (answer.status, answer.json()["error"]["code"]) == (status, code)
    assert constrained(upstream) == asked * 2


@every("stream", [False, True])
async def test_a_constraint_that_must_be_is_an_error(gateway: Gateway, stream: bool) -> None:
    async with asyncio.timeout(GUARD_S), Upstream([refuses(Refuse(400, PARSE), Say("Hi"))]) as upstream:
        server = await gateway(config(upstream.url, constrain="required"))
        answer = await post(server, ask(READ, choice="required", stream=stream))
    error = answer.json()["error"]
    assert (answer.status, error["code"], error["param"]) == (400, "unsupported_parameter", "tool_choice")
    assert PARSE in error["message"]
    assert constrained(upstream) == [True]


async def test_the_try_without_is_no_try_among_the_others(gateway: Gateway) -> None:
    """A server may still fail and be asked again, and another one gets the constraint."""
    turns: list[Script] = [Refuse(400, PARSE), Refuse(503), Say("never")]
    async with asyncio.timeout(GUARD_S), Upstream(turns) as one, Upstream([Say("fine")]) as two:
        server = await gateway(config(one.url, two.url, retry={"attempts": 1}))
        answer = await post(server, ask(READ))
    assert answer.json()["choices"][0]["message"]["content"] == "fine"
    assert (constrained(one), constrained(two)) == ([True, False], [True])
