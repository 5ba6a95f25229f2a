"""Redis servers of the tests' own, on free ports of the loopback: one alone, several with Sentinels, a cluster."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import socket
import subprocess
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from tests import optional
from tests.waiting import GUARD_S, until

GROUPS = {"redis": "redis_server", "sentinel": "watched_group", "cluster": "cluster_group"}
"""What a URL may lead to, and the fixtures that have such servers."""
SLOTS = 16_384
DOWN_AFTER_MS = 700
"""Silence after which a master is given up."""


PORTS: Final = range(20_000, 22_700)
"""They and those 10,000 above are below those that the system deals out by itself."""
_given: set[int] = set()


def free_port() -> int:
    """A port that nobody has or gets here, and the one 10,000 above it, where nodes of a cluster speak with each
    other. Each process of the tests has its share of them."""
    share = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    shares = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    while True:
        port = random.choice(PORTS[share::shares])
        if port in _given:
            continue
        with socket.socket() as one, socket.socket() as two:
            try:
                one.bind(("127.0.0.1", port))
                two.bind(("127.0.0.1", port + 10_000))
            except OSError:
                continue
        _given.add(port)
        return port


class RedisServer:
    """Keeps nothing on disk. `start` and `stop` may alternate; the port stays."""

    said = "eady to accept connections"

    def __init__(self, folder: Path, *options: str) -> None:
        self.port = free_port()
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self._command = [
            *(optional.program(optional.REDIS), "--bind", "127.0.0.1", "--port", str(self.port), "--dir", str(folder)),
            *("--save", "", "--appendonly", "no", "--daemonize", "no", *options),
        ]
        self._process: subprocess.Popen[str] | None = None
        self._log = folder / f"log-{self.port}"

    def take_tls(self, certificate: Path, key: Path) -> None:
        """Take no connections but over TLS, and make no others."""
        self._command += ["--port", "0", "--tls-port", str(self.port), "--tls-replication", "yes"]
        self._command += ["--tls-cert-file", str(certificate), "--tls-key-file", str(key)]
        self._command += ["--tls-ca-cert-file", str(certificate), "--tls-auth-clients", "no"]

    def start(self) -> None:
        """Returns when it takes connections."""
        # What it says later goes into a file: nobody would empty a pipe.
        with self._log.open("w") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=subprocess.STDOUT, text=True)
        while self.said not in self._log.read_text():
            try:
                self._process.wait(0.01)
            except subprocess.TimeoutExpired:
                continue
            self.stop()
            raise RuntimeError(self._log.read_text())

    def pause(self) -> None:
        """It takes connections and answers nothing."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def stop(self) -> None:
        """Returns when it is gone, with everything that it held."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    async def ask(self, *commands: Sequence[Any]) -> list[Any]:
        """The answers to commands, as the server sends them."""
        import redis.asyncio

        async with redis.asyncio.from_url(self.url, protocol=2, socket_timeout=GUARD_S) as client:
            asked = client.pipeline(transaction=False)
            for command in commands:
                asked.execute_command(*command)
            return list(await asked.execute()) if commands else []


class Sentinel(RedisServer):
    """Watches over the service `main`."""

    said = "Sentinel ID is"

    def __init__(self, folder: Path, master: RedisServer, quorum: int, password: str, own: str) -> None:
        super().__init__(folder)
        self._file = folder / f"sentinel-{self.port}.conf"
        self._file.write_text(
            f"bind 127.0.0.1\nport {self.port}\ndir {folder}\n"
            f"sentinel monitor main 127.0.0.1 {master.port} {quorum}\n"
            f"sentinel down-after-milliseconds main {DOWN_AFTER_MS}\n"
            "sentinel failover-timeout main 2500\nsentinel parallel-syncs main 5\n"
            + (f"sentinel auth-pass main {password}\n" if password else "")
            + (f"requirepass {own}\n" if own else "")
        )
        if own:
            self.url = self.url.replace("//", f"//:{own}@")
        self._command = [optional.program(optional.REDIS), str(self._file), "--sentinel"]


class Group:
    """Several servers. `url` is how a gateway finds whoever is the master."""

    url: str

    def __init__(self) -> None:
        self.servers: list[RedisServer] = []

    def stop(self) -> None:
        for server in self.servers:
            server.stop()

    def at(self, port: int) -> RedisServer:
        return next(server for server in self.servers if server.port == port)

    async def master(self) -> RedisServer:
        """Whoever is it now."""
        raise NotImplementedError


class WatchedGroup(Group):
    """A master and its replicas, watched over by Sentinels."""

    def __init__(
        self,
        folder: Path,
        replicas: int = 1,
        sentinels: int = 1,
        *,
        password: str = "",
        sentinels_own: str = "",
        tls: Sequence[Path] = (),
    ) -> None:
        """`tls`: the files of a certificate, which has signed itself, and of its key."""
        super().__init__()
        options = ["--repl-diskless-sync-delay", "0"]
        if password:
            options += ["--requirepass", password, "--masterauth", password]
        first = RedisServer(folder, *options)
        self.data = [first]
        for _ in range(replicas):
            self.data.append(RedisServer(folder, "--replicaof", "127.0.0.1", str(first.port), *options))
        self.sentinels = [
            Sentinel(folder, first, sentinels // 2 + 1, password, sentinels_own) for _ in range(sentinels)
        ]
        self.servers = [*self.data, *self.sentinels]
        if password:
            for server in self.data:
                server.url = server.url.replace("//", f"//:{password}@")
        hosts = ",".join(f"127.0.0.1:{sentinel.port}" for sentinel in self.sentinels)
        self.url = f"redis+sentinel://{hosts}/main/0"
        if tls:
            checked = f"?ssl_ca_certs={tls[0]}&ssl_check_hostname=no"
            self.url = f"rediss+sentinel://{hosts}/main/0{checked}"
            for server in self.servers:
                server.take_tls(*tls)
                server.url = server.url.replace("redis://", "rediss://") + checked

    async def start(self) -> None:
        """Returns when every Sentinel knows all others and all replicas, and each of these is in step."""
        for server in self.servers:
            server.start()
        for sentinel in self.sentinels:
            # Faster than it is meant to be, and no rest of half a minute after a pause of the machine.
            quick = ("INFO-PERIOD", 500, "ASK-PERIOD", 200, "PUBLISH-PERIOD", 200, "PING-PERIOD", 100)
            await sentinel.ask(("SENTINEL", "DEBUG", *quick, "TILT-TRIGGER", 600_000))
        for sentinel in self.sentinels:
            await until(lambda sentinel=sentinel: self._settled(sentinel), 0.05)  # type: ignore[misc]

    async def master(self) -> RedisServer:
        (at,) = await self.sentinels[0].ask(("SENTINEL", "GET-MASTER-ADDR-BY-NAME", "main"))
        return self.at(int(at[1]))

    async def replaced(self, old: RedisServer) -> None:
        """Returns when another one is the master by the word of every Sentinel."""
        for sentinel in self.sentinels:

            async def another(sentinel: RedisServer = sentinel) -> bool:
                (at,) = await sentinel.ask(("SENTINEL", "GET-MASTER-ADDR-BY-NAME", "main"))
                return int(at[1]) != old.port

            await until(another, 0.05)

    async def _settled(self, sentinel: RedisServer) -> bool:
        state, replicas = await sentinel.ask(("SENTINEL", "MASTER", "main"), ("SENTINEL", "REPLICAS", "main"))
        fields = dict(zip(state[::2], state[1::2], strict=True))
        links = [dict(zip(each[::2], each[1::2], strict=True)).get(b"master-link-status") for each in replicas]
        others = int(fields[b"num-other-sentinels"])
        return others == len(self.sentinels) - 1 and links == [b"ok"] * (len(self.data) - 1)


class ClusterGroup(Group):
    """Masters that share the slots, and replicas of each."""

    def __init__(self, folder: Path, masters: int = 3, replicas: int = 1) -> None:
        super().__init__()
        for _ in range(masters * (1 + replicas)):
            server = RedisServer(folder, "--cluster-enabled", "yes", "--repl-diskless-sync-delay", "0")
            # A replica is listed when its first ping from the master is through.
            server._command += ["--repl-ping-replica-period", "1"]
            server._command += ["--cluster-node-timeout", "1500", "--cluster-config-file", f"nodes-{server.port}.conf"]
            self.servers.append(server)
        self.masters, self.replicas = self.servers[:masters], self.servers[masters:]
        hosts = ",".join(f"127.0.0.1:{server.port}" for server in self.masters)
        self.url = f"redis+cluster://{hosts}"

    async def start(self) -> None:
        """Returns when all serve, and each replica is in step."""
        for server in self.servers:
            server.start()
        share = -(-SLOTS // len(self.masters))
        for number, server in enumerate(self.servers):
            await server.ask(("CLUSTER", "SET-CONFIG-EPOCH", number + 1))
            await server.ask(*(("CLUSTER", "MEET", "127.0.0.1", other.port) for other in self.servers[:number]))
        for number, server in enumerate(self.masters):
            slots = range(number * share, min(SLOTS, (number + 1) * share))
            await server.ask(("CLUSTER", "ADDSLOTS", *slots))
        for server in self.servers:
            await until(lambda server=server: self._knows_all(server), 0.05)  # type: ignore[misc]
        for number, server in enumerate(self.replicas):
            (ident,) = await self.masters[number % len(self.masters)].ask(("CLUSTER", "MYID"))
            await server.ask(("CLUSTER", "REPLICATE", ident))
        for server in self.servers:
            await until(lambda server=server: self._settled(server), 0.05)  # type: ignore[misc]

    async def slot_master(self, key: str, among: Sequence[RedisServer] = ()) -> RedisServer:
        """Who has the slot of `key`, as one of these says."""
        first = (among or self.servers)[0]
        (slot,), (slots,) = await first.ask(("CLUSTER", "KEYSLOT", key)), await first.ask(("CLUSTER", "SLOTS"))
        return next(self.at(servers[0][1]) for begin, end, *servers in slots if begin <= slot <= end)

    async def _knows_all(self, server: RedisServer) -> bool:
        (nodes,) = await server.ask(("CLUSTER", "NODES"))
        lines = _lines(nodes)
        return len(lines) == len(self.servers) and not any("handshake" in line for line in lines)

    async def _settled(self, server: RedisServer) -> bool:
        (info,), (slots,) = await server.ask(("CLUSTER", "INFO")), await server.ask(("CLUSTER", "SLOTS"))
        there = sum(len(servers) - 1 for _, _, *servers in slots)
        return "cluster_state:ok" in _lines(info) and there == len(self.replicas)


def _lines(text: Any) -> list[str]:
    return (text.decode() if isinstance(text, bytes) else str(text)).splitlines()


@contextmanager
def started(group: WatchedGroup | ClusterGroup) -> Iterator[Any]:
    """The group, running, for as long as the block lasts."""
    try:
        with ThreadPoolExecutor(1) as thread:  # There may be a loop running here.
            thread.submit(asyncio.run, group.start()).result()
        yield group
    finally:
        group.stop()
