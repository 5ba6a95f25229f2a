"""Answers simulated requests before a process serves a configuration, to warm it up.

Modules that are imported on use are imported then, compiled objects and caches are created, and the interpreter
specialises the code of a request (PEP 659). Without this the first request costs ten to a hundred times what the
hundredth does.

The requests go to a separate application with the limits and options of the real one and simulated connections, which
is discarded afterwards. So they touch no plug-in, store, metric, log or model server.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from contextvars import ContextVar
from dataclasses import replace
from itertools import cycle
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import orjson

from ..config import BackendConfig, GatewayConfig, RouteConfig, RouteOptions, StoreConfig
from ..configuration.checks import effective_routes
from ..events import BlockKind, Close, Delta, Event, Finish, Open, Start
from ..folding import fold
from ..formats.base import ToolFormat
from ..model import ModelRequest, ToolUse, Usage
from ..observability.telemetry import ACCESS
from ..pipeline.sending.delivery import CLIENTS
from ..protocols.base import ClientSide, ServerSide
from ..protocols.streams import WriteOptions
from ..registry import Registries, registries
from .hosting import AppFactory
from .simulated import SimulatedAnswer, SimulatedGateway

LOG: Final = logging.getLogger("toolwire")
TIMES: Final = 4
"""Number of repetitions of each kind of request; one for further formats and model servers."""
MOST_S: Final = 5.0
"""Time limit. The rehearsal usually takes a quarter of a second; a slow machine skips the rest."""

_CALL: Final = ToolUse("call_1", "look", '{"at":"it"}')
_HEAD: Final = b"HTTP/1.1 200 OK\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n"
_REHEARSING: Final[ContextVar[bool]] = ContextVar("rehearsing", default=False)


async def rehearse(create: AppFactory, config: GatewayConfig) -> None:
    """Answers each kind of request that `config` allows. A failure is only logged at debug level, because the first
    real request will show it."""
    rehearsing = _REHEARSING.set(True)
    ACCESS.addFilter(_is_real_request)
    try:
        "localhost".encode("idna")  # imports the codec for host names, which no simulated connection needs
        with TemporaryDirectory(prefix="toolwire-") as folder:
            plugins = registries()
            own = _rehearsal_config(config, plugins, Path(folder))
            gateway = SimulatedGateway(create, own, _answers(own, plugins))
            async with asyncio.timeout(MOST_S), gateway:
                ask = gateway.client()
                for route in own.routes:
                    for client in gateway.app[CLIENTS].sides:
                        await _ask_each(ask, client, route.model, TIMES if route is own.routes[0] else 1)
    except Exception as error:
        LOG.debug("the rehearsal failed", exc_info=error)
    finally:
        ACCESS.removeFilter(_is_real_request)
        _REHEARSING.reset(rehearsing)


def _is_real_request(record: logging.LogRecord) -> bool:
    """A log filter that drops records of the rehearsal. Real requests may run at the same time."""
    return not _REHEARSING.get()


def _rehearsal_config(config: GatewayConfig, plugins: Registries, folder: Path) -> GatewayConfig:
    """Returns a configuration with one route for each kind of model server and format in `config`, with the options of
    the first route that has both."""
    kinds = {name: _kind(backend, plugins) for name, backend in config.backends.items()}
    options: dict[tuple[str, str], RouteOptions] = {}
    for route in effective_routes(config):
        for server in route.servers:
            options.setdefault((kinds[server.backend], route.options.format), route.options)
    return GatewayConfig(
        limits=config.limits,
        defaults=config.defaults,
        backends={kind: BackendConfig(kind=kind, url="http://127.0.0.1:9", identify_s=0) for kind, _ in options},
        routes=tuple(
            RouteConfig(model=f"{kind}/{format}", backend=kind, options=each)
            for (kind, format), each in options.items()
        ),
        store=replace(config.store, path=str(folder / "store"))
        if config.store.kind == "sqlite"
        else StoreConfig(kind="none" if config.store.kind == "none" else "memory"),
    )


def _kind(backend: BackendConfig, plugins: Registries) -> str:
    """Returns the kind of model server that is simulated for a backend."""
    return backend.kind if backend.kind in plugins.servers.names() else "openai_chat"


async def _ask_each(ask: Callable[[bytes], Awaitable[bytes]], client: ClientSide, model: str, times: int) -> None:
    """Sends each kind of request of a protocol to `model`. If conversations are stored, each continues the one
    before."""
    for tools in (True, False):
        for stream in (False, True):
            body = {name: value for name, value in client.example.items() if tools or name != "tools"}
            body |= {"model": model, "stream": stream}
            for _ in range(times):
                sent = orjson.dumps(body)
                answer = await ask(
                    b"POST /v1%s HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
                    b"Content-Length: %d\r\n\r\n%s" % (client.path.encode(), len(sent), sent)
                )
                if client.turns is not None and not stream:
                    body[client.turns.previous] = orjson.loads(answer.partition(b"\r\n\r\n")[2])["id"]


def _answers(config: GatewayConfig, plugins: Registries) -> SimulatedAnswer:
    """Returns the simulated model servers. They answer with text and, if there are tools, a call: natively if the
    request has tools, else in the route's format. Every other answer has token counts."""
    servers = {route.model: plugins.servers.get(route.backend)() for route in config.routes}
    formats = {route.model: plugins.formats.get(route.options.format) for route in config.routes}
    usages = cycle((Usage(1, 1), None))

    def answer(request: bytes) -> list[bytes]:
        body = orjson.loads(request.partition(b"\r\n\r\n")[2])
        events = list(_answer_events(body, request, formats[body["model"]], next(usages)))
        return _written(servers[body["model"]], events, stream=bool(body.get("stream")))

    return answer


def _answer_events(
    body: dict[str, Any], request: bytes, tool_format: ToolFormat, usage: Usage | None
) -> Iterator[Event]:
    written = f"\n{tool_format.render_call(_CALL)}" if _CALL.name.encode() in request else ""
    native = bool(body.get("tools"))
    yield Start("r", body["model"], 0)
    yield Open(0, BlockKind.TEXT)
    for text in ("So ", "be ", "it.", *(() if native else (written[:10], written[10:]))):
        if text:
            yield Delta(0, text)
    yield Close(0)
    if native:
        yield Open(1, BlockKind.TOOL_CALL, call_id=_CALL.call_id, name=_CALL.name)
        yield Delta(1, _CALL.arguments)
        yield Close(1)
    yield Finish("tool_calls" if native else "stop", usage)


def _written(server: ServerSide, events: list[Event], *, stream: bool) -> list[bytes]:
    """Returns events as the reads that a model server sends."""
    asked = ModelRequest(
        "m", (), stream=stream, include_usage=isinstance(events[-1], Finish) and bool(events[-1].usage)
    )
    options = WriteOptions(request=asked, created=0)
    if not stream:
        body = server.write_reply(fold(events), options)
        return [_HEAD % (b"application/json", len(body)) + body]
    writer = server.writer(options)
    frames = [frame for event in events if (frame := writer.feed([event]))]
    return [_HEAD % (b"text/event-stream", sum(map(len, frames))), *frames]
