"""SC-001, SC-002, SC-008: a coding agent's session of 30 steps, and long loops, through the real SDK over real
sockets."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from openai import AsyncOpenAI

from tests.e2e.agent import FINAL, STEPS, TOOLS, Workspace, block
from tests.e2e.conftest import Gateway, sdk


async def _turn(client: AsyncOpenAI, messages: list[Any], *, stream: bool) -> Any:
    """The SDK would look at every field of every message before it sends them, which takes it longer than all the
    rest."""
    said: Any = {"messages": [], "extra_body": {"messages": messages}}
    if stream:
        async with client.chat.completions.stream(model="m", tools=TOOLS, **said) as events:
            async for _ in events:
                pass
            completion = await events.get_final_completion()
    else:
        completion = await client.chat.completions.create(model="m", tools=TOOLS, **said)
    return completion.choices[0]


async def test_a_session_of_thirty_steps_ends_with_the_right_files(gateway: Gateway, tmp_path: Path) -> None:
    script = [f"Step {n}.\n{block(name, arguments)}" for n, (name, arguments) in enumerate(STEPS)]
    server = await gateway(script=[*({"text": text, "chunk": 7} for text in script), "All done."])
    workspace = Workspace(tmp_path)
    messages: list[Any] = [{"role": "system", "content": "You code."}, {"role": "user", "content": "Build it."}]
    async with sdk(server) as client:
        for n, (name, arguments) in enumerate(STEPS):
            choice = await _turn(client, messages, stream=n % 2 == 0)
            assert choice.finish_reason == "tool_calls"
            assert choice.message.content == f"Step {n}."
            (call,) = choice.message.tool_calls
            assert (call.function.name, json.loads(call.function.arguments)) == (name, arguments)
            messages.append(choice.message.to_dict())
            result = workspace.run(call.function.name, json.loads(call.function.arguments))
            messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
        choice = await _turn(client, messages, stream=True)
    assert (choice.finish_reason, choice.message.content) == ("stop", "All done.")
    assert workspace.files() == FINAL
