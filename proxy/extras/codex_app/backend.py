"""A Codex app-server as a backend: one ephemeral thread for each request (R10.11).

Rules:

1. `open` returns when the turn has begun. A request that an overloaded server refuses is retried a few times with
   pauses; after that the route's own retries apply (`toolwire.upstream.pool.attempts`).
2. If a client disconnects early the turn is stopped (R10.7), also while it is being started. Every thread is
   unsubscribed, because the server would keep it.
3. When a server is lost only its running answers are affected: each ends with an error or is retried. The next request
   uses a new connection.
"""

from __future__ import annotations

import asyncio
import logging
import random
import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from typing import Any, Final

from ..._version import __version__
from ...config import BackendConfig, LimitsConfig
from ...errors import BackendFault, GatewayError
from ...events import Event, Fault, Start
from ...folding import Folding
from ...model import ModelReply, ModelRequest
from ...record import BackendObserver
from ...support.environment import environment
from ...support.offload import is_large, offload
from ...upstream.client.connections import CONNECTING, disconnected, shortest, timed_out
from ...upstream.servers.base import Backend, Capabilities, EventSource
from ...upstream.servers.presets import capabilities
from ...upstream.servers.private_data import PrivateData, private_of
from . import failures
from .answer import TurnEvents
from .link import Link
from .rpc import Inbox, RpcConnection, RpcError
from .stdio import ProcessTransport
from .thread_request import ThreadRequest, thread_request
from .transport import Transport
from .websocket import WebSocketTransport

LOG: Final = logging.getLogger("toolwire.backends")

TRIES: Final = 5
"""Number of attempts while the server is overloaded."""

STARTING_S: Final = 30.0
"""Minimum time for a process to start, even if the waiting requests have timed out."""

PAUSE_S: Final = 0.1
"""Maximum pause before the second attempt; it doubles with each."""

FAILING_S: Final = 5.0
"""Maximum wait for the end of a turn that has already failed."""

CALLS_S: Final = 1.0
"""Maximum wait for further calls if the server does not report the end of the model's answer."""


