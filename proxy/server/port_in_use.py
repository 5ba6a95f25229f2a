"""Says why the gateway cannot listen: which process has the port, and what to do.

Linux lists listening sockets in `/proc/net`, and each process's own in `/proc/PID/fd`, where only those of one's own
processes can be read. Elsewhere, and for other users' processes, the process is unknown.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from ..support.legible import visible

_LISTENING: Final = "0A"


def why_not_listening(error: OSError, port: int, *, configured: bool = True) -> tuple[str, str]:
    """Returns why a socket could not be opened, and what to do. `configured`: the address is in the configuration, not
    only in options of a command."""
    if error.errno == errno.EADDRINUSE:
        name = occupant(port)
        who = "Another program uses it." if name is None else f"It is used by {name}."
        options = "`server.port`, --port" if configured else "--port"
        return who, f"End that process, or use another port ({options}); --port 0 takes a free one."
    if error.errno == errno.EACCES:
        return "Ports below 1024 need a special permission.", "Use another port, or allow it (CAP_NET_BIND_SERVICE)."
    todo = "Set `server.host` to an address of this machine." if configured else "Use an address of this machine."
    return "The address cannot be used.", todo


def occupant(port: int, proc: Path = Path("/proc")) -> str | None:
    """Returns name and id of the process that listens on this port; None if unknown."""
    inodes = {f"socket:[{inode}]" for inode in _inodes(port, proc)}
    if not inodes:
        return None
    for folder in proc.glob("[0-9]*"):
        try:
            if any(str(link.readlink()) in inodes for link in (folder / "fd").iterdir()):
                name = (folder / "comm").read_text("utf-8", "replace").strip()
                return f"{visible(name)} (process {folder.name})"
        except OSError:  # of another user, or ended meanwhile
            continue
    return None


def _inodes(port: int, proc: Path) -> Iterator[str]:
    """Yields the inodes of the sockets that listen on this port."""
    for table in ("tcp", "tcp6"):
        try:
            lines = (proc / "net" / table).read_text("ascii").splitlines()[1:]
        except OSError:
            continue
        for fields in map(str.split, lines):
            if fields[3] == _LISTENING and int(fields[1].rpartition(":")[2], 16) == port:
                yield fields[9]
