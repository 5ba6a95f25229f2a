"""Several sources of tools combined into one: the folder, then the MCP servers in the order of the configuration.

Rules:

1. Tool names are unique. If an earlier source has the name, the later tool is not offered; its conflict is shown and
   logged once.
2. The start waits until each server has listed its tools or failed, up to a time limit, so that a slow or unreachable
   server does not keep the gateway from serving.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import replace
from functools import partial
from operator import is_
from typing import Any, Final, Literal

from ..config import McpServerConfig, ToolsConfig
from ..errors import quote
from ..formats.engine.toolset import ToolSet
from ..model import ToolUse
from ..registry import Registry, builtin_tool_sources
from .folder import ToolFolder
from .pool import LoadState
from .source import Enter, RemoteTools, Result, Tools, ToolSource, unknown_tool

LOG: Final = logging.getLogger("toolwire.tools")


def source_of(config: ToolsConfig, kinds: Registry[Any] | None = None) -> ToolSource | None:
    """Returns the source of the configured tools, or None if none are configured. `kinds`: the registry of tool
    sources; default: the built-in ones."""
    folder = None if config.folder is None else ToolFolder(config)
    if not config.mcp:
        return folder
    make: MakeServer = (builtin_tool_sources() if kinds is None else kinds).get("mcp")
    return JoinedTools(folder, [make(server, config.on_oversize) for server in config.mcp], config.mcp_wait_s)


MakeServer = Callable[[McpServerConfig, Literal["cut", "error"]], RemoteTools]
"""Makes the source of one MCP server from its entry and `tools.on_oversize`."""


class JoinedTools:
    """The tools of a folder and of MCP servers, as one `ToolSource`."""

    def __init__(self, folder: ToolFolder | None, servers: Sequence[RemoteTools], wait_s: float) -> None:
        self.folder = folder
        self.servers = servers
        self._wait_s = wait_s
        self._sources: list[tuple[str, ToolSource]] = [] if folder is None else [("the tools folder", folder)]
        self._sources += [(f"the MCP server {server.name}", server) for server in servers]
        self._parts: list[Tools] = []
        self._conflicts: dict[tuple[str, str], str] = {}
        self._tools = Tools(ToolSet(), partial(_run, {}))

    @property
    def tools(self) -> Tools:
        """The tools of all sources, combined again when a source has changed."""
        parts = [source.tools for _, source in self._sources]
        if len(parts) != len(self._parts) or not all(map(is_, parts, self._parts)):
            self._parts = parts
            self._join()
        return self._tools

    def _join(self) -> None:
        owners: dict[str, str] = {}
        runners: dict[str, Tools] = {}
        specs = []
        before, self._conflicts = self._conflicts, {}
        for (whose, _), tools in zip(self._sources, self._parts, strict=True):
            for spec in tools.specs:
                if (owner := owners.setdefault(spec.name, whose)) != whose:
                    why = f"its name is that of a tool of {owner}; give the server a `prefix`"
                    self._conflicts[whose, spec.name] = why
                    if (whose, spec.name) not in before:
                        LOG.error("the tool %s of %s is not offered: %s", quote(spec.name), whose, why)
                    continue
                specs.append(spec)
                runners[spec.name] = tools
        self._tools = Tools(ToolSet(specs), partial(_run, runners))

    @asynccontextmanager
    async def running(self) -> AsyncIterator[JoinedTools]:
        """A context in which all sources run. Waits for the servers at its start (rule 2)."""
        async with AsyncExitStack() as stack:
            stack.push_async_callback(self._close_servers)
            for server in self.servers:
                server.start()
            if self.folder is not None:
                await stack.enter_async_context(self.folder.running())
            with suppress(TimeoutError):
                async with asyncio.timeout(self._wait_s):
                    for server in self.servers:
                        await server.settled.wait()
            yield self

    async def _close_servers(self) -> None:
        """Closes all servers at the same time, because each may take some seconds."""
        await asyncio.gather(*(server.close() for server in self.servers))

    def shown(self) -> dict[str, Any]:
        """Returns the folder's entry and, under `mcp`, those of the servers."""
        _ = self.tools  # updates the conflicts
        folder: dict[str, Any] = {"folder": None, "modules": []} if self.folder is None else self.folder.shown()
        return {**folder, "mcp": [self._shown(server) for server in self.servers]}

    def _shown(self, server: RemoteTools) -> dict[str, Any]:
        shown = server.shown()
        whose = f"the MCP server {server.name}"
        taken = {tool["name"]: tool for tool in shown["tools"] if (whose, tool["name"]) in self._conflicts}
        return {
            **shown,
            "tools": [tool for tool in shown["tools"] if tool["name"] not in taken],
            "left_out": [
                *shown["left_out"],
                *({"tool": tool["tool"], "why": self._conflicts[whose, name]} for name, tool in taken.items()),
            ],
        }


async def _run(runners: Mapping[str, Tools], use: ToolUse, limit_s: float, enter: Enter) -> Result:
    """Runs a call by the source that has its tool. See `Run`."""
    tools = runners.get(use.name)
    if tools is not None:
        return await tools.run(use, limit_s, enter)
    return unknown_tool(use.name, enter)


# --- the list that `toolwire tools list` and `toolwire check` print ---------------------------------------------------


def tools_status(config: ToolsConfig) -> dict[str, Any]:
    """Loads the modules of the folder and connects to the MCP servers once. Returns the same object as `GET
    /admin/tools` of a gateway that has just started. Runs the modules' code."""
    patience = max((server.connect_timeout_s for server in config.mcp), default=0.0)
    source = source_of(replace(config, watch_s=0.0, mcp_wait_s=patience))

    async def once() -> dict[str, Any]:
        assert source is not None
        async with source.running():
            return source.shown()

    return asyncio.run(once())


def has_failures(shown: Mapping[str, Any]) -> bool:
    """Returns True if a module cannot be used or a server cannot be reached."""
    bad = any(module["state"] == LoadState.FAILED_VALIDATION.value for module in shown["modules"])
    return bad or any(server["state"] != "up" for server in shown.get("mcp", ()))


def status_lines(shown: Mapping[str, Any]) -> Iterator[str]:
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
