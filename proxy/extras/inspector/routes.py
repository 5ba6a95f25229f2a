"""`/inspect`: the page and its data (R25).

Rules:

1. The page and its files are the same for everybody and need no key; conversations need one, if there are keys. A key
   sees its own exchanges, a key with `admin` all, as under `/admin`.
2. Only the page itself may read the data: not other web pages (`Sec-Fetch-Site`, `Origin`), and, if no key is required,
   not a page whose host name was made to point here (`Host`).
3. Conversations are sent as JSON, never as markup; the page may run only its own scripts (`POLICY`, R25.2).
4. Expensive requests are limited before they are read: a key may have `READS` at once, their bodies and answers count
   in the body budget, and they are processed one after the other, in a thread.
"""

from __future__ import annotations

import asyncio
import gzip
import re
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from functools import partial
from typing import Any, Final
from urllib.parse import urlsplit

from aiohttp import web

from ..._version import __version__
from ...config import GatewayConfig
from ...configuration.checks import is_loopback
from ...errors import ClientFault, GatewayError, quote
from ...ingress.auth import ApiKey
from ...ingress.bodies import parse_body
from ...ingress.liveness import LIVENESS
from ...ingress.receiving import ignore_expect
from ...pipeline.handlers.admitting import AdmittedRequest, ConcurrencyLimit, admit
from ...pipeline.sending.delivery import API_KEY, OWNER
from ...protocols.shared.wire import dump, dump_in_pieces
from ...registry import Registries
from ...support.offload import in_thread
from ..capture.files import CapturedExchange, is_capture
from ..capture.recording import RecordingError
from ..capture.routes import visible_owner
from .feed import Feed
from .formats import read_in_all_formats
from .holders import Holders
from .sharing import assets, share
from .uploads import open_capture
from .view import UNREADABLE, view

PLACE: Final = "/inspect"

PLAYGROUND: Final = "/playground"
"""Path that redirects to the page's playground (R17.10)."""

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

READS: Final = 8
"""Maximum number of requests of one key at the same time that read an exchange or check a request."""

FEEDS: Final = 16
"""Maximum number of live lists (`feed`) of one key at the same time."""

UPLOADS: Final = 4
"""An uploaded capture may be this many times as large as `capture.exchange_bytes`, because quotes in recorded JSON are
escaped in it."""

FINISH_S: Final = 1.0
"""Maximum wait for the end of an exchange whose capture is downloaded. The capture of a longer one says that it is
still running."""

MOST_EXPORTED: Final = 100
"""Maximum number of exchanges in one exported file."""

EXPORT_BYTES: Final = 32 * 1024 * 1024
"""Maximum size of all captures in one exported file."""

EXPORT_BODY: Final = 64 * 1024
"""Maximum size of the body of a request for an export."""

_UNNAMED: Final = re.compile(r"[^\w.-]", re.ASCII)
"""Characters that must not be in the name of a file, nor in a header."""

Read = Callable[[CapturedExchange, Registries], dict[str, Any]]
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
Work = Callable[[web.Request, AdmittedRequest], Awaitable[web.Response]]


