"""The worker processes of a tools folder: started on demand, one kept ready, replaced when they end.

Rules:

1. A worker runs one module or one call at a time, for one generation of the folder, so killing it costs one call.
2. At most `tools.processes` workers live, over all generations. An idle one is ended when another generation needs its
   place, and is started again when needed.
3. A call waits at most `tools.wait_s` for a worker, including its start; the handler's time limit begins with the
   handler. A call whose worker ended before the handler began is retried once.
4. While a generation is in use and a place is free, one worker stays ready with its modules loaded. Further workers end
   after `IDLE_S` without work. If workers end while they are prepared, the pause before the next attempt grows; a
   module that made one end is afterwards loaded only for its own calls.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import Any, Final

from ..config import ToolsConfig
from ..support.legible import visible
from ..support.tasks import BackgroundTasks
from .definition import TIMED_OUT, ModuleContents, NotRun, ServerTool, ToolModuleError, read_tools
from .process import WorkerEnded, WorkerProcess
from .source import Result
from .worker.sources import FolderSnapshot
from .worker.values import NotDeclarable, decode

LOG: Final = logging.getLogger("toolwire.tools")

IDLE_S: Final = 60.0
RETRY_S: Final = (0.0, 0.1, 0.5, 2.0, 10.0, 60.0)
"""Pauses before a worker is prepared again, by the number of consecutive failures."""

NO_PROCESS: Final = "Error: Tool cannot be run now, all processes are busy"
NOT_NOW: Final = "Error: Tool cannot be run now"


class NoWorker(Exception):
    """No worker is free in time, or none can be started. The message is for the model."""


class WorkerPool:
    """The worker processes of a folder."""

    def __init__(self, config: ToolsConfig) -> None:
        self.config = config
        self._free = asyncio.Semaphore(config.processes)
        self._workers: dict[WorkerProcess, ModuleGeneration] = {}
        self._idle: dict[WorkerProcess, float] = {}
        """The time on the loop's clock since which a worker is idle; the most recently used one is last."""
        self._all: set[WorkerProcess] = set()
        """All workers, including ended ones that are still being cleaned up."""
        self.warming = BackgroundTasks()
        self.closed = False
        self._warned = False
        self._tally = {"started": 0, "died": 0, "killed": 0}

    def shown(self) -> dict[str, Any]:
        """Returns limits and running calls for `GET /admin/tools`. `died` counts workers that ended by themselves,
        `killed` those over a limit or whose caller has gone."""
        running = len(self._workers) - len(self._idle)
        return {
            "processes": {"most": self.config.processes, "running": running, "idle": len(self._idle), **self._tally}
        }

    async def close(self) -> None:
        """Ends all workers."""
        self.closed = True
        closing = (worker.close() for worker in list(self._all))
        await asyncio.gather(self.warming.cancel(), *closing, return_exceptions=True)

    # --- workers ----------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def worker(self, generation: ModuleGeneration, wait_s: float | None) -> AsyncIterator[WorkerProcess]:
        """A worker for the time of the block. It is killed if the block raises. Raises `NoWorker`, after `wait_s` at
        the latest."""
        try:
            async with asyncio.timeout(wait_s):
                await self._free.acquire()
                try:
                    worker = await self._taken(generation)
                except BaseException:
                    self._free.release()
                    raise
        except TimeoutError:
            raise NoWorker(NO_PROCESS) from None
        except (WorkerEnded, OSError) as error:
            LOG.error("no worker process for tools can be started: %s", error)
            raise NoWorker(NOT_NOW) from None
        try:
            yield worker
        except BaseException:
            if worker.alive:
                self._tally["killed"] += 1
            worker.kill()
            worker.spent = True
            raise
        finally:
            self._take_back(worker, generation)
            self._free.release()

    async def _taken(self, generation: ModuleGeneration) -> WorkerProcess:
        for worker in reversed(self._idle):
            if self._workers[worker] is generation and worker.alive:
                del self._idle[worker]
                return worker
        if len(self._workers) >= self.config.processes:
            idle = next(iter(self._idle))
            del self._workers[
                idle
            ]  # before ending it, so that its generation does not ask for the place that becomes free here
            self._end(idle)
        if self.closed:
            raise NoWorker(NOT_NOW)
        worker = WorkerProcess(generation.snapshot, self.config, self._gone)
        self._all.add(worker)
        worker.watcher.add_done_callback(lambda _: self._all.discard(worker))
        self._workers[worker] = generation
        self._tally["started"] += 1
        try:
            self._warn(await worker.start())
        except BaseException:
            self._end(worker)
            raise
        return worker

    def _warn(self, unbound: tuple[str, ...]) -> None:
        if unbound and not self._warned:
            self._warned = True
            LOG.warning("the system cannot limit tools by %s", " and ".join(unbound))

    def _take_back(self, worker: WorkerProcess, generation: ModuleGeneration) -> None:
        """Takes a worker back: ends it, or marks it as idle."""
        if worker.spent or generation.retired or self.closed or not worker.alive:
            self._end(worker)
        elif worker in self._workers:
            loop = asyncio.get_running_loop()
            self._idle[worker] = loop.time()
            loop.call_later(IDLE_S, self._give_back)

    def _end(self, worker: WorkerProcess) -> None:
        worker.kill()
        worker.spent = True
        self._forget(worker)

    def _forget(self, worker: WorkerProcess) -> None:
        self._idle.pop(worker, None)
        generation = self._workers.pop(worker, None)
        if generation is not None and not self.has(generation):
            generation.keep_warm()

    def _gone(self, worker: WorkerProcess) -> None:
        if not worker.spent:
            self._tally["died"] += 1
            worker.spent = True
        self._forget(worker)

    def _give_back(self) -> None:
        now = asyncio.get_running_loop().time()
        seen = set()
        for worker, since in reversed(list(self._idle.items())):
            generation = self._workers[worker]
            if generation in seen and now - since >= IDLE_S:
                self._end(worker)
            seen.add(generation)

    def has(self, generation: ModuleGeneration) -> bool:
        """Returns True if a worker of the generation exists or is being started."""
        return generation in self._workers.values()

    def end_idle(self, generation: ModuleGeneration) -> None:
        """Ends the idle workers of a generation."""
        for worker in [worker for worker in self._idle if self._workers[worker] is generation]:
            self._end(worker)


