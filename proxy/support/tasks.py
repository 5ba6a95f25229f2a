"""Background tasks that nobody awaits. The event loop has only weak references to tasks, so somebody must keep them."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any, TypeVar

T = TypeVar("T")


class BackgroundTasks:
    """Keeps tasks until they end."""

    def __init__(self) -> None:
        self._running: set[asyncio.Task[Any]] = set()

    def __len__(self) -> int:
        return len(self._running)

    def start(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Runs a coroutine as a task."""
        task = asyncio.get_running_loop().create_task(work)
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return task

    async def ended(self) -> None:
        """Waits until the tasks that are running now have ended."""
        if self._running:
            await asyncio.wait(self._running)

    async def idle(self) -> None:
        """Waits until no task is running, also none that started meanwhile."""
        while self._running:
            await self.ended()

    async def cancel(self) -> None:
        """Cancels all tasks and waits for their end."""
        await cancel_all(self._running)


async def cancel_all(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Cancels tasks and waits for their end. Their exceptions are ignored."""
    tasks = [*tasks]
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
