"""One file to tools: the module's code is run, and what it declares is looked at (R15.1, R15.2).

Whatever the code does (raise anything, loop for ever) ends in a state that can be shown.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from .definition import ServerTool, read_tools
from .pool import Generation


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
    """The tools of a module that was run, and where it was."""

    generation: Generation
    tools: tuple[ServerTool, ...]


async def load(generation: Generation, name: str, text: bytes, entered: Callable[[LoadState], None]) -> Loaded:
    """Run `text`, the content of the file `name`, and read its tools. `entered` is told of the states on the way.

    Raises `ToolModuleError`; `TimeoutError` is its kind if that took too long.
    """
    entered(LoadState.LOADING)
    declared = await generation.declare(name, text)
    entered(LoadState.VALIDATING_TOOLS)
    return Loaded(generation, read_tools(declared.tools, declared.handler, name.removesuffix(".py")))
