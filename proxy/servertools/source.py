"""The protocol of tool sources: offering tools, and running their calls.

Rules:

1. The tools of a source change as a whole. A request takes `tools` once, and runs its calls with that object, so a
   later change does not affect it.
2. A call never raises: a failure is a result for the model (R15.6).
3. `Tools.run` is called with tools on offer; for other names there is `unknown_tool`.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from enum import Enum
from fnmatch import fnmatchcase
from hashlib import blake2b
from typing import Any, Final, Protocol

from ..formats.engine.toolset import ToolSet
from ..model import Image, Text, ToolSpec, ToolUse
from ..repair.characters import valid_text

MAX_NAME_SHOWN: Final = 1000 - len("Error: Unknown tool: ")
"""A result has at most 1000 characters (R15.5), and a model may write a name of any length."""

NOT_PERMITTED: Final = "Error: not run, this tool may not be used here. Go on without it."


class CallState(Enum):
    """The state of a call (R15.4)."""

    IDLE = "IDLE"
    TOOL_CALL_INITIATED = "TOOL_CALL_INITIATED"
    VALIDATING_PARAMETERS = "VALIDATING_PARAMETERS"
    EXECUTING_TOOL = "EXECUTING_TOOL"
    TOOL_COMPLETED = "TOOL_COMPLETED"
    EXECUTION_FAILED = "EXECUTION_FAILED"
    AWAITING_LLM_RESPONSE = "AWAITING_LLM_RESPONSE"


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a call, for the model. `failed`: it is an error. `parts` is set if there is more than text; then
    `text` is the plain version of them."""

    text: str
    failed: bool = False
    parts: tuple[Text | Image, ...] = ()

    @property
    def content(self) -> tuple[Text | Image, ...]:
        """The contents, in order: `parts`, or the text as the only one."""
        return self.parts or (Text(self.text),)


Enter = Callable[[CallState], None]
"""Called with each state of a call up to the final one."""

Run = Callable[[ToolUse, float, Enter], Awaitable[Result]]
"""Runs a call in at most the given seconds. A cancellation cancels it."""


@dataclass(frozen=True, slots=True, eq=False)
class Tools:
    """The tools of a source at one moment, and the function that runs their calls. Compared by identity, so that it can
    be a dictionary key."""

    specs: ToolSet
    run: Run

    @property
    def names(self) -> frozenset[str]:
        """The names of the tools."""
        return frozenset([tool.name for tool in self.specs])


async def _run_none(use: ToolUse, limit_s: float, enter: Enter) -> Result:
    return unknown_tool(use.name, enter)


NO_TOOLS: Final = Tools(ToolSet(), _run_none)
"""The tools of an empty source."""


class ToolSource(Protocol):
    """A source of tools that the gateway runs."""

    @property
    def tools(self) -> Tools:
        """The tools on offer now."""

    def running(self) -> AbstractAsyncContextManager[object]:
        """A context in which tools are on offer and calls are run."""

    def shown(self) -> dict[str, Any]:
        """Returns the source's entry of `GET /admin/tools`: origin of the tools, states, running calls."""


class RemoteTool(Protocol):
    """A tool of a server: `name` is the server's own name, `spec` the definition sent to models, `listed` the server's
    entry for it."""

    @property
    def name(self) -> str: ...
    @property
    def spec(self) -> ToolSpec: ...
    @property
    def listed(self) -> Mapping[str, Any]: ...


class RemoteTools(ToolSource, Protocol):
    """The tools of a server, such as an MCP server. `settled` is set once it has listed its tools, or has failed."""

    name: str
    settled: asyncio.Event

    @property
    def offered(self) -> Mapping[str, RemoteTool]:
        """The tools by the names that models are offered, in the server's order."""

    def start(self) -> None:
        """Begins to connect, and to reconnect whenever the connection is lost."""

    async def close(self) -> None:
        """Disconnects."""


class NotListed(Exception):
    """A server has not listed its tools. The text says why."""


class Lease(Protocol):
    """The use of a tool server that a client named, until `close`."""

    @property
    def server(self) -> RemoteTools:
        """The server."""

    def close(self) -> None:
        """Ends the use. Further calls do nothing."""


class ClientToolServers(Protocol):
    """Tool servers that clients name in their requests (R26.2)."""

    def refusal(self, url: str) -> str | None:
        """Returns why the URL may not be contacted; None if it may."""

    async def lease(self, url: str, headers: Mapping[str, str], owner: str = "") -> Lease:
        """Returns a lease of a connected server for the client `owner`. Raises `NotListed`."""

    def running(self) -> AbstractAsyncContextManager[object]:
        """A context in which servers can be leased."""

    def shown(self) -> list[dict[str, Any]]:
        """Returns the connections as `GET /admin/tools` shows them."""


def not_permitted(enter: Enter) -> Result:
    """Returns the result of a call of a tool that the route forbids."""
    return _not_run(NOT_PERMITTED, enter)


def unknown_tool(name: str, enter: Enter) -> Result:
    """Returns the result of a call of a tool that is not on offer (R15.5)."""
    return _not_run(f"Error: Unknown tool: {valid_text(name[:MAX_NAME_SHOWN])}", enter)


def _not_run(why: str, enter: Enter) -> Result:
    for state in (CallState.TOOL_CALL_INITIATED, CallState.VALIDATING_PARAMETERS, CallState.EXECUTION_FAILED):
        enter(state)
    return Result(why, failed=True)


# --- names of remote tools --------------------------------------------------------------------------------------------


MAX_CHARS: Final = 64

_FITS: Final = re.compile(rf"[a-zA-Z0-9_-]{{1,{MAX_CHARS}}}")
_OTHER: Final = re.compile(r"[^a-zA-Z0-9_-]+")


def offered_name(name: str, prefix: str = "", most: int = MAX_CHARS) -> str:
    """Returns the name for models, of at most `most` characters."""
    whole = prefix + name
    if _FITS.fullmatch(whole) and len(whole) <= most:
        return whole
    mark = blake2b(name.encode("utf-8", "surrogatepass"), digest_size=4).hexdigest()
    spelled = _OTHER.sub("_", whole)[: most - len(mark) - 1]
    return f"{spelled}_{mark}"


def is_allowed(name: str, allow: Iterable[str], deny: Iterable[str]) -> bool:
    """Returns True if the server's name for a tool matches a pattern of `allow` and none of `deny`."""
    return any(fnmatchcase(name, one) for one in allow) and not any(fnmatchcase(name, one) for one in deny)
