"""Finds the tools and the handler of a module (R15.1)."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import ModuleType
from typing import Any

Handler = Callable[[str, dict[str, Any]], Any]
"""`handle_tool_call(tool_name, tool_input) -> str`, or a coroutine function that returns a `str`."""


def declared(module: ModuleType) -> tuple[Handler | None, Any]:
    """Returns the handler (or None) and the declared tools: the result of `get_tools()`, or `TOOLS`. Both may be
    members of a class `PromptGenerator`, which is instantiated here. Runs the module's code and raises its
    exceptions."""
    names = vars(module)
    made = names.get("PromptGenerator")
    owner = made() if inspect.isclass(made) else None
    handler = names.get("handle_tool_call") or getattr(owner, "handle_tool_call", None)
    get_tools = names.get("get_tools") or getattr(owner, "get_tools", None)
    if callable(get_tools):
        tools = get_tools()
        if inspect.isawaitable(tools):
            import asyncio  # most modules do without, and it takes as long as all the rest of a worker

            async def result(awaitable: Any) -> Any:
                return await awaitable

            tools = asyncio.run(result(tools))
    else:
        tools = names.get("TOOLS", getattr(owner, "TOOLS", None))
    return handler if callable(handler) else None, tools


def is_coroutine(handler: Handler) -> bool:
    """Returns True if the handler is a coroutine function, or an object with an asynchronous `__call__`."""
    return inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(
        getattr(handler, "__call__", None)  # noqa: B004
    )


def text_of(error: BaseException) -> str:
    """Returns the text of a module's exception, with the line for syntax errors; a note if `str()` fails."""
    try:
        return str(error) or type(error).__name__
    except BaseException as worse:
        return f"its text cannot be had: {type(worse).__name__}"
