"""The worker processes of a tools folder: started when they are needed, one kept warm, replaced when they die.

Rules:

1. A worker runs one module or one call at a time, for one generation of the folder. So killing it costs one call.
2. At most `tools.processes` live, of all generations together. One that does nothing makes room for another
   generation's, and comes back when it is needed.
3. A call waits at most `tools.wait_s` for a worker, its start included; a handler's time begins when the handler does.
   A call whose handler had not begun when its worker died is made once more.
4. As long as a generation is in use, and there is room, one worker is kept, with its modules loaded. Those beyond are
   given back when they have had nothing to do for `IDLE_S`. One that dies while it is made ready is tried again ever
   later, and the module that did it is loaded only for its own calls from then on.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Final

from ..config import ToolsConfig
from ..support.legible import visible
from .definition import TIMED_OUT, Declared, NotTried, ToolModuleError
from .process import Ended, WorkerProcess
from .source import Result
from .worker.sources import Snapshot
from .worker.values import NotDeclarable, decode

LOG: Final = logging.getLogger("toolwire.tools")

IDLE_S: Final = 60.0
RETRY_S: Final = (0.0, 0.1, 0.5, 2.0, 10.0, 60.0)
"""Before a worker is made ready once more, by the number of those that died of it in a row."""

NO_PROCESS: Final = "Error: Tool cannot be run now, all processes are busy"
NOT_NOW: Final = "Error: Tool cannot be run now"


class NoWorker(Exception):
    """None is free in time, or can be started. The message is for the model."""


class Pool:
    """Runs the modules of a folder in worker processes."""

    def __init__(self, config: ToolsConfig) -> None:
        self.config = config
        self._free = asyncio.Semaphore(config.processes)
        self._workers: dict[WorkerProcess, Generation] = {}
        self._idle: dict[WorkerProcess, float] = {}
        """Since when, on the loop's clock; those that worked last come last."""
        self._all: set[WorkerProcess] = set()
        """Also those of which something is still to be cleaned up."""
        self.warming: set[asyncio.Task[None]] = set()
        self.closed = False
        self._warned = False
        self._tally = {"started": 0, "died": 0, "killed": 0}

    def generation(self, snapshot: Snapshot) -> Generation:
        """The modules of a folder as it is now, none of which has run yet."""
        return Generation(self, snapshot)

    def shown(self) -> dict[str, Any]:
        """Bounds and calls that run, for `GET /admin/tools`. `died`: by themselves; `killed`: over a limit, or their
        caller left."""
        running = len(self._workers) - len(self._idle)
        return {
            "processes": {"most": self.config.processes, "running": running, "idle": len(self._idle), **self._tally}
        }

    async def close(self) -> None:
        """End everything."""
        self.closed = True
        for task in self.warming:
            task.cancel()
        await asyncio.gather(*(worker.close() for worker in list(self._all)), *self.warming, return_exceptions=True)

    # --- workers ----------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def worker(self, generation: Generation, wait_s: float | None) -> AsyncIterator[WorkerProcess]:
        """A worker to use. It is killed if the block is left by an exception. Raises `NoWorker`, after `wait_s` at the
        latest."""
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
        except (Ended, OSError) as error:
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
            self._give(worker, generation)
            self._free.release()

    async def _taken(self, generation: Generation) -> WorkerProcess:
        for worker in reversed(self._idle):
            if self._workers[worker] is generation and worker.alive:
                del self._idle[worker]
                return worker
        if len(self._workers) >= self.config.processes:
            idle = next(iter(self._idle))
            del self._workers[idle]  # first: its generation must not ask for the room that is made here
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
            LOG.warning("the system does not let tools be bounded by %s", " and ".join(unbound))

    def _give(self, worker: WorkerProcess, generation: Generation) -> None:
        """Somebody has done with it."""
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
        kept = set()
        for worker, since in reversed(list(self._idle.items())):
            generation = self._workers[worker]
            if generation in kept and now - since >= IDLE_S:
                self._end(worker)
            kept.add(generation)

    def has(self, generation: Generation) -> bool:
        """Whether there is a worker of it, or one on its way."""
        return generation in self._workers.values()

    def let_go(self, generation: Generation) -> None:
        """End the workers of a generation that have nothing to do."""
        for worker in [worker for worker in self._idle if self._workers[worker] is generation]:
            self._end(worker)