class CodexAppBackend(Backend):
    """A Codex app-server. The constructor raises `ValueError` for an unusable configuration."""

    protocol = None

    def __init__(self, name: str, config: BackendConfig, limits: LimitsConfig) -> None:
        if not config.command and config.url is None:
            raise ValueError(f"backend {name!r} needs a `command` or a `url`")
        self.name = name
        self.capabilities: Capabilities = replace(
            capabilities(replace(config, images=config.images or "true")),
            multiple_choices=False,
            reasoning_effort=True,
            stream_usage=False,
            stop_sequences=0,
            tool_types=frozenset({"function"}),
        )
        self.config = config
        self.limits = limits
        self._env = environment(config.codex.env, ("CODEX_HOME", *config.codex.inherit), proxies=config.trust_env)
        inherited = {name: self._env[name] for name in (*config.codex.env, *config.codex.inherit) if name in self._env}
        secrets = private_of(BackendConfig(headers=inherited)).secrets
        self.private: PrivateData = PrivateData.together((private_of(config), PrivateData(secrets=secrets)))
        """Data that must not reach clients or logs."""
        self._link = Link(name, self._connect, config.timeouts.connect_s)
        self._servers: tuple[str, ...] = ()
        self._own_folder: str | None = None

    async def start(self) -> None:
        """Begins to connect. An unreachable server is no error: connecting is retried."""
        if self.config.command and self.config.codex.folder is None:
            self._own_folder = await asyncio.to_thread(tempfile.mkdtemp, prefix="toolwire-codex-")
        self._link.start()

    async def close(self) -> None:
        await self._link.close()
        if self._own_folder is not None:
            await asyncio.to_thread(shutil.rmtree, self._own_folder, ignore_errors=True)
            self._own_folder = None

    @property
    def folder(self) -> str | None:
        """The working directory of threads; None: the server's default."""
        return self.config.codex.folder or self._own_folder

    async def open(
        self,
        request: ModelRequest,
        *,
        request_id: str,
        body: bytes | None = None,
        observer: BackendObserver | None = None,
    ) -> CodexSource:
        began = time.monotonic()
        connection = await self._link.connection()
        parameters = await offload(is_large(request), self._thread_request, request)
        source = CodexSource(self, connection, request, parameters, began)
        try:
            await source.begin()
        except BaseException:
            await source.close()
            raise
        return source

    def _thread_request(self, request: ModelRequest) -> ThreadRequest:
        parameters = thread_request(request, self.config.codex, self.folder, self._servers)
        return parameters.written() if is_large(request) else parameters

    async def ready(self) -> bool:
        try:
            return (await self._link.connection()).alive
        except GatewayError:
            return False

    async def ask(self, connection: RpcConnection, method: str, params: Mapping[str, Any]) -> Any:
        """Returns the answer to a request; retries while the server is overloaded (rule 1). Raises `GatewayError`."""
        tries = 1
        while True:
            try:
                return await connection.request(method, params)
            except RpcError as error:
                if error.code != failures.OVERLOADED or tries == TRIES:
                    raise failures.request_error(error, self.private) from None
            await asyncio.sleep(PAUSE_S * 2.0 ** (tries - 1) * random.uniform(0.5, 1.0))
            tries += 1

    async def _connect(self) -> RpcConnection:
        """Returns a new connection after the handshake. Raises `GatewayError`."""
        limit_s = self.config.timeouts.connect_s
        if limit_s is not None and self.config.command:
            limit_s = max(limit_s, STARTING_S)
        connection: RpcConnection | None = None
        try:
            async with asyncio.timeout(limit_s) as limit:
                connection = RpcConnection(self.name, await self._transport())
                await self._handshake(connection)
                return connection
        except BaseException as error:
            if connection is not None:
                self._link.discard(connection)
            if isinstance(error, TimeoutError) and limit.expired():
                raise timed_out(CONNECTING, limit_s) from None
            raise

    async def _transport(self) -> Transport:
        if not self.config.command:
            return await WebSocketTransport.connect(self.config, self.limits)
        return await ProcessTransport.start(
            self.name,
            self.config.command,
            env=self._env,
            folder=self.folder or tempfile.gettempdir(),
            frame_bytes=self.limits.frame_bytes,
            private=self.private,
        )

    async def _handshake(self, connection: RpcConnection) -> None:
        for left in reversed(range(TRIES)):
            try:
                await connection.handshake(__version__)
                break
            except RpcError as error:
                if error.code != failures.OVERLOADED or not left:
                    raise failures.request_error(error, self.private) from None
            await asyncio.sleep(PAUSE_S)
        if not self.config.codex.mcp_servers and "codexHome" in connection.server:
            self._servers = await _mcp_servers(connection)


async def _mcp_servers(connection: RpcConnection) -> tuple[str, ...]:
    """Returns the names of the MCP servers in the app-server's own configuration. Each must be switched off by name."""
    try:
        answer = await connection.request("config/read", {"includeLayers": False})
    except RpcError as error:
        LOG.warning("backend %r does not list its MCP servers, so they stay on: %s", connection.name, error.message)
        return ()
    config = answer.get("config") if isinstance(answer, dict) else None
    servers = config.get("mcp_servers") if isinstance(config, dict) else None
    return tuple(servers) if isinstance(servers, dict) else ()


