"""What the system holds a worker to: memory, processor time, no core files."""

from __future__ import annotations

import math
import os
import resource
from typing import Final

FILES: Final = 1024
"""Descriptors. A gateway may have tens of thousands, and programs that close them all would be slow."""

FULL: Final = 0.5
"""A worker that holds more than this part of its memory after a call gets no further one: it could not be served."""


def _lower(which: int, soft: int, hard: int | None = None) -> None:
    """Set a limit, as far as the system allows: never above the hard one that is there already."""
    most = resource.getrlimit(which)[1]
    bound = [value if most == resource.RLIM_INFINITY else min(value, most) for value in (soft, hard or soft)]
    if hard is None and which != resource.RLIMIT_CORE:
        bound[1] = most
    try:
        resource.setrlimit(which, (bound[0], bound[1]))
    except (OSError, ValueError):
        pass  # not every system has every limit: macOS does not bound the address space


def hold(memory: int | None) -> None:
    """Bound this process and those that it starts. `memory`: bytes of address space; None: as much as there is."""
    _lower(resource.RLIMIT_CORE, 0)
    _lower(resource.RLIMIT_NOFILE, FILES)
    if memory is not None:
        _lower(resource.RLIMIT_AS, memory, memory)


def allow(seconds: float) -> None:
    """From now on this process may use so much processor time, all its threads together. Beyond, SIGXCPU ends it."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    _lower(resource.RLIMIT_CPU, math.ceil(usage.ru_utime + usage.ru_stime + seconds))


def is_full(memory: int | None) -> bool:
    """Whether so much memory is held that the next call could suffer."""
    if memory is None:
        return False
    try:
        with open("/proc/self/statm", "rb") as file:
            held = int(file.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return False
    return held > memory * FULL
