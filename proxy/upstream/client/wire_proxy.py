"""Connects to a model server through a proxy named in the environment (`trust_env`).

Rules:

1. A TLS server is reached through a tunnel (`CONNECT`), so the proxy learns only its address. For a server without TLS
   the proxy gets the whole request, with the absolute URL in the request line.
2. The connection to the proxy itself is plain HTTP. A proxy with another scheme is ignored with a warning.
"""

from __future__ import annotations

import asyncio
import logging
import re
import socket
from base64 import b64encode
from typing import Final
from urllib.request import getproxies, proxy_bypass

from yarl import URL

from ...config import BackendConfig
from ...errors import BackendFault
from .connections import disconnected, not_http

LOG: Final = logging.getLogger("toolwire.backends")

HEAD_BYTES: Final = 64 * 1024
"""Maximum size of a proxy's answer to `CONNECT`."""

_STATUS: Final = re.compile(rb"HTTP/1\.[01] ([1-5][0-9][0-9])[ \r]")


def proxy_for(url: URL, config: BackendConfig) -> URL | None:
    """Returns the proxy that the environment names for `url`; None if there is none, or the backend does not use it.
    aiohttp's own `trust_env` would also send the credentials of `~/.netrc`."""
    value = getproxies().get(url.scheme) if config.trust_env else None
    if value is None or proxy_bypass(url.host or ""):
        return None
    try:
        proxy = URL(value)
        if proxy.scheme == "http" and proxy.host:
            return proxy
    except ValueError:
        pass
    LOG.warning("the proxy in %s_proxy is not used: it is not `http://HOST:PORT`", url.scheme)
    return None


def authorization(url: URL) -> str | None:
    """Returns the value of a `Proxy-Authorization` field from the user and password in a URL; None if it has no
    user."""
    if url.user is None:
        return None
    credentials = f"{url.user}:{url.password or ''}"
    return f"Basic {b64encode(credentials.encode()).decode()}"


async def open_tunnel(sock: socket.socket, url: URL, proxy: URL) -> None:
    """Makes the proxy at the other end of `sock` connect to the server at `url`. Raises `BackendFault` or `OSError`."""
    loop = asyncio.get_running_loop()
    target = f"{url.host_subcomponent}:{url.port}"
    fields = {"Host": target, "Proxy-Authorization": authorization(proxy)}
    lines = [f"CONNECT {target} HTTP/1.1", *(f"{name}: {value}" for name, value in fields.items() if value)]
    await loop.sock_sendall(sock, "\r\n".join([*lines, "", ""]).encode())
    head = b""
    while not head.endswith(b"\r\n\r\n"):  # the server sends nothing before the client does
        data = await loop.sock_recv(sock, HEAD_BYTES)
        if not data:
            raise disconnected()
        head += data
        if len(head) > HEAD_BYTES:
            raise not_http()
    status = _STATUS.match(head)
    if status is None:
        raise not_http()
    if not status[1].startswith(b"2"):
        raise BackendFault(
            f"The proxy does not connect to the model server (status {status[1].decode()}).",
            code="upstream_disconnected",
            transient=True,
        )
