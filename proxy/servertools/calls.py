"""What becomes of one call: its states (R15.4) and its result (R15.5).

A result is always a text for the model: what goes wrong with a call is said to the model and never becomes an HTTP
error. Whatever a handler gives or raises is turned into that text where the handler runs (`worker.answers`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Final

from toolwire.model import ToolUse
from toolwire.observability.logs import log_fields
from toolwire.protocols.shared.wire import whole
from toolwire.servertools.definition import MAX_NAME_CHARS, ServerTool
from toolwire.servertools.parameters import BadArguments
from toolwire.servertools.source import CallState, Enter, Result, unknown_tool
from toolwire.servertools.worker.answers import MAX_RESULT_CHARS

LOG: Final = logging.getLogger("toolwire.tools")


class Trail:
    """The states of one call, each change a line in the log. `count` is called with the name of each state that is
    entered."""

    def __init__(self, use: ToolUse, request_id: str, count: Callable[[str], object]) -> None:
        self.state = CallState.IDLE
        self._fields = {"request_id": request_id, "call_id": use.call_id, "tool": use.name[:MAX_NAME_CHARS]}
        self._count = count

    def enter(self, state: CallState) -> None:
        """The call is in this state now."""
        self._count(state.value)
        log_fields(LOG, "tool call", {**self._fields, "from": self.state.value, "state": state.value})
        self.state = state


class Calls:
    """Runs calls. `limit_s` bounds each handler."""

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s

    async def run(self, tools: Mapping[str, ServerTool], use: ToolUse, left_s: float, enter: Enter) -> Result:
        """The result of a call of one of `tools`, after at most `left_s`. `enter` is told of each state up to the
        result's.

        The one place where every execution passes: what wants to see them (a span, say) goes around it. A cancellation
        gives up the handler.
        """
        tool = tools.get(use.name)
        if tool is None:
            return unknown_tool(use.name, enter)
        enter(CallState.TOOL_CALL_INITIATED)
        enter(CallState.VALIDATING_PARAMETERS)
        result = await self._result(tool, use, enter, left_s)
        enter(CallState.EXECUTION_FAILED if result.failed else CallState.TOOL_COMPLETED)
        return Result(_bounded(result.text), failed=result.failed)

    async def _result(self, tool: ServerTool, use: ToolUse, enter: Enter, left_s: float) -> Result:
        try:
            values = tool.parameters.values(use.arguments)
        except BadArguments as error:
            return Result(f"Error: {error}", failed=True)
        enter(CallState.EXECUTING_TOOL)
        return await tool.handler(tool.name, values, self._limit_s, left_s)


def _bounded(text: str) -> str:
    """At most so many characters, and whole ones: half a character cannot be sent to a model."""
    return whole(text[:MAX_RESULT_CHARS])
