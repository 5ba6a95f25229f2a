"""Checks of the machine: open files, memory, cores, the port, and proxy variables."""

from __future__ import annotations

import errno
import ipaddress
import json
import os
from collections.abc import Iterator, Mapping
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from ...config import GatewayConfig
from ...server.descriptors import connection_limits
from ...server.port_in_use import why_not_listening
from ...server.sockets import bind, close
from .finding import Finding, ok, problem, warning

WORKER_BYTES: Final = 150 * 1024 * 1024
"""The memory of a busy worker, besides the caches that the configuration allows."""

PORT_S: Final = 2.0
"""The time limit for identifying the program at the port."""

_PROXIES: Final = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")


def machine(config: GatewayConfig, env: Mapping[str, str]) -> Iterator[Finding]:
    """Yields the findings for the machine."""
    yield from _files(config)
    yield from _memory(config)
    yield from _cores(config)
    yield from _port(config)
    yield from _proxies(config, env)


def _files(config: GatewayConfig) -> Iterator[Finding]:
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]  # the server raises its limit to this at the start
    files = None if hard == resource.RLIM_INFINITY else hard
    wanted = config.limits.connections
    clients = connection_limits(files, wanted, 0).clients
    pools = [backend.pool.connections for backend in config.backends.values()]
    if clients < wanted / 2:
        yield warning(
            f"Only {files} files may be open at once: room for about {clients} connections per worker, not {wanted} "
            "(`limits.connections`).",
            "Further connections wait, or are refused.",
            "Raise the limit (ulimit -n, LimitNOFILE), or lower `limits.connections`.",
        )
    elif files is not None and sum(pools) > files:
        yield warning(
            f"Only {files} files may be open at once, fewer than the {sum(pools)} connections to all backends together "
            "(`pool.connections`).",
            "When all backends are busy, connections fail.",
            "Raise the limit (ulimit -n, LimitNOFILE), or lower `pool.connections`.",
        )
    else:
        yield ok(f"{'Any number of' if files is None else files} files may be open at once.")


def _memory(config: GatewayConfig) -> Iterator[Finding]:
    there = _memory_there()
    if there is None:
        return
    limits = config.limits
    each = WORKER_BYTES + limits.total_body_bytes
    wanted = config.server.workers * each + (config.inspect.bytes if config.inspect.on else 0)
    if wanted > there:
        yield warning(
            f"{_mib(there)} of memory are free, and {config.server.workers} busy worker(s) may use {_mib(wanted)}.",
            "The system ends processes when memory runs out.",
            "Lower `server.workers`, `limits.total_body_bytes` or `inspect.bytes`, or add memory.",
        )
    else:
        yield ok(f"{_mib(there)} of memory are free.")


def _memory_there() -> int | None:
    """Returns the bytes of memory available to this process; None if the system does not report them."""
    limits = []
    for path, read in (
        ("/proc/meminfo", lambda text: int(text.partition("MemAvailable:")[2].split()[0]) * 1024),
        ("/sys/fs/cgroup/memory.max", int),
        ("/sys/fs/cgroup/memory/memory.limit_in_bytes", int),
    ):
        try:
            limits.append(read(Path(path).read_text("ascii")))
        except (OSError, ValueError, IndexError):
            continue
    return min(limits, default=None)


def _cores(config: GatewayConfig) -> Iterator[Finding]:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    workers = config.server.workers
    if workers > cores:
        yield warning(
            f"There are {workers} workers for {cores} core(s).",
            "More workers than cores use more memory without more speed.",
            f"Set `server.workers` to {cores}.",
        )
    else:
        yield ok(f"{workers} worker(s) on {cores} core(s).")


def _port(config: GatewayConfig) -> Iterator[Finding]:
    host, port = config.server.host, config.server.port
    if not port:
        return
    try:
        close(bind(host, port))
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            version = _gateway_at(host, port)
            if version is not None:
                yield ok(f"Port {port} of {host} is used by a running gateway, toolwire {version}.")
                return
        why, todo = why_not_listening(error, port)
        yield problem(f"Cannot listen on {host} port {port}: {error.strerror or error}.", why, todo)
    except UnicodeError:
        yield problem(
            f"Cannot listen on {host!r}.",
            "It is not an address.",
            "Set `server.host` to an address of this machine.",
        )
    else:
        yield ok(f"Port {port} of {host} is free.")


def _gateway_at(host: str, port: int) -> str | None:
    """Returns the version of the gateway at the port; None if another program uses it."""
    place = host.strip("[]")
    place = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "*": "127.0.0.1", "::": "::1"}.get(place, place)
    connection = HTTPConnection(place, port, timeout=PORT_S)
    try:
        connection.request("GET", "/version")
        answer = json.loads(connection.getresponse().read(4096))
        return str(answer["version"]) if isinstance(answer, dict) and {"version", "scanner"} <= answer.keys() else None
    except (OSError, HTTPException, ValueError):
        return None
    finally:
        connection.close()


def _proxies(config: GatewayConfig, env: Mapping[str, str]) -> Iterator[Finding]:
    proxies = [name for name in (*_PROXIES, *map(str.lower, _PROXIES)) if env.get(name)]
    if not proxies:
        return
    direct = [name for name, backend in config.backends.items() if not backend.trust_env and _is_elsewhere(backend.url)]
    if direct:
        yield warning(
            f"{', '.join(proxies)} is set, but not used for the backend(s) {', '.join(direct)}.",
            "If they can be reached only through that proxy, requests fail.",
            "If they need the proxy, set `trust_env: true` for them.",
        )
    for name, backend in config.backends.items():
        if (
            backend.trust_env
            and backend.url
            and not _is_elsewhere(backend.url)
            and not (env.get("no_proxy") or env.get("NO_PROXY"))
        ):
            yield warning(
                f"The backend {name} is on this machine, but reached through the proxy of {proxies[0]} (`trust_env`).",
                "Most proxies cannot reach it there.",
                "Set NO_PROXY, or `trust_env: false`.",
            )


def _is_elsewhere(url: str | None) -> bool:
    """Returns True if the URL's host is not clearly this machine."""
    try:
        host = urlsplit(url or "").hostname or ""
    except ValueError:
        return False
    try:
        return not ipaddress.ip_address(host).is_loopback
    except ValueError:
        return bool(host) and host.lower() != "localhost"


def _mib(count: int) -> str:
    return f"{count // (1024 * 1024):,} MiB"
