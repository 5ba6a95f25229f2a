"""Where tools come from that the gateway runs itself, in nobody's words: a folder of modules, and whatever else offers
tools and runs calls.

Rules:

1. What is on offer changes as a whole. A request takes `tools` once, and its calls are run by what it took, so that a
   change meets no call that was made before it.
2. A call never raises: what goes wrong in one is a result for the model (R15.6).
3. Whoever asks for calls asks for those of tools on offer; for others there is `unknown_tool`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, Protocol

from toolwire.formats.engine.toolset import ToolSet
from toolwire.model import Image, Text, ToolUse
from toolwire.protocols.shared.wire import whole

MAX_NAME_SHOWN: Final = 1000 - len("Error: Unknown tool: ")
"""A result has at most 1000 characters (R15.5), and a model may write anything for a name."""

NOT_PERMITTED: Final = "Error: not run, this tool may not be used here. Go on without it."


class CallState(Enum):
    """Where a call stands (R15.4)."""

    IDLE = "IDLE"
    TOOL_CALL_INITIATED = "TOOL_CALL_INITIATED"
    VALIDATING_PARAMETERS = "VALIDATING_PARAMETERS"
    EXECUTING_TOOL = "EXECUTING_TOOL"
    TOOL_COMPLETED = "TOOL_COMPLETED"
    EXECUTION_FAILED = "EXECUTION_FAILED"
    AWAITING_LLM_RESPONSE = "AWAITING_LLM_RESPONSE"


@dataclass(frozen=True, slots=True)
class Result:
    """What the model is told. `failed` if that is an error. `parts` where there is more than text: then `text` is what
    they say to whoever shows nothing else."""

    text: str
    failed: bool = False
    parts: tuple[Text | Image, ...] = ()

    @property
    def content(self) -> tuple[Text | Image, ...]:
        """What it holds, in order."""
        return self.parts or (Text(self.text),)


Enter = Callable[[CallState], None]
"""Is told of each state of a call up to the result's."""

Run = Callable[[ToolUse, float, Enter], Awaitable[Result]]
"""Runs a call, in at most so many seconds. A cancellation gives it up."""


@dataclass(frozen=True, slots=True, eq=False)
class Tools:
    """The tools of a source at one moment: what models are offered, and who runs their calls. Equal to nothing else, so
    that it can be a key of notes."""

    specs: ToolSet
    run: Run

    @property
    def names(self) -> frozenset[str]:
        """Of the tools."""
        return frozenset([tool.name for tool in self.specs])


async def _run_none(use: ToolUse, limit_s: float, enter: Enter) -> Result:
    return unknown_tool(use.name, enter)


NO_TOOLS: Final = Tools(ToolSet(), _run_none)
"""Those of no source."""


class ToolSource(Protocol):
    """Offers tools, and runs them."""

    @property
    def tools(self) -> Tools:
        """Those on offer now."""

    def running(self) -> AbstractAsyncContextManager[object]:
        """While this lasts tools are on offer, and calls are run."""

    def shown(self) -> dict[str, Any]:
        """The source as `GET /admin/tools` shows it: where the tools come from, their states, and the calls that
        run."""


def not_permitted(enter: Enter) -> Result:
    """The result of a call of a tool that the route forbids."""
    return _not_run(NOT_PERMITTED, enter)


def unknown_tool(name: str, enter: Enter) -> Result:
    """The result of a call of a tool that is not on offer (R15.5)."""
    return _not_run(f"Error: Unknown tool: {whole(name[:MAX_NAME_SHOWN])}", enter)


def _not_run(why: str, enter: Enter) -> Result:
    for state in (CallState.TOOL_CALL_INITIATED, CallState.VALIDATING_PARAMETERS, CallState.EXECUTION_FAILED):
        enter(state)
    return Result(why, failed=True)
