"""Runs one call of a tool of the folder: its states (R15.4) and its result (R15.5).

A result is always a text for the model: a failed call is reported to the model and never becomes an HTTP error. The
return value or exception of a handler becomes that text in the worker (`worker.answers`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Final

from ..model import ToolUse
from ..observability.logs import log_fields
from ..repair.characters import valid_text
from .definition import MAX_NAME_CHARS, ServerTool
from .parameters import BadArguments
from .source import CallState, Enter, Result, unknown_tool
from .worker.answers import MAX_RESULT_CHARS

LOG: Final = logging.getLogger("toolwire.tools")


class CallProgress:
    """The state of one call. Each change writes a line to the log and calls `count` with the name of the new state."""

    def __init__(self, use: ToolUse, request_id: str, count: Callable[[str], object]) -> None:
        self.state = CallState.IDLE
        self._fields = {"request_id": request_id, "call_id": use.call_id, "tool": use.name[:MAX_NAME_CHARS]}
        self._count = count

    def enter(self, state: CallState) -> None:
        """Changes the state: calls `count` and writes the log line."""
        self._count(state.value)
        log_fields(LOG, "tool call", {**self._fields, "from": self.state.value, "state": state.value})
        self.state = state


class Calls:
    """Runs calls. `limit_s` limits the run time of each handler."""

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s

    async def run(self, tools: Mapping[str, ServerTool], use: ToolUse, left_s: float, enter: Enter) -> Result:
        """Runs the call if its tool is one of `tools`; returns its result, or an error result after at most `left_s`
        seconds. Calls `enter` with each state up to the final one. A cancellation aborts the handler.

        Every execution passes through this method, so wrap it to observe executions (with a span, for example).
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
    """Cuts a text to `MAX_RESULT_CHARS` characters and drops lone surrogates, which cannot be sent to a model."""
    return valid_text(text[:MAX_RESULT_CHARS])
