"""An MCP server made with the SDK, of the newest protocol: over its pipes, or with `http` at a port that it prints."""

import asyncio
import json
import socket
import sys
from typing import Any

from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from pydantic import BaseModel

server = MCPServer("double", log_level="CRITICAL")


class Place(BaseModel):
    name: str
    floors: list[int]


class Password(BaseModel):
    password: str


@server.tool()
def add(a: int, b: int = 1) -> int:
    """Adds two numbers."""
    return a + b


@server.tool()
def place() -> Place:
    """A place."""
    return Place(name="Tür", floors=[1, 2])


@server.tool()
async def wait() -> str:
    """Waits for ever."""
    await asyncio.Event().wait()
    return "never"


@server.tool()
def fail() -> str:
    """Fails."""
    raise ToolError("nothing to be had")


@server.tool()
async def ask(ctx: Context[Any]) -> str:
    """Asks the user."""
    return str(await ctx.elicit("Your password?", Password))


@server.tool()
async def grow(ctx: Context[Any]) -> str:
    """Makes another tool."""

    def grown() -> str:
        """Has grown."""
        return "grown"

    server.add_tool(grown)
    await ctx.notify_tools_changed()
    return "done"


@server.tool()
def headers(ctx: Context[Any]) -> str:
    """The headers of the request."""
    request = ctx.request_context.request
    return json.dumps(dict(request.headers) if request is not None else None)


if sys.argv[1:] == ["http"]:
    import uvicorn

    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen()
    print(listener.getsockname()[1], flush=True)
    app = server.streamable_http_app()
    uvicorn.Server(uvicorn.Config(app, log_level="error")).run(sockets=[listener])
else:
    server.run()
