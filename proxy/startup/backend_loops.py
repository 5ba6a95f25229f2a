"""Finds backends whose address is the gateway's own, so that it would call itself endlessly.

Loops that the address does not show (a proxy in between, another gateway that calls this one) are found at run time,
see `toolwire.upstream.servers.hops`.
"""

from __future__ import annotations

import ipaddress
import socket
import threading
from collections.abc import Iterator
from typing import Final
from urllib.parse import urlsplit

from ..config import GatewayConfig

LOOKUP_S: Final = 1.0
"""The longest wait for the addresses of a host name at the start."""

_LOOPBACK: Final = "127.0.0.1"
"""Represents all addresses that lead to this machine."""


def loop_mistakes(config: GatewayConfig, port: int) -> list[str]:
    """Returns a mistake for each backend that is this gateway itself, listening on `port`. Looks up only host names
    that are used with the same port."""
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
        target = parts.hostname or ""
        if (parts.port or {"http": 80, "https": 443}.get(parts.scheme)) != port or not target:
            return False
    except ValueError:
        return False
    bound = set(_addresses(host.strip("[]") or "0.0.0.0"))
    everywhere = host.strip("[]") in ("", "0.0.0.0", "::", "*")
    addresses = set(_addresses(target))
    return bool(addresses & bound) or (everywhere and any(map(_is_here, addresses)))


def _addresses(host: str) -> Iterator[str]:
    """Yields the addresses of a host in normalized form; all addresses that only mean "this machine" are the same."""
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
    """Returns the addresses from the system's resolver, which knows forms such as `127.1`; empty if it takes
    too long."""
    addresses: list[str] = []

    def ask() -> None:
        try:
            addresses.extend(str(entry[4][0]) for entry in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM))
        except (OSError, UnicodeError):
            pass  # a name without an address leads to no gateway

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(LOOKUP_S)
    return list(addresses)


def _is_here(address: str) -> bool:
    """Returns True if an address belongs to this machine: only then can it be bound."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as sock:
            sock.bind((address, 0))
    except OSError:
        return False
    return True
