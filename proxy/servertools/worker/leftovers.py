"""Ends processes that a handler started and left running, when its call ends.

Rules:

1. Processes that a module started while it was loaded stay. Every other process that runs after a call is killed, also
   one that has left its group or session, or whose parent has ended: the guardian adopts such orphans.
2. If the system does not list children, a worker that has any cannot be used again: it is ended with its group.
3. Processes that a remaining thread starts later are found at the end of the next call, or when the worker ends.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterable
from typing import Final

ROUNDS: Final = 200
"""Maximum number of searches for running processes. After that the guardian ends them: a program may start new
processes faster than they are killed."""
PAUSE_S: Final = 0.001


class Leftovers:
    """The descendant processes of one worker. Created in the worker; its parent is the guardian."""

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._guardian = os.getppid()
        self._of_modules: set[int] = set()

    def mark_running(self) -> None:
        """Marks the running processes as belonging to a module."""
        self._of_modules |= self._running() or set()

    def end(self) -> bool:
        """Kills the running processes that belong to no module. Returns False if some may still run."""
        for _ in range(ROUNDS):
            running = self._running()
            if running is None:
                return not _has_children()
            left = {pid for pid in running - self._of_modules if not _reaped(pid)}
            if not left:
                return True
            _kill(left)
        return False

    def _running(self) -> set[int] | None:
        """Returns the children of the worker and of its guardian, except the worker; None if they are not known."""
        try:
            own = own_children()
            adopted = _children(str(self._guardian), str(self._guardian))
        except OSError:
            return None
        if self._pid not in adopted:
            return None  # its guardian has ended
        return {*own, *adopted} - {self._pid}


def own_children() -> list[int]:
    """Returns the children of this process, started by any of its threads. Raises `OSError` if the system does not list
    them."""
    return [pid for thread in os.listdir("/proc/self/task") for pid in _children("self", thread)]


def kill_children() -> None:
    """Kills the children of this process, and the orphans that it adopts meanwhile, until none is left. Does nothing if
    the system does not list them."""
    for _ in range(ROUNDS):
        try:
            left = [pid for pid in own_children() if not _reaped(pid)]
        except OSError:
            return
        if not left:
            return
        _kill(left)


def _kill(processes: Iterable[int]) -> None:
    """Kills these processes, and waits a moment for their end."""
    for pid in processes:
        try:
            os.kill(pid, signal.SIGKILL)
        except OSError:
            pass  # it has ended, or runs as another user
    time.sleep(PAUSE_S)


def _children(process: str, thread: str) -> list[int]:
    with open(f"/proc/{process}/task/{thread}/children") as file:
        return [int(number) for number in file.read().split()]


def _reaped(pid: int) -> bool:
    """Returns True if a process has ended. Reaps it if it is a child of this process."""
    try:
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    except ChildProcessError:
        try:
            with open(f"/proc/{pid}/stat") as file:
                return file.read().rpartition(")")[2].split()[0] in ("Z", "X")
        except OSError:
            return True


def _has_children() -> bool:
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return False
    return True
