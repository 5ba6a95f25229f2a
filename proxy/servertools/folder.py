"""The tools of a folder: all its modules, loaded again when a file changes (R15.1, R15.2).

Rules:

1. When the content of a Python file changes, all modules are loaded again, as a new generation, because each may import
   the changed file. The new generation replaces the old one as a whole; running calls finish with the old one.
2. A module that fails to load is shown with its error, and keeps its tools of the previous generation, so that a typo
   takes no tool away from clients. Without a previous generation it has no tools. Deleting a file removes its tools.
3. Tool names are unique in the folder. If two modules declare the same name, the first by file name keeps it, and the
   other one fails.
4. A module that was not run because the system had no free process is loaded again at the next check.
5. A module that fails never stops the server. Reading and loading run outside of the event loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from ..config import ToolsConfig
from ..errors import quote
from ..formats.engine.toolset import ToolSet
from ..model import ToolUse
from ..observability.logs import log_fields
from ..repair.characters import valid_text
from .definition import MAX_NAME_CHARS, BadArguments, NotRun, ServerTool, ToolModuleError
from .pool import LoadedModule, LoadState, ModuleGeneration, WorkerPool, load_module
from .source import CallState, Enter, Result, Tools, unknown_tool
from .worker.answers import MAX_RESULT_CHARS
from .worker.sources import MAX_BYTES, MAX_FILES, FolderSnapshot, read

LOG: Final = logging.getLogger("toolwire.tools")


@dataclass(slots=True)
class Module:
    """One file of the folder. `loaded` is the last version that worked, `failure` the error of the latest version,
    `conflict` the error if another module has a tool of the same name."""

    path: Path
    state: LoadState = LoadState.UNLOADED
    loaded: LoadedModule | None = None
    failure: ToolModuleError | None = None
    conflict: ToolModuleError | None = None
    logged_error: tuple[str, str] | None = None
    """Kind and message of the last error that was logged, so that it is logged once."""

    @property
    def tools(self) -> tuple[ServerTool, ...]:
        """The tools that this module offers; empty if it has none or is in conflict."""
        return () if self.loaded is None or self.conflict is not None else self.loaded.tools

    @property
    def error(self) -> ToolModuleError | None:
        """The reason for the state `FAILED_VALIDATION`; None if there is no error."""
        return self.failure or self.conflict

    def shown(self) -> dict[str, Any]:
        """Returns the entry for `GET /admin/tools` and `toolwire tools list`. `stale`: the tools are of an earlier
        version."""
        error = self.error
        return {
            "module": self.path.stem,
            "file": self.path.name,
            "state": self.state.value,
            "error": None if error is None else {"kind": error.kind, "message": error.message},
            "stale": self.failure is not None and bool(self.tools),
            "tools": [
                {"name": tool.name, "description": tool.spec.description, "parameters": tool.spec.parameters}
                for tool in self.tools
            ],
        }


class ToolFolder:
    """The tools of a folder, as a `ToolSource`."""

    def __init__(self, config: ToolsConfig) -> None:
        assert config.folder is not None
        self.folder = Path(config.folder).absolute()
        self.modules: dict[Path, Module] = {}
        self._config = config
        self._pool: WorkerPool | None = None
        self._snapshot: FolderSnapshot | None = None
        self.tools = Tools(ToolSet(), partial(run_call, {}, config.timeout_s))

    @asynccontextmanager
    async def running(self) -> AsyncIterator[ToolFolder]:
        """Loads all modules, and watches them until the context ends."""
        self._pool = pool = WorkerPool(self._config)
        watching = None
        try:
            await self.refresh()
            if self._config.watch_s > 0:
                watching = asyncio.get_running_loop().create_task(self._watch())
            yield self
        finally:
            if watching is not None:
                watching.cancel()
                await asyncio.wait({watching})
            for generation in self._generations():
                generation.retire()
            await pool.close()

    def shown(self) -> dict[str, Any]:
        """Returns the folder's entry of `GET /admin/tools`."""
        return {
            "folder": str(self.folder),
            "modules": [self.modules[path].shown() for path in sorted(self.modules)],
            "calls": {} if self._pool is None else self._pool.shown(),
        }

    async def refresh(self) -> bool:
        """Loads all modules if a file has changed or a module has to be retried (rule 4). Returns whether it loaded
        them."""
        try:
            snapshot = await asyncio.to_thread(read, str(self.folder))
        except OSError as error:
            LOG.error("the tools folder cannot be read: %s", error.strerror)
            return False
        untried = any(isinstance(module.failure, NotRun) for module in self.modules.values())
        if (snapshot == self._snapshot and not untried) or self._pool is None:
            return False
        if not snapshot.complete and (self._snapshot is None or self._snapshot.complete):
            LOG.warning(
                "the tools folder has more than %d Python files or %d MiB: changes of the rest are not noticed",
                MAX_FILES,
                MAX_BYTES >> 20,
            )
        self._snapshot = snapshot
        before = self._generations()
        paths = {self.folder / name: source for name, source in snapshot.modules.items()}
        for path in self.modules.keys() - paths.keys():
            del self.modules[path]
        generation = ModuleGeneration(self._pool, snapshot)
        before.add(generation)
        await asyncio.gather(
            *(
                self._load(self.modules.setdefault(path, Module(path)), generation, paths[path])
                for path in sorted(paths)
            )
        )
        self._assemble()
        for unused in before - self._generations():
            unused.retire()
        return True

    def _generations(self) -> set[ModuleGeneration]:
        """Returns the generations whose tools are on offer."""
        return {module.loaded.generation for module in self.modules.values() if module.loaded is not None}

    async def _load(self, module: Module, generation: ModuleGeneration, source: bytes | str) -> None:
        def enter(state: LoadState) -> None:
            module.state = state

        try:
            if isinstance(source, str):
                raise ToolModuleError("OSError", f"The file cannot be read: {source}.")
            module.loaded = await load_module(generation, module.path.name, source, enter)
            module.failure = None
        except ToolModuleError as error:
            module.failure = error

    def _assemble(self) -> None:
        """Sets the state of each module, resolves name conflicts (rule 3) and builds `tools`."""
        owners: dict[str, str] = {}
        for _, module in sorted(self.modules.items()):
            module.conflict = None
            for tool in module.tools:
                if tool.name in owners:
                    message = f"The tool {quote(tool.name)} is already in {owners[tool.name]}."
                    module.conflict = ToolModuleError("DuplicateName", message)
                    break
            for tool in module.tools:
                owners[tool.name] = module.path.name
            if module.error is not None:
                module.state = LoadState.FAILED_VALIDATION
                if module.logged_error != (module.error.kind, module.error.message):
                    module.logged_error = module.error.kind, module.error.message
                    stale = "; the previous version stays in use" if module.tools else ""
                    LOG.error(
                        "tool module %s: %s: %s%s", module.path.name, module.error.kind, module.error.message, stale
                    )
            else:
                module.logged_error = None
                module.state = LoadState.LOADED_WITH_TOOLS if module.tools else LoadState.LOADED_NO_TOOLS
        by_name = {tool.name: tool for _, module in sorted(self.modules.items()) for tool in module.tools}
        self.tools = Tools(
            ToolSet(tool.spec for tool in by_name.values()), partial(run_call, by_name, self._config.timeout_s)
        )
        LOG.info("server-side tools: %s", ", ".join(by_name) or "none")

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(self._config.watch_s)
            try:
                await self.refresh()
            except Exception:
                LOG.exception("checking the tools folder for changes failed; it is retried")


# --- one call: its states (R15.4) and its result (R15.5), which is always a text for the model ------------------------


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


async def run_call(
    tools: Mapping[str, ServerTool], limit_s: float, use: ToolUse, left_s: float, enter: Enter
) -> Result:
    """Runs the call if its tool is one of `tools`; returns its result, or an error result after at most `left_s`
    seconds, of which the handler has `limit_s`. Calls `enter` with each state up to the final one. A cancellation
    aborts the handler."""
    tool = tools.get(use.name)
    if tool is None:
        return unknown_tool(use.name, enter)
    enter(CallState.TOOL_CALL_INITIATED)
    enter(CallState.VALIDATING_PARAMETERS)
    try:
        values = tool.parameters.values(use.arguments)
    except BadArguments as error:
        result = Result(f"Error: {error}", failed=True)
    else:
        enter(CallState.EXECUTING_TOOL)
        result = await tool.handler(tool.name, values, limit_s, left_s)
    enter(CallState.EXECUTION_FAILED if result.failed else CallState.TOOL_COMPLETED)
    # Lone surrogates cannot be sent to a model.
    return Result(valid_text(result.text[:MAX_RESULT_CHARS]), failed=result.failed)