class ModuleGeneration:
    """The modules of a folder as they were at one moment. Each generation runs its own modules in its own workers."""

    def __init__(self, pool: WorkerPool, snapshot: FolderSnapshot) -> None:
        self.snapshot = snapshot
        self.retired = False
        self._pool = pool
        self._alone = asyncio.Lock()
        self._ready: dict[str, None] = {}
        """Names of the modules that are loaded in advance."""
        self._is_warming = False

    async def declare(self, name: str, text: bytes) -> ModuleContents:
        """Runs the module in the file `name` and returns its declarations. Modules run one after the other in one
        worker, which then serves the first calls. Raises `ToolModuleError` if the module fails or takes too long,
        `NotRun` if no process was free."""
        limit_s = self._pool.config.load_timeout_s
        async with self._alone:
            try:
                async with self._pool.worker(self, None) as worker:
                    answer = await worker.load(name, text, limit_s)
            except TimeoutError:
                raise ToolModuleError("TimeoutError", f"Loading took more than {limit_s:g} s.") from None
            except WorkerEnded as error:
                raise ToolModuleError("ProcessEnded", f"The module's code {error.what}.") from None
            except NoWorker:
                raise NotRun("OSError", "No process can be started to run it; the log says why.") from None
        failed = answer.get("failed")
        if failed is not None:
            kind, message = map(str, failed) if isinstance(failed, list) and len(failed) == 2 else ("", "")
            raise ToolModuleError(kind, message)
        try:
            declared = ModuleContents(
                decode(answer.get("declared")), partial(self._call, name) if answer.get("handler") else None
            )
        except NotDeclarable as error:
            raise ToolModuleError("ValueError", str(error)) from None
        self._ready[name] = None
        return declared

    def retire(self) -> None:
        """Marks the generation as replaced and ends its idle workers. Calls that have begun are still run."""
        self.retired = True
        self._pool.end_idle(self)

    def keep_warm(self) -> None:
        """Starts a task that prepares a worker, if one is needed (rule 4)."""
        if self._ready and not self.retired and not self._pool.closed and not self._is_warming:
            self._is_warming = True
            self._pool.warming.start(self._warm())

    async def _warm(self) -> None:
        failures = 0
        while not self.retired and not self._pool.closed:
            await asyncio.sleep(RETRY_S[min(failures, len(RETRY_S) - 1)])
            try:
                async with self._alone:  # after modules that are being declared, which may leave a worker
                    if not self._pool.has(self):
                        async with self._pool.worker(self, None) as worker:
                            for name in list(self._ready):
                                await self._load(worker, name)
                break
            except (_NotLoaded, NoWorker):
                failures += 1
        self._is_warming = False

    async def _load(self, worker: WorkerProcess, name: str) -> None:
        """Loads a module, which was loaded before, in another worker. Raises `_NotLoaded`; then the worker must be
        killed."""
        text = self.snapshot.modules[name]
        assert isinstance(text, bytes)
        try:
            answer = await worker.load(name, text, self._pool.config.load_timeout_s)
        except (WorkerEnded, TimeoutError) as error:
            why = str(error) or "no time left"
        else:
            if "failed" not in answer:
                return
            why = str(answer["failed"])
        self._ready.pop(name, None)
        LOG.error("tool module %s was loaded before and now cannot be: %s", name, visible(why))
        raise _NotLoaded

    # --- calls ------------------------------------------------------------------------------------------------------

    async def _call(self, name: str, tool: str, values: dict[str, Any], limit_s: float, left_s: float) -> Result:
        """Runs a call of the module in the file `name`. A `Handler`."""
        try:
            async with asyncio.timeout(left_s):
                for _ in range(2):  # rule 3
                    try:
                        return await self._tried(name, tool, values, limit_s)
                    except _NotBegun:
                        continue
        except TimeoutError:
            return Result(TIMED_OUT, failed=True)
        return Result(NOT_NOW, failed=True)

    async def _tried(self, name: str, tool: str, values: dict[str, Any], limit_s: float) -> Result:
        """Runs a call in one worker. Raises `_NotBegun` if the worker is lost before the handler begins."""
        begun = False

        def begin() -> None:
            nonlocal begun
            begun = True

        try:
            async with self._pool.worker(self, self._pool.config.wait_s) as worker:
                if name not in worker.loaded:
                    await self._load(worker, name)
                answer = await worker.call(name, tool, values, limit_s, begin)
        except NoWorker as error:
            return Result(str(error), failed=True)
        except _NotLoaded:
            return Result(NOT_NOW, failed=True)
        except TimeoutError:
            if begun:
                return Result(TIMED_OUT, failed=True)
            raise _NotBegun from None
        except WorkerEnded as error:
            if begun:
                return Result(f"Error: Tool {error.what}", failed=True)
            raise _NotBegun from None
        return Result(answer["text"], failed=bool(answer.get("failed")))


