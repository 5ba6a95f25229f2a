"""The sockets of the gateway's port.

Rule: a port is taken from the first moment on, also while the gateway starts. A second gateway that starts at the same
time fails at once.
"""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Final

from aiohttp import web

from .clients import limit_unsent

BACKLOG: Final = 1024
"""Length of the operating system's queue of connections that are not accepted yet."""


def bind(host: str, port: int) -> list[socket.socket]:
    """Returns sockets that listen on every address of `host`, all on one port (0: a free one). Connections wait until
    they are accepted. Raises `OSError`."""
    sockets = _bound(host, port)
    try:
        for sock in sockets:
            sock.listen(BACKLOG)
    except OSError:
        close(sockets)
        raise
    return sockets


def reserve(host: str, port: int) -> list[socket.socket]:
    """Returns sockets that reserve a port (0: a free one) for the `bind_shared` of workers. They do not listen. Raises
    `OSError`."""
    if port:
        close(bind(host, port))  # sockets with SO_REUSEPORT alone would share the port with another gateway
    try:
        return _bound(host, port, share=True, reuse=False)
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            raise
        return bind_shared(host, port)  # closed connections of a single process still have the port


def bind_shared(host: str, port: int) -> list[socket.socket]:
    """Returns sockets like those of `bind` that do not listen yet, and share the port with others of this kind and of
    this user. Raises `OSError`."""
    return _bound(host, port, share=True)


def _bound(host: str, port: int, *, share: bool = False, reuse: bool = True) -> list[socket.socket]:
    """Returns bound sockets. `share`: with SO_REUSEPORT. Without `reuse` (SO_REUSEADDR), `bind` fails for this port
    although these sockets do not listen."""
    addresses = socket.getaddrinfo(host.strip("[]") or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    sockets: list[socket.socket] = []
    failed: OSError | None = None
    for family, kind, proto, _, address in dict.fromkeys(addresses):
        sock = socket.socket(family, kind, proto)
        sockets.append(sock)
        try:
            limit_unsent(sock)
            if reuse and os.name == "posix":
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if share:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            if family == socket.AF_INET6:
                sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            sock.bind((address[0], port, *address[2:]))
            port = port or sock.getsockname()[1]
        except OSError as error:
            sockets.pop().close()
            # `localhost` may name an IPv6 address on a machine that has none.
            if error.errno not in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
                close(sockets)
                raise
            failed = error
    if failed is not None and not sockets:
        raise failed
    return sockets


def close(sockets: Sequence[socket.socket]) -> None:
    """Closes all sockets."""
    for sock in sockets:
        sock.close()


@asynccontextmanager
async def served(
    app: web.Application, sockets: Sequence[socket.socket] = (), *, stop_s: float = 1.0
) -> AsyncIterator[str]:
    """Serves an application, for tools and demos: at these sockets, or at a free port of the loopback interface. Yields
    `http://127.0.0.1:PORT`. At the end running requests have `stop_s` left."""
    sockets = sockets or bind("127.0.0.1", 0)
    runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=stop_s)
    await runner.setup()
    try:
        for each in sockets:
            await web.SockSite(runner, each).start()
        yield f"http://127.0.0.1:{sockets[0].getsockname()[1]}"
    finally:
        await runner.cleanup()
