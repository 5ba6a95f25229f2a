"""JSON-RPC 2.0 (without its version field): requests, answers and notifications of many threads on one connection.

Rules:

1. Messages of the server are assigned by `threadId` or `id`, never by order.
2. All requests of the server for permission are declined (R10.11). A tool call is not such a request: it goes to its
   thread.
3. Unreadable frames are skipped and counted. A server that sends nothing else is considered broken.
4. A server that does not answer and sends nothing else either is considered broken: the connection ends, and all
   waiting requests fail at once.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import re
from collections import deque
from collections.abc import Coroutine, Mapping
from contextlib import suppress
from typing import Any, Final

import orjson

from ...errors import BackendFault, GatewayError
from ...protocols.shared.wire import BOUNDS, dump
from ...support.bounded_json import BoundExceeded, loads
from ...support.lines import HEAD_BYTES, OversizedLine
from ...support.offload import OFFLOAD_BYTES, offload
from ...support.tasks import BackgroundTasks
from ...upstream.client.connections import disconnected, too_large
from .transport import Transport, TransportBroken

LOG: Final = logging.getLogger("toolwire.backends")

NO_METHOD: Final = -32601

ANSWER_S = 20.0
"""Time limit for an answer. Requests are answered at once, independently of the model; a server that sends nothing for
this long is considered broken."""

MOST_UNREADABLE: Final = 1000
"""After this many unreadable frames in a row the server is considered broken."""

DECLINED: Final[Mapping[str, Any]] = {
    "item/commandExecution/requestApproval": {"decision": "decline"},
    "item/fileChange/requestApproval": {"decision": "decline"},
    "item/permissions/requestApproval": {"permissions": {}},
    "mcpServer/elicitation/request": {"action": "decline"},
    "item/tool/requestUserInput": {"answers": {}},
    "execCommandApproval": {"decision": "denied"},
    "applyPatchApproval": {"decision": "denied"},
}
"""Requests of the server for permission, with the answers that decline them. The last two are of older servers."""

TOOL_CALL: Final = "item/tool/call"

_REPEATED: Final = re.compile(rb'"(?:type"\s*:\s*"userMessage|role"\s*:\s*"(?:user|developer))"')
_THREAD: Final = re.compile(rb'"threadId"\s*:\s*"([^"\\]{1,200})"')


class RpcError(Exception):
    """The server answered a request with an error."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data


