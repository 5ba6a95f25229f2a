"""One MCP server as a source of tools (R26.1).

Rules:

1. The tools are those of the server's latest list. They stay on offer while the server is down; calls then fail at once
   with an error for the model. A server that has never answered has no tools.
2. A lost connection is opened again, after a pause that doubles with each failure.
3. Arguments are checked here before they are sent to the server (R15.6). Results are limited by the host.
4. Every wait for a server has a time limit, and a cancelled call is cancelled at the server too.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, Literal

from ...config import McpServerConfig
from ...configuration.mcp_secrets import secrets_of
from ...errors import quote
from ...formats.engine.toolset import ToolSet
from ...model import Image, Text, ToolSpec, ToolUse
from ...schemas.schema import SchemaProblem, ToolSchema, compile_schema
from ...servertools.definition import TIMED_OUT, BadArguments, read_arguments
from ...servertools.source import CallState, Enter, Result, Tools, offered_name, unknown_tool
from ...support.environment import environment
from ...support.offload import offload
from .frames import Frame, HostSettings
from .hosting import HostEnded, HostProcess

LOG: Final = logging.getLogger("toolwire.tools")

FIRST_WAIT_S: Final = 1.0
LONGEST_WAIT_S: Final = 60.0
STEADY_S: Final = 60.0
"""After a connection that lasted this long, the pause before the next attempt begins at `FIRST_WAIT_S` again."""

LOGGED_LEFT_OUT: Final = 5
MAX_MISTAKE_CHARS: Final = 1000
"""Maximum number of characters of an error message about invalid arguments."""

State = Literal["starting", "up", "down", "stopped"]
OnOversize = Literal["cut", "error"]


@dataclass(slots=True)
class ServerInfo:
    """Name, version and protocol that a server has reported."""

    name: str | None = None
    version: str | None = None
    protocol: str | None = None


@dataclass(frozen=True, slots=True)
class Listing:
    """The tools of a server at one moment, by their names for models, in the server's order."""

    tools: Mapping[str, McpTool] = field(default_factory=dict)
    left_out: tuple[LeftOut, ...] = ()


