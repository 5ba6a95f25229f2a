"""Who holds the exchanges that a viewer sees: the ring of this worker, and those of the others.

With several workers any of them may get the page's requests, so each answers the others at a Unix socket of its own, in
the folder that they share and nobody else may enter. What is asked there is asked by a worker that has looked at the
viewer's key; nothing else listens, and a worker without an inspector has no socket.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Protocol

import orjson
from aiohttp import ClientError, ClientSession, ClientTimeout, UnixConnector, web

from toolwire.extras.inspector.ring import Changes, Ring
from toolwire.support.offload import in_thread

WAIT_S: Final = 10.0
"""How long one question for changes waits for some."""

ANSWER_S: Final = 5.0
"""Beyond this another worker does not answer."""

LAST_S: Final = 0.1
"""At the end, for questions of others that wait for changes."""

SUFFIX: Final = ".inspect.sock"

_RING: Final = web.AppKey("toolwire.inspector.ring", Ring)

Counts = list[list[Any]]
"""`[minute, route, {what: number}]`."""


class HolderGone(Exception):
    """The worker does not answer."""


class Holder(Protocol):
    """The exchanges of one worker. `owner` is whose may be seen, None: all. All raise `HolderGone`."""

    name: str

    async def changes(self, since: int, owner: str | None, wait_s: float) -> Changes:
        """What has changed since a version; waits for something so long."""

    async def file(self, ident: str, owner: str | None) -> bytes | None:
        """An exchange as a capture."""

    async def counts(self) -> Counts:
        """What was counted by minute and route."""


class OwnHolder:
    """That of this worker."""

    name = "own"

    def __init__(self, ring: Ring) -> None:
        self._ring = ring

    async def changes(self, since: int, owner: str | None, wait_s: float) -> Changes:
        """See `Holder`."""
        await self._ring.changed(since, wait_s)
        return self._ring.changes(since, owner)

    async def file(self, ident: str, owner: str | None) -> bytes | None:
        """See `Holder`. Covering secrets takes its time: it is done in a thread."""
        capture = self._ring.find(ident, owner)
        return None if capture is None else await in_thread(capture.file)

    async def counts(self) -> Counts:
        """See `Holder`."""
        return [[minute, route, dict(counts)] for (minute, route), counts in self._ring.counts().items()]


class PeerHolder:
    """That of another worker."""

    def __init__(self, path: Path) -> None:
        self.name = path.name
        self._path = path

    async def changes(self, since: int, owner: str | None, wait_s: float) -> Changes:
        """See `Holder`."""
        query = {"since": str(since), "wait": str(wait_s)}
        answer = await self._get("/changes", query, owner, wait_s + ANSWER_S)
        if answer is None:
            raise HolderGone(self.name)
        said = orjson.loads(answer)
        return Changes(said["version"], tuple(said["rows"]), tuple(said["gone"]), said["skipped"])

    async def file(self, ident: str, owner: str | None) -> bytes | None:
        """See `Holder`."""
        return await self._get("/file", {"id": ident}, owner, ANSWER_S)

    async def counts(self) -> Counts:
        """See `Holder`."""
        found: Counts = orjson.loads(await self._get("/counts", {}, None, ANSWER_S) or b"[]")
        return found

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
    """All of them. `folder` is that of the workers, None for one alone."""

    def __init__(self, ring: Ring, folder: Path | None) -> None:
        self.ring = ring
        self._own = OwnHolder(ring)
        self._folder = folder
        self._runner: web.AppRunner | None = None
        self._socket = None if folder is None else folder / f"{ring.worker}{SUFFIX}"

    async def running(self, app: web.Application) -> AsyncIterator[None]:
        """For `app.cleanup_ctx`: answer the other workers. It goes on when the application is replaced."""
        if self._socket is not None and self._runner is None:
            await self._listen(self._socket)
        yield

    async def close(self) -> None:
        """Answer nobody any more."""
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    def all(self) -> list[Holder]:
        """This worker's, and those of the others that are there."""
        others = [] if self._folder is None else sorted(self._folder.glob(f"*{SUFFIX}"))
        return [self._own, *(PeerHolder(path) for path in others if path != self._socket)]

    async def file(self, ident: str, owner: str | None) -> bytes | None:
        """The exchange with this id, whoever has it."""
        for holder in self.all():
            with suppress(HolderGone):
                found = await holder.file(ident, owner)
                if found is not None:
                    return found
        return None

    async def counts(self) -> Counts:
        """Those of all."""
        found: Counts = []
        for holder in self.all():
            with suppress(HolderGone):
                found += await holder.counts()
        return found

    async def _listen(self, place: Path) -> None:
        """At a place that stays that of this worker: whoever follows it, or takes over from it, listens there then."""
        app = web.Application()
        app[_RING] = self.ring
        app.router.add_get("/changes", _changes)
        app.router.add_get("/file", _file)
        app.router.add_get("/counts", _counts)
        self._runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=LAST_S)
        await self._runner.setup()
        await web.UnixSite(self._runner, str(place)).start()


async def _changes(request: web.Request) -> web.Response:
    query = request.query
    changes = await OwnHolder(request.app[_RING]).changes(int(query["since"]), query.get("owner"), float(query["wait"]))
    return _json({"version": changes.version, "rows": changes.rows, "gone": changes.gone, "skipped": changes.skipped})


async def _file(request: web.Request) -> web.Response:
    found = await OwnHolder(request.app[_RING]).file(request.query["id"], request.query.get("owner"))
    return web.Response(status=404) if found is None else web.Response(body=found)


async def _counts(request: web.Request) -> web.Response:
    return _json(await OwnHolder(request.app[_RING]).counts())


def _json(value: object) -> web.Response:
    return web.Response(body=orjson.dumps(value), content_type="application/json")
