"""One MCP server as a source of tools (R26.1).

Rules:

1. The tools are those that the server listed last. They stay on offer while it is away: a call of one then fails at
   once, which the model is told. A server that has never answered has none.
2. A connection that is lost is made anew, after a while that doubles from one failure to the next.
3. Arguments are checked here, before the server sees them (R15.6). What comes back is bounded by the host.
4. Nothing that a server does is waited for without a bound, and a call that is given up is given up there too.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, Literal

from toolwire.config import McpServerConfig
from toolwire.errors import quote
from toolwire.extras.mcp.frames import Frame, HostSettings
from toolwire.extras.mcp.hosting import HostProcess, Lost
from toolwire.extras.mcp.listed import LeftOut, McpTool, read_listing
from toolwire.extras.mcp.secrets import secrets_of
from toolwire.formats.engine.toolset import ToolSet
from toolwire.model import Image, Text, ToolUse
from toolwire.servertools.definition import TIMED_OUT
from toolwire.servertools.parameters import BadArguments, read_arguments
from toolwire.servertools.source import CallState, Enter, Result, Tools, unknown_tool
from toolwire.support.environment import environment
from toolwire.support.offload import offload

LOG: Final = logging.getLogger("toolwire.tools")

FIRST_WAIT_S: Final = 1.0
LONGEST_WAIT_S: Final = 60.0
STEADY_S: Final = 60.0
"""After a connection that lasted so long the wait begins anew."""

LOGGED_LEFT_OUT: Final = 5
MAX_MISTAKE_CHARS: Final = 1000
"""Of what is said of arguments that do not fit."""

State = Literal["starting", "up", "down", "stopped"]
OnOversize = Literal["cut", "error"]


@dataclass(slots=True)
class Told:
    """What a server has said of itself."""

    name: str | None = None
    version: str | None = None
    protocol: str | None = None


@dataclass(frozen=True, slots=True)
class Listing:
    """What a server offers at one moment: by the names for models, in its order."""

    tools: Mapping[str, McpTool] = field(default_factory=dict)
    left_out: tuple[LeftOut, ...] = ()


class McpServer:
    """A `ToolSource` over one server. `listing` and `tools` are replaced as a whole when the server's list changes."""

    def __init__(self, config: McpServerConfig, on_oversize: OnOversize = "cut") -> None:
        self.config = config
        self.name = config.name
        self.state: State = "stopped"
        self.error: str | None = None
        """Why it is not up, or was not the last time; without secrets."""
        self.told = Told()
        self.restarts = 0
        self.listing = Listing()
        self.listed = asyncio.Event()
        """Set once it has said which tools it has."""
        self.settled = asyncio.Event()
        """Set once it has, or has failed for the first time."""
        self.changed: Callable[[], object] = _nothing
        """Called when `listing` has changed."""
        self.tools = Tools(ToolSet(), partial(self._run, self.listing))
        self._on_oversize: OnOversize = on_oversize
        self._host: HostProcess | None = None
        self._slots = asyncio.Semaphore(config.concurrent)
        self._keeping: asyncio.Task[None] | None = None
        self._closing = False
        self._new_listing: asyncio.Task[None] | None = None
        self._late: asyncio.TimerHandle | None = None

    @asynccontextmanager
    async def running(self) -> AsyncIterator[McpServer]:
        """Keep a connection while this lasts. Does not wait for the first one: `listed` tells of it."""
        self.start()
        try:
            yield self
        finally:
            await self.close()

    def start(self) -> None:
        """Begin to keep a connection. `close` must follow."""
        self.state, self._closing = "starting", False
        self._keeping = asyncio.get_running_loop().create_task(self._keep_connected())

    async def close(self) -> None:
        """End the connection, the host and whatever it has started."""
        self._closing = True
        if self._keeping is not None:
            self._keeping.cancel()
            await asyncio.wait({self._keeping})
        self.state = "stopped"

    def shown(self) -> dict[str, Any]:
        """The server as `GET /admin/tools` shows it."""
        return {
            "name": self.name,
            "state": self.state,
            "error": self.error,
            "server": {"name": self.told.name, "version": self.told.version, "protocol": self.told.protocol},
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
        """See `Run`."""
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
        """The result of a call by the server's own name for the tool. `arguments` is the text of a JSON object; it is
        not checked here. Never raises; a cancellation gives the call up."""
        limit_s = self.config.timeout_s if limit_s is None else min(limit_s, self.config.timeout_s)
        try:
            async with asyncio.timeout(limit_s), self._slots:
                host = self._host
                if host is None or self.state != "up":
                    return _failure(self._away())
                return _result(await host.call(name, arguments))
        except TimeoutError:
            return Result(TIMED_OUT, failed=True)
        except Lost as lost:
            LOG.warning("MCP server %s: lost during a call of %s: %s", self.name, name[:100], lost)
            return _failure(f"The tool's server {self.name} was lost: {lost}")

    def _away(self) -> str:
        return f"The tool's server {self.name} cannot be reached now" + (
            "" if self.error is None else f": {self.error}"
        )

    # --- the connection ---------------------------------------------------------------------------------------------

    async def _keep_connected(self) -> None:
        """Rule 2."""
        loop = asyncio.get_running_loop()
        wait, handshake = FIRST_WAIT_S, False
        while True:
            began = loop.time()
            try:
                why = await self._one_connection(handshake)
            except Exception:
                LOG.exception("MCP server %s: the connection failed", self.name)
                if self._closing:
                    return  # it took the place of the cancellation
                why = "internal error"
            reached = self.state == "up"
            # Some servers of before 2026 end when they are asked first what they are: the next time they are not.
            handshake = handshake if reached else not handshake
            if reached and loop.time() - began > STEADY_S:
                wait = FIRST_WAIT_S
            self.state, self.error = "down", why
            self.restarts += 1
            self.settled.set()
            LOG.warning("MCP server %s: %s; it is started again in %.0f s", self.name, why, wait)
            await asyncio.sleep(wait)
            wait = min(2 * wait, LONGEST_WAIT_S)

    async def _one_connection(self, handshake: bool) -> str:
        """Connect, and serve until that ends. Why it did."""
        try:
            self._host = await HostProcess.start(self._settings(handshake), self._heard)
        except Lost as lost:
            return str(lost)
        arrived = asyncio.get_running_loop().call_later(self.config.connect_timeout_s, self._host.kill)
        self._late = arrived
        try:
            why = await self._host.ended()
            if arrived.when() <= asyncio.get_running_loop().time() and not arrived.cancelled():
                why = f"it has not said within {self.config.connect_timeout_s:g} s which tools it has"
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
            handshake=handshake,
            secrets=secrets_of(config),
            max_result_chars=config.max_result_chars,
            refuse_oversize=self._on_oversize == "error",
        )

    def _heard(self, frame: Frame) -> None:
        if "log" in frame:
            LOG.info("MCP server %s says: %s", self.name, frame["log"])
        elif "ready" in frame:
            self.told = Told(frame["server"], frame["version"], frame["protocol"])
        elif "tools" in frame:
            if self._late is not None:
                self._late.cancel()
            self._new_listing = asyncio.create_task(self._take(self._new_listing, self._host, frame))

    async def _take(self, before: asyncio.Task[None] | None, host: HostProcess | None, frame: Frame) -> None:
        """A new list, after the one that came before."""
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
            return  # a later connection has a list of its own
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
        LOG.info("MCP server %s: %s", self.name, ", ".join(self.listing.tools) or "no tools")
        self.changed()


def _nothing() -> None:
    pass


def _failure(text: str) -> Result:
    return Result(f"Error: {text}", failed=True)


def _result(frame: Frame) -> Result:
    """What a host says became of a call."""
    parts = tuple(Image(part["image"]) if "image" in part else Text(part["text"]) for part in frame["parts"])
    text = "".join(part.text if isinstance(part, Text) else "[image]" for part in parts)
    images = any(isinstance(part, Image) for part in parts)
    return Result(text, frame["failed"], parts if images else ())
