"""`/inspect`: the page, and what it asks for (R25).

Rules of this module:

1. The page and its files are the same for everybody and need no key; whatever was said needs one, where there are keys.
   A key sees the exchanges that it has asked itself, one with `admin` all, as under `/admin`.
2. Only the page itself may read: not other web pages (`Sec-Fetch-Site`, `Origin`), nor a page under a foreign name that
   was made to point here (`Host`), as far as no key is asked for.
3. What was said is JSON, never markup; the page may run nothing but its own files (`POLICY`, R25.2).
"""

from __future__ import annotations

import asyncio
import gzip
import re
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from importlib import resources
from typing import Any, Final
from urllib.parse import urlsplit

from aiohttp import web

from .._version import __version__
from ..capture.files import Captured, is_capture, read_capture
from ..capture.recording import RecordingError
from ..configuration.checks import is_loopback
from ..errors import ClientFault, GatewayError, quote
from ..ingress.liveness import LIVENESS
from ..pipeline.delivery import API_KEY, OWNER
from ..protocols.wire import dump, dump_in_pieces
from ..registry import Registries
from .feed import Feed
from .formats import read_in_all_formats
from .holders import Holders
from .view import UNREADABLE, view

PLACE: Final = "/inspect"

PLAYGROUND: Final = "/playground"
"""Leads to the part of the page that asks (R17.10)."""

POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"
)

_HEADERS: Final = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}

_KINDS: Final = {"html": "text/html", "js": "text/javascript", "css": "text/css", "svg": "image/svg+xml"}

UPLOAD_BYTES: Final = 64 * 1024 * 1024
"""Largest capture that is opened."""

_UNNAMED: Final = re.compile(r"[^\w.-]", re.ASCII)
"""What may not stand in the name of a file, nor in a header."""

Read = Callable[[Captured, Registries], dict[str, Any]]
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def assets() -> dict[str, bytes]:
    """The files of the page, by name."""
    folder = resources.files("proxy.inspector").joinpath("page")
    return {file.name: file.read_bytes() for file in folder.iterdir() if file.is_file()}


