"""Takes from a process what Windows does not have. Read by Python at its start, where this folder is on its path.

What the gateway's own code could ask for is gone; what the standard library itself needs to run here stays.
"""

import asyncio
import asyncio.unix_events
import os
import signal
import socket
import subprocess  # noqa: F401  # it needs what is taken away below, and is not what is tried
import sys

ABSENT = {"fcntl", "resource", "pwd", "grp", "termios", "uvloop"}


_pair, _family = socket.socketpair, socket.AF_UNIX


def _socketpair(family=None, *arguments, **options):  # asyncio's own; Windows makes one of TCP
    return _pair(family or _family, *arguments, **options)


socket.socketpair = _socketpair


def _no_signal_handlers(self, *_):
    raise NotImplementedError


def _no_unix_sockets(self, *_, **__):
    raise NotImplementedError


for name in ABSENT:
    sys.modules[name] = None  # so that neither `import` nor `find_spec` finds it
for module, names in {
    os: (
        "fork",
        "getuid",
        "geteuid",
        "getgid",
        "killpg",
        "setsid",
        "sched_getaffinity",
        "pipe2",
        "getpgid",
        "O_CLOEXEC",
    ),
    signal: ("SIGHUP", "SIGUSR1", "SIGUSR2", "SIGKILL", "pthread_sigmask"),
    socket: ("SO_REUSEPORT", "AF_UNIX"),
}.items():
    for name in names:
        if hasattr(module, name):
            delattr(module, name)
# A Ctrl-Break, as the system's number that nothing else uses here.
signal.SIGBREAK = signal.SIGWINCH
_loop = asyncio.unix_events._UnixSelectorEventLoop
_loop.add_signal_handler = _no_signal_handlers
_loop.remove_signal_handler = _no_signal_handlers
_loop.create_unix_server = _no_unix_sockets
_loop.create_unix_connection = _no_unix_sockets
