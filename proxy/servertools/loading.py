"""Loads one file: runs the module and reads its tools (R15.1, R15.2).

An exception or an endless loop in the module ends in a state that can be shown.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from .definition import ServerTool, read_tools
from .pool import ModuleGeneration


class LoadState(Enum):
    """The loading state of a module (R15.2)."""

    UNLOADED = "UNLOADED"
    LOADING = "LOADING"
    VALIDATING_TOOLS = "VALIDATING_TOOLS"
    LOADED_NO_TOOLS = "LOADED_NO_TOOLS"
    LOADED_WITH_TOOLS = "LOADED_WITH_TOOLS"
    FAILED_VALIDATION = "FAILED_VALIDATION"


@dataclass(frozen=True, slots=True)
class Loaded:
    """The tools of a loaded module, and the generation that runs them."""

    generation: ModuleGeneration
    tools: tuple[ServerTool, ...]


async def load(generation: ModuleGeneration, name: str, text: bytes, entered: Callable[[LoadState], None]) -> Loaded:
    """Runs `text`, the content of the file `name`, and returns its tools. Calls `entered` with each state on the way.

    Raises `ToolModuleError`; its kind is `TimeoutError` if loading took too long.
    """
    entered(LoadState.LOADING)
    declared = await generation.declare(name, text)
    entered(LoadState.VALIDATING_TOOLS)
    return Loaded(generation, read_tools(declared.tools, declared.handler, name.removesuffix(".py")))
