"""Which server-side tools there are: all modules of a folder, watched for changes (R15.1, R15.2).

Rules:

1. A change is a change of the content. A new version takes the place of the old one at once and as a whole; calls that
   run finish with the version that they began with.
2. A version that fails is shown as failed, with its error, and the tools of the version before stay: a typo takes no
   tool away from clients. Without an earlier version the module has no tools. A file that is removed takes its tools
   along.
3. Names are unique in the folder. Of two modules with one name the first one, by file name, has it, and the other one
   fails.
4. A module that fails never stops the server. Looking and loading happen off the event loop.
"""

from __future__ import annotations

import asyncio
import logging
import os
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
from .coroutine_runner import CoroutineRunner
from .definition import ServerTool, ToolModuleError
from .loading import Loaded, LoadState, load
from .quiet import filter_streams
from .source import Tools
from .threads import Threads

LOG: Final = logging.getLogger("toolwire.tools")


@dataclass(slots=True)
class Module:
    """One file of the folder. `source` is the version that was tried last (a text says why it could not be read),
    `loaded` the last one that worked. `failure` is what was wrong with `source`, `conflict` what is wrong with `loaded`
    beside other modules."""

    path: Path
    state: LoadState = LoadState.UNLOADED
    source: bytes | str | None = None
    loaded: Loaded | None = None
    failure: ToolModuleError | None = None
    conflict: ToolModuleError | None = None
    told: ToolModuleError | None = None
    """The error that is in the log already."""

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
        self._threads = Threads(config.threads)
        self._coroutines = CoroutineRunner(config.coroutines)
        self._calls = Calls(self._threads, self._coroutines, config.timeout_s, config.on_oversize)
        self.tools = Tools(ToolSet(), partial(self._calls.run, {}))

    @asynccontextmanager
    async def running(self) -> AsyncIterator[ToolFolder]:
        """Load all modules, and watch them while the context lasts."""
        undo = filter_streams()
        await self.refresh()
        watching = asyncio.get_running_loop().create_task(self._watch()) if self._config.watch_s > 0 else None
        try:
            yield self
        finally:
            if watching is not None:
                watching.cancel()
                await asyncio.wait({watching})
            self._coroutines.close()
            for module in self.modules.values():
                if module.loaded is not None:
                    module.loaded.forget()
            undo()

    def shown(self) -> dict[str, Any]:
        """The folder as `GET /admin/tools` shows it."""
        return {
            "folder": str(self.folder),
            "modules": [self.modules[path].shown() for path in sorted(self.modules)],
            "calls": {
                "threads": {"most": self._threads.most, "running": self._threads.running, "stuck": self._threads.stuck},
                "coroutines": {
                    "most": self._coroutines.most,
                    "running": self._coroutines.running,
                    "stuck": self._coroutines.stuck,
                },
            },
        }

    async def refresh(self) -> bool:
        """Load what is new or has changed, and forget what is gone. Says whether anything was."""
        sources = await asyncio.to_thread(self._read)
        if sources is None:
            return False
        gone = [self.modules.pop(path) for path in self.modules.keys() - sources.keys()]
        for path in sources.keys() - self.modules.keys():
            self.modules[path] = Module(path)
        changed = [self.modules[path] for path, source in sources.items() if self.modules[path].source != source]
        if not gone and not changed:
            return False
        before = [module.loaded for module in (*gone, *changed)]
        await asyncio.gather(*(self._load(module, sources[module.path]) for module in changed))
        self._assemble()
        kept = {id(module.loaded) for module in self.modules.values()}
        for loaded in before:
            if loaded is not None and id(loaded) not in kept:
                loaded.forget()
        return True

    def _read(self) -> dict[Path, bytes | str] | None:
        """The content of every module's file, or why it cannot be read; None if the folder cannot: then all stays as it
        is."""
        found: dict[Path, bytes | str] = {}
        try:
            paths = [self.folder / name for name in os.listdir(self.folder) if name[0] not in "._"]
        except OSError as error:
            LOG.error("the tools folder cannot be read: %s", error.strerror)
            return None
        for path in paths:
            if path.suffix != ".py":
                continue
            try:
                found[path] = path.read_bytes()
            except FileNotFoundError:
                pass  # gone since the folder was listed
            except OSError as error:
                found[path] = str(error.strerror)
        return found

    async def _load(self, module: Module, source: bytes | str) -> None:
        def enter(state: LoadState) -> None:
            module.state = state

        module.source = source
        try:
            if isinstance(source, str):
                raise ToolModuleError("OSError", f"The file cannot be read: {source}.")
            module.loaded = await load(module.path, source, self._config.load_timeout_s, enter)
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
                if module.error is not module.told:
                    module.told = module.error
                    stale = ", the version before stays" if module.tools else ""
                    LOG.error(
                        "tool module %s: %s: %s%s", module.path.name, module.error.kind, module.error.message, stale
                    )
            else:
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
