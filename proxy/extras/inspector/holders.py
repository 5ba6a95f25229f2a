"""Access to the exchanges that a viewer sees: those of this worker, and those of the other workers.

With several workers any of them may get the page's requests. Each answers the others at its own Unix socket in their
shared folder, which no other user can enter. The asking worker has checked the viewer's key. Without an inspector a
worker has no socket.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Protocol

import orjson
from aiohttp import ClientError, ClientSession, ClientTimeout, UnixConnector, web

from ...support.offload import in_thread
from .ring import Changes, Ring

WAIT_S: Final = 10.0
"""The longest time that a request for changes waits for one."""

ANSWER_S: Final = 5.0
"""After this time another worker counts as not answering."""

LAST_S: Final = 0.1
"""Time that requests of other workers, which wait for changes, get to end at the shutdown."""

SUFFIX: Final = ".inspect.sock"

Counts = list[list[Any]]
"""A list of `[minute, route, {name: number}]`."""


class HolderGone(Exception):
    """The worker does not answer."""


class Holder(Protocol):
    """The exchanges of one worker. `owner`: whose exchanges may be seen, None for all. All methods raise
    `HolderGone`."""

    name: str

    async def changes(self, since: int, owner: str | None, wait_s: float) -> Changes:
        """Returns the changes since a version; waits up to `wait_s` for a change."""

    async def file(self, ident: str, owner: str | None) -> bytes | None:
        """Returns an exchange as a capture, or None if it is not stored."""

    async def counts(self) -> Counts:
        """Returns the counts by minute and route."""


class OwnHolder:
    """The exchanges of this worker, as a `Holder`."""

    name = "own"

    def __init__(self, ring: Ring) -> None:
        self._ring = ring

    async def changes(self, since: int, owner: str | None, wait_s: float) -> Changes:
        await self._ring.changed(since, wait_s)
        return self._ring.changes(since, owner)

    async def file(self, ident: str, owner: str | None) -> bytes | None:
        capture = self._ring.find(ident, owner)
        return None if capture is None else await in_thread(capture.file)  # replacing secrets is slow

    async def counts(self) -> Counts:
        return [[minute, route, dict(counts)] for (minute, route), counts in self._ring.counts().items()]


_OWN: Final = web.AppKey("toolwire.inspector.own", OwnHolder)


class PeerHolder:
    """The exchanges of another worker, as a `Holder`."""

    def __init__(self, path: Path) -> None:
        self.name = path.name
        self._path = path

    async def changes(self, since: int, owner: str | None, wait_s: float) -> Changes:
        query = {"since": str(since), "wait": str(wait_s)}
        answer = await self._get("/changes", query, owner, wait_s + ANSWER_S)
        if answer is None:
            raise HolderGone(self.name)
        return Changes(**orjson.loads(answer))

    async def file(self, ident: str, owner: str | None) -> bytes | None:
        return await self._get("/file", {"id": ident}, owner, ANSWER_S)

    async def counts(self) -> Counts:
        counts: Counts = orjson.loads(await self._get("/counts", {}, None, ANSWER_S) or b"[]")
        return counts

    async def _get(self, path: str, query: Mapping[str, str], owner: str | None, limit_s: float) -> bytes | None:
        asked = {**query, **({} if owner is None else {"owner": owner})}
        try:
            async with (
                ClientSession(
                    connector=UnixConnector(str(self._path)), timeout=ClientTimeout(total=limit_s)
                ) as session,
                session.get(f"http://worker{path}", params=asked) as response,
            ):
                return await response.read() if response.status == 200 else None
        except (ClientError, OSError, TimeoutError) as error:
            raise HolderGone(self.name) from error


class Holders:
    """The exchanges of all workers. `folder` is the folder that the workers share, None for a single worker."""

    def __init__(self, ring: Ring, folder: Path | None) -> None:
        self.ring = ring
        self._own = OwnHolder(ring)
        self._folder = folder
        self._runner: web.AppRunner | None = None
        self._socket = None if folder is None else folder / f"{ring.worker}{SUFFIX}"

    async def running(self, app: web.Application) -> AsyncIterator[None]:
        """Starts to answer the other workers. Continues when the application is replaced. For `app.cleanup_ctx`."""
        if self._socket is not None and self._runner is None:
            await self._listen(self._socket)
        yield

    async def close(self) -> None:
        """Stops to answer the other workers."""
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    def all(self) -> list[Holder]:
        """Returns the holders of this worker and of all others that run."""
        others = [] if self._folder is None else sorted(self._folder.glob(f"*{SUFFIX}"))
        return [self._own, *(PeerHolder(path) for path in others if path != self._socket)]

    async def file(self, ident: str, owner: str | None) -> bytes | None:
        """Returns the exchange with this id from any worker; None if no worker has it."""
        for holder in self.all():
            with suppress(HolderGone):
                content = await holder.file(ident, owner)
                if content is not None:
                    return content
        return None

    async def counts(self) -> Counts:
        """Returns the counts of all workers, joined."""
        counts: Counts = []
        for holder in self.all():
            with suppress(HolderGone):
                counts += await holder.counts()
        return counts

    async def _listen(self, place: Path) -> None:
        """Listens at this worker's path, which its successor uses too."""
        app = web.Application()
        app[_OWN] = self._own
        app.router.add_get("/changes", _changes)
        app.router.add_get("/file", _file)
        app.router.add_get("/counts", _counts)
        self._runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=LAST_S)
        await self._runner.setup()
        await web.UnixSite(self._runner, str(place)).start()


async def _changes(request: web.Request) -> web.Response:
    query = request.query
    return _json(await request.app[_OWN].changes(int(query["since"]), query.get("owner"), float(query["wait"])))


async def _file(request: web.Request) -> web.Response:
    content = await request.app[_OWN].file(request.query["id"], request.query.get("owner"))
    return web.Response(status=404) if content is None else web.Response(body=content)


async def _counts(request: web.Request) -> web.Response:
    return _json(await request.app[_OWN].counts())


def _json(value: object) -> web.Response:
    return web.Response(body=orjson.dumps(value), content_type="application/json")
