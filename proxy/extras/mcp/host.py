"""A process that speaks MCP with one server for the gateway: `python -m toolwire.extras.mcp.host`.

It is a separate process because a server can send a result of 50 MB, a million notifications, or a schema that takes a
minute to check. Here that delays only calls of the same server, and never the gateway's event loop. The frames to the
gateway (`frames`) are limited in size.

Rules:

1. The process lives as long as one connection. When the connection fails, it reports why and ends; the gateway starts
   another one.
2. It ends when its input closes, also if the gateway was killed, and kills all processes of its group, even if the
   event loop is blocked.
3. It answers each call exactly once, also a cancelled one. A host that does not is stuck, and the gateway kills it.
4. Requests of a server to the client (sampling, elicitation, roots) are declined; none of these abilities is announced.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import signal
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any, BinaryIO, Final

import anyio
import mcp_types as types
import orjson
from mcp import Client, MCPError
from mcp.client.streamable_http import streamable_http_client
from mcp.client.subscriptions import SubscriptionLost
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from ... import __version__
from ...servertools.source import is_allowed
from ...servertools.worker.guardian import adopt_orphans
from ...servertools.worker.leftovers import kill_children
from ...support.escapes import replace_words
from .addresses import http_client
from .contents import Part, parts_of
from .frames import HEAD, MAX_FRAME_BYTES, MAX_LISTING_BYTES, MAX_TOOLS, Frame, HostSettings
from .invalid_tools import InvalidToolFilter, filtered_streams
from .pipes import GRACE_S, MAX_MESSAGE_BYTES, ConnectionFailed, piped

HIDDEN: Final = "[hidden]"
LOST: Final = "The connection to the tool's server was lost"
_PATH: Final = re.compile(r"(https?://[^\s/?#]+)[/?#]\S*", re.IGNORECASE)
MAX_PAGES: Final = 64
MAX_SCHEMA_BYTES: Final = 128 * 1024
MAX_ERROR_CHARS: Final = 500
RELIST_S: Final = 1.0
RELIST_MOST_S: Final = 30.0
"""After a change the list is read again after the first pause. If it keeps changing, the pause doubles up to the second
(`next_pause`), because each reading costs the gateway the compilation of all schemas."""
LISTEN_AGAIN_S: Final = 5.0


class SessionForgotten(Exception):
    """The server has forgotten the session, so it did not run the call."""


class GatewayPipes:
    """The frames from and to the gateway."""

    def __init__(self, source: BinaryIO, target: BinaryIO) -> None:
        self._source = source
        self._target = target

    @classmethod
    def of_process(cls) -> GatewayPipes:
        """Returns a connection over the pipes of this process. From then on standard input is empty, and `print` writes
        to the standard error."""
        source, target = os.dup(0), os.dup(1)
        nowhere = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nowhere, 0)
        os.dup2(2, 1)
        return cls(os.fdopen(source, "rb"), os.fdopen(target, "wb"))

    def read(self) -> Frame | None:
        """Returns the next frame, or None at the end of the input. Blocks."""
        head = self._source.read(HEAD.size)
        if len(head) < HEAD.size:
            return None
        (size,) = HEAD.unpack(head)
        body = self._source.read(size)
        if len(body) < size:
            return None
        frame: Frame = json.loads(body)
        return frame

    def send(self, frame: Frame) -> None:
        """Sends a frame; blocks while the pipe is full. Raises `ValueError` if it is too large. Ignores a closed pipe:
        the reading side notices it."""
        try:
            body = orjson.dumps(frame)
        except TypeError:  # lone surrogates, which orjson refuses
            body = json.dumps(frame, ensure_ascii=False).encode("utf-8", "replace")
        if len(body) > MAX_FRAME_BYTES:
            raise ValueError("a frame is too large")
        with suppress(OSError, ValueError):
            self._target.write(HEAD.pack(len(body)) + body)
            self._target.flush()


class ServerConnection:
    """One connection to a server."""

    def __init__(self, gateway: GatewayPipes, settings: HostSettings) -> None:
        self.send = gateway.send
        self._settings = settings
        self._secrets = tuple(secret.encode() for secret in settings.secrets)
        self._frames: asyncio.Queue[Frame | None] = asyncio.Queue()
        self._calls: dict[int, anyio.CancelScope] = {}
        self._changed = asyncio.Event()
        self._broken = asyncio.Event()
        self._why: str | None = None
        self._sieve = InvalidToolFilter()

    def hide(self, text: str) -> str:
        """Returns the text with each secret replaced by `HIDDEN`."""
        return replace_words(text, self._secrets, HIDDEN) if self._secrets else text

    def hide_all(self, value: Any) -> Any:
        """Returns a JSON value with the secrets in its strings replaced. Member names and types stay unchanged.
        (Recursion is safe: the reader of a connection refuses deeply nested values.)"""
        if isinstance(value, str):
            return self.hide(value)
        if isinstance(value, list):
            return [self.hide_all(item) for item in value]
        if isinstance(value, dict):
            return {
                name: item if name == "type" and not isinstance(item, dict) else self.hide_all(item)
                for name, item in value.items()
            }
        return value

    def line(self, text: str) -> str:
        """Returns the text as one printable log line, without secrets."""
        return "".join(c if c.isprintable() else " " for c in self.hide(text))

    def hear(self, frame: Frame | None) -> None:
        """Queues a frame of the gateway; None means the end of its frames."""
        self._frames.put_nowait(frame)

    async def run(self) -> None:
        """Connects and serves until the gateway closes its pipe or the connection fails."""
        try:
            async with self._connected() as client, anyio.create_task_group() as tasks:
                info = client.server_info
                self.send(
                    {
                        "ready": True,
                        "server": self.line(info.name)[:200] if info is not None else None,
                        "version": self.line(info.version)[:100] if info is not None else None,
                        "protocol": client.protocol_version,
                    }
                )
                tasks.start_soon(self._watch)
                tasks.start_soon(self._list, client)
                if client.protocol_version in MODERN_PROTOCOL_VERSIONS and _tells_changes(client):
                    tasks.start_soon(self._listen, client)
                while (frame := await self._frames.get()) is not None:
                    if "call" in frame:
                        # Registered before it starts, because it may be cancelled at once.
                        scope = self._calls[frame["call"]] = anyio.CancelScope()
                        tasks.start_soon(self._call, client, frame, scope)
                    elif frame["cancel"] in self._calls:
                        self._calls[frame["cancel"]].cancel()
                tasks.cancel_scope.cancel()
        except* Exception as errors:
            kill_children()  # before the frame, because the gateway ends this process when it reads it
            self.send({"lost": self.line(self._why or _reason(errors))[:MAX_ERROR_CHARS]})

    @asynccontextmanager
    async def _connected(self) -> AsyncIterator[Client]:
        settings = self._settings
        async with AsyncExitStack() as stack:
            if settings.url is None:
                transport: Any = piped(
                    settings.argv, settings.env, log=self._log, log_left_out=self._log_left_out, broken=self._break
                )
            else:
                http = await stack.enter_async_context(http_client(settings))
                transport = streamable_http_client(settings.url, http_client=http, max_sse_event_size=MAX_MESSAGE_BYTES)
            client = Client(
                filtered_streams(transport, self._sieve),
                client_info=types.Implementation(name="toolwire", version=__version__),
                message_handler=self._noticed,
                mode="legacy" if settings.handshake else "auto",
                cache=None,
            )
            await stack.enter_async_context(client)
            self._sieve.version = client.protocol_version
            yield client

    def _log(self, line: bytes) -> None:
        self.send({"log": self.line(line.decode(errors="replace").strip())[:1000]})

    def _log_left_out(self, lines: int) -> None:
        self.send({"log": f"({lines} more lines, which are left out)"})

    def _break(self, why: str) -> None:
        self._why = self._why or why
        self._broken.set()

    async def _watch(self) -> None:
        """Raises `ConnectionFailed` when the connection fails."""
        await self._broken.wait()
        raise ConnectionFailed(self._why)

    # --- the list ---------------------------------------------------------------------------------------------------

    async def _noticed(self, message: object) -> None:
        if isinstance(message, types.ToolListChangedNotification):
            self._changed.set()

    async def _listen(self, client: Client) -> None:
        """Subscribes to changes of the list: newer servers announce them only to subscribers."""
        while True:
            with suppress(MCPError, SubscriptionLost, TimeoutError):
                async with client.listen(tools_list_changed=True) as changes:
                    self._changed.set()  # it may have changed since it was read
                    async for _ in changes:
                        self._changed.set()
            await asyncio.sleep(LISTEN_AGAIN_S)

    async def _list(self, client: Client) -> None:
        """Sends the list of tools, and sends it again after each change."""
        pause = RELIST_S
        while True:
            self._changed.clear()
            self.send(await self._listing(client))
            since = time.monotonic()
            await self._changed.wait()
            await asyncio.sleep(pause)
            pause = next_pause(pause, time.monotonic() - since - pause)

    async def _listing(self, client: Client) -> Frame:
        tools: list[Frame] = []
        left_out: list[Frame] = []
        room = MAX_LISTING_BYTES
        cursor: str | None = None
        for _ in range(MAX_PAGES):
            try:
                page = await client.list_tools(cursor=cursor)
            except MCPError as error:
                if error.code == types.METHOD_NOT_FOUND and cursor is None:
                    break  # it has prompts or resources only
                raise
            for name in self._sieve.left_out[:MAX_TOOLS]:
                left_out.append({"name": name[:200], "why": "its definition does not follow the protocol"})
            self._sieve.left_out.clear()
            for tool in page.tools:
                if not is_allowed(tool.name, self._settings.allow, self._settings.deny):
                    continue
                shown = self._shown(tool)
                size, why = _size(shown)
                if why is None and len(tools) >= MAX_TOOLS:
                    why = f"there are more than {MAX_TOOLS} tools"
                if why is None and size > room:
                    why = f"the tools have more than {MAX_LISTING_BYTES} bytes together"
                if why is None:
                    room -= size
                    tools.append(shown)
                elif len(left_out) < MAX_TOOLS:
                    left_out.append({"name": shown["name"][:200], "why": why})
            cursor = page.next_cursor
            if not cursor:
                break
        else:
            left_out.append({"name": "...", "why": f"the list has more than {MAX_PAGES} pages"})
        return {"tools": tools, "left_out": left_out}

    def _shown(self, tool: types.Tool) -> Frame:
        shown: Frame = {"name": tool.name, "inputSchema": self.hide_all(tool.input_schema)}
        if tool.title is not None:
            shown["title"] = self.hide(tool.title)
        if tool.description is not None:
            shown["description"] = self.hide(tool.description)
        if tool.annotations is not None:
            annotations = tool.annotations.model_dump(by_alias=True, mode="json", exclude_none=True)
            shown["annotations"] = self.hide_all(annotations)
        return shown

    # --- calls ------------------------------------------------------------------------------------------------------

    async def _call(self, client: Client, frame: Frame, scope: anyio.CancelScope) -> None:
        number = frame["call"]
        answer: Frame = {"result": number, "parts": [], "failed": True}
        try:
            with scope:
                parts, failed = await self._called(client, frame["name"], frame["arguments"])
                answer = {"result": number, "parts": parts, "failed": failed}
        except SessionForgotten:
            answer |= {"parts": self._error(LOST), "forgotten": True}
        finally:
            del self._calls[number]
        self.send(answer)

    async def _called(self, client: Client, name: str, arguments: str) -> tuple[list[Part], bool]:
        most = self._settings.max_result_chars
        try:
            # Decoded here, so that arguments nested too deeply fail only this call.
            result = await client.call_tool(name, json.loads(arguments))
        except RecursionError:
            return self._error("Invalid parameters - The arguments are nested too deep to be sent"), True
        except MCPError as error:
            # Over HTTP each call has its own connection, and only that one may have been closed.
            closed = error.code == types.CONNECTION_CLOSED and self._settings.url is None
            forgotten = error.message == "Session terminated"
            if closed or forgotten:
                self._break(error.message)
            if forgotten:
                raise SessionForgotten from None
            return self._error(LOST if closed else error.message), True
        except Exception as error:
            return self._error(str(error) or type(error).__name__), True
        parts, whole = parts_of(result, most=most, hide=self.hide)
        failed = result.is_error or False
        if whole > most and self._settings.refuse_oversize:
            return self._error(f"Tool result has {whole} characters, the most is {most}"), True
        return parts, failed

    def _error(self, text: str) -> list[Part]:
        return [{"text": f"Error: {self.hide(text)}"[:MAX_ERROR_CHARS]}]


def next_pause(pause: float, rested_s: float) -> float:
    """Returns the seconds to wait before the list is read again, after the previous `pause` and `rested_s` seconds
    without a change."""
    return RELIST_S if rested_s >= RELIST_MOST_S else min(2 * pause, RELIST_MOST_S)


def _size(shown: Frame) -> tuple[int, str | None]:
    """Returns the size of a tool in bytes, and why it cannot be offered; None if it can."""
    try:
        schema = len(orjson.dumps(shown["inputSchema"]))
        size = len(orjson.dumps(shown))
    except (TypeError, ValueError, RecursionError):
        return 0, "it is no JSON that can be read"
    if schema > MAX_SCHEMA_BYTES:
        return size, f"its schema has {schema} bytes, the most is {MAX_SCHEMA_BYTES}"
    return size, None


def _tells_changes(client: Client) -> bool:
    tools = client.server_capabilities.tools
    return tools is not None and bool(tools.list_changed)


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for one in error.exceptions:
            yield from _leaves(one)
    else:
        yield error


def _reason(error: BaseException) -> str:
    """Returns in one line why the connection failed, from the most specific error. URLs are cut to their host, because
    some have a key in their path, and a redirect repeats it."""
    leaves = list(_leaves(error))
    best = next((one for one in leaves if isinstance(one, ConnectionFailed)), leaves[0])
    text = _PATH.sub(r"\1/...", " ".join(str(best).split()))
    return text if isinstance(best, ConnectionFailed | MCPError) and text else f"{type(best).__name__}: {text}"


def _die() -> None:
    """Kills all processes of the group, on Linux also those that have left it, and ends this process."""
    kill_children()
    if sys.platform != "win32" and hasattr(os, "killpg") and os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)
    os._exit(1)


def main() -> None:
    """Serves the gateway over the pipes of this process."""
    gateway = GatewayPipes.of_process()
    logging.disable()  # the SDK's log lines may quote what a server sent
    adopt_orphans()
    first = gateway.read()
    if first is None:
        return

    async def serve() -> None:
        host = ServerConnection(gateway, HostSettings(**first["settings"]))
        loop = asyncio.get_running_loop()

        def listen() -> None:
            while (frame := gateway.read()) is not None:
                loop.call_soon_threadsafe(host.hear, frame)
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(host.hear, None)
            time.sleep(3 * GRACE_S)
            _die()

        threading.Thread(target=listen, daemon=True).start()
        await host.run()

    try:
        asyncio.run(serve())
    finally:
        _die()


if __name__ == "__main__":
    main()
