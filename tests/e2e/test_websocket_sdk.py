"""Responses over WebSocket through the real `openai` package (R28.2): `client.responses.connect()`."""

from __future__ import annotations

import json
from typing import Any

from tests.cases import every
from tests.clients.task import ASK, CALLS, FINAL, SAID, Files, script
from tests.e2e.conftest import Gateway, sdk
from tests.e2e.test_responses_sdk import READ, WRITE


async def response_of(connection: Any) -> Any:
    """The response that ends the next events."""
    async for event in connection:
        assert event.type != "error", event
        if event.type in ("response.completed", "response.incomplete", "response.failed"):
            return event.response
    raise AssertionError("the connection was closed")


@every("mode, store, lane", [("prompt", True, "main"), ("native", False, None)])
async def test_a_tool_loop(gateway: Gateway, mode: str, store: bool, lane: str | None) -> None:
    server = await gateway(script=script(mode), mode=mode)
    files = Files()
    named = {} if lane is None else {"stream_id": lane}
    async with sdk(server) as client, client.responses.connect() as connection:
        request: dict[str, Any] = {"model": "m", "tools": [READ, WRITE], "store": store, **named}
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
            results = [
                {
                    "type": "function_call_output",
                    "call_id": call.call_id,
                    "output": files.run(call.name, json.loads(call.arguments)),
                }
                for call in calls
            ]
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
