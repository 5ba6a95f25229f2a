"""Handlers that are coroutines: on an event loop of their own, in a thread of its own.

Not on the server's loop, because there a coroutine that blocks would hold up every client. What is possible:

- A coroutine that waits is cancelled when its time is up.
- One that swallows the cancellation goes on as *stuck*, and is counted until it ends; its caller has left long before.
- One that blocks holds up the coroutines that run at the same time. They time out; the next call finds that the loop
  does not answer and gets a new one, in a new thread. In the old one `Abandoned` is raised, once it has not answered
  for a while.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from typing import Final

from .threads import Job, Slots, interrupt
from .worker.answers import Answer

PATIENCE_S: Final = 0.1
"""A loop that does not answer is looked at again after this time, and once more: a machine that stood still proves
nothing."""


class SideLoop:
    """An event loop in a daemon thread. It ends, when it was told to, after its last task."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.tasks: set[asyncio.Task[Answer]] = set()
        self.asked = self.answered = 0
        self._retired = False
        self.thread = threading.Thread(target=self._run, daemon=True, name="toolwire-tool-loop")
        self.thread.start()

    @property
    def answers(self) -> bool:
        """It has done all that it was asked to do when a call was given up."""
        return self.asked == self.answered and self.thread.is_alive()

    def ask(self, function: Callable[[], object]) -> None:
        """Do something in the loop, and see whether it gets done."""
        self.asked += 1
        self.loop.call_soon_threadsafe(self._answer, function)

    def _answer(self, function: Callable[[], object]) -> None:
        function()
        self.answered += 1

    def start(
        self,
        work: Callable[[], Awaitable[Answer]],
        done: Callable[[Answer | None], object],
        around: AbstractContextManager[object],
    ) -> asyncio.Task[Answer]:
        """Run a coroutine, and give `done` what it gives, None if it was cancelled. Called in the loop."""

        async def run() -> Answer:
            with around:
                return await work()

        def ended(task: asyncio.Task[Answer]) -> None:
            self.tasks.discard(task)
            done(None if task.cancelled() or task.exception() is not None else task.result())
            self._stop_if_idle()

        task = self.loop.create_task(run())
        self.tasks.add(task)
        task.add_done_callback(ended)
        return task

    def retire(self) -> None:
        """No further call comes: end when nothing runs any more."""
        self.loop.call_soon_threadsafe(self._retire)

    def _retire(self) -> None:
        self._retired = True
        self._stop_if_idle()

    def _stop_if_idle(self) -> None:
        if self._retired and not self.tasks:
            self.loop.stop()

    def _run(self) -> None:
        while not (self._retired and not self.tasks):
            try:
                self.loop.run_forever()
            except BaseException:  # `Abandoned`, or what a task of a handler's own raised, such as SystemExit
                continue
        self.loop.close()


class CoroutineRunner(Slots):
    """Calls on a side loop. A call gives an awaitable of an `Answer` that never raises but when it is cancelled."""

    def __init__(self, most: int) -> None:
        super().__init__(most)
        self._side: SideLoop | None = None

    def begin(
        self, call: Callable[[], Awaitable[Answer]], job: Job, around: AbstractContextManager[object]
    ) -> Callable[[], None]:
        """See `Slots`."""
        home = asyncio.get_running_loop()
        if self._side is not None and not self._side.answers:
            self._side.retire()
            self._side = None
        side = self._side = self._side or SideLoop()
        task: asyncio.Task[Answer] | None = None

        def done(answer: Answer | None) -> None:
            try:
                home.call_soon_threadsafe(self.ended, job, answer)
            except RuntimeError:
                pass  # the server has stopped meanwhile

        def start() -> None:
            nonlocal task
            task = side.start(call, done, around)

        def cancel() -> None:
            if task is not None:
                task.cancel()

        def give_up() -> None:
            side.ask(cancel)
            home.call_later(PATIENCE_S, self._look, side, True)

        side.loop.call_soon_threadsafe(start)
        return give_up

    def _look(self, side: SideLoop, again: bool) -> None:
        """A call on this loop was given up a while ago: is it blocked?"""
        if side.answers or not side.thread.is_alive():
            return
        if again:
            asyncio.get_running_loop().call_later(PATIENCE_S, self._look, side, False)
        else:
            interrupt(side.thread)

    def close(self) -> None:
        """Cancel what runs; the loop ends with it."""
        side, self._side = self._side, None
        if side is None:
            return

        def cancel_all() -> None:
            for task in side.tasks:
                task.cancel()

        side.loop.call_soon_threadsafe(cancel_all)
        side.retire()
