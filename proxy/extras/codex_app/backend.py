"""A Codex app-server as a backend: one ephemeral thread for each request (R10.11).

Rules:

1. `open` returns when the turn has begun. A server that has too much to do is asked again a few times, with pauses;
   then it is the turn of the route's own tries (`toolwire.upstream.pool.attempts`).
2. Whoever goes before the end stops the turn (R10.7), also while it is only about to begin; and every thread is let go,
   which the server else keeps.
3. A server that is lost takes no more than the answers that it was giving: each of them ends as an error, or is tried
   again, and the next request goes to its successor.
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

from toolwire._version import __version__
from toolwire.config import BackendConfig, LimitsConfig
from toolwire.errors import BackendFault, GatewayError
from toolwire.events import Event, Fault, Start
from toolwire.extras.codex_app import failures
from toolwire.extras.codex_app.answer import Turn
from toolwire.extras.codex_app.asking import Question, question
from toolwire.extras.codex_app.link import Link
from toolwire.extras.codex_app.rpc import Connection, Inbox, RpcError
from toolwire.extras.codex_app.stdio import ProcessTransport
from toolwire.extras.codex_app.transport import Transport
from toolwire.extras.codex_app.websocket import WebSocketTransport
from toolwire.folding import Folding
from toolwire.model import ModelReply, ModelRequest
from toolwire.record import BackendObserver
from toolwire.support.environment import environment
from toolwire.support.offload import is_large, offload
from toolwire.upstream.client.connections import CONNECTING, disconnected, shortest, timed_out
from toolwire.upstream.servers.base import Backend, Capabilities, EventSource
from toolwire.upstream.servers.presets import capabilities
from toolwire.upstream.servers.private import Private, private_of

LOG: Final = logging.getLogger("toolwire.backends")

TRIES: Final = 5
"""So often a server that is overloaded is asked the same."""

STARTING_S: Final = 30.0
"""So long a process may take to begin, whoever has given up waiting for it."""

PAUSE_S: Final = 0.1
"""The pause before the second try, at most; it doubles with each."""

FAILING_S: Final = 5.0
"""So long the end of a turn is awaited that has already failed."""

CALLS_S: Final = 1.0
"""So long further calls are awaited of a server that does not say when its model's answer is over."""


class CodexAppBackend(Backend):
    """A Codex app-server. Raises `ValueError` for a configuration it cannot use."""

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
        given = {name: self._env[name] for name in (*config.codex.env, *config.codex.inherit) if name in self._env}
        secrets = private_of(BackendConfig(headers=given)).secrets
        self.private: Private = Private.together((private_of(config), Private(secrets=secrets)))
        """What no client may see, and no log."""
        self._link = Link(name, self._connect, config.timeouts.connect_s)
        self._servers: tuple[str, ...] = ()
        self._own_folder: str | None = None

    async def start(self) -> None:
        """Begin to connect. That the server cannot be reached is no failure: it may come."""
        if self.config.command and self.config.codex.folder is None:
            self._own_folder = await asyncio.to_thread(tempfile.mkdtemp, prefix="toolwire-codex-")
        self._link.start()

    async def close(self) -> None:
        """Hang up; the process ends."""
        await self._link.close()
        if self._own_folder is not None:
            await asyncio.to_thread(shutil.rmtree, self._own_folder, ignore_errors=True)
            self._own_folder = None

    @property
    def folder(self) -> str | None:
        """Where threads are at home; None: where the server likes."""
        return self.config.codex.folder or self._own_folder

    async def open(
        self,
        request: ModelRequest,
        *,
        request_id: str,
        body: bytes | None = None,
        observer: BackendObserver | None = None,
    ) -> CodexSource:
        """Begin a turn of a new thread."""
        began = time.monotonic()
        connection = await self._link.connection()
        asked = await offload(is_large(request), self._question, request)
        source = CodexSource(self, connection, request, asked, began)
        try:
            await source.begin()
        except BaseException:
            await source.close()
            raise
        return source

    def _question(self, request: ModelRequest) -> Question:
        asked = question(request, self.config.codex, self.folder, self._servers)
        return asked.written() if is_large(request) else asked

    async def ready(self) -> bool:
        """Whether there is a connection, or one can be made."""
        try:
            return (await self._link.connection()).alive
        except GatewayError:
            return False

    async def ask(self, connection: Connection, method: str, params: Mapping[str, Any]) -> Any:
        """The answer to a request; of a server that has too much to do, after some tries (rule 1). Raises
        `GatewayError`."""
        tries = 1
        while True:
            try:
                return await connection.request(method, params)
            except RpcError as error:
                if error.code != failures.OVERLOADED or tries == TRIES:
                    raise failures.of_answer(error, self.private) from None
            await asyncio.sleep(PAUSE_S * 2.0 ** (tries - 1) * random.uniform(0.5, 1.0))
            tries += 1

    async def _connect(self) -> Connection:
        """A connection on which hands were shaken. Raises `GatewayError`."""
        limit_s = self.config.timeouts.connect_s
        if limit_s is not None and self.config.command:
            limit_s = max(limit_s, STARTING_S)
        connection: Connection | None = None
        try:
            async with asyncio.timeout(limit_s) as limit:
                connection = Connection(self.name, await self._transport())
                await self._shake_hands(connection)
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

    async def _shake_hands(self, connection: Connection) -> None:
        for left in reversed(range(TRIES)):
            try:
                await connection.handshake(__version__)
                break
            except RpcError as error:
                if error.code != failures.OVERLOADED or not left:
                    raise failures.of_answer(error, self.private) from None
            await asyncio.sleep(PAUSE_S)
        if not self.config.codex.mcp_servers and "codexHome" in connection.server:
            self._servers = await _mcp_servers(connection)