class McpServer:
    """A `ToolSource` over one server. `listing` and `tools` are replaced as a whole when the server's list changes.
    `permitted`: see `HostSettings`."""

    def __init__(
        self, config: McpServerConfig, on_oversize: OnOversize = "cut", permitted: tuple[str, ...] = ()
    ) -> None:
        self.config = config
        self.name = config.name
        self.state: State = "stopped"
        self.error: str | None = None
        """Why the server is down, or was the last time; without secrets."""
        self.info = ServerInfo()
        self.restarts = 0
        self.listing = Listing()
        self.listed = asyncio.Event()
        """Set after the server has listed its tools."""
        self.settled = asyncio.Event()
        """Set after the server has listed its tools or has failed for the first time."""
        self.changed: Callable[[], object] = _nothing
        """Called after `listing` has changed."""
        self.tools = Tools(ToolSet(), partial(self._run, self.listing))
        self._on_oversize: OnOversize = on_oversize
        self._permitted = permitted
        self._host: HostProcess | None = None
        self._slots = asyncio.Semaphore(config.concurrent)
        self._attempted = asyncio.Event()  # set when an attempt to connect has succeeded or failed
        self._keeping: asyncio.Task[None] | None = None
        self._closing = False
        self._new_listing: asyncio.Task[None] | None = None
        self._late: asyncio.TimerHandle | None = None

    @asynccontextmanager
    async def running(self) -> AsyncIterator[McpServer]:
        """Keeps a connection open while the context lasts. Does not wait for it; `listed` is set when it is ready."""
        self.start()
        try:
            yield self
        finally:
            await self.close()

    def start(self) -> None:
        """Starts to connect. Call `close` afterwards."""
        self.state, self._closing = "starting", False
        self._keeping = asyncio.get_running_loop().create_task(self._keep_connected())

    async def close(self) -> None:
        """Closes the connection and ends the host and its processes."""
        self._closing = True
        if self._keeping is not None:
            self._keeping.cancel()
            await asyncio.wait({self._keeping})
        self.state = "stopped"
        self._attempted.set()

    @property
    def offered(self) -> Mapping[str, McpTool]:
        """The tools by the names that models are offered, in the server's order."""
        return self.listing.tools

    def shown(self) -> dict[str, Any]:
        """Returns the server's entry of `GET /admin/tools`."""
        return {
            "name": self.name,
            "state": self.state,
            "error": self.error,
            "server": {"name": self.info.name, "version": self.info.version, "protocol": self.info.protocol},
            "restarts": self.restarts,
            "calls": {
                "most": self.config.concurrent,
                "running": self._host.running if self._host is not None else 0,
            },
            "tools": [
                {
                    "name": offered,
                    "tool": tool.name,
                    "description": tool.spec.description,
                    "parameters": tool.spec.parameters,
                }
                for offered, tool in self.listing.tools.items()
            ],
            "left_out": [{"tool": one.name, "why": one.why} for one in self.listing.left_out],
        }

    # --- calls ------------------------------------------------------------------------------------------------------

    async def _run(self, listing: Listing, use: ToolUse, limit_s: float, enter: Enter) -> Result:
        """Checks and runs a call. See `Run`."""
        tool = listing.tools.get(use.name)
        if tool is None:
            return unknown_tool(use.name, enter)
        enter(CallState.TOOL_CALL_INITIATED)
        enter(CallState.VALIDATING_PARAMETERS)
        result = await self._result(tool, use, limit_s, enter)
        enter(CallState.EXECUTION_FAILED if result.failed else CallState.TOOL_COMPLETED)
        return result

    async def _result(self, tool: McpTool, use: ToolUse, limit_s: float, enter: Enter) -> Result:
        arguments = use.arguments if use.arguments.strip() else "{}"
        try:
            values = read_arguments(arguments, self.config.max_arguments_bytes)
            for name in tool.spec.parameters.get("required", ()) if tool.spec.parameters else ():
                if name not in values:
                    raise BadArguments(f"Invalid parameters - Missing required parameter: {name}")
            if (flaw := tool.schema.check(arguments)) is not None:
                raise BadArguments(f"Invalid parameters - {flaw}")
        except BadArguments as error:
            return _failure(str(error)[:MAX_MISTAKE_CHARS])
        enter(CallState.EXECUTING_TOOL)
        return await self.call(tool.name, arguments, limit_s)

    async def call(self, name: str, arguments: str, limit_s: float | None = None) -> Result:
        """Calls a tool by the server's name for it and returns the result. `arguments` is the JSON text of an object;
        it is not checked. Never raises: failures are error results. A cancellation cancels the call. If the server has
        forgotten the session, which servers do when they restart, the call is made again in a new one, if the first
        attempt to begin one succeeds."""
        limit_s = self.config.timeout_s if limit_s is None else min(limit_s, self.config.timeout_s)
        try:
            async with asyncio.timeout(limit_s), self._slots:
                frame = await self._asked(name, arguments)
                if frame is not None and frame.get("forgotten"):
                    self._attempted.clear()
                    await self._attempted.wait()
                    frame = await self._asked(name, arguments)
                return _failure(self._away()) if frame is None else _result(frame)
        except TimeoutError:
            return Result(TIMED_OUT, failed=True)
        except HostEnded as lost:
            LOG.warning("MCP server %s: lost during a call of %s: %s", self.name, name[:100], lost)
            return _failure(f"The tool's server {self.name} was lost: {lost}")

    async def _asked(self, name: str, arguments: str) -> Frame | None:
        """Returns the host's answer to a call, or None if the server is not connected. Raises `HostEnded`."""
        host = self._host
        return await host.call(name, arguments) if host is not None and self.state == "up" else None

    def _away(self) -> str:
        return f"The tool's server {self.name} cannot be reached now" + (
            "" if self.error is None else f": {self.error}"
        )

    # --- the connection ---------------------------------------------------------------------------------------------

    async def _keep_connected(self) -> None:
        """Connects, and connects again after each failure (rule 2)."""
        loop = asyncio.get_running_loop()
        wait, handshake = FIRST_WAIT_S, False
        while True:
            began = loop.time()
            try:
                why = await self._one_connection(handshake)
            except Exception:
                LOG.exception("MCP server %s: the connection failed", self.name)
                if self._closing:
                    return  # the exception replaced the cancellation
                why = "internal error"
            reached = self.state == "up"
            if not reached:
                self._attempted.set()
            # Some servers written before 2026 end when a client asks for their version first; the next attempt does not
            # ask.
            handshake = handshake if reached else not handshake
            if reached and loop.time() - began > STEADY_S:
                wait = FIRST_WAIT_S
            self.state, self.error = "down", why
            self.restarts += 1
            self.settled.set()
            LOG.warning("MCP server %s: %s; the next attempt is in %.0f s", self.name, why, wait)
            await asyncio.sleep(wait)
            wait = min(2 * wait, LONGEST_WAIT_S)

    async def _one_connection(self, handshake: bool) -> str:
        """Connects and serves until the connection ends. Returns the reason."""
        try:
            self._host = await HostProcess.start(self._settings(handshake), self._heard)
        except HostEnded as lost:
            return str(lost)
        arrived = asyncio.get_running_loop().call_later(self.config.connect_timeout_s, self._host.kill)
        self._late = arrived
        try:
            why = await self._host.ended()
            if arrived.when() <= asyncio.get_running_loop().time() and not arrived.cancelled():
                why = f"it has not listed its tools within {self.config.connect_timeout_s:g} s"
            return why
        finally:
            arrived.cancel()
            host, self._host = self._host, None
            await host.close()

    def _settings(self, handshake: bool) -> HostSettings:
        config = self.config
        return HostSettings(
            argv=config.argv,
            env=environment(config.env, config.inherit, proxies=config.trust_env),
            url=config.url,
            headers=dict(config.headers),
            allow=config.allow,
            deny=config.deny,
            trust_env=config.trust_env,
            permitted=self._permitted,
            handshake=handshake,
            secrets=secrets_of(config),
            max_result_chars=config.max_result_chars,
            refuse_oversize=self._on_oversize == "error",
        )

    def _heard(self, frame: Frame) -> None:
        if "log" in frame:
            LOG.info("MCP server %s says: %s", self.name, frame["log"])
        elif "ready" in frame:
            self.info = ServerInfo(frame["server"], frame["version"], frame["protocol"])
        elif "tools" in frame:
            if self._late is not None:
                self._late.cancel()
            self._new_listing = asyncio.create_task(self._take(self._new_listing, self._host, frame))

    async def _take(self, before: asyncio.Task[None] | None, host: HostProcess | None, frame: Frame) -> None:
        """Reads a new list of tools, after the previous list has been read."""
        if before is not None:
            await asyncio.wait({before})
        try:
            listing = (self.config.prefix, frame["tools"], frame["left_out"])
            tools, left_out = await offload(True, read_listing, *listing)
        except Exception:
            LOG.exception("MCP server %s: the list of tools cannot be read", self.name)
            if host is not None:
                host.kill()
            return
        if host is None or host is not self._host:
            return  # a later connection sends its own list
        new = [one for one in left_out if one not in self.listing.left_out]
        for one in new[:LOGGED_LEFT_OUT]:
            LOG.warning("MCP server %s: the tool %s is left out: %s", self.name, quote(one.name), one.why)
        if len(new) > LOGGED_LEFT_OUT:
            LOG.warning("MCP server %s: %d more tools are left out", self.name, len(new) - LOGGED_LEFT_OUT)
        self.listing = Listing({tool.spec.name: tool for tool in tools}, left_out)
        self.tools = Tools(ToolSet(tool.spec for tool in tools), partial(self._run, self.listing))
        self.state, self.error = "up", None
        self.listed.set()
        self.settled.set()
        self._attempted.set()
        LOG.info("MCP server %s: %s", self.name, ", ".join(self.listing.tools) or "no tools")
        self.changed()


