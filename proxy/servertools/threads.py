"""Handlers that block: each call in a thread of its own, at most so many at once (R15.7).

Rules:

1. Whoever waits for a call waits no longer than its time limit, the wait for a free thread included. When all threads
   are stuck further calls still end in time.
2. A call that is given up is *stuck* until its thread ends, and counted so long. `Abandoned` is raised in the thread,
   which ends what loops in Python; what waits in C (a sleep, a socket) goes on until it comes back.
3. Threads are daemons and no pool: a stuck one keeps neither the server from ending nor another call from its result.
4. What a call prints goes to the log (`printing`), and the working folder is put back when it has changed.
"""

from __future__ import annotations

import asyncio
import ctypes
import logging
import os
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Final

from .worker.answers import Answer

LOG: Final = logging.getLogger("toolwire.tools")


class Abandoned(BaseException):
    """Raised in the thread of a call that nobody waits for any more."""


def interrupt(thread: threading.Thread) -> None:
    """Raise `Abandoned` in a thread as soon as it runs Python code."""
    if thread.ident is not None and thread.is_alive():
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), ctypes.py_object(Abandoned))


class Job:
    """One call under way. `outcome` is what its caller waits for; `abandoned` says that nobody does."""

    def __init__(self, outcome: asyncio.Future[Answer]) -> None:
        self.outcome = outcome
        self.abandoned = False
        self.over = False


class Slots:
    """At most `most` calls at once. Subclasses say how one is started."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.running = 0
        """Calls that have not ended, the stuck ones included."""
        self.stuck = 0
        self._free = asyncio.Semaphore(most)
        self._home = working_folder()

    async def run(self, call: Callable[[], Any], limit_s: float, around: AbstractContextManager[object]) -> Answer:
        """What `call` gives, which is run in the context `around`. Raises `TimeoutError` after `limit_s`, whatever the
        call does."""
        async with asyncio.timeout(limit_s):
            await self._free.acquire()
            job = Job(asyncio.get_running_loop().create_future())
            try:
                give_up = self.begin(call, job, around)
            except BaseException:
                self._free.release()
                raise
            self.running += 1
            try:
                return await job.outcome
            finally:
                if not job.over:
                    job.abandoned = True
                    self.stuck += 1
                    give_up()

    def begin(self, call: Callable[[], Any], job: Job, around: AbstractContextManager[object]) -> Callable[[], None]:
        """Start it without waiting; `ended` must be called in this loop when it is over. Gives what is to be done if
        the job is abandoned."""
        raise NotImplementedError

    def ended(self, job: Job, answer: Answer | None) -> None:
        """A job is over: free its place, and give its caller the answer."""
        if job.over:
            return
        job.over = True
        self.running -= 1
        self.stuck -= job.abandoned
        self._free.release()
        self._go_home()
        if answer is not None and not job.outcome.done():
            job.outcome.set_result(answer)

    def _go_home(self) -> None:
        """A handler that went to another folder took the whole process with it."""
        if self._home is None or working_folder() == self._home:
            return
        try:
            os.chdir(self._home)
            LOG.warning("a tool changed the working folder of the gateway; it was put back")
        except OSError as error:
            LOG.error("a tool changed the working folder of the gateway, which cannot be put back: %s", error)


class Threads(Slots):
    """Calls in threads. A call gives an `Answer` and never raises."""

    def begin(self, call: Callable[[], Any], job: Job, around: AbstractContextManager[object]) -> Callable[[], None]:
        """See `Slots`."""
        loop = asyncio.get_running_loop()
        thread = threading.Thread(target=self._work, args=(call, job, around, loop), daemon=True, name="toolwire-tool")
        thread.start()
        return lambda: interrupt(thread)

    def _work(
        self,
        call: Callable[[], Answer],
        job: Job,
        around: AbstractContextManager[object],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        answer = None
        try:
            with around:
                answer = call()
        except BaseException:
            pass  # `Abandoned`, while the call was about to end
        # Once more if `Abandoned` comes just here: the place must be freed, and doing so twice does no harm.
        for _ in range(2):
            try:
                loop.call_soon_threadsafe(self.ended, job, answer)
            except RuntimeError:
                return  # the server has stopped meanwhile
            except BaseException:
                continue
            return


def working_folder() -> str | None:
    """That of the process; None if there is none any more."""
    try:
        return os.getcwd()
    except OSError:
        return None
