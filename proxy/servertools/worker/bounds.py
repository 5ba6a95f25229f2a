"""What the system holds a worker to: memory, processor time, no core files."""

from __future__ import annotations

import math
import os
import resource
from typing import Final

FILES: Final = 1024
"""Descriptors. A gateway may have tens of thousands, and programs that close them all would be slow."""

STARTING_S: Final = 60.0
"""Processor time until a worker gets its first order."""

FULL: Final = 0.5
"""A worker that holds more than this part of its memory after a call gets no further one: it could not be served."""


def _lower(which: int, soft: int, hard: int | None = None) -> bool:
    """Set a limit, never above the hard one that is there already. Whether the system lets us."""
    most = resource.getrlimit(which)[1]
    bound = [value if most == resource.RLIM_INFINITY else min(value, most) for value in (soft, hard or soft)]
    if hard is None and which != resource.RLIMIT_CORE:
        bound[1] = most
    try:
        resource.setrlimit(which, (bound[0], bound[1]))
    except (OSError, ValueError):
        return False  # macOS does not bound the address space; filters of system calls may forbid all of it
    return True


def hold(memory: int | None) -> list[str]:
    """Bound this process and those that it starts. `memory`: bytes of address space; None: as much as there is. Gives
    the options that the system does not let us keep."""
    _lower(resource.RLIMIT_CORE, 0)
    _lower(resource.RLIMIT_NOFILE, FILES)
    held = {
        "tools.memory_bytes": memory is None or _lower(resource.RLIMIT_AS, memory, memory),
        "tools.cpu_s": allow(STARTING_S),
    }
    return [name for name, is_held in held.items() if not is_held]


def allow(seconds: float) -> bool:
    """From now on this process may use so much processor time, all its threads together. Beyond, SIGXCPU ends it.
    Whether the system lets us say so."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return _lower(resource.RLIMIT_CPU, math.ceil(usage.ru_utime + usage.ru_stime + seconds))


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
