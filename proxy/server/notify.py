"""Reports the service's state to systemd (`Type=notify` and `Type=notify-reload`).

The protocol is one datagram to the socket in `NOTIFY_SOCKET`; without that variable nothing happens. Source:
sd_notify(3).
"""

from __future__ import annotations

import logging
import os
import socket
import time
from typing import Final

LOG: Final = logging.getLogger("toolwire.serving")

READY: Final = "READY=1"
STOPPING: Final = "STOPPING=1"


def reloading() -> str:
    """Returns the state for a reload in progress, which `READY` ends. systemd requires the time, in microseconds since
    the machine started."""
    return f"RELOADING=1\nMONOTONIC_USEC={time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000}"


def notify(state: str) -> None:
    """Sends a state, if systemd asked for it. A failure is only logged."""
    address = os.environ.get("NOTIFY_SOCKET")
    if not address:
        return
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sock:
            sock.connect("\0" + address[1:] if address[0] == "@" else address)  # @: an abstract socket
            sock.sendall(state.encode())
    except OSError as error:
        LOG.warning("systemd could not be told %s: %s", state.splitlines()[0], error)
