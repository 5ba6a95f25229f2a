"""Requests, answers and notifications of many threads on one connection: JSON-RPC 2.0 without its version field.

Rules:

1. What the server says is matched by its `threadId` or `id`, never by its order.
2. Whatever the server asks to be allowed is declined (R10.11). A call of a tool is no such question: it is the
   thread's.
3. What cannot be read is left out and counted. A server that says nothing else is broken.
4. A server that does not answer, and says nothing else either, is broken: then the connection ends, and everybody on it
   is told at once.
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
from ...protocols.wire import BOUNDS, dump
from ...support.bounded_json import BoundExceeded, loads
from ...support.lines import HEAD_BYTES, OversizedLine
from ...support.offload import OFFLOAD_BYTES, offload
from ..connections import disconnected, too_large
from .transport import Broken, Transport

LOG: Final = logging.getLogger("toolwire.backends")

NO_METHOD: Final = -32601

ANSWER_S = 20.0
"""Requests are answered at once, whatever the model does; later than this the server is broken, if it says nothing
else."""

MOST_UNREADABLE: Final = 1000
"""So many frames in a row that cannot be read, and the server is broken."""

DECLINED: Final[Mapping[str, Any]] = {
    "item/commandExecution/requestApproval": {"decision": "decline"},
    "item/fileChange/requestApproval": {"decision": "decline"},
    "item/permissions/requestApproval": {"permissions": {}},
    "mcpServer/elicitation/request": {"action": "decline"},
    "item/tool/requestUserInput": {"answers": {}},
    "execCommandApproval": {"decision": "denied"},
    "applyPatchApproval": {"decision": "denied"},
}
"""What the server may ask, and the answer to it. The last two are of older servers."""

TOOL_CALL: Final = "item/tool/call"

_REPEATED: Final = re.compile(rb'"(?:type"\s*:\s*"userMessage|role"\s*:\s*"(?:user|developer))"')
_THREAD: Final = re.compile(rb'"threadId"\s*:\s*"([^"\\]{1,200})"')


class RpcError(Exception):
    """The server's answer to a request is an error."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data


class Inbox:
    """What was said of one thread and not yet read. More than `most` bytes altogether are a fault."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._size = 0
        self._messages: deque[Mapping[str, Any]] = deque()
        self._news = asyncio.Event()
        self._fault: GatewayError | None = None

    def put(self, message: Mapping[str, Any], size: int) -> None:
        """Something was said."""
        if self._fault is None:
            self._size += size
            if self._size > self._most:
                self.end(too_large(self._most))
            else:
                self._messages.append(message)
                self._news.set()

    def end(self, fault: GatewayError) -> None:
        """Nothing more will come."""
        self._fault = self._fault or fault
        self._news.set()

    async def take(self) -> list[Mapping[str, Any]]:
        """All that has come, at least one. Raises the fault when there is nothing else."""
        while not self._messages:
            if self._fault is not None:
                raise self._fault
            self._news.clear()
            await self._news.wait()
        taken = list(self._messages)
        self._messages.clear()
        return taken


class Connection:
    """JSON-RPC over `transport`. `name` is the backend's. Must be closed."""

    def __init__(self, name: str, transport: Transport) -> None:
        self.name = name
        self.server: Mapping[str, Any] = {}
        """What the server says of itself (`handshake`)."""
        self.useful = False
        """Whether an answer of a model has come over it."""
        self._transport = transport
        self._numbers = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._inboxes: dict[str, Inbox] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        self._heard = 0
        self._unreadable = 0
        self._over = asyncio.Event()
        self._reading = asyncio.create_task(self._read())
        self.spawn(self._watch())

    @property
    def alive(self) -> bool:
        """Whether it may still be used."""
        return not self._over.is_set()

    async def wait_over(self) -> None:
        """Until it is of no use any more."""
        await self._over.wait()

    async def close(self) -> None:
        """End it."""
        self._end()
        self._reading.cancel()
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(self._reading, *self._tasks, return_exceptions=True)
        await self._transport.close()

    async def handshake(self, version: str) -> None:
        """Say who is there. Raises `BackendFault`, or `RpcError`."""
        who = {"name": "toolwire", "title": "toolwire", "version": version}
        said = await self.request("initialize", {"clientInfo": who, "capabilities": {"experimentalApi": True}})
        self.server = said if isinstance(said, dict) else {}
        self._send({"method": "initialized"})

    # --- what is said -----------------------------------------------------------------------------------------------

    async def request(self, method: str, params: Mapping[str, Any]) -> Any:
        """The answer to a request. Raises `RpcError`, and `BackendFault` when the connection ends first."""
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
                answer.exception()  # it was seen, or nobody waits any more

    def spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Do something that does not end with who has begun it, but with the connection."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def listen(self, thread: str, most: int) -> Inbox:
        """From now on what is said of this thread goes there."""
        inbox = self._inboxes[thread] = Inbox(most)
        if not self.alive:
            inbox.end(disconnected())
        return inbox

    def ignore(self, thread: str) -> None:
        """What is said of this thread does not matter any more."""
        self._inboxes.pop(thread, None)

    async def abandon(self, thread: str, turn: str | None) -> None:
        """Stop the turn of a thread, if one is given, and let the server forget the thread. Raises nothing."""
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
        except Broken as error:
            self._break(str(error))
            raise disconnected() from None

    # --- what is heard ----------------------------------------------------------------------------------------------

    async def _read(self) -> None:
        why = "it has hung up"
        try:
            async for frame in self._transport.frames():
                self._heard += 1
                if isinstance(frame, OversizedLine):
                    self._too_large(frame)
                else:
                    await self._take(frame)
        except Broken as error:
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
                raise Broken(f"{MOST_UNREADABLE} frames in a row are not JSON-RPC")
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
        said = error if isinstance(error, dict) else {"message": str(error)}
        code, text = said.get("code"), said.get("message")
        answer.set_exception(RpcError(code if isinstance(code, int) else 0, str(text or ""), said.get("data")))

    def _notified(self, message: Mapping[str, Any], size: int) -> None:
        params = message.get("params")
        thread = params.get("threadId") if isinstance(params, dict) else None
        if isinstance(thread, str) and (inbox := self._inboxes.get(thread)) is not None:
            inbox.put(message, size)

    def _asked(self, method: str, number: int | str, message: Mapping[str, Any], size: int) -> None:
        """Rule 2."""
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
        """Only the thread that it was about is lost; nothing if it only repeats what was asked."""
        if _REPEATED.search(frame.head):
            return
        found = _THREAD.search(frame.head)
        LOG.warning(
            "backend %r: a frame is larger than `limits.frame_bytes`, or has too many values, and is left out",
            self.name,
        )
        inbox = self._inboxes.get(found[1].decode(errors="replace")) if found is not None else None
        if inbox is not None:
            inbox.end(BackendFault("A message of the model server is too large.", code="upstream_invalid_response"))

    def _break(self, why: str) -> None:
        """Rule 4."""
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