class Pages:
    """Serves the page and its data. `setup` returns what the client's key may use, `overview` the counts, and `check`
    the result of reading the request with this body. `keyed`: client keys are required."""

    def __init__(
        self,
        config: GatewayConfig,
        holders: Holders,
        plugins: Registries,
        *,
        keyed: bool,
        setup: Callable[[ApiKey | None], dict[str, Any]],
        overview: Callable[[web.Request], Awaitable[dict[str, Any]]],
        check: Callable[[web.Request, bytes], Awaitable[dict[str, Any]]],
    ) -> None:
        self._limits = config.limits
        self._body_s = config.server.body_s
        self._upload_bytes = UPLOADS * config.capture.exchange_bytes
        self._reads = ConcurrencyLimit(READS, "requests to the inspector")
        self._feeds = ConcurrencyLimit(FEEDS, "live lists")
        self._holders = holders
        self._plugins = plugins
        self._keyed = keyed
        self._setup = setup
        self._overview = overview
        self._check = check
        self._working_on = asyncio.Semaphore(1)
        self._assets = {name: (body, gzip.compress(body)) for name, body in assets().items()}

    def add_routes(self, router: web.UrlDispatcher) -> None:
        """Adds the paths below `PLACE`."""
        router.add_get(PLACE, self._page)
        router.add_get(f"{PLACE}/", self._to(PLACE))  # the page's files are relative to it
        router.add_get(PLAYGROUND, self._to(f"{PLACE}#/playground"))
        router.add_get(f"{PLACE}/{{file:[a-z]+[.](?:js|css|svg)}}", self._asset)
        for method, path, handler in (
            ("GET", "setup", self._get_setup),
            ("GET", "feed", self._feed),
            ("GET", "exchanges/{id}", self._working(partial(self._read, view))),
            ("GET", "exchanges/{id}/capture", self._working(self._capture)),
            ("GET", "exchanges/{id}/formats", self._working(partial(self._read, read_in_all_formats))),
            ("POST", "view", self._working(partial(self._read, view))),
            ("POST", "formats", self._working(partial(self._read, read_in_all_formats))),
            ("POST", "html", self._working(self._html)),
            ("POST", "export", self._working(self._export)),
            ("GET", "overview", self._working(self._get_overview)),
            ("POST", "check", self._working(self._post_check)),
        ):
            router.add_route(method, f"{PLACE}/api/{path}", self._guarded(handler), expect_handler=ignore_expect)

    def _guarded(self, handler: Handler) -> Handler:
        async def guarded(request: web.Request) -> web.StreamResponse:
            self.guard(request)
            return await handler(request)

        return guarded

    def _working(self, work: Work) -> Handler:
        """Returns a handler for expensive requests (rule 4). Requests with a body count in the key's limits; showing an
        exchange does not."""

        async def working(request: web.Request) -> web.StreamResponse:
            brings = request.method == "POST"
            async with (
                self._reads.take(request[OWNER]),
                admit(request, limited=brings, counted=brings) as asking,
            ):
                return await asking.send(await work(request, asking))

        return working

    def guard(self, request: web.Request) -> None:
        """Raises `GatewayError` `origin_not_allowed` unless the request comes from the page (rule 2)."""
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

    # --- its data ---------------------------------------------------------------------------------------------------

    async def _get_setup(self, request: web.Request) -> web.Response:
        has = self._setup(request.get(API_KEY))
        return _json({"version": __version__, "keys": self._keyed, "live": True, "file": None, **has})

    async def _get_overview(self, request: web.Request, asking: AdmittedRequest) -> web.Response:
        return _json(await self._overview(request))

    async def _post_check(self, request: web.Request, asking: AdmittedRequest) -> web.Response:
        body = await asking.body(self._limits.body_bytes, self._body_s)
        async with self._working_on:
            return _json(await self._check(request, body))

    async def _feed(self, request: web.Request) -> web.StreamResponse:
        monitors = request.app.get(LIVENESS)

        def ends() -> bool:
            return monitors is not None and (monitors.draining or monitors.replaced)

        async with self._feeds.take(request[OWNER]):
            response = web.StreamResponse(headers={**_HEADERS, "Content-Type": "text/event-stream"})
            await response.prepare(request)
            async with aclosing(Feed(self._holders, visible_owner(request)).events(ends)) as events:
                async for event in events:
                    await response.write(event)
            await response.write_eof()
            return response

    async def _read(self, read: Read, request: web.Request, asking: AdmittedRequest) -> web.Response:
        """Answers with the result of `read` for a capture. Errors in an uploaded capture become a `ClientFault`."""
        uploaded = await self._uploaded(request, asking) if request.method == "POST" else None

        def work(content: bytes) -> bytes:
            return dump_in_pieces(read(open_capture(content, self._limits), self._plugins))

        try:
            async with self._working_on:
                if uploaded is None:
                    content = await self._stored(request.match_info["id"], visible_owner(request))
                else:
                    content = uploaded
                return _written(await in_thread(work, content))
        except RecordingError as error:
            raise ClientFault(str(error), code="invalid_value") from error
        except UNREADABLE as error:
            if uploaded is None:
                raise
            raise ClientFault("The capture cannot be read.", code="invalid_value") from error

    async def _capture(self, request: web.Request, asking: AdmittedRequest) -> web.Response:
        async with self._working_on:
            content = await self._finished(request.match_info["id"], visible_owner(request))
        name = _UNNAMED.sub("_", request.match_info["id"])
        named = {"Content-Disposition": f'attachment; filename="{name}.capture.jsonl"'}
        return web.Response(body=content, content_type="application/jsonl", headers={**_HEADERS, **named})

    async def _html(self, request: web.Request, asking: AdmittedRequest) -> web.Response:
        """Answers with the page that holds an uploaded capture."""
        return await self._exported([await self._uploaded(request, asking)], html=True)

    async def _export(self, request: web.Request, asking: AdmittedRequest) -> web.Response:
        """Answers with several exchanges in one file: their captures one after the other, or the page that holds
        them. The body has their ids (`ids`) and the kind of file (`as`: `captures` or `html`)."""
        body = await parse_body(await asking.body(EXPORT_BODY, self._body_s), self._limits)
        ids, kind = body.get("ids"), body.get("as", "captures")
        if not isinstance(ids, list) or not ids or not all(isinstance(ident, str) for ident in ids):
            raise ClientFault("Expected `ids`, a list of ids of exchanges.", code="invalid_value", param="ids")
        if len(ids) > MOST_EXPORTED:
            raise ClientFault(
                f"{len(ids)} exchanges were selected; one file takes {MOST_EXPORTED}.",
                code="invalid_value",
                param="ids",
            )
        if kind not in ("captures", "html"):
            raise ClientFault("Expected `captures` or `html`.", code="invalid_value", param="as")
        contents: list[bytes] = []
        async with self._working_on:
            for ident in dict.fromkeys(ids):
                contents.append(await self._finished(ident, visible_owner(request)))
                if sum(map(len, contents)) > EXPORT_BYTES:
                    raise ClientFault(
                        f"The selected exchanges have more than {EXPORT_BYTES} bytes.",
                        code="request_too_large",
                        hint="Select fewer, or download them one by one.",
                    )
        return await self._exported(contents, html=kind == "html")

    async def _exported(self, contents: Sequence[bytes], *, html: bool) -> web.Response:
        if not html:
            return web.Response(body=b"".join(contents), content_type="application/jsonl", headers=_HEADERS)

        def work() -> bytes:
            return share([(open_capture(content, self._limits), content) for content in contents], self._plugins)

        try:
            async with self._working_on:
                page = await in_thread(work)
        except RecordingError as error:
            raise ClientFault(str(error), code="invalid_value") from error
        named = {"Content-Disposition": 'attachment; filename="exchanges.html"'}
        return web.Response(body=page, content_type="text/html", charset="utf-8", headers={**_HEADERS, **named})

    async def _uploaded(self, request: web.Request, asking: AdmittedRequest) -> bytes:
        content = await asking.body(self._upload_bytes, self._body_s, f"{UPLOADS} * capture.exchange_bytes")
        if not is_capture(content):
            raise ClientFault(
                "This is not a capture of a toolwire gateway.",
                code="invalid_value",
                hint="Download one in the inspector or from `GET /admin/captures/ID`.",
            )
        return content

    async def _finished(self, ident: str, owner: str | None) -> bytes:
        """Returns the capture of a stored exchange. Waits a moment for its end: a client has its answer a little
        before the exchange has ended. Raises `ClientFault` `not_found`."""
        until = asyncio.get_running_loop().time() + FINISH_S
        while True:
            content = await self._stored(ident, owner)
            if b'"so_far":' not in content.partition(b"\n")[0] or asyncio.get_running_loop().time() > until:
                return content
            await asyncio.sleep(FINISH_S / 20)

    async def _stored(self, ident: str, owner: str | None) -> bytes:
        """Returns the capture of a stored exchange. Raises `ClientFault` `not_found`."""
        content = await self._holders.file(ident, owner)
        if content is None:
            raise ClientFault(f"The exchange {quote(ident)} is not stored (any more).", code="not_found")
        return content


def _name(host: str) -> str:
    """Returns the host name in a `Host` field; empty if it is invalid."""
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""


def _json(value: object) -> web.Response:
    return _written(dump(value))


def _written(body: bytes) -> web.Response:
    return web.Response(body=body, content_type="application/json", headers=_HEADERS)
