"""The real `anthropic` package against the gateway: every choice, errors, and the bytes under them.

Each way of asking is tried with `create` and with `.stream()`, which must agree. The same request goes once more
without the SDK, so that every event can be held against the published schema.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import anthropic
import pytest
from aiohttp.test_utils import TestServer
from anthropic import AsyncAnthropic

from tests.cases import every, first_and_in_turn, named
from tests.e2e.agent import block
from tests.e2e.conftest import NO_TLS, Gateway, post, serving, upstream_config
from tests.e2e.responses_answers import PUBLISHED
from tests.e2e.speaking import in_pieces
from tests.protocols.messages_wires import accumulate, frames, validator
from toolwire.testing import Asked, Refuse, Say, Upstream, WireAnswer

PATH = "/v1/messages"
USER: list[Any] = [{"role": "user", "content": "hi"}]


def tool(name: str, **properties: str) -> dict[str, Any]:
    schema = {"type": "object", "properties": {key: {"type": kind} for key, kind in properties.items()}}
    return {"name": name, "description": f"Does {name}.", "input_schema": {**schema, "required": list(properties)}}


READ = tool("read_file", path="string")
WRITE = tool("write_file", path="string", content="string")
LIST = tool("list_files")
TOOLS: list[Any] = [READ, WRITE, LIST]
A = block("read_file", {"path": "a.txt"})
B = block("write_file", {"path": "b.txt", "content": '</tool_call> "quoted" ü'})


@asynccontextmanager
async def sdk(server: TestServer, **settings: Any) -> AsyncIterator[AsyncAnthropic]:
    """The real client, without retries, so that a failure shows."""
    plain = anthropic.DefaultAsyncHttpxClient(verify=NO_TLS)
    settings = {"api_key": "none", "max_retries": 0, "http_client": plain, **settings}
    async with AsyncAnthropic(base_url=str(server.make_url("/")), **settings) as client:
        yield client


@dataclass(frozen=True)
class Got:
    """What a client has at the end."""

    text: str
    calls: tuple[tuple[str, str], ...]
    reason: str | None

    @classmethod
    def of(cls, message: Any) -> Got:
        text, calls = "", []
        for part in message.content:
            if part.type == "text":
                text += part.text
            elif part.type == "tool_use":
                assert part.id.startswith("toolu_")
                calls.append((part.name, json.dumps(part.input, sort_keys=True)))
        assert message.id.startswith("msg_")
        return cls(text, tuple(calls), message.stop_reason)


async def created(client: AsyncAnthropic, **request: Any) -> Got:
    return Got.of(await client.messages.create(model="m", max_tokens=64, **request))


async def followed(client: AsyncAnthropic, **request: Any) -> Got:
    async with client.messages.stream(model="m", max_tokens=64, **request) as events:
        texts = [event.text async for event in events if event.type == "text"]
        got = Got.of(await events.get_final_message())
    assert "".join(texts) == got.text
    return got


WAYS: dict[str, Callable[..., Any]] = {"create": created, "stream": followed}


@dataclass(frozen=True, kw_only=True)
class Case:
    """What the model writes to a request, and what the client must get."""

    text: str
    got: Got
    request: dict[str, Any]
    taught: tuple[str, ...] = ("read_file", "write_file", "list_files")


CALL_A = ("read_file", json.dumps({"path": "a.txt"}))
CALL_B = ("write_file", json.dumps({"content": '</tool_call> "quoted" ü', "path": "b.txt"}))
CASES = {
    "a call": Case(text=f"Reading.\n{A}", got=Got("Reading.", (CALL_A,), "tool_use"), request={}),
    "text": Case(text="No need.", got=Got("No need.", (), "end_turn"), request={"tool_choice": {"type": "auto"}}),
    "none": Case(text=f"x {A}", got=Got(f"x {A}", (), "end_turn"), request={"tool_choice": {"type": "none"}}, taught=()),
    "any": Case(text=A, got=Got("", (CALL_A,), "tool_use"), request={"tool_choice": {"type": "any"}}),
    "tool": Case(text=A, got=Got("", (CALL_A,), "tool_use"), request={"tool_choice": {"type": "tool", "name": "read_file"}}, taught=("read_file",)),
    "parallel": Case(text=f"Both.\n{A}\n{B}\n{A}", got=Got("Both.", (CALL_A, CALL_B, CALL_A), "tool_use"), request={}),
    "not parallel": Case(text=f"One.\n{A}\n{B}", got=Got("One.", (CALL_A,), "tool_use"), request={"tool_choice": {"type": "auto", "disable_parallel_tool_use": True}}),
    "text between": Case(text=f"One.{A} Two.", got=Got("One. Two.", (CALL_A,), "tool_use"), request={}),
    "no arguments": Case(text='<tool_call>{"name":"list_files"}</tool_call>', got=Got("", (("list_files", "{}"),), "tool_use"), request={}),
}  # fmt: skip


def without_ids(message: dict[str, Any]) -> dict[str, Any]:
    content = [{key: item for key, item in part.items() if key != "id"} for part in message["content"]]
    return {**message, "id": "", "content": content}


async def over_the_wire(server: TestServer, upstream: Upstream, case: Case) -> tuple[WireAnswer, WireAnswer]:
    """The answer without the SDK, whole and streamed."""
    upstream.script = [Say(*in_pieces(case.text, 3), usage=(9, 4))]
    request = {"max_tokens": 8, "system": "Be brief.", "messages": USER, "tools": TOOLS, **case.request}
    whole = await post(server, request, path=PATH)
    return whole, await post(server, {**request, "stream": True}, path=f"{PATH}?beta=true")


async def test_every_choice_in_every_way() -> None:
    """The SDK gets the call, whole and streamed are the same, and the prompt teaches what may be called."""
    ways = first_and_in_turn(CASES, WAYS)
    counts = {"input_tokens": 9, "output_tokens": 4, "cache_read_input_tokens": 0, "cache_creation_input_tokens": 0}
    async with Upstream() as upstream, serving(upstream_config(upstream.url)) as server, sdk(server) as client:
        for name, case in CASES.items():
            whole, answer = await over_the_wire(server, upstream, case)
            with named({"name": name}):
                check_prompt(upstream.requests[-1], case)
                assert without_ids(accumulate(answer.body)) == without_ids(whole.json())
                if PUBLISHED:
                    validator("Message").validate(whole.json())
                    for event in frames(answer.body):
                        validator("RawMessageStreamEvent").validate(event)
                assert whole.json()["usage"] == counts
                assert (answer.headers["Content-Type"], answer.headers["Cache-Control"]) == (
                    "text/event-stream; charset=utf-8", "no-cache",
                )  # fmt: skip
                for got in (whole, answer):
                    assert got.headers["request-id"] == got.headers["X-Request-Id"]
                for way in (way for row, way in ways if row == name):
                    assert await WAYS[way](client, messages=USER, tools=TOOLS, **case.request) == case.got, way


def check_prompt(asked: Asked, case: Case) -> None:
    """Asserts which messages and tools the model gets."""
    assert asked.path == "/v1/chat/completions"
    assert not {"tools", "tool_choice", "system"} & asked.json.keys()
    assert asked.json["max_tokens"] == 8
    system, *rest = asked.json["messages"]
    assert system["content"].startswith("Be brief.")
    assert tuple(one["name"] for one in TOOLS if f'"{one["name"]}"' in system["content"]) == case.taught
    assert rest[-1] == USER[0]


# --- errors ---------------------------------------------------------------------------------------------------------


@every("stream", [False, True])
async def test_errors_have_the_classes_that_the_sdk_knows(stream: bool) -> None:
    cases: list[tuple[Any, dict[str, Any], type[Exception], str]] = [
        (Say("x"), {"model": "other"}, anthropic.NotFoundError, "not_found_error"),
        (Say("x"), {"extra_body": {"temperature": 1.5}}, anthropic.BadRequestError, "invalid_request_error"),
        (Refuse(429, "slow down"), {}, anthropic.RateLimitError, "rate_limit_error"),
        (Refuse(500, "no memory"), {}, anthropic.InternalServerError, "api_error"),
        (Refuse(400, "odd"), {}, anthropic.BadRequestError, "invalid_request_error"),
    ]
    async with Upstream() as upstream:
        config = upstream_config(upstream.url, routes=[{"model": "m", "backend": "up"}])
        async with serving(config) as server, sdk(server) as client:
            for turn, fields, kind, word in cases:
                upstream.script = [turn]
                request = {"model": "m", "max_tokens": 8, "messages": USER, "stream": stream, **fields}
                with pytest.raises(kind) as caught:
                    await client.messages.create(**request)
                error: Any = caught.value
                assert error.body["type"] == "error"
                assert error.type == word
                assert error.request_id == error.body["request_id"]


# --- beside messages ------------------------------------------------------------------------------------------------


@every("eager", [None, False, True, "beta"])
async def test_input_comes_while_it_is_written_unless_that_is_declined(
    gateway: Gateway, eager: bool | str | None
) -> None:
    """The call begins, and its input goes out, before it is whole (R6.13)."""
    given = {"path": "b.txt", "content": "a line\n" * 80}
    server = await gateway(script=[{"text": block("write_file", given), "chunk": 5}])
    beta = eager == "beta"
    tools: list[Any] = [READ, WRITE if beta else {**WRITE, "eager_input_streaming": eager}]
    headers = {"anthropic-beta": "files-api,fine-grained-tool-streaming-2025-05-14" if beta else "files-api"}
    body = {"max_tokens": 64, "messages": USER, "tools": tools, "stream": True}
    answer = await post(server, body, path=PATH, headers=headers)
    (call,) = accumulate(answer.body)["content"]
    assert (call["name"], call["input"]) == ("write_file", given)
    deltas = [event for event in frames(answer.body) if event["type"] == "content_block_delta"]
    assert (len(deltas) > 5) is (eager is not False)
