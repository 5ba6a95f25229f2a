"""Tool modules in threads of the gateway, for code that is trusted and fast: no process to start and nothing to send,
and no bound but the time that is waited (ADR 40).

A module's own code runs in a thread of its own, under a time limit. One whose time is up is asked to end, and left
behind if it does not.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from functools import partial
from typing import Any, Final

from ..config import ToolsConfig
from .coroutine_runner import CoroutineRunner
from .definition import TIMED_OUT, ToolModuleError
from .isolation import Declared
from .source import Result
from .streams import filter_streams, printing
from .threads import Abandoned, Threads, interrupt
from .worker.answers import Answer, OnOversize, raised, said
from .worker.declared import Handler, declared, is_coroutine, text_of
from .worker.importing import Modules
from .worker.sources import Snapshot

LOG: Final = logging.getLogger("toolwire.tools")

NO_THREAD: Final = "Error: Tool cannot be run now"


class Threaded:
    """An `Isolation`: everything runs in threads of this process."""

    def __init__(self, config: ToolsConfig) -> None:
        self.config = config
        self.threads = Threads(config.threads)
        self.coroutines = CoroutineRunner(config.coroutines)
        self._undo = filter_streams()

    def generation(self, snapshot: Snapshot) -> ThreadedGeneration:
        """See `Isolation`."""
        return ThreadedGeneration(self, snapshot)

    def shown(self) -> dict[str, Any]:
        """See `Isolation`."""
        return {
            name: {"most": slots.most, "running": slots.running, "stuck": slots.stuck}
            for name, slots in (("threads", self.threads), ("coroutines", self.coroutines))
        }

    async def close(self) -> None:
        """See `Isolation`. What blocks is left behind."""
        self.coroutines.close()
        self._undo()


class ThreadedGeneration:
    """A `Generation` whose modules run in threads."""

    def __init__(self, home: Threaded, snapshot: Snapshot) -> None:
        self._home = home
        self._modules = Modules(snapshot, private=True)
        self._running = 0
        self._retired = False

    async def declare(self, name: str, text: bytes) -> Declared:
        """See `Generation`."""
        limit_s = self._home.config.load_timeout_s
        loop = asyncio.get_running_loop()
        outcome: asyncio.Future[Declared] = loop.create_future()

        def settle(result: Declared | None, error: ToolModuleError) -> None:
            if outcome.done():
                return  # nobody waits any more
            if result is None:
                outcome.set_exception(error)
            else:
                outcome.set_result(result)

        def work() -> None:
            result, error = None, ToolModuleError("", "")
            try:
                with printing(name, {"module": name}):
                    handler, tools = declared(self._modules.run(name, text))
                result = Declared(tools, None if handler is None else partial(self._call, handler, name))
            except BaseException as raised_:
                error = ToolModuleError(type(raised_).__name__, text_of(raised_))
            try:
                loop.call_soon_threadsafe(settle, result, error)
            except (RuntimeError, Abandoned):
                pass  # the server has stopped meanwhile, or the time is up just now

        thread = threading.Thread(target=work, daemon=True, name=f"toolwire-load-{name.removesuffix('.py')}")
        thread.start()
        try:
            async with asyncio.timeout(limit_s):
                return await outcome
        except TimeoutError:
            raise ToolModuleError("TimeoutError", f"Loading took more than {limit_s:g} s.") from None
        finally:
            if not outcome.done() or outcome.cancelled():
                interrupt(thread)

    def retire(self) -> None:
        """See `Generation`."""
        self._retired = True
        self._forget()

    def _forget(self) -> None:
        if self._retired and not self._running:  # a handler may import something at any time
            self._modules.forget()

    async def _call(
        self, handler: Handler, name: str, tool: str, values: dict[str, Any], limit_s: float, left_s: float
    ) -> Result:
        """A `Handler` of the gateway, of one of the module in the file `name`."""
        most = min(limit_s, left_s)
        says = printing(tool, {"tool": tool, "module": name})
        work = (handler, tool, values, self._home.config.on_oversize)
        self._running += 1
        try:
            if is_coroutine(handler):
                answer = await self._home.coroutines.run(partial(_awaited, *work), most, says)
            else:
                answer = await self._home.threads.run(partial(_called, *work), most, says)
        except TimeoutError:
            return Result(TIMED_OUT, failed=True)
        except RuntimeError as error:  # the system has no thread left
            LOG.error("no tool can be run: %s", error)
            return Result(NO_THREAD, failed=True)
        finally:
            self._running -= 1
            self._forget()
        return Result(answer.text, failed=answer.failed)


def _called(handler: Handler, tool: str, values: dict[str, Any], on_oversize: OnOversize) -> Answer:
    """What a handler says that blocks. In a thread of its own."""
    try:
        return said(handler(tool, values), on_oversize)
    except BaseException as error:
        return raised(error)


async def _awaited(handler: Handler, tool: str, values: dict[str, Any], on_oversize: OnOversize) -> Answer:
    """What a handler says that is a coroutine. On the side loop."""
    try:
        return said(await handler(tool, values), on_oversize)
    except BaseException as error:
        return raised(error)
