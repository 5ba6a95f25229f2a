"""Responses over WebSocket (R28.2): connections, their lanes, and the requests on them.

Rules:

1. Each `response.create` is a request of its own. The application answers it as one over HTTP (`socket_exchange`): key,
   limits, chain, log, metrics and observers are the same.
2. A lane (`stream_id`; an unnamed one for messages without it) answers in order. Lanes run concurrently.
3. An error is an event, and the connection stays open. Only frames that break the rules of WebSocket or are too large
   close it, with 1002 or 1009.
4. Everything that a client sends or does not read is bounded: incoming bytes count in the body budget, answers wait in
   the transport, and a slow client delays no other one. Frames are not compressed, so nothing can be inflated.
5. When a client disconnects, its responses are cancelled. When the connection is too old, another application replaces
   this one, or the gateway stops, running responses are finished, other requests are refused, and the connection is
   closed with 1001.
6. A web page may open a WebSocket to any host and read from it (there is no preflight), so the `Origin` of a handshake
   has to be one of `cors.origins`.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from dataclasses import dataclass, field
from typing import Any, Final

from aiohttp import WSCloseCode, web
from aiohttp.http import WSMsgType

from ...config import GatewayConfig, WebsocketConfig
from ...errors import ClientFault, Defect, GatewayError, Unavailable
from ...ingress.bodies import parse_mended
from ...ingress.budget import BODY_BUDGET, BodyShare
from ...ingress.liveness import LIVENESS
from ...protocols.shared.socket_messages import CreateMessage, fault_event, read_create, read_stream_id
from ...protocols.shared.wire import dumper
from ...store.memory import MemoryStore
from ...support.offload import OFFLOAD_BYTES, offload
from ...support.tasks import BackgroundTasks
from ..sending.cors import origin_fault
from ..sending.delivery import HALVES_FAULT, OWNER
from .lane_memory import LANE, TURNS, LaneMemory
from .socket_exchange import EventWriter, answer_message, request_of

LOG: Final = logging.getLogger("toolwire")

CLOSE_S: Final = 2.0
"""Seconds that a client has to answer a close frame."""

PINGS: Final = 50
"""Answered pings per second. More of them close the connection with 1008."""

FRAME_HEAD: Final = 14
"""Maximum number of bytes of a client's frame before its payload."""


class Sockets:
    """The WebSocket connections of an application."""

    def __init__(self, config: GatewayConfig) -> None:
        self.config: WebsocketConfig = config.websocket
        self.limits = config.limits
        self.memory = MemoryStore(TURNS, max_bytes=self.config.remembered_bytes)
        self.ending = BackgroundTasks()
        """Clean-up tasks of connections that have ended."""
        self._origins = frozenset(config.cors.origins)
        self._open: dict[str, int] = {}

    def check_origin(self, origin: str | None) -> None:
        """Raises `GatewayError` `origin_not_allowed` for a web page that may not use the gateway."""
        if origin is not None and not self._origins & {origin, "*"}:
            raise origin_fault(origin)

    def enter(self, owner: str) -> None:
        """Counts a connection. Raises `Unavailable` or `ClientFault` if there are too many."""
        if sum(self._open.values()) >= self.config.connections:
            raise Unavailable(f"{self.config.connections} WebSockets are open, which is the limit of the gateway.")
        if owner and self._open.get(owner, 0) >= self.config.connections_per_key:
            raise ClientFault(
                f"{self.config.connections_per_key} WebSockets are open with this API key, which is the limit.",
                code="rate_limit_exceeded",
                headers={"Retry-After": "1"},
            )
        self._open[owner] = self._open.get(owner, 0) + 1

    def leave(self, owner: str) -> None:
        """Counts a connection as closed."""
        left = self._open.pop(owner) - 1
        if left:
            self._open[owner] = left


SOCKETS: Final = web.AppKey("toolwire.sockets", Sockets)


async def connect(request: web.Request) -> web.StreamResponse:
    """Serves a WebSocket. Raises `HTTPMethodNotAllowed` for any other request, and if WebSockets are disabled."""
    sockets = request.app[SOCKETS]
    if request.headers.get("Upgrade", "").lower() != "websocket" or not sockets.config.on:
        raise web.HTTPMethodNotAllowed(request.method, ["POST"])
    sockets.check_origin(request.headers.get("Origin"))
    monitors = request.app[LIVENESS]
    if monitors.draining:
        raise _stopping()
    owner = request[OWNER]
    sockets.enter(owner)
    try:
        socket: web.WebSocketResponse[bool] = web.WebSocketResponse(
            timeout=CLOSE_S,
            autoping=False,
            heartbeat=sockets.config.heartbeat_s or None,
            compress=False,
            max_msg_size=sockets.limits.body_bytes,
            decode_text=False,
        )
        if not socket.can_prepare(request):
            hint = "It needs `Connection: Upgrade`, `Sec-WebSocket-Version: 13` and a `Sec-WebSocket-Key`."
            raise ClientFault("The handshake of the WebSocket is not valid.", code="malformed_request", hint=hint)
        await socket.prepare(request)
        connection = ClientSocket(request, socket, sockets)
        monitors.leaving.add(connection.drain)
        try:
            await connection.run()
        finally:
            monitors.leaving.discard(connection.drain)
        return socket
    finally:
        sockets.leave(owner)


