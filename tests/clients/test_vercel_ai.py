"""Vercel `ai`, which checks every body and every event against schemas of its own."""

from __future__ import annotations

import json
from contextlib import AsyncExitStack
from itertools import product
from typing import Any

from tests.clients.conftest import Node, Task
from tests.clients.task import CALLS, FINAL, SAID, STEPS, script
from tests.e2e.conftest import Gateway, serving, upstream_config
from tests.e2e.reasoning_servers import SERVERS, Anthropic, Gemini, OpenAI, OpenRouter, before
from tests.toolservers.scripted import configuration, turn
from tests.toolservers.serving import tool_server
from toolwire.testing import Say, Upstream

UNSAID = (OpenRouter, Anthropic, OpenAI, Gemini)
"""Servers whose reasoning `@ai-sdk/openai-compatible` does not bring back: it knows no `reasoning_details`, and brings
back a signature of a call only under the name `google`."""


WAYS: list[tuple[str, str, str, dict[str, Any]]] = [  # provider, way, mode, options
    ("chat", "generate", "prompt", {}),
    ("chat", "stream", "native", {}),
    ("compatible", "stream", "prompt", {}),
    ("responses", "generate", "native", {"store": True}),
    ("responses", "stream", "prompt", {"store": True}),
    ("responses", "stream", "native", {"store": False}),
]
"""Responses is the default of `@ai-sdk/openai`. It sends ids of what the gateway keeps, instead of the thing."""


async def test_the_task(gateway: Gateway, node: Node) -> None:
    """What the client only names by its id, the model sees again."""
    tasks: list[Task] = [
        (await gateway(script=script(mode), mode=mode), provider, way, options) for provider, way, mode, options in WAYS
    ]
    async with Upstream([Say(turn["text"]) for turn in script("prompt")[:3]]) as upstream:
        tasks.append((await gateway(upstream_config(upstream.url)), "responses", "stream", {}))
        for (_, provider, _, options), got in zip(tasks, await node("vercel.mjs", tasks), strict=True):
            agrees(got)
            referred = provider == "responses" and options.get("store", True)
            assert ("item_reference" in got["sent"][-1]) is referred, options
    for number, asked in enumerate(upstream.requests):
        transcript = json.dumps(asked.json["messages"])
        assert [transcript.count(said) for said in SAID[:2]] == [int(number > 0), int(number > 1)]


def agrees(got: dict[str, Any]) -> None:
    """The whole task was done, step by step, and every step had its reason and its usage."""
    assert (got["calls"], got["files"]) == (CALLS, FINAL)
    assert (got["said"], got["text"]) == (list(SAID), SAID[-1])
    assert got["reasons"] == ["tool-calls", "tool-calls", "stop"]
    assert got["usage"]


async def test_an_mcp_server_that_the_gateway_asks(gateway: Gateway, node: Node) -> None:
    """R26.2. It sends ids of what the gateway keeps, also of the request that it approves."""
    called = [("add", {"a": 1, "b": 2}), ("write", {"text": "x"})]
    with tool_server() as at_work:
        script = [turn("prompt", "", *((f"calc__{name}", given) for name, given in called)), {"text": "Done."}]
        backends = {"m": {"kind": "mock", "script": script}}
        config = configuration(tools={"mcp_from_clients": [at_work.url]}, backends=backends)
        tasks = [(await gateway(config), way, at_work.url) for way in ("generate", "stream")]
        for got in await node("vercel_mcp.mjs", tasks):
            assert got == {"text": "Done.", "asked": ["mcp.write"], "results": ["3", "written: x"]}
        assert at_work.calls == called * 2


ENCRYPTED = {"store": False, "forceReasoning": True, "include": ["reasoning.encrypted_content"]}
KEEPINGS: list[tuple[str, dict[str, Any]]] = [
    ("responses", {"store": True}),
    ("responses", ENCRYPTED),
    ("responses", {"store": False, "forceReasoning": True, "reasoningSummary": "auto"}),
    ("compatible", {}),
]


async def test_reasoning_comes_back(node: Node) -> None:
    """R28.3: its servers refuse a history without what they gave. Each server has half of the ways of keeping; all of
    them are in `test_reasoning_returns.py`."""
    models, tasks = [], []
    async with AsyncExitStack() as stack:
        for (at, kind), (number, (provider, options)) in product(enumerate(SERVERS), enumerate(KEEPINGS)):
            if (provider == "compatible" and kind in UNSAID) or (at + number // 2) % 2:
                continue
            model = kind()
            model.calls = [step for steps in STEPS for step in steps]
            up = await stack.enter_async_context(Upstream([model]))
            server = await stack.enter_async_context(serving(before(model, up)))
            models.append(model)
            tasks.append((server, provider, ("generate", "stream")[(at + number) % 2], options))
        reports = await node("vercel.mjs", tasks)
    for model, (_, *way), got in zip(models, tasks, reports, strict=True):
        assert (got["calls"], got["files"], model.faults) == (CALLS, FINAL, []), (type(model), way)
