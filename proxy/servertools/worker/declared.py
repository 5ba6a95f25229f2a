"""Where a module has its tools and its handler (R15.1)."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import ModuleType
from typing import Any

Handler = Callable[[str, dict[str, Any]], Any]
"""`handle_tool_call(tool_name, tool_input) -> str`, or a coroutine function that gives a `str`."""


def declared(module: ModuleType) -> tuple[Handler | None, Any]:
    """The handler and what the module declares: `get_tools()` in place of `TOOLS`; both may belong to
    `PromptGenerator`, which is made here. Runs the module's code, and raises what that raises."""
    names = vars(module)
    made = names.get("PromptGenerator")
    owner = made() if inspect.isclass(made) else None
    handler = names.get("handle_tool_call") or getattr(owner, "handle_tool_call", None)
    get_tools = names.get("get_tools") or getattr(owner, "get_tools", None)
    if callable(get_tools):
        found = get_tools()
        if inspect.isawaitable(found):
            import asyncio  # most modules do without, and it takes as long as all the rest of a worker

            async def result(awaitable: Any) -> Any:
                return await awaitable

            found = asyncio.run(result(found))
    else:
        found = names.get("TOOLS", getattr(owner, "TOOLS", None))
    return handler if callable(handler) else None, found


def is_coroutine(handler: Handler) -> bool:
    """The handler is a coroutine function, or an object with an asynchronous `__call__`."""
    return inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(
        getattr(handler, "__call__", None)  # noqa: B004
    )


def text_of(error: BaseException) -> str:
    """What a module's exception says, with the line for syntax errors; it may fail to say anything."""
    try:
        return str(error) or type(error).__name__
    except BaseException as worse:
        return f"its text cannot be had: {type(worse).__name__}"
