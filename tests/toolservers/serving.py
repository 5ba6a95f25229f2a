"""A tool server as clients name them: the official SDK's, over streamable HTTP on loopback, in a thread."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import uvicorn
from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import ToolAnnotations
from starlette.types import ASGIApp, Receive, Scope, Send

from tests.waiting import GUARD_S

ODD_NAME = "files/read.v2"
SAID = "the disk is full"


@dataclass
class ToolServerAtWork:
    """A server and what it saw: `headers` of its requests, and the calls it was asked for."""

    port: int
    headers: list[Mapping[str, str]] = field(default_factory=list)
    calls: list[tuple[str, Mapping[str, Any]]] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/mcp"


def _with_tools(seen: ToolServerAtWork) -> MCPServer:
    server = MCPServer("tests", version="1")

    @server.tool(description="Adds two numbers.", annotations=ToolAnnotations(read_only_hint=True))
    def add(a: int, b: int) -> str:
        seen.calls.append(("add", {"a": a, "b": b}))
        return str(a + b)

    @server.tool(description="Writes a text.")
    def write(text: str) -> str:
        seen.calls.append(("write", {"text": text}))
        return f"written: {text}"

    @server.tool(description="Never works.")
    def fail() -> str:
        seen.calls.append(("fail", {}))
        raise ToolError(SAID)

    @server.tool(name=ODD_NAME, description="Reads.")
    def read(path: str) -> str:
        seen.calls.append((ODD_NAME, {"path": path}))
        return f"content of {path}"

    return server


def _noting(app: ASGIApp, seen: ToolServerAtWork) -> ASGIApp:
    async def noted(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            seen.headers.append({name.decode(): value.decode() for name, value in scope["headers"]})
        await app(scope, receive, send)

    return noted


@contextmanager
def tool_server() -> Iterator[ToolServerAtWork]:
    """One that is at work."""
    listener = socket.create_server(("127.0.0.1", 0))
    seen = ToolServerAtWork(listener.getsockname()[1])
    app = _noting(_with_tools(seen).streamable_http_app(host="127.0.0.1"), seen)
    config = uvicorn.Config(app, log_level="error", lifespan="on", ws="none", timeout_graceful_shutdown=1)
    server = uvicorn.Server(config)

    thread = threading.Thread(target=lambda: asyncio.run(server.serve(sockets=[listener])), daemon=True)
    thread.start()  # who connects before it has started waits in the queue of the listener
    try:
        yield seen
    finally:
        server.should_exit = True
        thread.join(GUARD_S)
