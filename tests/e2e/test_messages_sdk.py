"""The real `anthropic` package against the gateway: whole tool loops, every choice, errors, and the bytes under them.

Each way of asking is tried with `create`, with `create(stream=True)` and with `.stream()`; the three must agree. The
same request goes once more without the SDK, so that every event can be held against the published schema.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import anthropic
import pytest
from aiohttp.test_utils import TestServer
from anthropic import AsyncAnthropic

from tests.cases import every, first_and_in_turn, named
from tests.e2e.agent import block
from tests.e2e.conftest import NO_TLS, Gateway, gateway_before, post, read_config, serving, upstream_config
from tests.e2e.responses_answers import PUBLISHED
from tests.e2e.speaking import in_pieces
from tests.protocols.messages_wires import accumulate, frames, validator
from tests.waiting import GUARD_S
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


async def streamed(client: AsyncAnthropic, **request: Any) -> Got:
    """Added up by hand."""
    text, reason = "", None
    calls: list[list[str]] = []
    async for event in await client.messages.create(model="m", max_tokens=64, stream=True, **request):
        match event.type:
            case "content_block_start" if event.content_block.type == "tool_use":
                calls.append([event.content_block.name, ""])
            case "content_block_delta" if event.delta.type == "input_json_delta":
                calls[-1][1] += event.delta.partial_json
            case "content_block_delta" if event.delta.type == "text_delta":
                text += event.delta.text
            case "message_delta":
                reason = event.delta.stop_reason
    return Got(text, tuple((name, json.dumps(json.loads(given), sort_keys=True)) for name, given in calls), reason)


async def followed(client: AsyncAnthropic, **request: Any) -> Got:
    async with client.messages.stream(model="m", max_tokens=64, **request) as events:
        texts = [event.text async for event in events if event.type == "text"]
        got = Got.of(await events.get_final_message())
    assert "".join(texts) == got.text
    return got


WAYS: dict[str, Callable[..., Any]] = {"create": created, "create streamed": streamed, "stream": followed}


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


async def test_the_sdks_tool_runner() -> None:
    """It runs tools by itself, and keeps the conversation at the server if that can: here it has to learn that it
    cannot."""

    @anthropic.beta_async_tool
    async def read_file(path: str) -> str:
        """Read a file.

        Args:
            path: Where it is.
        """
        return f"{path} says MAGIC"

    turns = [Say(A), Say(A), Say(block("read_file", {"path": "b.txt"})), Say("It says MAGIC.")]
    async with gateway_before(turns) as (server, upstream), sdk(server) as client:
        runner = client.beta.messages.tool_runner(
            model="m", max_tokens=64, messages=[{"role": "user", "content": "Read a.txt."}], tools=[read_file]
        )
        last = await runner.until_done()
    assert last.content[-1].text == "It says MAGIC."
    for asked in upstream.requests:
        assert "Read a.txt." in json.dumps(asked.json["messages"])
    transcript = json.dumps(upstream.requests[-1].json["messages"])
    assert "a.txt says MAGIC" in transcript
    assert "b.txt says MAGIC" in transcript


async def test_thoughts_are_blocks_that_come_back() -> None:
    """Their signature is for nobody but the client."""
    async with gateway_before([Say(*in_pieces(f"<think>Should I?</think>Yes.\n{A}", 4))]) as (server, upstream):
        asked: dict[str, Any] = {"model": "m", "max_tokens": 64, "tools": TOOLS}
        async with sdk(server) as client:
            for way in WAYS.values():
                assert await way(client, messages=USER, tools=TOOLS) == Got("Yes.", (CALL_A,), "tool_use")
            first = await client.messages.create(messages=USER, **asked)
            thought = first.content[0]
            assert (thought.type, thought.thinking) == ("thinking", "Should I?")
            assert thought.signature
            results = [{"type": "tool_result", "tool_use_id": first.content[-1].id, "content": "ok"}]
            messages = [*USER, {"role": "assistant", "content": first.content}, {"role": "user", "content": results}]
            await client.messages.create(messages=messages, **asked)
            assert thought.signature not in upstream.requests[-1].body.decode()
            off = await client.messages.create(messages=USER, thinking={"type": "disabled"}, **asked)
    assert [part.type for part in off.content] == ["text", "tool_use"]


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


async def test_a_stream_that_breaks_off_is_an_error_for_the_sdk() -> None:
    async with (
        Upstream([Say("Hel", cut=True)]) as upstream,
        serving(upstream_config(upstream.url)) as server,
        sdk(server) as client,
    ):
        with pytest.raises(anthropic.APIStatusError, match="closed the connection"):
            await streamed(client, messages=USER)


async def ask(
    server: TestServer, method: str, path: str, body: bytes = b"", **headers: str
) -> tuple[int, Any, dict[str, str]]:
    sent = {"Content-Type": "application/json", **headers}
    async with (
        aiohttp.ClientSession(headers=sent) as session,
        session.request(method, server.make_url(path), data=body or None) as response,
    ):
        data = await response.read()
        return response.status, json.loads(data) if data else None, dict(response.headers)


async def test_errors_by_path() -> None:
    config = read_config({"backends": {"mock": {"kind": "mock"}}, "limits": {"body_bytes": 4096}})
    async with serving(config) as server:
        for method, path, body, status, kind in (
            ("POST", PATH, b"{", 400, "invalid_request_error"),
            ("POST", PATH, b"[]", 400, "invalid_request_error"),
            ("GET", PATH, b"", 405, "invalid_request_error"),
            ("POST", f"{PATH}/nothing", b"{}", 404, "not_found_error"),
            ("POST", PATH, b'{"model":"m","messages":"' + b"x" * 9000 + b'"}', 413, "request_too_large"),
        ):
            got, told, headers = await ask(server, method, path, body)
            assert (got, told["error"]["type"]) == (status, kind), (method, path)
            assert told.keys() == {"type", "error", "request_id"}
            assert headers["request-id"] == told["request_id"]
        status, _, headers = await ask(server, "HEAD", "/")  # whether there is anybody
        assert (status, headers["Content-Type"]) == (200, "application/json")


# --- beside messages ------------------------------------------------------------------------------------------------


async def test_models_in_its_words() -> None:
    config = read_config({"backends": {"mock": {"kind": "mock"}}, "routes": [{"model": "m", "backend": "mock"}]})
    async with serving(config) as server, sdk(server) as client:
        assert [model.id async for model in client.models.list()] == ["m"]
        assert (await client.models.retrieve("m")).display_name == "m"
        with pytest.raises(anthropic.NotFoundError):
            await client.models.retrieve("other")


async def test_tokens_are_counted_as_they_would_be_sent() -> None:
    """With the taught tools, of which the server's own count of a real request is made as well."""
    request: dict[str, Any] = {"messages": USER, "system": "Be brief.", "tools": TOOLS}
    async with Upstream([Say("x")]) as upstream:
        config = upstream_config(upstream.url, defaults={"usage": {"source": "estimate", "count": "estimate"}})
        async with serving(config) as server, sdk(server) as client:
            counted = await client.messages.count_tokens(model="m", **request)
            assert upstream.requests == []
            sent = await client.messages.create(model="m", max_tokens=1, **request)
            bare = await client.messages.count_tokens(model="m", messages=USER)
            whole = await client.messages.with_raw_response.count_tokens(model="m", messages=USER)
    assert counted.input_tokens == sent.usage.input_tokens
    assert 0 < bare.input_tokens < counted.input_tokens
    assert whole.headers["x-usage-source"] == "estimate"
    assert whole.headers["x-usage-tokenizer"] in ("o200k_base", "bytes")
    assert whole.headers["request-id"]


