"""Before a process serves a configuration, it answers requests that nobody has sent.

What is imported on use is imported then, what is compiled or made once is made, and the interpreter has seen the way of
a request often enough to have it specialised (PEP 659). Without it the first request costs ten to a
hundred times what the hundredth does.

They are asked of an application of their own, which has the limits and the options of the real one, plays both ends of
its connections and is forgotten with what it kept: so no plug-in, no store, no metric, no log and no model server sees
them.
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

from toolwire.config import BackendConfig, GatewayConfig, RouteConfig, RouteOptions, StoreConfig
from toolwire.configuration.checks import effective_routes
from toolwire.events import BlockKind, Close, Delta, Event, Finish, Open, Start
from toolwire.folding import fold
from toolwire.formats.base import ToolFormat
from toolwire.model import ModelRequest, ToolUse, Usage
from toolwire.observability.telemetry import ACCESS
from toolwire.pipeline.sending.delivery import CLIENTS
from toolwire.protocols.base import ClientSide, ServerSide
from toolwire.protocols.streams import WriteOptions
from toolwire.registry import Registries, registries
from toolwire.server.hosting import AppFactory
from toolwire.server.played import Answer, PlayedGateway

LOG: Final = logging.getLogger("toolwire")
TIMES: Final = 4
"""Each kind of request is asked so often; of further formats and model servers, once."""
MOST_S: Final = 5.0
"""It takes a quarter of a second. A machine that needs much more is not held up."""

_CALL: Final = ToolUse("call_1", "look", '{"at":"it"}')
_HEAD: Final = b"HTTP/1.1 200 OK\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n"
_REHEARSING: Final[ContextVar[bool]] = ContextVar("rehearsing", default=False)


async def rehearse(create: AppFactory, config: GatewayConfig) -> None:
    """Answer each kind of request that `config` may be asked. A failure is logged for who looks for it: the first
    request will show it."""
    rehearsing = _REHEARSING.set(True)
    ACCESS.addFilter(_heard)
    try:
        "localhost".encode("idna")  # imports what any name of a server goes through; here none is connected to
        with TemporaryDirectory(prefix="toolwire-") as folder:
            plugins = registries()
            own = _of_its_own(config, plugins, Path(folder))
            gateway = PlayedGateway(create, own, _answers(own, plugins))
            async with asyncio.timeout(MOST_S), gateway:
                ask = gateway.client()
                for route in own.routes:
                    for client in gateway.app[CLIENTS].sides:
                        await _ask_each(ask, client, route.model, TIMES if route is own.routes[0] else 1)
    except Exception as error:
        LOG.debug("the rehearsal failed", exc_info=error)
    finally:
        ACCESS.removeFilter(_heard)
        _REHEARSING.reset(rehearsing)


def _heard(record: logging.LogRecord) -> bool:
    """Others may be served meanwhile."""
    return not _REHEARSING.get()


def _of_its_own(config: GatewayConfig, plugins: Registries, folder: Path) -> GatewayConfig:
    """A route for each kind of model server and format of `config`, with the options of the first that has both."""
    kinds = {name: _kind(backend, plugins) for name, backend in config.backends.items()}
    options: dict[tuple[str, str], RouteOptions] = {}
    for route in effective_routes(config):
        for name in [each.backend for each in (*route.backends, *route.fallback)] or [route.backend]:
            options.setdefault((kinds[name], route.options.format), route.options)
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
    """As what a model server can be played."""
    return backend.kind if backend.kind in plugins.servers.names() else "openai_chat"


async def _ask_each(ask: Callable[[bytes], Awaitable[bytes]], client: ClientSide, model: str, times: int) -> None:
    """Ask `model` each kind of request of a protocol. Where conversations are kept, each goes on from one before."""
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


def _answers(config: GatewayConfig, plugins: Registries) -> Answer:
    """What the model servers say, each other time without counts of tokens: prose and, where there are tools, a call;
    in the server's own form if it is given them, else in the words of the route's format."""
    servers = {route.model: plugins.servers.get(route.backend)() for route in config.routes}
    formats = {route.model: plugins.formats.get(route.options.format) for route in config.routes}
    usages = cycle((Usage(1, 1), None))

    def answer(request: bytes) -> list[bytes]:
        body = orjson.loads(request.partition(b"\r\n\r\n")[2])
        events = list(_said(body, request, formats[body["model"]], next(usages)))
        return _written(servers[body["model"]], events, stream=bool(body.get("stream")))

    return answer


def _said(body: dict[str, Any], request: bytes, tool_format: ToolFormat, usage: Usage | None) -> Iterator[Event]:
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
    """These events as a model server sends them, by read."""
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
