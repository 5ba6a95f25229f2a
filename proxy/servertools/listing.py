"""The list of server-side tools that `toolwire tools list` and `toolwire check` print."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from ..config import ToolsConfig
from .joined import source_of
from .pool import LoadState


def look(config: ToolsConfig) -> dict[str, Any]:
    """Loads the modules of the folder and connects to the MCP servers once. Returns the same object as `GET
    /admin/tools` of a gateway that has just started. Runs the modules' code."""
    patience = max((server.connect_timeout_s for server in config.mcp), default=0.0)
    source = source_of(replace(config, watch_s=0.0, mcp_wait_s=patience))

    async def once() -> dict[str, Any]:
        assert source is not None
        async with source.running():
            return source.shown()

    return asyncio.run(once())


def failed(shown: Mapping[str, Any]) -> bool:
    """Returns True if a module cannot be used or a server cannot be reached."""
    bad = any(module["state"] == LoadState.FAILED_VALIDATION.value for module in shown["modules"])
    return bad or any(server["state"] != "up" for server in shown.get("mcp", ()))


def lines(shown: Mapping[str, Any]) -> Iterator[str]:
    """Yields the lines of the list, as text for people."""
    if not shown["modules"] and shown["folder"] is not None:
        yield f"no module in {shown['folder']}"
    for module in shown["modules"]:
        yield f"{module['file']}: {module['state']}"
        if module["error"] is not None:
            yield f"  {module['error']['kind']}: {module['error']['message']}"
        yield from map(_tool, module["tools"])
    for server in shown.get("mcp", ()):
        version = " ".join(filter(None, (server["server"]["name"], server["server"]["version"])))
        yield f"MCP server {server['name']}: {server['state']}" + (f" ({version})" if version else "")
        if server["error"] is not None:
            yield f"  {server['error']}"
        yield from map(_tool, server["tools"])
        for tool in server["left_out"]:
            yield f"  {tool['tool']!r} is left out: {tool['why']}"


def _tool(tool: Mapping[str, Any]) -> str:
    description = " ".join((tool["description"] or "").split())
    return f"  {tool['name']}({', '.join(_parameters(tool['parameters']))}): {description}"


def _parameters(schema: Mapping[str, Any]) -> Iterator[str]:
    required = schema.get("required") or ()
    for name, part in (schema.get("properties") or {}).items():
        default = f" = {part['default']!r}" if isinstance(part, Mapping) and "default" in part else ""
        yield f"{name}{'' if name in required or default else '?'}{default}"