class Generation:
    """The modules of a folder as it was at one moment. Of several generations each runs its own."""

    def __init__(self, pool: Pool, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self.retired = False
        self._pool = pool
        self._alone = asyncio.Lock()
        self._ready: dict[str, None] = {}
        """Modules that are loaded before they are asked for."""
        self._is_warming = False

    async def declare(self, name: str, text: bytes) -> Declared:
        """Run the module in the file `name`: one after the other in one worker, which is then the first one for calls.
        Raises `ToolModuleError` for whatever goes wrong in it, or takes too long; `NotTried` if it could not be run."""
        limit_s = self._pool.config.load_timeout_s
        async with self._alone:
            try:
                async with self._pool.worker(self, None) as worker:
                    answer = await worker.load(name, text, limit_s)
            except TimeoutError:
                raise ToolModuleError("TimeoutError", f"Loading took more than {limit_s:g} s.") from None
            except Ended as error:
                raise ToolModuleError("ProcessEnded", f"The module's code {error.what}.") from None
            except NoWorker:
                raise NotTried("OSError", "No process can be started to run it; the log says why.") from None
        failed = answer.get("failed")
        if failed is not None:
            kind, message = map(str, failed) if isinstance(failed, list) and len(failed) == 2 else ("", "")
            raise ToolModuleError(kind, message)
        try:
            declared = Declared(
                decode(answer.get("declared")), partial(self._call, name) if answer.get("handler") else None
            )
        except NotDeclarable as error:
            raise ToolModuleError("ValueError", str(error)) from None
        self._ready[name] = None
        return declared

    def retire(self) -> None:
        """None of its tools is on offer any more. Calls that were made before are still run."""
        self.retired = True
        self._pool.let_go(self)

    def keep_warm(self) -> None:
        """See to it that there is a worker again (rule 4)."""
        if self._ready and not self.retired and not self._pool.closed and not self._is_warming:
            self._is_warming = True
            task = asyncio.get_running_loop().create_task(self._warm())
            self._pool.warming.add(task)
            task.add_done_callback(self._pool.warming.discard)

    async def _warm(self) -> None:
        failures = 0
        while not self.retired and not self._pool.closed:
            await asyncio.sleep(RETRY_S[min(failures, len(RETRY_S) - 1)])
            try:
                async with self._alone:  # behind those that are declared just now: they may leave a worker
                    if not self._pool.has(self):
                        async with self._pool.worker(self, None) as worker:
                            for name in list(self._ready):
                                await self._load(worker, name)
                break
            except (_NotLoaded, NoWorker):
                failures += 1
        self._is_warming = False

    async def _load(self, worker: WorkerProcess, name: str) -> None:
        """Load a module that was loaded before, in another worker. Raises `_NotLoaded`; then the worker must be
        killed."""
        text = self.snapshot.modules[name]
        assert isinstance(text, bytes)
        try:
            answer = await worker.load(name, text, self._pool.config.load_timeout_s)
        except (Ended, TimeoutError) as error:
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
        """A `Handler`, of the module in the file `name`."""
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
        """Raises `_NotBegun`."""
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
        except Ended as error:
            if begun:
                return Result(f"Error: Tool {error.what}", failed=True)
            raise _NotBegun from None
        return Result(answer["text"], failed=bool(answer.get("failed")))


class _NotLoaded(Exception):
    """A module could not be loaded where it was needed; the log says why."""


class _NotBegun(Exception):
    """A worker was lost before it ran the handler."""
