"""What becomes of one call: its states (R15.4) and its result (R15.5).

A result is always a text for the model: what goes wrong with a call is said to the model and never becomes an HTTP
error. Whatever a handler gives or raises is turned into that text in the handler's own thread, because that may run the
handler's code as well (`__str__` of an exception).
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, Final, Literal

from ..model import ToolUse
from ..observability.logs import log_fields
from ..protocols.wire import whole
from .coroutine_runner import CoroutineRunner
from .definition import MAX_NAME_CHARS, ServerTool
from .parameters import BadArguments
from .source import CallState, Enter, Result
from .threads import Threads

LOG: Final = logging.getLogger("toolwire.tools")

MAX_RESULT_CHARS: Final = 1000
TIMED_OUT: Final = "Error: Tool execution timed out"
NO_THREAD: Final = "Error: Tool cannot be run now"
NO_TEXT: Final = "Error: Tool must return string"

OnOversize = Literal["cut", "error"]


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
    """Runs calls. `limit_s` bounds each, the wait for a thread included."""

    def __init__(self, threads: Threads, coroutines: CoroutineRunner, limit_s: float, on_oversize: OnOversize) -> None:
        self._threads = threads
        self._coroutines = coroutines
        self._limit_s = limit_s
        self._on_oversize: OnOversize = on_oversize

    async def run(self, tools: Mapping[str, ServerTool], use: ToolUse, limit_s: float, enter: Enter) -> Result:
        """The result of a call of one of `tools`, after at most `limit_s`. `enter` is told of each state up to the
        result's.

        The one place where every execution passes: what wants to see them (a span, say) goes around it. A cancellation
        gives up the handler.
        """
        enter(CallState.TOOL_CALL_INITIATED)
        enter(CallState.VALIDATING_PARAMETERS)
        result = await self._result(tools.get(use.name), use, enter, min(limit_s, self._limit_s))
        enter(CallState.EXECUTION_FAILED if result.failed else CallState.TOOL_COMPLETED)
        return result

    async def _result(self, tool: ServerTool | None, use: ToolUse, enter: Enter, limit_s: float) -> Result:
        if tool is None:
            return Result(_bounded(f"Error: Unknown tool: {use.name}"), failed=True)
        try:
            values = tool.parameters.values(use.arguments)
        except BadArguments as error:
            return Result(_bounded(f"Error: {error}"), failed=True)
        enter(CallState.EXECUTING_TOOL)
        answers = partial(_said, self._on_oversize)
        try:
            if tool.is_async:
                text = await self._coroutines.run(partial(_awaited, tool, values, answers), limit_s)
            else:
                text = await self._threads.run(partial(_called, tool, values, answers), limit_s)
        except TimeoutError:
            return Result(TIMED_OUT, failed=True)
        except RuntimeError as error:  # the system has no thread left
            LOG.error("no tool can be run: %s", error)
            return Result(NO_THREAD, failed=True)
        # A mark in front says which it is: a handler's own text may begin with "Error: ", too.
        return Result(text[1:], failed=text[0] == _FAILED)


_FAILED: Final = "-"
_FINE: Final = "+"

Answers = Callable[[object], str]


def _called(tool: ServerTool, values: dict[str, Any], answers: Answers) -> str:
    """The marked answer of a handler that blocks. In a thread of its own."""
    try:
        return answers(tool.handler(tool.name, values))
    except BaseException as error:
        return _raised(error)


async def _awaited(tool: ServerTool, values: dict[str, Any], answers: Answers) -> str:
    """The marked answer of a handler that is a coroutine. On the side loop."""
    try:
        awaitable: Awaitable[object] = tool.handler(tool.name, values)
        return answers(await awaitable)
    except BaseException as error:
        return _raised(error)


def _said(on_oversize: OnOversize, answer: object) -> str:
    if not isinstance(answer, str):
        if inspect.iscoroutine(answer):
            answer.close()  # from a handler that is no coroutine function: nobody awaits it
        return _FAILED + NO_TEXT
    # The methods of `str` itself: a subclass may have its own.
    length = str.__len__(answer)
    if length > MAX_RESULT_CHARS and on_oversize == "error":
        return f"{_FAILED}Error: Tool result has {length} characters, the most is {MAX_RESULT_CHARS}"
    return _FINE + _bounded(str.__getitem__(answer, slice(0, MAX_RESULT_CHARS)))


def _raised(error: BaseException) -> str:
    try:
        text = str(error)
    except BaseException:
        text = ""
    return _FAILED + _bounded(f"Error: {text if text.strip() else type(error).__name__}")


def _bounded(text: str) -> str:
    """At most so many characters, and whole ones: half a character cannot be sent to a model."""
    return whole(str.__getitem__(text, slice(0, MAX_RESULT_CHARS)))
