"""`openai-agents` for Python, over both APIs. Tracing is off: it would call home."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.clients.recorder import RECORDER
from tests.clients.task import ASK, CALLS, FINAL, SAID, Files, script
from tests.e2e.conftest import Gateway, sdk


@pytest.mark.parametrize(("mode", "streamed"), [("prompt", True), ("native", False)])
@pytest.mark.parametrize("api", ["chat", "responses", "websocket"])
async def test_a_run(agents: Any, gateway: Gateway, api: str, streamed: bool, mode: str) -> None:
    server = await gateway(script=script(mode), mode=mode)
    files = Files()

    @agents.function_tool
    def read_file(path: str) -> str:
        """Read a text file."""
        return files.run("read_file", {"path": path})

    @agents.function_tool
    def write_file(path: str, content: str) -> str:
        """Write a text file."""
        return files.run("write_file", {"path": path, "content": content})

    async with sdk(server) as client:
        kinds: dict[str, Any] = {
            "chat": agents.OpenAIChatCompletionsModel,
            "responses": agents.OpenAIResponsesModel,
            "websocket": agents.OpenAIResponsesWSModel,
        }
        model = kinds[api](model="m", openai_client=client)
        agent = agents.Agent(name="clerk", instructions="Use the tools.", tools=[read_file, write_file], model=model)
        settings = agents.RunConfig(tracing_disabled=True)
        if streamed:
            run = agents.Runner.run_streamed(agent, ASK, run_config=settings)
            seen = [event async for event in run.stream_events()]
        else:
            run = await agents.Runner.run(agent, ASK, run_config=settings)
            seen = []
        await model.close()  # of a WebSocket
    recorder = server.app[RECORDER]
    assert [len(recorder.events), bool(recorder.requests)] == ([1, False] if api == "websocket" else [0, True])
    assert (files.calls, files.files) == (CALLS, FINAL)
    assert run.final_output == SAID[-1]
    assert [item.type for item in run.new_items].count("tool_call_output_item") == len(CALLS)
    assert all(json.loads(item.raw_item.arguments) for item in run.new_items if item.type == "tool_call_item")
    deltas = [
        event.data.delta
        for event in seen
        if getattr(event, "type", "") == "raw_response_event" and event.data.type == "response.output_text.delta"
    ]
    assert "".join(deltas) == ("".join(SAID) if streamed else "")