class Pages:
    """Serves the page and its data. `setup` says what the gateway has; `overview` and `check` answer the questions of
    those names. `keyed`: the boundary asks for keys."""

    def __init__(
        self,
        holders: Holders,
        plugins: Registries,
        *,
        keyed: bool,
        setup: Callable[[], dict[str, Any]],
        overview: Callable[[web.Request], Awaitable[dict[str, Any]]],
        check: Callable[[web.Request], Awaitable[dict[str, Any]]],
    ) -> None:
        self._holders = holders
        self._plugins = plugins
        self._keyed = keyed
        self._setup = setup
        self._overview = overview
        self._check = check
        self._reading = asyncio.Semaphore(1)
        self._assets = {name: (body, gzip.compress(body)) for name, body in assets().items()}

    def add_routes(self, router: web.UrlDispatcher) -> None:
        """Serve it at `PLACE`."""
        router.add_get(PLACE, self._page)
        router.add_get(f"{PLACE}/", self._to(PLACE))  # the page's files are beside it
        router.add_get(PLAYGROUND, self._to(f"{PLACE}#/playground"))
        router.add_get(f"{PLACE}/{{file:[a-z]+[.](?:js|css|svg)}}", self._asset)
        for method, path, handler in (
            ("GET", "setup", self._tell_setup),
            ("GET", "feed", self._feed),
            ("GET", "exchanges/{id}", self._view),
            ("GET", "exchanges/{id}/capture", self._capture),
            ("GET", "exchanges/{id}/formats", self._formats),
            ("POST", "view", self._view),
            ("POST", "formats", self._formats),
            ("GET", "overview", self._tell_overview),
            ("POST", "check", self._tell_check),
        ):
            router.add_route(method, f"{PLACE}/api/{path}", self._guarded(handler))

    def _guarded(self, handler: Handler) -> Handler:
        async def guarded(request: web.Request) -> web.StreamResponse:
            self.guard(request)
            return await handler(request)

        return guarded

    def guard(self, request: web.Request) -> None:
        """Raises `GatewayError` `origin_not_allowed` for whoever is not the page (rule 2)."""
        origin = request.headers.get("Origin")
        foreign = request.headers.get("Sec-Fetch-Site", "same-origin") not in ("same-origin", "none")
        if origin is not None and origin.partition("://")[2] != request.host:
            foreign = True
        if foreign or (not self._keyed and not is_loopback(_name(request.host))):
            raise GatewayError(
                "Only the inspector's own page may read this.",
                code="origin_not_allowed",
                hint=f"Open {PLACE} at a loopback address, or set keys.",
            )

    # --- the page ---------------------------------------------------------------------------------------------------

    async def _page(self, request: web.Request) -> web.Response:
        return self._file("index.html", request)

    def _to(self, place: str) -> Handler:
        async def lead(request: web.Request) -> web.Response:
            return web.Response(status=308, headers={**_HEADERS, "Location": place})

        return lead

    async def _asset(self, request: web.Request) -> web.Response:
        return self._file(request.match_info["file"], request)

    def _file(self, name: str, request: web.Request) -> web.Response:
        if name not in self._assets:
            raise ClientFault(f"The inspector has no file {quote(name)}.", code="not_found")
        plain, packed = self._assets[name]
        headers = {**_HEADERS, "Content-Type": f"{_KINDS[name.rpartition('.')[2]]}; charset=utf-8"}
        if "gzip" not in request.headers.get("Accept-Encoding", ""):
            return web.Response(body=plain, headers=headers)
        return web.Response(body=packed, headers={**headers, "Content-Encoding": "gzip", "Vary": "Accept-Encoding"})

    # --- what it asks -----------------------------------------------------------------------------------------------

    async def _tell_setup(self, request: web.Request) -> web.Response:
        return _json({"version": __version__, "keys": self._keyed, "live": True, "file": None, **self._setup()})

    async def _tell_overview(self, request: web.Request) -> web.Response:
        return _json(await self._overview(request))

    async def _tell_check(self, request: web.Request) -> web.Response:
        return _json(await self._check(request))

    async def _feed(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={**_HEADERS, "Content-Type": "text/event-stream"})
        await response.prepare(request)
        monitors = request.app.get(LIVENESS)

        def ends() -> bool:
            return monitors is not None and (monitors.draining or monitors.replaced)

        async with aclosing(Feed(self._holders, _owner(request)).events(ends)) as events:
            async for event in events:
                await response.write(event)
        await response.write_eof()
        return response

    async def _view(self, request: web.Request) -> web.Response:
        return await self._read(request, view)

    async def _formats(self, request: web.Request) -> web.Response:
        return await self._read(request, read_in_all_formats)

    async def _read(self, request: web.Request, read: Read) -> web.Response:
        """What `read` makes of a capture. One that was sent may be anything. In a thread, and one after the other:
        however many look on, the requests of others have most of the time."""
        content = await self._content(request)

        def work() -> bytes:
            return dump_in_pieces(read(read_capture(content), self._plugins))

        try:
            async with self._reading:
                return _written(await asyncio.to_thread(work))
        except RecordingError as error:
            raise ClientFault(str(error), code="invalid_value") from error
        except UNREADABLE as error:
            if request.method != "POST":
                raise
            raise ClientFault("The capture cannot be read.", code="invalid_value") from error

    async def _capture(self, request: web.Request) -> web.Response:
        content = await self._content(request)
        name = _UNNAMED.sub("_", request.match_info["id"])
        named = {"Content-Disposition": f'attachment; filename="{name}.capture.jsonl"'}
        return web.Response(body=content, content_type="application/jsonl", headers={**_HEADERS, **named})

    async def _content(self, request: web.Request) -> bytes:
        if request.method == "POST":
            content = await _body(request)
            if not is_capture(content):
                raise ClientFault(
                    "This is no capture of a toolwire gateway.",
                    code="invalid_value",
                    hint="The inspector's download and `GET /admin/captures/ID` give such files.",
                )
            return content
        ident = request.match_info["id"]
        found = await self._holders.file(ident, _owner(request))
        if found is None:
            raise ClientFault(f"The exchange {quote(ident)} is not kept (any more).", code="not_found")
        return found


async def _body(request: web.Request) -> bytes:
    """The body, up to `UPLOAD_BYTES`."""
    pieces: list[bytes] = []
    size = 0
    async for piece in request.content.iter_any():
        pieces.append(piece)
        size += len(piece)
        if size > UPLOAD_BYTES:
            raise ClientFault(f"A capture may have {UPLOAD_BYTES} bytes.", code="request_too_large")
    return b"".join(pieces)


def _name(host: str) -> str:
    """The name in a `Host` field, which a client may have written in any way."""
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""


def _owner(request: web.Request) -> str | None:
    """Whose exchanges may be seen; None: all."""
    key = request.get(API_KEY)
    return None if key is None or key.admin else request[OWNER]


def _json(value: object) -> web.Response:
    return _written(dump(value))


def _written(body: bytes) -> web.Response:
    return web.Response(body=body, content_type="application/json", headers=_HEADERS)
