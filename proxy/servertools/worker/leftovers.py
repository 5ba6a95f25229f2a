"""Processes that a handler has started and left behind: they end with its call.

Rules:

1. What a module has started while it was loaded is its own, and stays; everything else that runs after a call is
   killed, also what has left its group or its session, or was started by a program that has ended: the guardian adopts
   that.
2. Where the system does not list children, a worker that has any is of no further use: it is ended, with its group.
3. What a thread that is left behind starts later is found at the end of the next call, or with the worker.
"""

from __future__ import annotations

import os
import signal
import time
from typing import Final

ROUNDS: Final = 200
"""Searches for running processes, before they are left to the guardian: a program may start others faster than they are
killed."""
PAUSE_S: Final = 0.001


class Leftovers:
    """The processes below one worker. Made in the worker; its parent is the guardian."""

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._guardian = os.getppid()
        self._kept: set[int] = set()

    def keep(self) -> None:
        """Counts the processes that run now as a module's."""
        self._kept |= self._found() or set()

    def end(self) -> bool:
        """Kill what runs and belongs to no module. False if something may still run."""
        for _ in range(ROUNDS):
            found = self._found()
            if found is None:
                return not _has_children()
            left = {pid for pid in found - self._kept if not _reaped(pid)}
            if not left:
                return True
            for pid in left:
                try:
                    os.kill(pid, signal.SIGKILL)
                except OSError:
                    pass  # it has ended, or runs as somebody else
            time.sleep(PAUSE_S)
        return False

    def _found(self) -> set[int] | None:
        """The children of the worker and of its guardian, but for the worker; None where that cannot be known."""
        try:
            own = own_children()
            adopted = _children(str(self._guardian), str(self._guardian))
        except OSError:
            return None
        if self._pid not in adopted:
            return None  # its guardian is gone
        return {*own, *adopted} - {self._pid}


def own_children() -> list[int]:
    """The children of this process, whichever of its threads has started them. Raises `OSError` where the system does
    not list them."""
    return [pid for thread in os.listdir("/proc/self/task") for pid in _children("self", thread)]


def kill_children() -> None:
    """Kill the children of this process, and what it adopts from them, until none is left. Where the system does not
    list them nothing is done."""
    for _ in range(ROUNDS):
        try:
            left = [pid for pid in own_children() if not _reaped(pid)]
        except OSError:
            return
        if not left:
            return
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except OSError:
                pass  # it has ended, or runs as somebody else
        time.sleep(PAUSE_S)


def _children(process: str, thread: str) -> list[int]:
    with open(f"/proc/{process}/task/{thread}/children") as file:
        return [int(number) for number in file.read().split()]


def _reaped(pid: int) -> bool:
    """Whether a process has ended: a child of this one is taken leave of, one of the guardian's by the guardian."""
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
