"""An MCP server with many tools, over its pipes: shelves of a library."""

from __future__ import annotations

from collections.abc import Callable

from mcp.server.mcpserver import MCPServer

SHELVES = 150


def shelf(number: int) -> Callable[[str], str]:
    def look(book: str) -> str:
        return f"shelf {number} has the {book}"

    return look


server = MCPServer("library", log_level="ERROR")
for number in range(SHELVES):
    tool = server.tool(
        name=f"shelf_{number}", description=f"Looks for a book on shelf {number}.", structured_output=False
    )
    tool(shelf(number))
server.run()