class _NotLoaded(Exception):
    """A module that was loaded before could not be loaded in another worker; the log says why."""


class _NotBegun(Exception):
    """A worker was lost before the handler began."""


# --- loading: runs one file and reads its tools (R15.1, R15.2) --------------------------------------------------------


class LoadState(Enum):
    """The loading state of a module (R15.2)."""

    UNLOADED = "UNLOADED"
    LOADING = "LOADING"
    VALIDATING_TOOLS = "VALIDATING_TOOLS"
    LOADED_NO_TOOLS = "LOADED_NO_TOOLS"
    LOADED_WITH_TOOLS = "LOADED_WITH_TOOLS"
    FAILED_VALIDATION = "FAILED_VALIDATION"


@dataclass(frozen=True, slots=True)
class LoadedModule:
    """The tools of a loaded module, and the generation that runs them."""

    generation: ModuleGeneration
    tools: tuple[ServerTool, ...]


async def load_module(
    generation: ModuleGeneration, name: str, text: bytes, entered: Callable[[LoadState], None]
) -> LoadedModule:
    """Runs `text`, the content of the file `name`, and returns its tools. Calls `entered` with each state on the way.

    Raises `ToolModuleError`; its kind is `TimeoutError` if loading took too long.
    """
    entered(LoadState.LOADING)
    declared = await generation.declare(name, text)
    entered(LoadState.VALIDATING_TOOLS)
    return LoadedModule(generation, read_tools(declared.tools, declared.handler, name.removesuffix(".py")))
