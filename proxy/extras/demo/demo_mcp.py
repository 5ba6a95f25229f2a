"""The demo's MCP server, `python -m toolwire.extras.demo.demo_mcp`: one tool, over its pipes. Needs the extra `mcp`,
which the demo includes."""

from __future__ import annotations

from typing import Final, Literal

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError

Unit = Literal["m", "km", "mi", "ft", "kg", "g", "lb"]

METRES: Final = {"m": 1.0, "km": 1000.0, "mi": 1609.344, "ft": 0.3048}
KILOGRAMS: Final = {"kg": 1.0, "g": 0.001, "lb": 0.45359237}


def convert(value: float, unit: Unit, to: Unit) -> str:
    """Convert a length or a mass from one unit to another."""
    for factors in (METRES, KILOGRAMS):
        if unit in factors and to in factors:
            return f"{value * factors[unit] / factors[to]:.6g} {to}"
    raise ToolError(f"{unit} and {to} do not measure the same")


def main() -> None:
    """Serves until the input pipe closes."""
    server = MCPServer("toolwire-demo", log_level="ERROR")
    server.tool(structured_output=False)(convert)
    server.run()


if __name__ == "__main__":
    main()