def _stopping() -> Unavailable:
    return Unavailable("This connection is closing. Connect anew and send the request again.", code="shutting_down")


@dataclass(slots=True)
class Waiting:
    """A `response.create` that waits for its turn. `share` holds the bytes of its `body`; `halves`: see
    `MendedBody`."""

    create: CreateMessage
    body: bytes
    share: BodyShare
    halves: ClientFault | None


@dataclass(slots=True)
class Lane:
    """The requests of one `stream_id` on a connection; they are answered in order."""

    name: str | None
    memory: LaneMemory
    waiting: deque[Waiting] = field(default_factory=deque)
    running: asyncio.Task[None] | None = None


class ClientSocket:
    """One WebSocket of a client, from its handshake to its close."""

    def __init__(self, request: web.Request, socket: web.WebSocketResponse[bool], sockets: Sockets) -> None:
        self._request = request
        self._socket = socket
        self._sockets = sockets
        self._config = sockets.config
        self._limits = sockets.limits
        self._budget = request.app[BODY_BUDGET]
        self._owner = request[OWNER]
        self._arriving = BodyShare(self._budget, self._owner)
        self._last_read = 0
        self._lanes: dict[str | None, Lane] = {}
        self._memories: list[LaneMemory] = []
        self._leaving: GatewayError | None = None
        self._code = WSCloseCode.GOING_AWAY
        self._over = asyncio.Event()
        self._pings: deque[float] = deque(maxlen=PINGS)

    async def run(self) -> None:
        """Serves the connection until it ends."""
        loop = asyncio.get_running_loop()
        protocol: Any = self._request.protocol
        if hasattr(protocol, "frames"):  # only in the gateway's own server
            protocol.frames = self._count_frames
        reading = loop.create_task(self._read())
        reading.add_done_callback(lambda _: self._over.set())
        aging = loop.call_later(self._config.max_age_s, self._expire)
        try:
            await self._over.wait()
            if reading.done():
                reading.result()
            else:
                reading.cancel()
                await asyncio.wait({reading})
                await self._close()
        except ConnectionError:
            pass
        finally:
            aging.cancel()
            await self._end(reading)

    def drain(self) -> None:
        """Refuses further requests and closes the connection after the running ones."""
        self._leave(_stopping())

    # --- ending -----------------------------------------------------------------------------------------------------

    def _expire(self) -> None:
        minutes = self._config.max_age_s / 60
        self._leave(
            ClientFault(
                f"This WebSocket connection has reached its limit of {minutes:g} minutes.",
                code="websocket_connection_limit_reached",
                hint="Connect anew and send the whole conversation.",
            )
        )

    def _leave(self, why: GatewayError) -> None:
        if self._leaving is None:
            self._leaving = why
            self._end_if_idle()

    def _end_if_idle(self) -> None:
        if self._leaving is not None and not self._in_flight:
            self._over.set()

    async def _close(self) -> None:
        """Sends the close frame, after an event with the reason."""
        why = self._leaving
        assert why is not None
        if why.code != "shutting_down":
            await self._send_error(why)
        await self._socket.close(code=self._code, message=why.code.encode())

    async def _end(self, reading: asyncio.Task[None]) -> None:
        """Cancels running requests and releases everything that the connection holds."""
        tasks = {reading, *(lane.running for lane in self._lanes.values() if lane.running is not None)}
        for task in tasks:
            task.cancel()
        self._arriving.release()
        for lane in self._lanes.values():
            while lane.waiting:
                lane.waiting.popleft().share.release()
        settling = self._sockets.ending.start(self._settle(tasks))
        await asyncio.shield(settling)  # aiohttp cancels this task when the client disconnects

    async def _settle(self, tasks: set[asyncio.Task[None]]) -> None:
        await asyncio.wait(tasks)
        for lane in self._lanes.values():
            await lane.memory.close()

    # --- receiving --------------------------------------------------------------------------------------------------

    def _count_frames(self, size: int) -> bool:
        """Counts received bytes. Returns True if they are accepted. If the budget has no room for them, returns False
        and ends the connection."""
        if self._code == WSCloseCode.TRY_AGAIN_LATER:
            return False
        self._last_read = size
        try:
            self._arriving.take(size)
        except GatewayError as error:
            self._leaving, self._code = error, WSCloseCode.TRY_AGAIN_LATER
            self._over.set()
            return False
        return True

    def _release_message(self, size: int) -> None:
        """Stops counting the bytes of a message that is complete."""
        held = self._arriving.bytes
        # The heads of fragments are unknown, but the remaining bytes came with the last read.
        left = min(max(0, held - size - FRAME_HEAD), self._last_read)
        if left < held:
            self._arriving.give(held - left)

    async def _read(self) -> None:
        while True:
            message = await self._socket.receive()
            if message.type is WSMsgType.TEXT:
                await self._take(message.data)
            elif message.type is WSMsgType.BINARY:
                self._release_message(len(message.data))
                fault = ClientFault("A binary message came.", code="invalid_json", hint="Send JSON in text messages.")
                await self._send_error(fault)
            elif message.type is WSMsgType.PING:
                self._release_message(len(message.data))
                if not await self._pong(message.data):
                    return
            elif message.type is WSMsgType.PONG:
                self._release_message(len(message.data))
            else:
                return
            await asyncio.sleep(0)  # other tasks run between many small messages

    async def _pong(self, data: bytes) -> bool:
        """Answers a ping. Returns False after closing the connection, if there were too many."""
        now = asyncio.get_running_loop().time()
        if len(self._pings) == PINGS and now - self._pings[0] < 1.0:
            await self._socket.close(code=WSCloseCode.POLICY_VIOLATION, message=b"too many pings")
            return False
        self._pings.append(now)
        await self._socket.pong(data)
        return True

    async def _take(self, raw: bytes) -> None:
        """Processes a text message: begins or queues its request, or sends an error event."""
        self._release_message(len(raw))
        stream_id: str | None = None
        share = BodyShare(self._budget, self._owner)
        try:
            share.take(len(raw))
            _, message, halves = await parse_mended(raw, self._limits)
            stream_id = read_stream_id(message)
            create = read_create(message)
            large = len(raw) > OFFLOAD_BYTES
            body = await offload(large, dumper(large), create.body)
            self._enqueue(Waiting(create, body, share, halves))
        except GatewayError as error:
            share.release()
            await self._send_error(error, stream_id)

    async def _send_error(self, error: GatewayError, stream_id: str | None = None) -> None:
        await self._socket.send_frame(fault_event(error, stream_id), WSMsgType.TEXT)

    # --- lanes ------------------------------------------------------------------------------------------------------

    @property
    def _in_flight(self) -> int:
        return sum(lane.running is not None for lane in self._lanes.values())

    def _enqueue(self, waiting: Waiting) -> None:
        """Begins a request or queues it. Raises `ClientFault` `websocket_stream_limit_reached`, and the reason of the
        end if the connection is ending."""
        if self._leaving is not None:
            raise self._leaving.with_traceback(None)  # raised repeatedly: tracebacks would pile up
        lane = self._lane(waiting.create.stream_id)
        most = self._config.in_flight
        if lane.running is None:
            if self._in_flight >= most:
                raise _limit(f"{most} responses of this connection are under way", "in_flight")
            lane.running = asyncio.get_running_loop().create_task(self._run(lane, waiting))
        elif sum(len(one.waiting) for one in self._lanes.values()) >= most:
            raise _limit(f"{most} requests of this connection wait already", "in_flight")
        else:
            lane.waiting.append(waiting)

    def _lane(self, name: str | None) -> Lane:
        lane = self._lanes.get(name)
        if lane is None:
            if name is not None and len(self._lanes) - (None in self._lanes) >= self._config.lanes:
                raise _limit(f"this connection has {self._config.lanes} lanes", "lanes", "stream_id")
            lane = self._lanes[name] = Lane(name, LaneMemory(self._sockets.memory, self._memories))
            self._memories.append(lane.memory)
        return lane

    async def _run(self, lane: Lane, waiting: Waiting) -> None:
        """Answers a request, and then those that are queued behind it."""
        try:
            await self._answer(lane, waiting)
            while lane.waiting:
                waiting = lane.waiting.popleft()
                if self._leaving is None:
                    await self._answer(lane, waiting)
                else:
                    waiting.share.release()
                    await self._send_error(self._leaving, lane.name)
        except ConnectionError:
            pass  # the client has disconnected: the reading task ends too
        finally:
            lane.running = None
            self._end_if_idle()

    async def _answer(self, lane: Lane, waiting: Waiting) -> None:
        create = waiting.create
        waiting.share.release()  # the request counts its body itself
        writer = EventWriter(self._socket, lane.name)
        request = request_of(self._request, waiting.body, writer)
        request[LANE] = lane.memory
        if waiting.halves is not None:
            request[HALVES_FAULT] = waiting.halves
        try:
            await answer_message(self._request, request)
        except ConnectionError:
            raise
        except Exception:
            LOG.exception("a request on a WebSocket failed")
            await self._send_error(Defect("The gateway failed."), lane.name)
        if not writer.succeeded and create.previous is not None:
            await lane.memory.forget(create.previous)


def _limit(what: str, option: str, param: str | None = None) -> ClientFault:
    return ClientFault(
        f"Too much at once: {what}.",
        code="websocket_stream_limit_reached",
        param=param,
        hint=f"The limit is `websocket.{option}`.",
    )