async def _mcp_servers(connection: Connection) -> tuple[str, ...]:
    """The names of the MCP servers in the server's own configuration: each has to be switched off by its name."""
    try:
        said = await connection.request("config/read", {"includeLayers": False})
    except RpcError as error:
        LOG.warning(
            "backend %r does not say which MCP servers it has, they stay on: %s", connection.name, error.message
        )
        return ()
    config = said.get("config") if isinstance(said, dict) else None
    servers = config.get("mcp_servers") if isinstance(config, dict) else None
    return tuple(servers) if isinstance(servers, dict) else ()


class CodexSource(EventSource):
    """One turn. Must be closed."""

    def __init__(
        self,
        backend: CodexAppBackend,
        connection: Connection,
        request: ModelRequest,
        asked: Question,
        began: float,
    ) -> None:
        self._backend = backend
        self._connection = connection
        self._model = request.model
        self._asked = asked
        self._began = began
        self._answer = Turn(asked.names, backend.private, whole=not request.stream)
        self._thread: str | None = None
        self._turn: str | None = None
        self._inbox: Inbox
        self._beginning: asyncio.Task[None] | None = None
        self._closed = False

    async def begin(self) -> None:
        """Until the server has taken the request. Raises `GatewayError`."""
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
        """Goes on when who asked is gone: only then it is known what has to be stopped."""
        ask, connection, asked = self._backend.ask, self._connection, self._asked
        started = await ask(connection, "thread/start", asked.thread)
        self._thread = thread = _ident(started, "thread")
        self._inbox = connection.listen(thread, self._backend.limits.stream_bytes)
        if asked.items and not self._closed:
            await ask(connection, "thread/inject_items", {"threadId": thread, "items": asked.items})
        if not self._closed:
            begun = await ask(connection, "turn/start", {"threadId": thread, **asked.turn})
            self._turn = _ident(begun, "turn")

    async def batches(self) -> AsyncIterator[list[Event]]:
        """The events, as they come."""
        yield [Start("", self._model, int(time.time()))]
        try:
            while not self._answer.over:
                if events := await self._next():
                    yield events
        except GatewayError as error:
            yield [Fault(error)]

    async def reply(self) -> ModelReply:
        """The whole answer. What the server began anew is not in it twice."""
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
        """Stop the turn if it goes on, and let the thread go."""
        if self._closed:
            return
        self._closed = True
        if self._connection.alive:
            self._connection.spawn(self._let_go())

    async def _let_go(self) -> None:
        if self._beginning is not None:
            await asyncio.wait([self._beginning])
            if not self._beginning.cancelled():
                self._beginning.exception()  # told to who began it, if he still waited
        if self._thread is not None:
            await self._connection.abandon(self._thread, None if self._answer.stopped else self._turn)

    async def _next(self) -> list[Event]:
        """What was said since. Raises `GatewayError`."""
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
                continue  # an item that was put into the thread before
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
        """How long the next message may take, and the limit that says so with its name."""
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


def _ident(said: Any, what: str) -> str:
    """The id of a thread or a turn in an answer. Raises `BackendFault` if there is none."""
    found = said.get(what) if isinstance(said, dict) else None
    ident = found.get("id") if isinstance(found, dict) else None
    if not isinstance(ident, str):
        raise BackendFault(f"The model server began no {what} that can be named.", code="upstream_invalid_response")
    return ident
