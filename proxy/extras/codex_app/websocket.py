"""An app-server on another machine: one text frame of a WebSocket per message.

Rules:

1. No `Origin` is sent, because the server treats clients that send one as web pages.
2. A redirect is an error. aiohttp would follow it when it opens a WebSocket, and send the configured headers there.
3. A frame that is too large is dropped after it was received, because only its text tells which thread it belongs to. A
   frame larger than any request, which the server may repeat, ends the connection.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from typing import Final

import aiohttp
from yarl import URL

from ...config import BackendConfig, LimitsConfig
from ...support.lines import HEAD_BYTES, OversizedLine
from ...support.tasks import cancel_all
from ...upstream.client.connections import unreachable
from ...upstream.client.sessions import connection_fault, refuse_redirect
from ...upstream.client.wire_proxy import proxy_for
from .transport import MOST_UNSENT, READ_BYTES, Transport, TransportBroken

HEARTBEAT_S: Final = 30.0
"""Interval of pings. A server that does not answer one for half of it counts as lost."""

CLOSING_S: Final = 2.0
"""Time that the server has for the closing handshake."""


class WebSocketTransport(Transport):
    """A WebSocket with a queue of unsent frames."""

    def __init__(
        self, session: aiohttp.ClientSession, socket: aiohttp.ClientWebSocketResponse, frame_bytes: int
    ) -> None:
        self._frame_bytes = frame_bytes
        self._session = session
        self._socket = socket
        self._unsent: deque[bytes] = deque()
        self._unsent_bytes = 0
        self._more = asyncio.Event()
        self._writing = asyncio.create_task(self._write())

    @classmethod
    async def connect(cls, config: BackendConfig, limits: LimitsConfig) -> WebSocketTransport:
        """Connects to the server at `config.url`. Raises `BackendFault`."""
        assert config.url is not None
        headers = {**({"Authorization": f"Bearer {config.api_key}"} if config.api_key else {}), **config.headers}
        session = aiohttp.ClientSession(proxy=proxy_for(URL(config.url), config), middlewares=(refuse_redirect,))
        try:
            socket = await session.ws_connect(
                config.url,
                headers=headers,
                max_msg_size=max(limits.frame_bytes, 2 * limits.body_bytes),
                heartbeat=HEARTBEAT_S,
                timeout=aiohttp.ClientWSTimeout(ws_close=CLOSING_S),
                ssl=config.verify_tls,
            )
        except aiohttp.ClientSSLError as error:
            await session.close()
            raise connection_fault(error) from None
        except (aiohttp.ClientError, OSError):
            await session.close()
            raise unreachable() from None
        except BaseException:
            await session.close()
            raise
        return cls(session, socket, limits.frame_bytes)

    def send(self, frame: bytes) -> None:
        if self._socket.closed or self._writing.done():
            raise TransportBroken("it has hung up")
        if self._unsent_bytes > MOST_UNSENT:
            raise TransportBroken("it does not read what it is sent")
        self._unsent.append(frame)
        self._unsent_bytes += len(frame)
        self._more.set()

    async def frames(self) -> AsyncIterator[bytes | OversizedLine]:
        read = 0
        async for message in self._socket:
            if message.type in (aiohttp.WSMsgType.TEXT, aiohttp.WSMsgType.BINARY):
                frame = message.data.encode() if isinstance(message.data, str) else bytes(message.data)
                yield frame if len(frame) <= self._frame_bytes else OversizedLine(frame[:HEAD_BYTES])
                read += len(frame)
                if read >= READ_BYTES:
                    read = 0
                    await asyncio.sleep(0)
        if (code := self._socket.close_code) == aiohttp.WSCloseCode.MESSAGE_TOO_BIG:
            raise TransportBroken("a frame is larger than anything that it may have to say")
        if (error := self._socket.exception()) is not None:
            raise TransportBroken(f"{type(error).__name__} (close code {code})")

    async def close(self) -> None:
        await cancel_all([self._writing])
        await self._socket.close()
        await self._session.close()

    async def _write(self) -> None:
        while True:
            await self._more.wait()
            self._more.clear()
            while self._unsent:
                frame = self._unsent.popleft()
                await self._socket.send_str(frame.decode())
                self._unsent_bytes -= len(frame)
