"""Responses through the real `openai` package: loops over HTTP and WebSocket, schemas, and failures. Every answer that
it may get, whole and streamed: `test_responses_wire.py`; its accumulators:
`tests/protocols/test_sdk_accumulators.py`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import openai
import pytest
from pydantic import BaseModel

from tests.cases import every
from tests.clients.conftest import gateway as gateway
from tests.clients.conftest import plain_gateway as plain_gateway
from tests.clients.task import ASK, CALLS, FINAL, SAID, STEPS, Files, script
from tests.e2e.conftest import Gateway, sdk
from tests.e2e.test_responses_wire import READ, WRITE


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


@pytest.mark.parametrize(("follow_up", "mode"), [("previous", "prompt"), ("echo", "native")])
async def test_a_tool_loop(gateway: Gateway, follow_up: str, mode: str) -> None:
    """The model sees every result, whether the client sends everything again or only what is new."""
    server = await gateway(script=script(mode), mode=mode)
    files = Files()
    asked: list[Any] = [{"role": "user", "content": ASK}]
    more: dict[str, Any] = {"store": False} if follow_up == "echo" else {}
    async with sdk(server) as client:
        for said, calls in zip(SAID, (*STEPS, ()), strict=True):
            async with client.responses.stream(model="m", input=asked, tools=[READ, WRITE], **more) as events:
                response = await events.get_final_response()
            assert (response.status, response.output_text) == ("completed", said)
            made = [item for item in response.output if item.type == "function_call"]
            assert [(call.name, json.loads(call.arguments)) for call in made] == list(calls)
            results = results_of(made, files)
            if follow_up == "previous":
                more, asked = {"previous_response_id": response.id}, results
            else:
                asked += [*(item.to_dict() for item in response.output), *results]
    assert (files.calls, files.files) == (CALLS, FINAL)


async def test_a_failure_in_the_stream_raises(gateway: Gateway) -> None:
    server = await gateway(script=[{"text": "some text", "error": {"message": "it fell over", "after": 4}}])
    async with sdk(server) as client:
        with pytest.raises(openai.APIError, match="it fell over") as caught:
            [event async for event in await client.responses.create(model="m", input="hi", stream=True)]
        assert caught.value.code == "upstream_error", "that of the nested error (C33)"
        with pytest.raises(openai.InternalServerError, match="it fell over"):
            await client.responses.create(model="m", input="hi")


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
