"""The machine: open files, memory, cores, the port, and proxy variables."""

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

from toolwire.config import GatewayConfig
from toolwire.extras.doctor.finding import Finding, ok, problem, warning
from toolwire.server.descriptors import room
from toolwire.server.serving import bind, close

AREA: Final = "machine"

WORKER_BYTES: Final = 150 * 1024 * 1024
"""What a worker takes that is busy, besides what the configuration lets it keep."""

PORT_S: Final = 2.0
"""Limit for asking who has the port."""

_PROXIES: Final = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")


def machine(config: GatewayConfig, env: Mapping[str, str]) -> Iterator[Finding]:
    """What there is to say of it."""
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
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]  # serving raises it to that
    files = None if hard == resource.RLIM_INFINITY else hard
    wanted = config.limits.connections
    clients = room(files, wanted, 0).clients
    pools = [backend.pool.connections for backend in config.backends.values()]
    if clients < wanted / 2:
        yield warning(
            AREA,
            f"Only {files} files may be open at once: room for about {clients} connections of each worker, not {wanted} "
            "(`limits.connections`).",
            "Beyond that connections wait, or are refused.",
            "Allow more (ulimit -n, LimitNOFILE), or lower `limits.connections`.",
        )
    elif files is not None and sum(pools) > files:
        yield warning(
            AREA,
            f"Only {files} files may be open at once, fewer than the {sum(pools)} connections to all backends together "
            "(`pool.connections`).",
            "When all backends are busy, connections fail.",
            "Allow more (ulimit -n, LimitNOFILE), or lower `pool.connections`.",
        )
    else:
        yield ok(AREA, f"{'Any number of' if files is None else files} files may be open at once.")


def _memory(config: GatewayConfig) -> Iterator[Finding]:
    there = _memory_there()
    if there is None:
        return
    limits = config.limits
    each = WORKER_BYTES + limits.total_body_bytes
    wanted = config.server.workers * each + (config.inspect.bytes if config.inspect.on else 0)
    if wanted > there:
        yield warning(
            AREA,
            f"{_mib(there)} of memory are free, and {config.server.workers} busy worker(s) may take {_mib(wanted)}.",
            "The system ends processes when memory runs out.",
            "Lower `server.workers`, `limits.total_body_bytes` or `inspect.bytes`, or give it more memory.",
        )
    else:
        yield ok(AREA, f"{_mib(there)} of memory are free.")


def _memory_there() -> int | None:
    """Bytes that this process could take; None if the system does not say."""
    found = []
    for path, read in (
        ("/proc/meminfo", lambda text: int(text.partition("MemAvailable:")[2].split()[0]) * 1024),
        ("/sys/fs/cgroup/memory.max", int),
        ("/sys/fs/cgroup/memory/memory.limit_in_bytes", int),
    ):
        try:
            found.append(read(Path(path).read_text("ascii")))
        except (OSError, ValueError, IndexError):
            continue
    return min(found, default=None)


def _cores(config: GatewayConfig) -> Iterator[Finding]:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    workers = config.server.workers
    if workers > cores:
        yield warning(
            AREA,
            f"There are {workers} workers for {cores} core(s).",
            "More workers than cores take memory and wait for each other.",
            f"Set `server.workers` to {cores}.",
        )
    else:
        yield ok(AREA, f"{workers} worker(s) on {cores} core(s).")


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
                yield ok(AREA, f"Port {port} of {host} is taken by a gateway that runs, toolwire {version}.")
                return
            why, todo = "Another program has it.", "End that, or use another port (`server.port`, --port)."
        elif error.errno == errno.EACCES:
            why = "Ports below 1024 need a right of their own."
            todo = "Use another port, or allow it (CAP_NET_BIND_SERVICE)."
        else:
            why, todo = "The gateway cannot start.", "Give an address of this machine in `server.host`."
        yield problem(AREA, f"Cannot listen on {host} port {port}: {error.strerror or error}.", why, todo)
    except UnicodeError:
        yield problem(
            AREA, f"Cannot listen on {host!r}.", "It is no address.", "Give one of this machine in `server.host`."
        )
    else:
        yield ok(AREA, f"Port {port} of {host} is free.")


def _gateway_at(host: str, port: int) -> str | None:
    """The version of the gateway that has the port; None if it is something else."""
    place = host.strip("[]")
    place = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "*": "127.0.0.1", "::": "::1"}.get(place, place)
    connection = HTTPConnection(place, port, timeout=PORT_S)
    try:
        connection.request("GET", "/version")
        said = json.loads(connection.getresponse().read(4096))
        return str(said["version"]) if isinstance(said, dict) and {"version", "scanner"} <= said.keys() else None
    except (OSError, HTTPException, ValueError):
        return None
    finally:
        connection.close()


def _proxies(config: GatewayConfig, env: Mapping[str, str]) -> Iterator[Finding]:
    given = [name for name in (*_PROXIES, *map(str.lower, _PROXIES)) if env.get(name)]
    if not given:
        return
    direct = [name for name, backend in config.backends.items() if not backend.trust_env and _is_elsewhere(backend.url)]
    if direct:
        yield warning(
            AREA,
            f"{', '.join(given)} is set, and not used for the backend(s) {', '.join(direct)}.",
            "If they can be reached only through that proxy, requests fail.",
            "Set `trust_env: true` for them; else nothing.",
        )
    for name, backend in config.backends.items():
        if (
            backend.trust_env
            and backend.url
            and not _is_elsewhere(backend.url)
            and not (env.get("no_proxy") or env.get("NO_PROXY"))
        ):
            yield warning(
                AREA,
                f"The backend {name} is on this machine, and asked through the proxy of {given[0]} (`trust_env`).",
                "Most proxies cannot reach it there.",
                "Set NO_PROXY, or `trust_env: false`.",
            )


def _is_elsewhere(url: str | None) -> bool:
    """Whether an address is not plainly this machine."""
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
