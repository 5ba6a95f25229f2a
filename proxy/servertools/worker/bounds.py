"""Limits that the system enforces on a worker: memory, processor time, no core files."""

from __future__ import annotations

import math
import os
import resource
from typing import Final

FILES: Final = 1024
"""The limit of descriptors. A gateway may have tens of thousands; programs that close all of them would be slow."""

STARTING_S: Final = 60.0
"""The processor time until a worker gets its first order."""

FULL: Final = 0.5
"""A worker that holds more than this part of its memory limit after a call gets no further call, which could run out of
memory."""


def _lower(which: int, soft: int, hard: int | None = None) -> bool:
    """Sets a limit, never above the existing hard one. Returns False if the system refuses."""
    most = resource.getrlimit(which)[1]
    bound = [value if most == resource.RLIM_INFINITY else min(value, most) for value in (soft, hard or soft)]
    if hard is None and which != resource.RLIMIT_CORE:
        bound[1] = most
    try:
        resource.setrlimit(which, (bound[0], bound[1]))
    except (OSError, ValueError):
        return False  # macOS does not limit the address space; system call filters may forbid all limits
    return True


def hold(memory: int | None) -> list[str]:
    """Limits this process and its children. `memory`: bytes of address space, None for no limit. Returns the options
    that the system cannot enforce."""
    _lower(resource.RLIMIT_CORE, 0)
    _lower(resource.RLIMIT_NOFILE, FILES)
    held = {
        "tools.memory_bytes": memory is None or _lower(resource.RLIMIT_AS, memory, memory),
        "tools.cpu_s": allow(STARTING_S),
    }
    return [name for name, is_held in held.items() if not is_held]


def allow(seconds: float) -> bool:
    """Limits the processor time of this process, over all threads, to `seconds` from now. Beyond it SIGXCPU ends the
    process. Returns False if the system refuses."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return _lower(resource.RLIMIT_CPU, math.ceil(usage.ru_utime + usage.ru_stime + seconds))


def is_full(memory: int | None) -> bool:
    """Returns True if so much memory is in use that the next call could fail."""
    if memory is None:
        return False
    try:
        with open("/proc/self/statm", "rb") as file:
            held = int(file.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return False
    return held > memory * FULL