class CodexSource(EventSource):
    """One turn. Must be closed."""

    def __init__(
        self,
        backend: CodexAppBackend,
        connection: RpcConnection,
        request: ModelRequest,
        parameters: ThreadRequest,
        began: float,
    ) -> None:
        self._backend = backend
        self._connection = connection
        self._model = request.model
        self._parameters = parameters
        self._began = began
        self._answer = TurnEvents(parameters.names, backend.private, whole=not request.stream)
        self._thread: str | None = None
        self._turn: str | None = None
        self._inbox: Inbox
        self._beginning: asyncio.Task[None] | None = None
        self._closed = False

    async def begin(self) -> None:
        """Returns when the server has accepted the request. Raises `GatewayError`."""
        seconds, phase = shortest(self._backend.config.timeouts)
        self._beginning = self._connection.spawn(self._begin())
        try:
            async with asyncio.timeout(seconds) as limit:
                await asyncio.shield(self._beginning)
        except TimeoutError:
            if not limit.expired():
                raise
            raise timed_out(phase, seconds) from None
        except asyncio.CancelledError:
            if self._beginning.cancelled():  # the connection was closed
                raise disconnected() from None
            raise

    async def _begin(self) -> None:
        """Starts thread and turn. Continues after the caller has been cancelled, because only then it is known what
        must be stopped."""
        ask, connection, parameters = self._backend.ask, self._connection, self._parameters
        started = await ask(connection, "thread/start", parameters.thread)
        self._thread = thread = _ident(started, "thread")
        self._inbox = connection.listen(thread, self._backend.limits.stream_bytes)
        if parameters.items and not self._closed:
            await ask(connection, "thread/inject_items", {"threadId": thread, "items": parameters.items})
        if not self._closed:
            begun = await ask(connection, "turn/start", {"threadId": thread, **parameters.turn})
            self._turn = _ident(begun, "turn")

    async def batches(self) -> AsyncIterator[list[Event]]:
        yield [Start("", self._model, int(time.time()))]
        try:
            while not self._answer.over:
                if events := await self._next():
                    yield events
        except GatewayError as error:
            yield [Fault(error)]

    async def reply(self) -> ModelReply:
        """Returns the whole answer, without versions that the server began anew. Raises `GatewayError`."""
        start = Start("", self._model, int(time.time()))
        folding = Folding()
        folding.feed(start)
        restarts = 0
        while not self._answer.over:
            events = await self._next()
            if self._answer.restarts != restarts:
                restarts = self._answer.restarts
                folding = Folding()
                folding.feed(start)
            for event in events:
                folding.feed(event)
        if folding.fault is not None:
            raise folding.fault.error
        return folding.reply()

    async def close(self) -> None:
        """Stops the turn if it is still running, and unsubscribes from the thread."""
        if self._closed:
            return
        self._closed = True
        if self._connection.alive:
            self._connection.spawn(self._release())

    async def _release(self) -> None:
        if self._beginning is not None:
            await asyncio.wait([self._beginning])
            if not self._beginning.cancelled():
                self._beginning.exception()  # marks it as retrieved: `begin` has raised it
        if self._thread is not None:
            await self._connection.abandon(self._thread, None if self._answer.stopped else self._turn)

    async def _next(self) -> list[Event]:
        """Returns the events of the messages that have arrived since. Raises `GatewayError`."""
        left, limit_s, phase = self._patience()
        try:
            async with asyncio.timeout(left) as limit:
                messages = await self._inbox.take()
        except TimeoutError:
            if not limit.expired():
                raise
            if self._answer.failing is not None:
                raise self._answer.failing from None
            if self._answer.waits_for_calls:
                return self._answer.finish_calls()
            raise timed_out(phase, limit_s) from None
        out: list[Event] = []
        for message in messages:
            if message["method"].startswith("rawResponse") and message["params"].get("turnId") != self._turn:
                continue  # an injected item
            restarts = self._answer.restarts
            try:
                out += self._answer.feed(message)
            except GatewayError as error:
                self._answer.over = True
                return [*out, Fault(error)]
            if self._answer.restarts != restarts:
                out.clear()
            if self._answer.over:
                break
        self._connection.useful = self._connection.useful or bool(out)
        return out

    def _patience(self) -> tuple[float | None, float | None, str]:
        """Returns the time left for the next message, and the limit with its name that determines it."""
        if self._answer.failing is not None:
            return FAILING_S, None, ""
        if self._answer.waits_for_calls:
            return CALLS_S, None, ""
        timeouts = self._backend.config.timeouts
        spent = time.monotonic() - self._began
        limits = [(timeouts.total_s, spent, "total")]
        if self._answer.began:
            limits.append((timeouts.idle_s, 0.0, "idle between bytes"))
        else:
            limits.append((timeouts.first_byte_s, spent, "waiting for the first byte"))
        return min(((s - gone, s, name) for s, gone, name in limits if s is not None), default=(None, None, ""))


def _ident(answer: Any, what: str) -> str:
    """Returns the id of a thread or a turn in an answer. Raises `BackendFault` if there is none."""
    entry = answer.get(what) if isinstance(answer, dict) else None
    ident = entry.get("id") if isinstance(entry, dict) else None
    if not isinstance(ident, str):
        raise BackendFault(f"The model server began no {what} that can be named.", code="upstream_invalid_response")
    return ident
