"""Parses the URL of a Redis or Valkey deployment: a single server, a master monitored by Sentinels, or a cluster.

    redis://[USER:PASSWORD@]HOST[:PORT][/DB][?OPTIONS]                            also unix:///PATH
    redis+sentinel://[USER:PASSWORD@]HOST[:PORT],HOST[:PORT]/SERVICE[/DB][?OPTIONS]
    redis+cluster://[USER:PASSWORD@]HOST[:PORT],HOST[:PORT][?OPTIONS]

`rediss` instead of `redis` means TLS, also to Sentinels. User and password are for the data servers; the options
`sentinel_username` and `sentinel_password` are for the Sentinels. All other options belong to the Redis client
(`redis.asyncio.connection.parse_url`). The forms are those of `redis-sentinel-url`, RedisVL and Prefect.

This module does not import the package `redis`. Its error messages never contain a user, a password, or any text that
could be a part of one: an unescaped `/` (not `%2F`) splits a password.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

Kind = Literal["server", "sentinel", "cluster"]

PORTS: Final[dict[Kind, int]] = {"sentinel": 26379, "cluster": 6379}
SENTINELS_OWN: Final = ("sentinel_username", "sentinel_password")
OURS: Final = (*SENTINELS_OWN, "db", "protocol")
"""Options that are not passed to the Redis client. `protocol` is one of them because answers are read in RESP2."""

_SCHEME: Final = re.compile(r"(rediss?)\+(sentinel|cluster)://", re.IGNORECASE)
_HOST: Final = re.compile(r"(?:\[([0-9a-fA-F:.%]+)\]|([^\s:\[\]/?#@]+))(?::([0-9]{1,5}))?")


class Address(NamedTuple):
    """Host and port of a server."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class RedisUrl:
    """A parsed URL. For a single `server` only `given` (the whole URL) is set. `nodes` are the Sentinels or the
    cluster's nodes."""

    kind: Kind
    given: str
    nodes: tuple[Address, ...] = ()
    service: str = ""
    scheme: str = "redis"
    user: str = ""
    """User and password as they were written, including the `@`."""
    db: int = 0
    query: str = ""
    sentinel_user: str = ""

    def at(self, address: Address) -> str:
        """Returns the URL of the data server at `address`."""
        return f"{self.scheme}://{self.user}{address}/{self.db}{self.query}"

    def sentinel(self, address: Address) -> str:
        """Returns the URL of the Sentinel at `address`."""
        return f"{self.scheme}://{self.sentinel_user}{address}{self.query}"

    @property
    def place(self) -> str:
        """Describes the location for messages, without user, password and options."""
        if self.kind == "server":
            url = urlsplit(self.given)
            return f"at {url.netloc.rpartition('@')[2]}{url.path}"
        nodes = ",".join(map(str, self.nodes))
        if self.kind == "cluster":
            return f"in the cluster at {nodes}"
        return f"by the Sentinels at {nodes}, {self.service}/{self.db}"


def read_url(url: str) -> RedisUrl:
    """Parses `url`. The URL of a single server is not checked: the Redis client does that. Raises `ValueError` for a
    bad URL."""
    scheme = _SCHEME.match(url)
    if scheme is None:
        return RedisUrl("server", url)
    kind: Kind = "sentinel" if scheme[2].lower() == "sentinel" else "cluster"
    rest, _, options = url[scheme.end() :].partition("?")
    authority, _, path = rest.partition("/")
    user, at, hosts = authority.rpartition("@")
    nodes = _nodes(kind, hosts)
    pairs = parse_qsl(options, keep_blank_values=True)
    own = dict(pair for pair in pairs if pair[0] in SENTINELS_OWN)
    if own and kind == "cluster":
        raise ValueError(f"`{next(iter(own))}` is for Sentinels, and a cluster has none")
    others = [pair for pair in pairs if pair[0] not in OURS]
    service, db = _path(kind, path, dict(pairs).get("db", ""))
    return RedisUrl(
        kind=kind,
        given=url,
        nodes=nodes,
        service=service,
        scheme=scheme[1].lower(),
        user=user + at,
        db=db,
        query=f"?{urlencode(others)}" if others else "",
        sentinel_user=_user(*(own.get(name, "") for name in SENTINELS_OWN)),
    )


def _nodes(kind: Kind, hosts: str) -> tuple[Address, ...]:
    nodes = []
    texts = hosts.split(",")
    for number, text in enumerate(texts, 1):
        match = _HOST.fullmatch(text)
        port = int(match[3] or PORTS[kind]) if match else 0
        if match is None or not 1 <= port <= 65_535:
            raise ValueError(
                f"number {number} of its {len(texts)} hosts is not HOST or HOST:PORT "
                "(in a user or a password write @ , / ? # as %40 %2C %2F %3F %23)"
            )
        nodes.append(Address(match[1] or match[2], port))
    return tuple(nodes)


def _path(kind: Kind, path: str, option: str) -> tuple[str, int]:
    """Returns the service name and the database number from the URL's path. Raises `ValueError`."""
    service, _, db = path.strip("/").partition("/") if kind == "sentinel" else ("", "", path.strip("/"))
    if kind == "sentinel" and not service:
        raise ValueError("the name of the service is missing: redis+sentinel://HOST:PORT,HOST:PORT/SERVICE/DB")
    number = db or option or "0"
    if not (number.isascii() and number.isdigit()):
        raise ValueError(f"what follows {'the service' if service else 'the hosts'} is not the number of a database")
    if kind == "cluster" and int(number):
        raise ValueError("a cluster has no numbered databases: leave the number out")
    return unquote(service), int(number)


def _user(name: str, password: str) -> str:
    return f"{quote(name, '')}:{quote(password, '')}@" if name or password else ""