class Inbox:
    """The unread messages of one thread. More than `most` bytes in total are an error."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._size = 0
        self._messages: deque[Mapping[str, Any]] = deque()
        self._news = asyncio.Event()
        self._fault: GatewayError | None = None

    def put(self, message: Mapping[str, Any], size: int) -> None:
        """Adds a message of `size` bytes."""
        if self._fault is None:
            self._size += size
            if self._size > self._most:
                self.end(too_large(self._most))
            else:
                self._messages.append(message)
                self._news.set()

    def end(self, fault: GatewayError) -> None:
        """Ends the inbox with an error, which `take` raises after the last message."""
        self._fault = self._fault or fault
        self._news.set()

    async def take(self) -> list[Mapping[str, Any]]:
        """Returns all unread messages; waits until there is at least one. Raises the error of `end` when there are none
        left."""
        while not self._messages:
            if self._fault is not None:
                raise self._fault
            self._news.clear()
            await self._news.wait()
        messages = list(self._messages)
        self._messages.clear()
        return messages


class RpcConnection:
    """JSON-RPC over `transport`. `name` is the backend's. Must be closed."""

    def __init__(self, name: str, transport: Transport) -> None:
        self.name = name
        self.server: Mapping[str, Any] = {}
        """The server's description of itself, from the handshake."""
        self.useful = False
        """True if an answer of a model has come over it."""
        self._transport = transport
        self._numbers = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._inboxes: dict[str, Inbox] = {}
        self._tasks = BackgroundTasks()
        self._heard = 0
        self._unreadable = 0
        self._over = asyncio.Event()
        self.spawn(self._read())
        self.spawn(self._watch())

    @property
    def alive(self) -> bool:
        """True if the connection can still be used."""
        return not self._over.is_set()

    async def wait_over(self) -> None:
        """Waits until the connection can no longer be used."""
        await self._over.wait()

    async def close(self) -> None:
        """Closes the connection and cancels its tasks."""
        self._end()
        await self._tasks.cancel()
        await self._transport.close()

    async def handshake(self, version: str) -> None:
        """Introduces the gateway to the server. Raises `BackendFault` or `RpcError`."""
        client = {"name": "toolwire", "title": "toolwire", "version": version}
        answer = await self.request("initialize", {"clientInfo": client, "capabilities": {"experimentalApi": True}})
        self.server = answer if isinstance(answer, dict) else {}
        self._send({"method": "initialized"})

    # --- sending ----------------------------------------------------------------------------------------------------

    async def request(self, method: str, params: Mapping[str, Any]) -> Any:
        """Returns the answer to a request. Raises `RpcError`, and `BackendFault` if the connection ends first or the
        server does not answer in time."""
        number = next(self._numbers)
        answer = self._waiting[number] = asyncio.get_running_loop().create_future()
        try:
            self._send({"id": number, "method": method, "params": params})
            heard = self._heard
            async with asyncio.timeout(ANSWER_S) as limit:
                return await answer
        except TimeoutError:
            if not limit.expired():
                raise
            if heard == self._heard:
                self._break(f"no answer to `{method}` in {ANSWER_S:g} s, nor anything else")
            raise BackendFault("The model server does not answer.", code="upstream_timeout") from None
        finally:
            self._waiting.pop(number, None)
            if answer.done() and not answer.cancelled():
                answer.exception()  # marks the exception as retrieved

    def spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Starts a task that ends with the connection, not with its creator."""
        return self._tasks.start(work)

    def listen(self, thread: str, most: int) -> Inbox:
        """Returns a new inbox for the messages of this thread."""
        inbox = self._inboxes[thread] = Inbox(most)
        if not self.alive:
            inbox.end(disconnected())
        return inbox

    def ignore(self, thread: str) -> None:
        """Drops the inbox of this thread."""
        self._inboxes.pop(thread, None)

    async def abandon(self, thread: str, turn: str | None) -> None:
        """Stops the turn of a thread, if one is given, and unsubscribes from the thread. Errors are ignored."""
        self.ignore(thread)
        with suppress(RpcError, GatewayError):
            if turn is not None:
                with suppress(RpcError):
                    await self.request("turn/interrupt", {"threadId": thread, "turnId": turn})
            await self.request("thread/unsubscribe", {"threadId": thread})

    def _send(self, message: Mapping[str, Any]) -> None:
        if not self.alive:
            raise disconnected()
        try:
            self._transport.send(dump(message))
        except TransportBroken as error:
            self._break(str(error))
            raise disconnected() from None

    # --- receiving --------------------------------------------------------------------------------------------------

    async def _read(self) -> None:
        why = "it has hung up"
        try:
            async for frame in self._transport.frames():
                self._heard += 1
                if isinstance(frame, OversizedLine):
                    self._too_large(frame)
                else:
                    await self._take(frame)
        except TransportBroken as error:
            why = str(error)
        except (OSError, ValueError) as error:
            why = f"{type(error).__name__}: {error}"
        self._break(why)

    async def _watch(self) -> None:
        await self._transport.wait_ended()
        self._break("the server has ended")

    async def _take(self, frame: bytes) -> None:
        try:
            message = await offload(True, loads, frame, BOUNDS) if len(frame) > OFFLOAD_BYTES else orjson.loads(frame)
        except BoundExceeded:
            self._too_large(OversizedLine(frame[:HEAD_BYTES]))
            return
        except ValueError:
            message = None
        method = message.get("method") if isinstance(message, dict) else None
        number = message.get("id") if isinstance(message, dict) else None
        if isinstance(method, str) and isinstance(number, int | str):
            self._asked(method, number, message, len(frame))
        elif isinstance(method, str):
            self._notified(message, len(frame))
        elif isinstance(message, dict) and ("result" in message or "error" in message):
            self._answered(number, message)
        else:
            self._unreadable += 1
            if self._unreadable == 1:
                LOG.warning("backend %r: a frame of %d bytes is not JSON-RPC", self.name, len(frame))
            if self._unreadable >= MOST_UNREADABLE:
                raise TransportBroken(f"{MOST_UNREADABLE} frames in a row are not JSON-RPC")
            return
        self._unreadable = 0

    def _answered(self, number: Any, message: Mapping[str, Any]) -> None:
        answer = self._waiting.get(number) if isinstance(number, int) else None
        if answer is None or answer.done():
            return
        error = message.get("error")
        if error is None:
            answer.set_result(message.get("result"))
            return
        details = error if isinstance(error, dict) else {"message": str(error)}
        code, text = details.get("code"), details.get("message")
        answer.set_exception(RpcError(code if isinstance(code, int) else 0, str(text or ""), details.get("data")))

    def _notified(self, message: Mapping[str, Any], size: int) -> None:
        params = message.get("params")
        thread = params.get("threadId") if isinstance(params, dict) else None
        if isinstance(thread, str) and (inbox := self._inboxes.get(thread)) is not None:
            inbox.put(message, size)

    def _asked(self, method: str, number: int | str, message: Mapping[str, Any], size: int) -> None:
        """Answers a request of the server (rule 2)."""
        if method == TOOL_CALL:
            self._notified(message, size)
            return
        if method in DECLINED:
            LOG.warning("backend %r asks for %s: declined", self.name, method)
            answer: Mapping[str, Any] = {"id": number, "result": DECLINED[method]}
        else:
            answer = {"id": number, "error": {"code": NO_METHOD, "message": "not supported by this client"}}
        with suppress(BackendFault):
            self._send(answer)

    def _too_large(self, frame: OversizedLine) -> None:
        """Fails the thread that an oversized frame belongs to. Ignores a frame that only repeats the request."""
        if _REPEATED.search(frame.head):
            return
        match = _THREAD.search(frame.head)
        LOG.warning(
            "backend %r: a frame is larger than `limits.frame_bytes`, or has too many values, and is left out",
            self.name,
        )
        inbox = self._inboxes.get(match[1].decode(errors="replace")) if match is not None else None
        if inbox is not None:
            inbox.end(BackendFault("A message of the model server is too large.", code="upstream_invalid_response"))

    def _break(self, why: str) -> None:
        """Logs the reason and ends the connection (rule 4)."""
        if self.alive:
            LOG.warning("backend %r: the connection is over: %s", self.name, why)
            self._end()

    def _end(self) -> None:
        if self._over.is_set():
            return
        self._over.set()
        for answer in self._waiting.values():
            if not answer.done():
                answer.set_exception(disconnected())
        for inbox in self._inboxes.values():
            inbox.end(disconnected())
