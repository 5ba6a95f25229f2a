"""A gateway on a real socket, and clients in front of it: the real SDK, and one that sees the bytes."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import aiohttp
import openai
import orjson
import pytest
import pytest_asyncio
from aiohttp.test_utils import TestServer

from tests.options import in_sections
from toolwire.app import create_app
from toolwire.config import GatewayConfig
from toolwire.configuration.settings import load
from toolwire.extras.demo.engine import Engine, find_weights
from toolwire.registry import Registries
from toolwire.testing import TAKING, Script, Upstream, WireAnswer

CHAT = "/v1/chat/completions"
USER: list[dict[str, Any]] = [{"role": "user", "content": "hi"}]

NO_TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
"""For clients that speak to the loopback: to read the system's certificates takes longer than most tests."""

Gateway = Callable[..., Awaitable[TestServer]]


@pytest.fixture
async def gateway() -> AsyncIterator[Gateway]:
    """Start gateways: `await gateway(script=[...])` for the built-in mock, or `await gateway(config)`."""
    async with AsyncExitStack() as stack:

        async def start(
            config: GatewayConfig | None = None,
            *,
            script: Any = None,
            plugins: Registries | None = None,
            **options: Any,
        ) -> TestServer:
            if config is None:
                config = mock_config(script, **options)
            return await stack.enter_async_context(serving(config, plugins))

        yield start


@pytest.fixture
def nobody() -> Iterator[str]:
    """The address of a server that is not there: its port is taken, so that no server of the test gets it."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{taken.getsockname()[1]}"


@pytest.fixture(params=["memory", "sqlite", "redis"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, Any]:
    """Every kind of store, empty: its section of a configuration."""
    match request.param:
        case "sqlite":
            return {"kind": "sqlite", "path": str(tmp_path / f"{uuid4().hex}.sqlite3")}
        case "redis":
            pytest.importorskip("redis")
            return {"kind": "redis", "url": request.getfixturevalue("redis_server").url}
        case kind:
            return {"kind": kind}


@pytest.fixture
def shared_gateway(gateway: Gateway) -> Gateway:
    """The same, but there is one gateway for each configuration: for tables of cases."""
    started: dict[str, TestServer] = {}

    async def start(config: GatewayConfig | None = None, *, script: Any = None, **options: Any) -> TestServer:
        wanted = mock_config(script, **options) if config is None else config
        if repr(wanted) not in started:
            started[repr(wanted)] = await gateway(wanted)
        return started[repr(wanted)]

    return start


@pytest.fixture
async def start() -> AsyncIterator[Any]:
    """See `tests.e2e.edge.starting`."""
    from tests.e2e.edge import starting  # which imports from here

    async with starting() as begin:
        yield begin


@asynccontextmanager
async def gateway_before(
    script: Sequence[Script] = (), *, backend: Mapping[str, Any] | None = None, **sections: Any
) -> AsyncIterator[tuple[TestServer, Upstream]]:
    """A running gateway, and the server behind it, which plays a script."""
    async with Upstream(script) as up, serving(upstream_config(up.url, backend=backend, **sections)) as server:
        yield server, up


@asynccontextmanager
async def serving(config: GatewayConfig, plugins: Registries | None = None) -> AsyncIterator[TestServer]:
    """A running gateway; everything of it is closed at the end."""
    server = TestServer(create_app(config, plugins=plugins))
    await server.start_server()
    try:
        yield server
    finally:
        await close(server)


async def close(server: TestServer) -> None:
    """Close a gateway. What was accepted just now, as a probe of a gateway in front of it, is told to it first: else a
    connection is left that nobody closes."""
    assert server.runner is not None
    for site in list(server.runner.sites):
        await site.stop()
    for _ in range(TAKING):
        await asyncio.sleep(0)
    await server.close()


def wait_for_servers(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """So long a server may take to say what it is, and a look at it twice as long."""
    for limit in ("servers.server_queries.PROBE_S", "servers.http.PROBE_S"):
        monkeypatch.setattr(f"toolwire.upstream.{limit}", seconds)
    for limit in ("pool.health.LIMIT_S", "pool.server.PATIENCE_S"):
        monkeypatch.setattr(f"toolwire.upstream.{limit}", 2 * seconds)


def mock_config(script: Any, **options: Any) -> GatewayConfig:
    """One mock backend with a script; `options` are route options as in the file."""
    return read_config({"backends": {"mock": {"kind": "mock", "script": script}}, "defaults": options})


def upstream_config(url: str, *, backend: Mapping[str, Any] | None = None, **sections: Any) -> GatewayConfig:
    """One HTTP backend at `url`; `sections` are those of the file."""
    return read_config({"backends": {"up": {"url": url, **(backend or {})}}, **sections})


def read_config(config: Mapping[str, Any]) -> GatewayConfig:
    """A configuration as from the file. Unless it says otherwise responses are kept in memory, and no request is
    repeated: what a fault is to the client shows in one try."""
    defaults = in_sections({"retry": {"attempts": 1}, **config.get("defaults", {})})
    return load(None, env={}, overrides={"store": {"kind": "memory"}, **config, "defaults": defaults})


@asynccontextmanager
async def sdk(server: TestServer, **settings: Any) -> AsyncIterator[openai.AsyncOpenAI]:
    """The real OpenAI client, without retries, so that a failure shows."""
    plain = openai.DefaultAsyncHttpxClient(verify=NO_TLS)
    settings = {"api_key": "none", "max_retries": 0, "http_client": plain, **settings}
    async with openai.AsyncOpenAI(base_url=str(server.make_url("/v1")), **settings) as client:
        yield client


async def post(
    server: TestServer, body: Mapping[str, Any] | bytes, *, path: str = CHAT, headers: Mapping[str, str] | None = None
) -> WireAnswer:
    """One request, and what came back over the wire. A mapping without `model` gets one."""
    raw = body if isinstance(body, bytes) else orjson.dumps({"model": "m", **body})
    sent = {"Content-Type": "application/json", **(headers or {})}
    async with (
        aiohttp.ClientSession() as session,
        session.post(server.make_url(path), data=raw, headers=sent) as response,
    ):
        return WireAnswer(status=response.status, headers=response.headers.copy(), body=await response.read())


def lines_in(caplog: pytest.LogCaptureFixture) -> list[tuple[int, str | None]]:
    """Status and code of each access line; its logger has to be at INFO."""
    fields = [record.__dict__["fields"] for record in caplog.records if record.name == "toolwire.access"]
    return [(line["status"], line.get("code")) for line in fields]


async def get(server: TestServer, path: str, *, headers: Mapping[str, str] | None = None) -> WireAnswer:
    """The same with `GET`, as of a page of metrics."""
    async with aiohttp.ClientSession() as session, session.get(server.make_url(path), headers=headers) as response:
        return WireAnswer(status=response.status, headers=response.headers.copy(), body=await response.read())


def function(name: str, *, strict: bool | None = None, **properties: Any) -> dict[str, Any]:
    """A function tool all of whose properties are required; a property is a JSON type's name or a schema."""
    parameters = {
        "type": "object",
        "properties": {key: {"type": kind} if isinstance(kind, str) else kind for key, kind in properties.items()},
        "required": list(properties),
        "additionalProperties": False,
    }
    inner = {"name": name, "description": f"Does {name}.", "parameters": parameters}
    return {"type": "function", "function": inner if strict is None else {**inner, "strict": strict}}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def engine() -> AsyncIterator[Engine]:
    """The embedded model behind the real server of llama.cpp."""
    async with Engine(find_weights()) as engine:
        yield engine
