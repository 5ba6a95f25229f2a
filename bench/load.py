"""The clients: connections that send one request after the other and read the answers, on plain asyncio protocols."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from bench.contestants import STAMP_US

_STAMP: Final = re.compile(rb'"(?:content|delta)":" (\d{14})"')  # Chat, Responses
_CALL: Final = re.compile(rb'"name":"get_weather"')
_CALL_DONE: Final = re.compile(rb'"type":"response\.function_call_arguments\.done"')
_LENGTH: Final = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_LONGEST_FRAME: Final = 512
_AT_ONCE: Final = 50


@dataclass(slots=True)
class Seen:
    """The observations of the clients, in seconds; `ages` are the delays of single frames from the model server to the
    client."""

    latencies: list[float] = field(default_factory=list)
    first_bytes: list[float] = field(default_factory=list)
    ages: list[float] = field(default_factory=list)
    calls: int = 0
    failed: list[bytes] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Ask:
    """A request: path and body."""

    path: str
    body: bytes

    @property
    def raw(self) -> bytes:
        """Returns the request as HTTP."""
        head = "POST {} HTTP/1.1\r\nHost: bench\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n"
        return head.format(self.path, len(self.body)).encode() + self.body

    def is_answered(self, stream: bytes) -> bool:
        """Returns True if a stream has the required end."""
        if self.path.endswith("/responses"):
            return b'"type":"response.completed"' in stream
        if self.path.endswith("/messages"):
            return b"event: message_stop" in stream[-256:]
        return b"data: [DONE]\n\n" in stream[-256:]

    def calls(self, answer: bytes) -> int:
        """Returns the number of calls of the weather tool in an answer."""
        return len((_CALL_DONE if self.path.endswith("/responses") else _CALL).findall(answer))


class _Client(asyncio.Protocol):
    """One connection, with one request at a time."""

    def __init__(self, seen: Seen, ask: Ask) -> None:
        self._seen = seen
        self._ask = ask
        self._done: asyncio.Future[None] | None = None
        self._first: asyncio.Future[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    async def ask(self) -> None:
        """Sends the request and waits for the end of its answer."""
        self._done = asyncio.get_running_loop().create_future()
        self._send()
        await self._done

    async def begin(self) -> None:
        """Sends the request and waits for the first frame with a time stamp."""
        self._first = asyncio.get_running_loop().create_future()
        self._send()
        await self._first

    def _send(self) -> None:
        self._sent = time.monotonic()
        self._answer = bytearray()
        self._read = 0
        self._end: int | None = None
        self._transport.write(self._ask.raw)

    def data_received(self, data: bytes) -> None:
        now = time.monotonic()
        if not self._answer:
            self._seen.first_bytes.append(now - self._sent)
        self._answer += data
        self._look_at_frames(now)
        if self._end is None and (blank := self._answer.find(b"\r\n\r\n")) >= 0:
            length = _LENGTH.search(self._answer, 0, blank + 2)
            self._end = blank + 4 + int(length[1]) if length else 0
        if self._end is None:
            return
        if len(self._answer) >= self._end if self._end else self._answer.endswith(b"\r\n0\r\n\r\n"):
            self._finish(now)

    def connection_lost(self, error: Exception | None) -> None:
        for waiting in (self._done, self._first):
            if waiting is not None and not waiting.done():
                waiting.set_exception(error or ConnectionError("the connection was closed before the answer ended"))

    def close(self) -> None:
        """Closes the connection."""
        self._transport.close()

    def _look_at_frames(self, now: float) -> None:
        for stamp in _STAMP.finditer(self._answer, self._read):
            self._seen.ages.append(now - int(stamp[1]) / STAMP_US)
            self._read = stamp.end()
            if self._first is not None and not self._first.done():
                self._first.set_result(None)
        self._read = max(self._read, len(self._answer) - _LONGEST_FRAME)

    def _finish(self, now: float) -> None:
        answer = self._answer
        good = answer.startswith(b"HTTP/1.1 200") and (self._end or self._ask.is_answered(bytes(answer)))
        if good:
            self._seen.latencies.append(now - self._sent)
            self._seen.calls += self._ask.calls(bytes(answer))
        else:
            self._seen.failed.append(bytes(answer[:2000]))
        if self._done is not None:
            self._done.set_result(None)
        elif self._first is not None and not self._first.done():
            self._first.set_exception(ConnectionError(f"the answer is over: {bytes(answer[:500])!r}"))


async def load(port: int, ask: Ask, *, connections: int, requests: int, spread_s: float = 0) -> Seen:
    """Sends `requests` requests over this many connections, started over `spread_s` seconds. Returns the
    observations."""
    seen = Seen()
    left = requests

    async def one(number: int) -> None:
        nonlocal left
        await asyncio.sleep(number * spread_s / connections)
        client = await _connected(port, seen, ask)
        try:
            while left > 0:
                left -= 1
                await client.ask()
        finally:
            client.close()

    async with asyncio.timeout(120), asyncio.TaskGroup() as group:
        for number in range(connections):
            group.create_task(one(number))
    return seen


async def held(port: int, asks: Sequence[Ask], look: Callable[[], object]) -> None:
    """Calls `look` while the streams of all these requests are open, each after its first frame."""
    seen = Seen()
    clients: list[_Client] = []
    try:
        async with asyncio.timeout(120):
            for begin in range(0, len(asks), _AT_ONCE):
                new = [await _connected(port, seen, ask) for ask in asks[begin : begin + _AT_ONCE]]
                clients += new
                await asyncio.gather(*(client.begin() for client in new))
        look()
    finally:
        for client in clients:
            client.close()


async def _connected(port: int, seen: Seen, ask: Ask) -> _Client:
    loop = asyncio.get_running_loop()
    return (await loop.create_connection(lambda: _Client(seen, ask), "127.0.0.1", port))[1]


def quantile(values: Sequence[float], share: float) -> float:
    """Returns the value that this share of the values does not exceed; NaN without values."""
    ordered = sorted(values)
    return ordered[min(int(share * len(ordered)), len(ordered) - 1)] if ordered else float("nan")
