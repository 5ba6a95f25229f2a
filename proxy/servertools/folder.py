"""Which server-side tools there are: all modules of a folder, watched for changes (R15.1, R15.2).

Rules:

1. A change is a change of the content of a Python file. Then all modules are loaded anew, as a generation: any of them
   may import what has changed. It takes the place of the one before at once and as a whole; calls that run finish with
   the generation that they began with.
2. A module that fails is shown as failed, with its error, and its tools of the generation before stay, with all that
   they import: a typo takes no tool away from clients. Without an earlier one the module has no tools. A file that is
   removed takes its tools along.
3. Names are unique in the folder. Of two modules with one name the first one, by file name, has it, and the other one
   fails.
4. A module that could not be tried, because the system had no process for it, is tried again at the next look.
5. A module that fails never stops the server. Looking and loading happen off the event loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from ..config import ToolsConfig
from ..errors import quote
from ..formats.toolset import ToolSet
from .calls import Calls
from .definition import NotTried, ServerTool, ToolModuleError
from .loading import Loaded, LoadState, load
from .pool import Generation, Pool
from .source import Tools
from .worker.sources import MAX_BYTES, MAX_FILES, Snapshot, read

LOG: Final = logging.getLogger("toolwire.tools")


@dataclass(slots=True)
class Module:
    """One file of the folder. `loaded` is the last version that worked. `failure` is what was wrong with the last one,
    `conflict` what is wrong with `loaded` beside other modules."""

    path: Path
    state: LoadState = LoadState.UNLOADED
    loaded: Loaded | None = None
    failure: ToolModuleError | None = None
    conflict: ToolModuleError | None = None
    told: tuple[str, str] | None = None
    """The error that is in the log already: kind and message."""

    @property
    def tools(self) -> tuple[ServerTool, ...]:
        """Those on offer."""
        return () if self.loaded is None or self.conflict is not None else self.loaded.tools

    @property
    def error(self) -> ToolModuleError | None:
        """Why the state is `FAILED_VALIDATION`."""
        return self.failure or self.conflict

    def shown(self) -> dict[str, Any]:
        """For `GET /admin/tools` and `toolwire tools list`. `stale`: the tools are those of an earlier version."""
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
    """The tools of a folder: a `ToolSource`."""

    def __init__(self, config: ToolsConfig) -> None:
        assert config.folder is not None
        self.folder = Path(config.folder).absolute()
        self.modules: dict[Path, Module] = {}
        self._config = config
        self._pool: Pool | None = None
        self._snapshot: Snapshot | None = None
        self._calls = Calls(config.timeout_s)
        self.tools = Tools(ToolSet(), partial(self._calls.run, {}))

    @asynccontextmanager
    async def running(self) -> AsyncIterator[ToolFolder]:
        """Load all modules, and watch them while the context lasts."""
        self._pool = pool = Pool(self._config)
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
        """The folder as `GET /admin/tools` shows it."""
        return {
            "folder": str(self.folder),
            "modules": [self.modules[path].shown() for path in sorted(self.modules)],
            "calls": {} if self._pool is None else self._pool.shown(),
        }

    async def refresh(self) -> bool:
        """Look at the folder, and load all modules if anything has changed, or rule 4 wants it. Says whether it has."""
        try:
            snapshot = await asyncio.to_thread(read, str(self.folder))
        except OSError as error:
            LOG.error("the tools folder cannot be read: %s", error.strerror)
            return False
        untried = any(isinstance(module.failure, NotTried) for module in self.modules.values())
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
        generation = self._pool.generation(snapshot)
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

    def _generations(self) -> set[Generation]:
        """Those whose tools are on offer."""
        return {module.loaded.generation for module in self.modules.values() if module.loaded is not None}

    async def _load(self, module: Module, generation: Generation, source: bytes | str) -> None:
        def enter(state: LoadState) -> None:
            module.state = state

        try:
            if isinstance(source, str):
                raise ToolModuleError("OSError", f"The file cannot be read: {source}.")
            module.loaded = await load(generation, module.path.name, source, enter)
            module.failure = None
        except ToolModuleError as error:
            module.failure = error

    def _assemble(self) -> None:
        """Settle the states and put the tools together (rule 3)."""
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
                if module.told != (module.error.kind, module.error.message):
                    module.told = module.error.kind, module.error.message
                    stale = ", the version before stays" if module.tools else ""
                    LOG.error(
                        "tool module %s: %s: %s%s", module.path.name, module.error.kind, module.error.message, stale
                    )
            else:
                module.told = None
                module.state = LoadState.LOADED_WITH_TOOLS if module.tools else LoadState.LOADED_NO_TOOLS
        by_name = {tool.name: tool for _, module in sorted(self.modules.items()) for tool in module.tools}
        self.tools = Tools(ToolSet(tool.spec for tool in by_name.values()), partial(self._calls.run, by_name))
        LOG.info("server-side tools: %s", ", ".join(by_name) or "none")

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(self._config.watch_s)
            try:
                await self.refresh()
            except Exception:
                LOG.exception("looking for changed tool modules failed; it is tried again")
