"""The real `openai` package against the gateway: whole tool loops, every choice, and the bytes under them.

Each way of asking is tried with `create`, with `create(stream=True)` and with `.stream()`; the three must agree. The
same request goes once more without the SDK, so that every chunk can be held against the published schema.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI
from pydantic import BaseModel

from tests.cases import first_and_in_turn
from tests.e2e.agent import block
from tests.e2e.conftest import USER, Gateway, function, post, read_config, sdk, serving, upstream_config
from tests.protocols.published import validator
from toolwire.testing import Say, Upstream

READ = function("read_file", path="string")
WRITE = function("write_file", path="string", content="string")
LIST = function("list_files")
TOOLS = [READ, WRITE, LIST]
A = block("read_file", {"path": "a.txt"})
B = block("write_file", {"path": "b.txt", "content": '</tool_call> "quoted" ü'})


@dataclass(frozen=True)
class Got:
    """What a client has at the end."""

    content: str | None
    calls: tuple[tuple[str, str], ...]
    reason: str | None

    @classmethod
    def of(cls, choice: Any) -> Got:
        calls = tuple((call.function.name, call.function.arguments) for call in choice.message.tool_calls or ())
        for call in choice.message.tool_calls or ():
            assert call.type == "function"
            assert call.id.startswith("call_")
        return cls(choice.message.content or None, calls, choice.finish_reason)


async def created(client: AsyncOpenAI, **request: Any) -> Got:
    return Got.of((await client.chat.completions.create(model="m", **request)).choices[0])


async def streamed(client: AsyncOpenAI, **request: Any) -> Got:
    """Added up by hand, as the many clients do that know only deltas."""
    content, reason = "", None
    calls: dict[int, dict[str, str]] = {}
    async for chunk in await client.chat.completions.create(model="m", stream=True, **request):
        for choice in chunk.choices:
            content += choice.delta.content or ""
            reason = choice.finish_reason or reason
            for delta in choice.delta.tool_calls or ():
                call = calls.setdefault(delta.index, {"id": "", "name": "", "arguments": ""})
                call["id"] += delta.id or ""
                call["name"] += delta.function.name or ""
                call["arguments"] += delta.function.arguments or ""
    assert all(call["id"].startswith("call_") and call["id"].count("call_") == 1 for call in calls.values())
    assert list(calls) == list(range(len(calls)))
    return Got(content or None, tuple((call["name"], call["arguments"]) for call in calls.values()), reason)


async def followed(client: AsyncOpenAI, **request: Any) -> Got:
    async with client.chat.completions.stream(model="m", **request) as events:
        done = [event async for event in events if event.type == "tool_calls.function.arguments.done"]
        got = Got.of((await events.get_final_completion()).choices[0])
    assert tuple((event.name, event.arguments) for event in done) == got.calls
    return got


WAYS: dict[str, Callable[..., Any]] = {"create": created, "create streamed": streamed, "stream": followed}


@dataclass(frozen=True, kw_only=True)
class Case:
    """What the model writes to a request, and what the client must get."""

    text: str
    got: Got
    request: dict[str, Any]
    taught: tuple[str, ...] = ("read_file", "write_file", "list_files")
    """Names of the tools that the prompt must describe."""


def named(name: str) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name}}


def allowed(mode: str, *names: str) -> dict[str, Any]:
    return {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": [named(name) for name in names]}}


CALL_A = ("read_file", '{"path": "a.txt"}')
CALL_B = ("write_file", json.dumps({"path": "b.txt", "content": '</tool_call> "quoted" ü'}, ensure_ascii=False))
CASES = {
    "auto, a call": Case(text=f"Reading.\n{A}", got=Got("Reading.", (CALL_A,), "tool_calls"), request={}),
    "auto, text": Case(text="No need.", got=Got("No need.", (), "stop"), request={"tool_choice": "auto"}),
    "none": Case(text=f"x {A}", got=Got(f"x {A}", (), "stop"), request={"tool_choice": "none"}, taught=()),
    "required": Case(text=A, got=Got(None, (CALL_A,), "tool_calls"), request={"tool_choice": "required"}),
    "named": Case(
        text=A,
        got=Got(None, (CALL_A,), "tool_calls"),
        request={"tool_choice": named("read_file")},
        taught=("read_file",),
    ),
    "named, another": Case(
        text=B, got=Got(B, (), "stop"), request={"tool_choice": named("read_file")}, taught=("read_file",)
    ),
    "allowed_tools": Case(
        text=f"{A} {B}",
        got=Got(B, (CALL_A,), "tool_calls"),
        request={"tool_choice": allowed("auto", "read_file", "list_files")},
        taught=("read_file", "list_files"),
    ),
    "parallel": Case(
        text=f"Both.\n{A}\n{B}\n{A}", got=Got("Both.", (CALL_A, CALL_B, CALL_A), "tool_calls"), request={}
    ),
    "not parallel": Case(
        text=f"One.\n{A}\n{B}", got=Got("One.", (CALL_A,), "tool_calls"), request={"parallel_tool_calls": False}
    ),
    "no arguments": Case(
        text='<tool_call>{"name":"list_files"}</tool_call>',
        got=Got(None, (("list_files", "{}"),), "tool_calls"),
        request={},
    ),
    "an object as arguments": Case(
        text='<tool_call>{"name":"read_file","arguments":{"path": "a.txt"}}</tool_call>',
        got=Got(None, (("read_file", '{"path": "a.txt"}'),), "tool_calls"),  # as the model wrote it
        request={},
    ),
}


def scripted(**more: Any) -> list[dict[str, Any]]:
    """The script of a mock that answers a user who names a case."""
    return [{"when": f"<{name}>", "text": case.text, "chunk": 3, **more} for name, case in CASES.items()]


def request_of(name: str) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": f"<{name}>"}], "tools": TOOLS, **CASES[name].request}


@pytest.mark.parametrize("way", WAYS)
async def test_every_choice_in_every_way(gateway: Gateway, way: str) -> None:
    server = await gateway(script=scripted(), choice_miss="pass")
    async with sdk(server) as client:
        for name in [name for name, each in first_and_in_turn(CASES, WAYS) if each == way]:
            assert await WAYS[way](client, **request_of(name)) == CASES[name].got, name


async def test_every_chunk_fits_the_published_schema(gateway: Gateway) -> None:
    server = await gateway(script=scripted(usage={"input": 9, "output": 4}), choice_miss="pass")
    for name, case in CASES.items():
        whole = await post(server, request_of(name))
        validator("CreateChatCompletionResponse").validate(whole.json())
        counts = {"stream": True, "stream_options": {"include_usage": True}}
        answer = await post(server, {**request_of(name), **counts})
        *chunks, done = answer.frames()
        assert done == "[DONE]"
        for chunk in chunks:
            validator("CreateChatCompletionStreamResponse").validate(chunk)
        assert len({(chunk["id"], chunk["created"], chunk["model"]) for chunk in chunks}) == 1, name
        *earlier, last = chunks
        assert all(chunk["usage"] is None for chunk in earlier), name
        assert (last["choices"], last["usage"]["total_tokens"]) == ([], 13), name
        assert earlier[-1]["choices"][0]["finish_reason"] == case.got.reason, name
        assert whole.json()["usage"] == last["usage"], name
        assert answer.headers["Content-Type"] == "text/event-stream; charset=utf-8"
        assert answer.headers["Cache-Control"] == "no-cache"
        assert answer.headers["X-Accel-Buffering"] == "no"


async def test_the_prompt_teaches_what_may_be_called() -> None:
    """What the backend is asked: tools as text, and nothing of the tool parameters (R5.2, R5.3, R5.11)."""
    pass_on = {"bad_answers": {"choice_miss": "pass"}}
    async with (
        Upstream([Say("Hello.")]) as upstream,
        serving(upstream_config(upstream.url, defaults=pass_on)) as server,
    ):
        for name, case in CASES.items():
            await post(server, request_of(name))
            sent = upstream.requests[-1].json
            assert not {"tools", "tool_choice", "parallel_tool_calls"} & set(sent), name
            prompt = "".join(message["content"] for message in sent["messages"] if message["role"] == "system")
            taught = tuple(tool for tool in ("read_file", "write_file", "list_files") if f'"{tool}"' in prompt)
            assert taught == case.taught, name
            assert sent["messages"][-1] == request_of(name)["messages"][0]


async def test_a_loop_brings_every_result_to_the_model(gateway: Gateway) -> None:
    """Two calls in one turn, their results echoed back, in order (R5.8)."""
    async with Upstream([Say(f"{A}{B}"), Say("Both done.")]) as upstream:
        server = await gateway(upstream_config(upstream.url))
        messages: list[Any] = [*USER]
        async with sdk(server) as client:
            first = await client.chat.completions.create(model="m", messages=messages, tools=TOOLS)
            calls = first.choices[0].message.tool_calls or []
            messages.append(first.choices[0].message)
            for number, call in enumerate(calls):
                messages.append({"role": "tool", "tool_call_id": call.id, "content": f"result-{number}"})
            last = await client.chat.completions.create(model="m", messages=messages, tools=TOOLS)
    assert last.choices[0].message.content == "Both done."
    transcript = json.dumps(upstream.requests[1].json["messages"])
    places = [transcript.index(text) for text in ("a.txt", "b.txt", "result-0", "result-1")]
    assert places == sorted(places)
    assert [transcript.count(text) for text in ("result-0", "result-1")] == [1, 1]
    assert upstream.requests[1].json["messages"][-1]["role"] == "user"


async def test_the_sdks_own_pydantic_tools(gateway: Gateway) -> None:
    """`pydantic_function_tool` makes strict schemas; `.stream()` parses the arguments with the model."""

    class ReadFile(BaseModel):
        path: str

    server = await gateway(script=[block("ReadFile", {"path": "a.txt"})])
    async with (
        sdk(server) as client,
        client.chat.completions.stream(
            model="m", messages=USER, tools=[openai.pydantic_function_tool(ReadFile)]
        ) as events,
    ):
        (call,) = (await events.get_final_completion()).choices[0].message.tool_calls or ()
    assert call.function.parsed_arguments == ReadFile(path="a.txt")


async def test_reasoning_is_not_content(gateway: Gateway) -> None:
    text = f"<think>Should I call? {A}</think>Yes.\n{A}"
    server = await gateway(script=[{"text": text, "chunk": 4}])
    async with sdk(server) as client:
        for way in WAYS.values():
            assert await way(client, messages=USER, tools=TOOLS) == Got("Yes.", (CALL_A,), "tool_calls")
    answer = await post(server, {"messages": USER, "tools": TOOLS})
    assert answer.json()["choices"][0]["message"]["reasoning_content"] == f"Should I call? {A}"


async def test_the_list_of_models(gateway: Gateway) -> None:
    config = read_config(
        {
            "backends": {"mock": {"kind": "mock"}},
            "routes": [
                {"model": "small", "aliases": ["tiny"], "backend": "mock"},
                {"model": "gpt-*", "backend": "mock"},
            ],
        }
    )
    async with sdk(await gateway(config)) as client:
        models = [model async for model in client.models.list()]
        assert [(model.id, model.object) for model in models] == [("small", "model"), ("tiny", "model")]
        assert (await client.models.retrieve("tiny")).id == "tiny"
        with pytest.raises(openai.NotFoundError) as caught:
            await client.models.retrieve("huge")
    assert caught.value.code == "model_not_found"
    validator("ListModelsResponse").validate({"object": "list", "data": [model.to_dict() for model in models]})