def _nothing() -> None:
    pass


def _failure(text: str) -> Result:
    return Result(f"Error: {text}", failed=True)


def _result(frame: Frame) -> Result:
    """Returns the result in a host's `result` frame."""
    parts = tuple(Image(part["image"]) if "image" in part else Text(part["text"]) for part in frame["parts"])
    text = "".join(part.text if isinstance(part, Text) else "[image]" for part in parts)
    images = any(isinstance(part, Image) for part in parts)
    return Result(text, frame["failed"], parts if images else ())


# --- the tools that are offered, with their names, and why others are not ---------------------------------------------


MAX_DESCRIPTION_CHARS: Final = 2000


@dataclass(frozen=True, slots=True)
class McpTool:
    """A tool of a server. `name` is the server's name for it, `spec` the definition sent to models, `listed` the
    server's entry (`name`, `title`, `description`, `inputSchema`, `annotations`, as far as present)."""

    name: str
    spec: ToolSpec
    schema: ToolSchema
    listed: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A tool that is not offered, and why. `name` is the server's name for it."""

    name: str
    why: str


def read_listing(
    prefix: str, listed: Sequence[Mapping[str, Any]], left_out: Sequence[Mapping[str, str]]
) -> tuple[tuple[McpTool, ...], tuple[LeftOut, ...]]:
    """Returns the tools that are offered, in the server's order, and the others. Slow: compiles every schema, so run it
    outside of the event loop."""
    tools: dict[str, McpTool] = {}
    others = [LeftOut(item["name"], item["why"]) for item in left_out]
    for item in listed:
        name = item["name"]
        offered = offered_name(name, prefix)
        if offered in tools:
            others.append(LeftOut(name, f"the server has another tool that is called {quote(offered)}"))
            continue
        try:
            schema = compile_schema(item["inputSchema"])
        except (SchemaProblem, ValueError, RecursionError) as error:
            others.append(LeftOut(name, f"its schema cannot be used: {_why(error)}"))
            continue
        description = (item.get("description") or item.get("title") or "")[:MAX_DESCRIPTION_CHARS]
        parameters = {"type": "object", "properties": {}, **item["inputSchema"]}
        spec = ToolSpec(offered, description or None, parameters, server=True)
        tools[offered] = McpTool(name, spec, schema, item)
    return tuple(tools.values()), tuple(others)


def _why(error: Exception) -> str:
    if isinstance(error, SchemaProblem) and error.path:
        return f"at `{error.where.removeprefix('.')}`: {error.message}"
    return str(error)[:500]
