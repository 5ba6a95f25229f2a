"""Backends whose address is the gateway's own: it would ask itself, and that one itself, until nothing is left.

What cannot be seen by the address (a proxy in between, another gateway that asks this one) ends at run time, see
`toolwire.upstream.servers.hops`.
"""

from __future__ import annotations

import ipaddress
import socket
import threading
from collections.abc import Iterator
from typing import Final
from urllib.parse import urlsplit

from toolwire.config import GatewayConfig

LOOKUP_S: Final = 1.0
"""The start does not wait longer for the addresses of a name."""

_LOOPBACK: Final = "127.0.0.1"
"""Stands for all that lead to this machine whatever it is called."""


def leading_back(config: GatewayConfig, port: int) -> list[str]:
    """The backends that are this gateway itself, listening on `port`, as mistakes. Only names that come with that port
    are looked up."""
    if not port:
        return []
    return [
        f"backends.{name}.url: leads back to the gateway itself, which listens on {config.server.host} port {port}; give the address of the "
        "model server, or the gateway another port (`server.port`, --port)"
        for name, backend in config.backends.items()
        if backend.url is not None and _same(backend.url, config.server.host, port)
    ]


def _same(url: str, host: str, port: int) -> bool:
    try:
        parts = urlsplit(url)
        asked = parts.hostname or ""
        if (parts.port or {"http": 80, "https": 443}.get(parts.scheme)) != port or not asked:
            return False
    except ValueError:
        return False
    bound = set(_addresses(host.strip("[]") or "0.0.0.0"))
    everywhere = host.strip("[]") in ("", "0.0.0.0", "::", "*")
    found = set(_addresses(asked))
    return bool(found & bound) or (everywhere and any(map(_is_here, found)))


def _addresses(host: str) -> Iterator[str]:
    """The addresses of a host, in one spelling each; those that say nothing but "here" are one and the same."""
    for text in (
        (host,) if _is_address(host) else ((_LOOPBACK,) if host.rstrip(".").lower() == "localhost" else _look_up(host))
    ):
        address = ipaddress.ip_address(text.partition("%")[0])
        mapped = getattr(address, "ipv4_mapped", None) or address
        here = mapped.is_unspecified or mapped in (ipaddress.ip_address("::1"), ipaddress.ip_address(_LOOPBACK))
        yield _LOOPBACK if here else str(mapped)


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return False
    return True


def _look_up(host: str) -> list[str]:
    """What the system's resolver says, which knows spellings such as `127.1`; nothing if it takes too long."""
    found: list[str] = []

    def ask() -> None:
        try:
            found.extend(str(entry[4][0]) for entry in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM))
        except (OSError, UnicodeError):
            pass  # then it leads nowhere

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(LOOKUP_S)
    return list(found)


def _is_here(address: str) -> bool:
    """Whether an address is one of this machine: only such a one can be bound."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as sock:
            sock.bind((address, 0))
    except OSError:
        return False
    return True
