"""MCP servers that clients name in their requests (R26.2): permission, and shared connections.

Rules:

1. A server is contacted only if the operator's list permits its URL (`toolwire.support.locations`). The URL is used in
   the same normalized form that was compared with the list. Redirects may not leave the list.
2. A connection belongs to one URL with one set of headers. Requests with the same URL and headers share it; no others
   use it.
3. Each connection is a process. There are at most `MOST`. An unused one ends after `IDLE_S`, or when another one needs
   its place; a failed one ends as soon as it is unused, so that the next request tries again.
4. No client key can take all places: a key uses at most as many at once as it leaves to others. Further ones are
   refused, and the idle connections of this key are ended before those of others.
5. Credentials for a server appear in no log and no error.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final
from urllib.parse import urlsplit

from ...config import McpServerConfig
from ...servertools.source import NotListed
from ...support.locations import AllowList, location, normalised_url
from .server import McpServer, OnOversize

MOST: Final = 16
IDLE_S: Final = 300.0
LISTING_S: Final = 20.0
"""Time that a server has to connect and list its tools."""
CALL_S: Final = 60.0
MAX_ARGUMENTS_BYTES: Final = 64 * 1024
MAX_RESULT_CHARS: Final = 20_000
"""Maximum number of characters of a result. Larger than for servers of the configuration, because the client chose this
server for its own conversation."""

FULL: Final = "too many other servers are being asked now; try again later"
SHARE: Final = "other requests with this key use as many servers now as one key may; try again when they have ended"
SILENT: Final = f"it has not listed its tools within {LISTING_S:g} s"

_Key = tuple[str, tuple[tuple[str, str], ...]]


class _Connection:
    """A connection and its users: `users` counts the leases of each key, `last` is the key that used it last."""

    def __init__(self, server: McpServer) -> None:
        self.server = server
        self.users: Counter[str] = Counter()
        self.last = ""
        self.over = asyncio.Event()
        self.idle: asyncio.TimerHandle | None = None

    async def hold(self) -> None:
        """Keeps the connection open until `over` is set."""
        async with self.server.running():
            await self.over.wait()


class McpLease:
    """A server in use by one request, until `close`."""

    def __init__(self, server: McpServer, give_back: Callable[[], None]) -> None:
        self.server = server
        self._give_back = give_back
        self._given = False

    def close(self) -> None:
        """Ends the use. Calling it again does nothing."""
        if not self._given:
            self._given = True
            self._give_back()


class ClientServers:
    """The connections to servers that clients name. Raises `ValueError` if `permitted` has an invalid entry."""

    def __init__(self, permitted: Iterable[str], on_oversize: OnOversize, most: int = MOST) -> None:
        self._patterns = tuple(permitted)
        self._permitted = AllowList(self._patterns)
        self._on_oversize: OnOversize = on_oversize
        self._most = most
        self._connections: dict[_Key, _Connection] = {}  # the least recently used one first
        self._ending: set[asyncio.Task[None]] = set()
        self._held: dict[_Connection, asyncio.Task[None]] = {}
        self._open = False

    def refusal(self, url: str) -> str | None:
        """Returns why a URL is not permitted, or None if it is."""
        return self._permitted.refusal(url)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[ClientServers]:
        """Servers can be leased while this context lasts. Closes all connections at its end."""
        self._open = True
        try:
            yield self
        finally:
            self._open = False
            for key in list(self._connections):
                self._end(key)
            if self._ending:
                await asyncio.wait(self._ending)

    def shown(self) -> list[dict[str, Any]]:
        """Returns the connections as `GET /admin/tools` shows them: without headers, and only the host of each URL."""
        return [
            {
                "host": connection.server.name,
                "state": connection.server.state,
                "users": connection.users.total(),
                "tools": list(connection.server.listing.tools),
            }
            for connection in self._connections.values()
        ]

    async def lease(self, url: str, headers: Mapping[str, str], owner: str = "") -> McpLease:
        """Returns a lease of the server after it has listed its tools. `url` must be permitted (`refusal`). `owner`
        stands for the client's key; it is empty if there are no keys. Raises `NotListed` if the server fails or no
        place is free."""
        key: _Key = normalised_url(location(url)), tuple(sorted(headers.items()))
        connection = await self._connection(key, owner)
        lease = McpLease(connection.server, lambda: self._give_back(key, connection, owner))
        try:
            async with asyncio.timeout(LISTING_S):
                await connection.server.settled.wait()
        except TimeoutError:
            lease.close()
            raise NotListed(SILENT) from None
        except BaseException:
            lease.close()
            raise
        if not connection.server.listed.is_set():
            why = connection.server.error or "it cannot be reached"
            lease.close()
            raise NotListed(why)
        return lease

    async def _connection(self, key: _Key, owner: str) -> _Connection:
        """Returns the connection for `key`, in use by `owner`, and opens it if needed. Raises `NotListed` if no place
        is free or the owner has used up its share."""
        while True:
            if not self._open:
                raise NotListed("the gateway is stopping")
            known = self._connections.pop(key, None)
            if known is not None:
                break
            self._check_share(owner)
            if len(self._connections) + len(self._ending) < self._most:
                known = self._begin(key)
                break
            unused = [(other, one.last) for other, one in self._connections.items() if not one.users]
            idle = next((other for other, last in unused if last == owner), unused[0][0] if unused else None)
            if idle is not None:
                self._end(idle)
            if not self._ending:
                raise NotListed(FULL)
            await asyncio.wait(self._ending, return_when=asyncio.FIRST_COMPLETED)
        self._connections[key] = known
        known.users[owner] += 1
        known.last = owner
        if known.idle is not None:
            known.idle.cancel()
            known.idle = None
        return known

    def _check_share(self, owner: str) -> None:
        """Checks rule 4. Raises `NotListed` if the owner has used up its share."""
        used = [one.users for one in self._connections.values() if one.users]
        if owner and len(used) < self._most <= len(used) + sum(owner in users for users in used):
            raise NotListed(SHARE)

    def _begin(self, key: _Key) -> _Connection:
        url, headers = key
        config = McpServerConfig(
            name=urlsplit(url).hostname or "",
            url=url,
            headers=dict(headers),
            timeout_s=CALL_S,
            max_arguments_bytes=MAX_ARGUMENTS_BYTES,
            max_result_chars=MAX_RESULT_CHARS,
        )
        connection = _Connection(McpServer(config, self._on_oversize, self._patterns))
        task = asyncio.get_running_loop().create_task(connection.hold())
        self._held[connection] = task
        return connection

    def _give_back(self, key: _Key, connection: _Connection, owner: str) -> None:
        connection.users[owner] -= 1
        connection.users += Counter()  # removes entries of 0
        if connection.users or self._connections.get(key) is not connection:
            return
        if connection.server.state != "up":
            self._end(key)
        else:
            connection.idle = asyncio.get_running_loop().call_later(IDLE_S, self._end, key)

    def _end(self, key: _Key) -> None:
        connection = self._connections.pop(key)
        if connection.idle is not None:
            connection.idle.cancel()
        task = self._held.pop(connection)
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)
        connection.over.set()
