"""The demo's MCP server, `python -m toolwire.extras.demo.mcp_server`: one tool, over its pipes. Needs the extra `mcp`,
which the demo includes."""

from __future__ import annotations

from typing import Literal

from mcp.server.mcpserver import MCPServer

Day = Literal["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]


def opening_hours(day: Day) -> str:
    """When the museum is open on a day of the week."""
    closes = "9 pm" if day == "Friday" else "6 pm"
    return f"On {day} the museum is open from 10 am to {closes}."


def main() -> None:
    """Serves until the input pipe closes."""
    server = MCPServer("toolwire-demo", log_level="ERROR")
    server.tool(structured_output=False)(opening_hours)
    server.run()


if __name__ == "__main__":
    main()
