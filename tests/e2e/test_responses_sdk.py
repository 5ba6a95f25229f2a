"""Responses through the real `openai` package: tool loops, every choice, custom and grouped tools, and how answers end.

Each way of asking is tried with `create`, with `create(stream=True)` and with `.stream()`; the three must agree. Every
answer is held against the published schemas on its way.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI
from openai.types.responses import Response
from pydantic import BaseModel

from tests.cases import every, first_and_in_turn, named
from tests.clients.conftest import gateway as gateway
from tests.clients.conftest import plain_gateway as plain_gateway
from tests.clients.task import ASK, CALLS, FINAL, MODES, SAID, STEPS, Files, script
from tests.e2e.agent import block
from tests.e2e.conftest import Gateway, mock_config, sdk
from tests.e2e.responses_answers import PREFIXES, TERMINAL, outline
from tests.e2e.test_responses_wire import CASES, READ, TOOLS, WRITE, A, scripted

PATCH = {
    "type": "custom",
    "name": "apply_patch",
    "description": "Applies a patch.",
    "format": {"type": "grammar", "syntax": "lark", "definition": 'start: "x"'},
}


# --- three ways ------------------------------------------------------------------------------------------------------


async def created(client: AsyncOpenAI, **request: Any) -> Response:
    return await client.responses.create(model="m", **request)


async def streamed(client: AsyncOpenAI, **request: Any) -> Response:
    """The last resource, after adding up the deltas by hand, as the many clients do that keep no snapshot."""
    events = [event async for event in await client.responses.create(model="m", stream=True, **request)]
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert [event.type for event in events[:2]] == ["response.created", "response.in_progress"]
    assert [event.type for event in events if event.type in TERMINAL] == [events[-1].type]
    added: list[Any] = []
    done: list[Any] = []
    texts: dict[str, str] = {}
    for event in events[2:-1]:
        match event.type:
            case "response.output_item.added":
                assert event.output_index == len(added) == len(done)  # one at a time, no gaps
                added.append(event.item)
                texts[event.item.id] = ""
            case "response.output_item.done":
                done.append(event.item)
            case (
                "response.output_text.delta"
                | "response.function_call_arguments.delta"
                | "response.custom_tool_call_input.delta"
                | "response.reasoning_text.delta"
            ):
                assert event.item_id == added[-1].id
                texts[event.item_id] += event.delta
    response: Response = events[-1].response
    assert events[0].response.id == events[1].response.id == response.id
    assert [item.id for item in added] == [item.id for item in done]
    assert [item.to_dict() for item in done] == [item.to_dict() for item in response.output]
    assert texts == {item.id: said[-1] for item, said in zip(response.output, outline(response.to_dict()), strict=True)}
    return response


async def followed(client: AsyncOpenAI, **request: Any) -> Response:
    async with client.responses.stream(model="m", **request) as events:
        async for _ in events:
            pass
        return await events.get_final_response()


WAYS: dict[str, Callable[..., Any]] = {"create": created, "create streamed": streamed, "stream": followed}


def check_ids(response: Response) -> None:
    """Ids are there, of the right form, and nowhere twice."""
    assert response.id.startswith("resp_")
    ids = [item.id for item in response.output] + [i.call_id for i in response.output if hasattr(i, "call_id")]
    assert len(set(ids)) == len(ids)
    for item in response.output:
        assert item.id.startswith(PREFIXES[item.type])
        assert getattr(item, "call_id", "call_").startswith("call_")
        assert item.status == (None if item.type == "reasoning" else "completed")


def results_of(calls: Sequence[Any], files: Files) -> list[Any]:
    """Returns the results of the tools for these calls."""
    return [
        {
            "type": "function_call_output",
            "call_id": call.call_id,
            "output": files.run(call.name, json.loads(call.arguments)),
        }
        for call in calls
    ]


# --- loops -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("way", "follow_up", "mode"),
    [
        (way, follow_up, MODES[number % len(MODES)])
        for number, (way, follow_up) in enumerate(first_and_in_turn(WAYS, ("previous", "echo", "echo without store")))
    ],
)
async def test_a_tool_loop(gateway: Gateway, way: str, follow_up: str, mode: str) -> None:
    """The model sees every result, whether the client sends everything again or only what is new."""
    server = await gateway(script=script(mode), mode=mode)
    files = Files()
    asked: list[Any] = [{"role": "user", "content": ASK}]
    more: dict[str, Any] = {"store": False} if follow_up == "echo without store" else {}
    async with sdk(server) as client:
        for said, calls in zip(SAID, (*STEPS, ()), strict=True):
            response = await WAYS[way](client, input=asked, tools=[READ, WRITE], **more)
            assert response.status == "completed"
            assert response.output_text == said
            made = [item for item in response.output if item.type == "function_call"]
            assert [(call.name, json.loads(call.arguments)) for call in made] == list(calls)
            results = results_of(made, files)
            if follow_up == "previous":
                more, asked = {"previous_response_id": response.id}, results
            else:
                asked += [*(item.to_dict() for item in response.output), *results]
    assert (files.calls, files.files) == (CALLS, FINAL)


# --- choices ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", WAYS)
async def test_every_choice_in_every_way(gateway: Gateway, way: str) -> None:
    complete = {name: case for name, case in CASES.items() if case.reason is None}
    server = await gateway(mock_config([scripted(*item) for item in complete.items()], choice_miss="pass"))
    async with sdk(server) as client:
        for name in [name for name, each in first_and_in_turn(complete, WAYS) if each == way]:
            case = complete[name]
            with named({"name": name}):
                response = await WAYS[way](client, input=f"<{name}>", **case.request)
                assert outline(response.to_dict()) == case.got
                check_ids(response)
                assert (response.status, response.error, response.incomplete_details) == ("completed", None, None)
                assert response.usage is not None
                counted = response.usage.input_tokens + response.usage.output_tokens
                assert response.usage.total_tokens == counted > 0


@every("kind", ["custom", "namespace"])
async def test_what_is_not_a_plain_function_comes_back(gateway: Gateway, kind: str) -> None:
    """R8.9, R8.16: the call is echoed with its result, and the model goes on from it."""
    tools = {"custom": [PATCH], "namespace": [{"type": "namespace", "name": "a", "description": "A.", "tools": [READ]}]}
    call = {"custom": block("apply_patch", {"input": "+x\n"}), "namespace": block("a__read_file", {"path": "1"})}
    server = await gateway(script=[call[kind], "No result came.", {"when": "the result", "text": "Seen."}])
    async with sdk(server) as client:
        first = await client.responses.create(model="m", input="go", tools=tools[kind])
        (made,) = first.output
        output = {"type": made.type + "_output", "call_id": made.call_id, "output": "the result"}
        echoed: list[Any] = [{"role": "user", "content": "go"}, made.to_dict(), output]
        last = await client.responses.create(model="m", input=echoed, tools=tools[kind])
        same = await client.responses.create(
            model="m", input=[output], tools=tools[kind], previous_response_id=first.id
        )
    assert (last.output_text, same.output_text) == ("Seen.", "Seen.")


# --- the store, as the SDK sees it -----------------------------------------------------------------------------------


async def test_what_was_answered_can_be_had_again(gateway: Gateway) -> None:
    server = await gateway(script=[f"Reading.\n{A}"])
    async with sdk(server) as client:
        made = await client.responses.create(model="m", input="What is in a.txt?", tools=TOOLS, metadata={"k": "v"})
        again = await client.responses.retrieve(made.id)
        assert again.to_dict() == made.to_dict()
        (item,) = [item async for item in client.responses.input_items.list(made.id)]
        assert (item.type, item.role, item.content[0].text) == ("message", "user", "What is in a.txt?")
        await client.responses.delete(made.id)
        with pytest.raises(openai.NotFoundError):
            await client.responses.retrieve(made.id)


# --- how answers end -------------------------------------------------------------------------------------------------


async def test_a_failure_in_the_stream_raises(gateway: Gateway) -> None:
    server = await gateway(script=[{"text": "some text", "error": {"message": "it fell over", "after": 4}}])
    async with sdk(server) as client:
        for way in (streamed, followed):
            with pytest.raises(openai.APIError, match="it fell over") as caught:
                await way(client, input="hi")
            assert caught.value.code == "upstream_error", "that of the nested error (C33)"
        with pytest.raises(openai.InternalServerError, match="it fell over"):
            await created(client, input="hi")


# --- what the SDK does by itself -------------------------------------------------------------------------------------


class Point(BaseModel):
    """A place."""

    x: int
    y: int


async def test_structured_output(gateway: Gateway) -> None:
    """`text.format` with a strict schema, as `parse` and `.stream(text_format=...)` send it."""
    server = await gateway(script=['{"x": 1, "y": -2}'])
    async with sdk(server) as client:
        parsed = await client.responses.parse(model="m", input="where?", text_format=Point)
        assert parsed.output_parsed == Point(x=1, y=-2)
        async with client.responses.stream(model="m", input="where?", text_format=Point) as events:
            async for _ in events:
                pass
            assert (await events.get_final_response()).output_parsed == Point(x=1, y=-2)


async def test_the_sdks_own_pydantic_tools(gateway: Gateway) -> None:
    """`pydantic_function_tool` makes strict schemas; `.stream()` parses the arguments with the model."""
    server = await gateway(script=[block("Point", {"x": 1, "y": -2})])
    async with (
        sdk(server) as client,
        client.responses.stream(model="m", input="hi", tools=[openai.pydantic_function_tool(Point)]) as events,
    ):
        (call,) = (await events.get_final_response()).output
    assert call.parsed_arguments == Point(x=1, y=-2)


# --- `client.responses.connect()` (R28.2) -----------------------------------------------------------------------------


async def response_of(connection: Any) -> Any:
    """The response that ends the next events."""
    async for event in connection:
        assert event.type != "error", event
        if event.type in ("response.completed", "response.incomplete", "response.failed"):
            return event.response
    raise AssertionError("the connection was closed")


@every("mode, store, lane", [("prompt", True, "main"), ("native", False, None)])
async def test_a_tool_loop_over_a_websocket(plain_gateway: Gateway, mode: str, store: bool, lane: str | None) -> None:
    server = await plain_gateway(script=script(mode), mode=mode)
    files = Files()
    lanes = {} if lane is None else {"stream_id": lane}
    async with sdk(server) as client, client.responses.connect() as connection:
        request: dict[str, Any] = {"model": "m", "tools": [READ, WRITE], "store": store, **lanes}
        await connection.response.create(input=ASK, generate=False, **request)
        response = await response_of(connection)
        assert response.output == []
        results: list[Any] = []
        while True:
            await connection.response.create(input=results, previous_response_id=response.id, **request)
            response = await response_of(connection)
            calls = [item for item in response.output if item.type == "function_call"]
            if not calls:
                break
            results = results_of(calls, files)
    assert (response.output_text, files.calls, files.files) == (SAID[-1], CALLS, FINAL)


async def test_an_error_is_an_event_and_the_connection_goes_on(gateway: Gateway) -> None:
    server = await gateway(script=["Hello."])
    async with sdk(server) as client, client.responses.connect() as connection:
        await connection.response.create(model="m", input="hi", previous_response_id="resp_unknown")
        event = await connection.recv()
        assert event.type == "error"
        assert event.error.code == "previous_response_not_found"
        await connection.response.steer(input="Hurry.", previous_response_id="resp_unknown")
        assert (await connection.recv()).type == "error"
        await connection.response.create(model="m", input="hi")
        assert (await response_of(connection)).output_text == "Hello."
