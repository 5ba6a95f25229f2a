"""MCP servers that clients name (R26.2): which of them may be asked, and connections to them.

Rules:

1. A server is asked only if the operator's list permits its URL (`toolwire.support.locations`), and in the form of the
   URL that was held against the list.
2. A connection is for one URL with one set of headers. Whoever brings the same shares it; nobody else does.
3. Each is a process. There are at most `MOST`; one that nobody uses is ended after `IDLE_S`, or when there is no room
   for another, and one that has failed as soon as nobody uses it. So the next request tries again.
4. Nobody takes all places: whoever has a key uses at most as many at once as he leaves to others. One that he wants
   beyond that is refused to him, and his own idle connections are ended before those of others.
5. What lets the gateway in at a server stands in no log and no error.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final
from urllib.parse import urlsplit

from toolwire.config import McpServerConfig
from toolwire.extras.mcp.server import McpServer, OnOversize
from toolwire.support.locations import AllowList, location, written

LOG: Final = logging.getLogger("toolwire.tools")

MOST: Final = 16
IDLE_S: Final = 300.0
LISTING_S: Final = 20.0
"""So long is waited until a server has said which tools it has."""
CALL_S: Final = 60.0
MAX_ARGUMENTS_BYTES: Final = 64 * 1024
MAX_RESULT_CHARS: Final = 20_000
"""Of a server that the operator has not chosen for a small model, but the client for its own conversation."""

FULL: Final = "too many other servers are being asked now; try again later"
SHARE: Final = "other requests with this key use as many servers now as one key may; try again when they have ended"
SILENT: Final = f"it has not said within {LISTING_S:g} s which tools it has"

_Key = tuple[str, tuple[tuple[str, str], ...]]


class NotListed(Exception):
    """A server has not said which tools it has. The text says why."""


class _Connection:
    """A connection, who uses it (`users`, each as often as he does), and what ends it. `last` used it last."""

    def __init__(self, server: McpServer) -> None:
        self.server = server
        self.users: Counter[str] = Counter()
        self.last = ""
        self.over = asyncio.Event()
        self.idle: asyncio.TimerHandle | None = None

    async def hold(self) -> None:
        """Keep it until it is over."""
        async with self.server.running():
            await self.over.wait()


class Lease:
    """A server that somebody may use until he gives it back."""

    def __init__(self, server: McpServer, give_back: Callable[[], None]) -> None:
        self.server = server
        self._give_back = give_back
        self._given = False

    def close(self) -> None:
        """Give it back. Once is enough."""
        if not self._given:
            self._given = True
            self._give_back()


class ClientServers:
    """The servers that clients name. Raises `ValueError` for a list that is none."""

    def __init__(self, permitted: Iterable[str], on_oversize: OnOversize, most: int = MOST) -> None:
        self._permitted = AllowList(permitted)
        self._on_oversize: OnOversize = on_oversize
        self._most = most
        self._connections: dict[_Key, _Connection] = {}  # the one used longest ago first
        self._ending: set[asyncio.Task[None]] = set()
        self._held: dict[_Connection, asyncio.Task[None]] = {}
        self._open = False

    def refusal(self, url: str) -> str | None:
        """Why a URL may not be asked; None: it may."""
        return self._permitted.refusal(url)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[ClientServers]:
        """While this lasts servers can be leased."""
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
        """The connections as `GET /admin/tools` shows them: nobody's headers, and of URLs the host only."""
        return [
            {
                "host": connection.server.name,
                "state": connection.server.state,
                "users": connection.users.total(),
                "tools": list(connection.server.listing.tools),
            }
            for connection in self._connections.values()
        ]

    async def lease(self, url: str, headers: Mapping[str, str], owner: str = "") -> Lease:
        """A server that has said which tools it has. `url` is one that is not refused, `owner` stands for the client's
        key; empty: there are no keys. Raises `NotListed`."""
        key: _Key = written(location(url)), tuple(sorted(headers.items()))
        connection = await self._connection(key, owner)
        lease = Lease(connection.server, lambda: self._give_back(key, connection, owner))
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
        """That for `key`, in use by `owner` from now on; a new one if there is none. Raises `NotListed` if there is no
        room, or none for him."""
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
        """Rule 4. Raises `NotListed`."""
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
        connection = _Connection(McpServer(config, self._on_oversize))
        task = asyncio.get_running_loop().create_task(connection.hold())
        self._held[connection] = task
        return connection

    def _give_back(self, key: _Key, connection: _Connection, owner: str) -> None:
        connection.users[owner] -= 1
        connection.users += Counter()  # without those at 0
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