async def test_counting_uses_up_no_tokens() -> None:
    limits = {"rate_limits": {"per_key": {"tokens_per_min": 100}}}
    config = read_config({"backends": {"mock": {"kind": "mock", "script": ["hi"]}}, **limits})
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": "x" * 200}]}).encode()
    async with serving(config) as server:
        answers = [await ask(server, "POST", "/v1/messages/count_tokens", body) for _ in range(5)]
    assert [status for status, _, _ in answers] == [200] * 5


RESULT = {"type": "tool_result", "tool_use_id": "toolu_9", "content": "x"}
ANSWERED = {**RESULT, "tool_use_id": "toolu_1"}
USE = {"type": "tool_use", "id": "toolu_1", "name": "read_file", "input": {}}
SAID = {"role": "assistant", "content": [{"type": "text", "text": "a"}, USE]}
MISTAKES: dict[str, tuple[dict[str, Any], str]] = {
    "schema": ({"tools": [{**READ, "input_schema": {"type": "object", "properties": {"a": {"type": 3}}}}]}, "tools[0].input_schema"),
    "name": ({"tools": [READ, {**READ, "name": "no good"}]}, "tools[1].name"),
    "result": ({"messages": [*USER, SAID, {"role": "user", "content": [ANSWERED, RESULT]}]}, "messages[2].content[1].tool_use_id"),
    "result behind results of the assistant": ({"messages": [*USER, {"role": "assistant", "content": [USE, ANSWERED]}, {"role": "user", "content": [RESULT]}]}, "messages[2].content[0].tool_use_id"),
    "call behind results of the assistant": ({"messages": [*USER, {"role": "assistant", "content": [USE, ANSWERED]}, *USER, {"role": "assistant", "content": [USE]}]}, "messages[3].content[0].id"),
    "call behind notes and changes": ({"system": [{"type": "text", "text": "x-anthropic-billing-header: a"}], "messages": [*USER, {"role": "system", "content": [{"type": "tool_removal", "tool": {"type": "tool_reference", "name": "other"}}]}, {"role": "assistant", "content": [USE, USE]}]}, "messages[2].content[1].id"),
    "image": ({"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "image", "source": {"type": "url", "url": "https://x"}}]}], "tools": [READ]}, "messages[0].content[1]"),
}  # fmt: skip


@every("case", MISTAKES)
async def test_mistakes_are_told_where_they_stand(shared_gateway: Gateway, case: str) -> None:
    """In the client's own words, whatever stands beside `messages` (R13.3)."""
    fields, where = MISTAKES[case]
    backends = {"mock": {"kind": "mock", "images": "error"}}
    config = {"backends": backends, "defaults": {"requests": {"validation": "strict"}}}
    server = await shared_gateway(read_config(config))
    body = {"max_tokens": 8, "messages": USER, "system": "Be brief.", **fields}
    answer = await post(server, body, path=PATH)
    assert answer.status == 400
    assert where in answer.json()["error"]["message"]


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


@every("mode, stream", [("prompt", False), ("native", True), ("prompt", True)])
async def test_which_stop_sequence_matched(mode: str, stream: bool) -> None:
    """The server would not say, so it is not told, and what it goes on to say is nobody's business (R24.5)."""
    never = asyncio.Event()
    said = ["I look.\nObs", "ervation: it says ### no", "\n"]
    turn = Say(*said, never, "late") if stream else Say(*said)
    body = {
        "max_tokens": 8,
        "messages": USER,
        "tools": TOOLS,
        "stop_sequences": ["###", "\nObservation:"],
        "stream": stream,
    }
    async with gateway_before([turn], defaults={"mode": mode}) as (server, upstream):
        async with asyncio.timeout(GUARD_S):
            answer = await post(server, body, path=PATH)
        upstream.script[:] = [Say("x")]
        await post(server, {"messages": USER, "stop": ["###"]})
    message = accumulate(answer.body) if stream else answer.json()
    assert message["content"] == [{"type": "text", "text": "I look."}]
    assert (message["stop_reason"], message["stop_sequence"]) == ("stop_sequence", "\nObservation:")
    assert message["usage"]["output_tokens"] > 0
    assert "stop" not in upstream.requests[0].json
    assert upstream.requests[1].json["stop"] in ("###", ["###"])  # a client that is not told


async def test_a_stop_sequence_in_a_call_is_no_end(gateway: Gateway) -> None:
    server = await gateway(script=[{"text": f"So.\n{A}", "chunk": 3}])
    async with sdk(server) as client:
        for way in WAYS.values():
            got = await way(client, messages=USER, tools=TOOLS, stop_sequences=["a.txt", "!"])
            assert got == Got("So.", (CALL_A,), "tool_use")


TOOLS_MODULE = """
TOOLS = [{"type": "function", "function": {"name": "now", "description": "Tells the time.", "parameters": {"type": "object", "properties": {}}}}]


def handle_tool_call(tool_name, tool_input):
    return "It is noon."
"""


async def test_tools_of_the_gateway_beside_the_clients(tmp_path: Path) -> None:
    """The client sees its own call only; what the gateway learned before it is there when it comes back (R15.9)."""
    (tmp_path / "clock.py").write_text(TOOLS_MODULE)
    turns = [Say(f"Let me see. {block('now', {})}"), Say(f"It is noon, so: {A}"), Say("Done.")]
    async with (
        Upstream(turns) as upstream,
        serving(
            upstream_config(
                upstream.url,
                tools={"folder": str(tmp_path), "timeout_s": GUARD_S, "wait_s": GUARD_S, "load_timeout_s": GUARD_S},
            )
        ) as server,
    ):
        body: dict[str, Any] = {"max_tokens": 9, "messages": USER, "tools": [READ], "stream": True}
        message = accumulate((await post(server, body, path=PATH)).body)
        assert [part.get("name") for part in message["content"]] == [None, "read_file"]
        results = [{"type": "tool_result", "tool_use_id": message["content"][1]["id"], "content": "x"}]
        said = [{"role": "assistant", "content": message["content"]}, {"role": "user", "content": results}]
        last = await post(server, {**body, "messages": [*USER, *said]}, path=PATH)
    assert last.status == 200
    said = [message for message in upstream.requests[2].json["messages"] if message["role"] != "system"]
    transcript = json.dumps(said)
    places = [transcript.index(json.dumps(f"<tool_response>\n{text}\n<")[1:-1]) for text in ("It is noon.", "x")]
    assert places == sorted(places)
