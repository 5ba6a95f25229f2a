"""One file to tools: the module's code is run in a thread of its own, under a time limit, and then looked at (R15.1,
R15.2).

Whatever the code does (raise anything, `sys.exit()`, loop for ever) ends in a state that can be shown. A thread whose
time is up is asked to end, and left behind if it does not.
"""

from __future__ import annotations

import asyncio
import inspect
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from itertools import count
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from .definition import Handler, ServerTool, ToolModuleError, read_tools
from .quiet import silenced
from .threads import Abandoned, interrupt

_NUMBERS: Final = count()
"""Makes the names in `sys.modules` unique in the process, whoever loads."""


class LoadState(Enum):
    """Where a module stands (R15.2)."""

    UNLOADED = "UNLOADED"
    LOADING = "LOADING"
    VALIDATING_TOOLS = "VALIDATING_TOOLS"
    LOADED_NO_TOOLS = "LOADED_NO_TOOLS"
    LOADED_WITH_TOOLS = "LOADED_WITH_TOOLS"
    FAILED_VALIDATION = "FAILED_VALIDATION"


@dataclass(frozen=True, slots=True)
class Loaded:
    """A module that was run, and its tools. `forget` removes it from `sys.modules`; what still runs keeps working."""

    name: str
    tools: tuple[ServerTool, ...]

    def forget(self) -> None:
        """The module is not to be used any more."""
        sys.modules.pop(self.name, None)


async def load(path: Path, source: bytes, limit_s: float, entered: Callable[[LoadState], None]) -> Loaded:
    """Run `source`, the content of the file at `path`, and read its tools. `entered` is told of the states on the way.

    Raises `ToolModuleError`; `TimeoutError` is its kind if that took longer than `limit_s`.
    """
    loop = asyncio.get_running_loop()
    outcome: asyncio.Future[Loaded] = loop.create_future()

    def say(state: LoadState) -> None:
        loop.call_soon_threadsafe(entered, state)

    def settle(result: Loaded | None, error: ToolModuleError | None) -> None:
        if outcome.done():  # nobody waits any more
            if result is not None:
                result.forget()
        elif error is not None:
            outcome.set_exception(error)
        elif result is not None:
            outcome.set_result(result)

    def work() -> None:
        result, error = None, None
        try:
            with silenced():
                result = _run(path, source, say)
        except ToolModuleError as known:
            error = known
        except BaseException as raised:
            error = ToolModuleError(type(raised).__name__, _text(raised))
        try:
            loop.call_soon_threadsafe(settle, result, error)
        except (RuntimeError, Abandoned):
            pass  # the server has stopped meanwhile, or the time is up just now

    entered(LoadState.LOADING)
    thread = threading.Thread(target=work, daemon=True, name=f"toolwire-load-{path.stem}")
    thread.start()
    try:
        async with asyncio.timeout(limit_s):
            return await outcome
    except TimeoutError:
        raise ToolModuleError("TimeoutError", f"Loading took more than {limit_s:g} s.") from None
    finally:
        if not outcome.done() or outcome.cancelled():
            interrupt(thread)


def _run(path: Path, source: bytes, say: Callable[[LoadState], None]) -> Loaded:
    module = ModuleType(f"toolwire_tools_{next(_NUMBERS)}.{path.stem}")
    module.__file__ = str(path)
    # Not by importlib: no bytecode is written, and what runs is what was read, whatever the clock of the file says.
    sys.modules[module.__name__] = module
    try:
        exec(compile(source, str(path), "exec", dont_inherit=True), module.__dict__)
        say(LoadState.VALIDATING_TOOLS)
        handler, declared = _declared(module)
        return Loaded(module.__name__, read_tools(declared, handler, path.stem))
    except BaseException:
        sys.modules.pop(module.__name__, None)
        raise


def _declared(module: ModuleType) -> tuple[Handler | None, Any]:
    """The handler and what the module declares: `get_tools()` in place of `TOOLS`; both may belong to
    `PromptGenerator`."""
    names = vars(module)
    made = names.get("PromptGenerator")
    owner = made() if inspect.isclass(made) else None
    handler = names.get("handle_tool_call") or getattr(owner, "handle_tool_call", None)
    get_tools = names.get("get_tools") or getattr(owner, "get_tools", None)
    if callable(get_tools):
        declared = get_tools()
        if inspect.isawaitable(declared):
            declared = asyncio.run(_result(declared))
    else:
        declared = names.get("TOOLS", getattr(owner, "TOOLS", None))
    return handler if callable(handler) else None, declared


async def _result(awaitable: Any) -> Any:
    return await awaitable


def _text(error: BaseException) -> str:
    """What a module's exception says, with the line for syntax errors; it may fail to say anything."""
    try:
        return str(error) or type(error).__name__
    except BaseException as worse:
        return f"its text cannot be had: {type(worse).__name__}"
