"""Model servers over HTTP: one backend class for all protocols.

Rules:

1. `open` returns after the server has accepted the request; earlier failures are raised, mapped by `upstream_errors`
   (R10.8).
2. A request is resent only on a connection that turns out to be stale; see `wire_client`. Middlewares do real retries.
3. Closing a source early closes its connection, so that the server stops working (R10.7). A connection is reused only
   if its answer was read to the end, and if it stayed silent afterwards.
4. Requests are sent by `wire_client`. The gateway's own queries (`server_queries`) use aiohttp.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import aiohttp
from yarl import URL

from ..._version import __version__
from ...config import BackendConfig, LimitsConfig
from ...errors import BackendFault, GatewayError, quote
from ...model import ModelRequest, fields_of
from ...protocols.base import ServerSide
from ...protocols.proxied.protocol import ProxiedProtocol
from ...protocols.shared.wire import dump, dump_request
from ...record import BackendObserver
from ...support.offload import is_large, offload
from ..client.connections import OUT_OF_STEP_S, UpstreamAnswer, UpstreamClient, check_header
from ..client.sessions import open_session
from ..client.wire_client import OURS, WireClient
from . import client_ids
from .adapt import reasoning_named, with_limit_field
from .base import Capabilities
from .client_ids import CLIENT_ID
from .hops import HEADER, HOPS
from .http_source import HttpSource
from .identity import Identity
from .observed import ObservedAnswer
from .presets import AUTO, GENERIC, OPENAI_HOST, capabilities
from .private_data import private_of
from .server_queries import API_VERSION, PROBE_S, ServerQueries, engine_url
from .tokenizing import Ask, count, count_text, rendered, renders
from .upstream_errors import read_refusal

LOG: Final = logging.getLogger("toolwire.backends")

COUNT_AGAIN_S: Final = 60.0
"""A server of unknown engine that could not count tokens is not asked again for this time."""

OUT_OF_STEP: Final = "out_of_step"
"""Error code for an answer that no request asked for."""

REFUSAL_BYTES: Final = 64 * 1024
"""Bytes of an error answer that are read at most."""


class HttpBackend:
    """A server over HTTP that speaks `protocol`. The constructor raises `ValueError` for an unusable configuration."""

    def __init__(self, name: str, config: BackendConfig, limits: LimitsConfig, protocol: ServerSide) -> None:
        if config.url is None:
            raise ValueError(f"backend {name!r} needs a `url`")
        self.wire = protocol
        self.protocol: ServerSide | None = protocol
        self.name = name
        self.capabilities = self._by_config = _capabilities(config, None, protocol)
        self.base = base_url(config.url, self.wire.path)
        self.url = self.base.joinpath(self.wire.path.lstrip("/"))
        self.limits = limits
        self._config = config
        self.private = private_of(config)
        """Data that must not reach clients."""
        self._headers = {"Accept-Encoding": "identity", "User-Agent": f"toolwire/{__version__}"}
        self._headers.update(protocol.headers(config.api_key))
        own_headers = {
            name: value for name, value in config.headers.items() if name.lower() not in protocol.field_headers
        }
        self._headers.update(own_headers)
        self._field_headers = {
            name: ",".join(value for key, value in config.headers.items() if key.lower() == name)
            for name in protocol.field_headers
        }
        self._engine: str | None = None
        self._counts = False
        """True after a server of unknown engine has counted tokens once."""
        self._count_again_at = -math.inf
        self.client: UpstreamClient | None = None
        self._others: dict[str, UpstreamClient] = {}
        """Clients for paths other than the protocol's, created on use."""
        self._prober: aiohttp.ClientSession | None = None
        self._questions: ServerQueries | None = None
        self.count_error: Callable[[str], None] = lambda code: None
        """Called with the code of a server error that belongs to no request."""

    def hop(self, name: str) -> None:
        """Sets the gateway's name that every request carries (`toolwire.upstream.servers.hops`). Call it before
        `start`."""
        self._headers[HEADER] = name

    async def start(self) -> None:
        """Opens the connection pool. Raises `ValueError` for headers that cannot be sent."""
        for name, value in self._headers.items():
            check_header(name, value)
        self.client = self._connections(self.url)
        if self._config.websocket:
            from ..client.socket_client import SocketClient

            self.client = SocketClient(self.url, self._headers, self._config, self.limits, self.client, self.wire)
        self._prober = open_session(self.url, self._headers, self._config)
        self._questions = ServerQueries(
            self._prober,
            self.base,
            self._headers,
            self._config,
            list_bytes=self.limits.frame_bytes,
            private=self.private,
        )

    async def close(self) -> None:
        """Closes all connections."""
        client, self.client = self.client, None
        others, self._others = self._others, {}
        prober, self._prober, self._questions = self._prober, None, None
        if client is not None:
            await client.close()
        for other in others.values():
            await other.close()
        if prober is not None:
            await prober.close()

    async def open(
        self,
        request: ModelRequest,
        *,
        request_id: str,
        body: bytes | None = None,
        observer: BackendObserver | None = None,
    ) -> HttpSource:
        """Sends the request, waits until the server accepts it, and returns its source. Raises `GatewayError`."""
        client = self.client
        if client is None:
            raise self._not_started()
        if body is None:
            if is_large(request):
                body = await offload(is_large(request, reused=True), self._written_large, request)
            else:
                body = dump(self._written(request))
        further = self._further(request) if request.server_headers or HOPS.get() or CLIENT_ID.get() else None
        if self._field_headers:
            further = {**self._header_fields(request), **(further or {})}
        if observer is None:
            answer = await client.post(body, stream=request.stream, request_id=request_id, headers=further)
        else:
            observer.sent(body)
            await self._report_prompt(request, observer)
            headers = {**observer.headers(), **(further or {})}
            answer = await client.post(body, stream=request.stream, request_id=request_id, headers=headers)
            observer.answered(answer.status, answer.headers)
            answer = ObservedAnswer(answer, observer)
        if answer.status != 200:
            raise await self._refused(answer, self.wire)
        return HttpSource(request, answer, self.wire, self.limits, self.private)

    async def send_proxied(
        self,
        proxied: ProxiedProtocol,
        request: ModelRequest,
        body: bytes,
        *,
        request_id: str,
        observer: BackendObserver | None = None,
    ) -> HttpSource:
        """Sends a body unchanged to the path of `proxied`, waits until the server accepts it, and returns its source
        (R24.3). Raises `GatewayError`."""
        if self.client is None:
            raise self._not_started()
        client = self._others.get(proxied.name)
        if client is None:
            base = self.base if proxied.versioned else engine_url(self.base)
            client = self._others[proxied.name] = self._connections(base.joinpath(proxied.path.lstrip("/")))
        further = self._further(request) if request.server_headers or HOPS.get() or CLIENT_ID.get() else None
        if observer is not None:
            observer.sent(body)
        answer = await client.post(body, stream=request.stream, request_id=request_id, headers=further)
        if observer is not None:
            observer.answered(answer.status, answer.headers)
            answer = ObservedAnswer(answer, observer)
        if answer.status != 200:
            raise await self._refused(answer, proxied)
        return HttpSource(request, answer, proxied, self.limits, self.private)

    def _written(self, request: ModelRequest) -> Mapping[str, Any]:
        body = with_limit_field(self.wire.write_request(request), self.capabilities, self.wire)
        return reasoning_named(body, self.capabilities, self.wire)

    def _written_large(self, request: ModelRequest) -> bytes:
        return dump_request(self._written(request), self.wire.items_field, request.past)

    def _connections(self, url: URL) -> UpstreamClient:
        return WireClient(url, self._headers, self._config, self._out_of_step)

    def _out_of_step(self, first: bool) -> None:
        self.count_error(OUT_OF_STEP)
        if first:
            LOG.warning(
                "backend %s sent an answer that no request asked for; until that has not happened for %g s every request "
                "gets a new connection, which costs more. Check the server, and what stands between it and the gateway.",
                quote(self.name),
                OUT_OF_STEP_S,
            )

    def _further(self, request: ModelRequest) -> dict[str, str]:
        """Returns headers of the request: those of middlewares, the gateways it came through, and its client's request
        id unless the configuration sets it. Raises `ValueError` if a middleware sets a header that is sent anyway."""
        headers = dict(request.server_headers)
        if headers and (twice := {*map(str.lower, headers)} & {*map(str.lower, self._headers), *OURS, "host"}):
            raise ValueError(f"a middleware set {min(twice)!r}, a header that backend {self.name!r} sends by itself")
        if (hops := HOPS.get()) and HEADER in self._headers:
            headers[HEADER] = f"{hops}, {self._headers[HEADER]}"
        if (ident := CLIENT_ID.get()) and all(name.lower() != client_ids.HEADER for name in self._headers):
            headers[client_ids.HEADER] = ident
        return headers

    async def _refused(self, answer: UpstreamAnswer, wire: ServerSide) -> GatewayError:
        """Reads the error in an answer that is no 200, closes it, and returns the error."""
        try:
            return await self._refusal(answer, wire)
        finally:
            await answer.close()

    async def ready(self) -> bool:
        """True for any answer below 500 on the health path, or on the model list."""
        return await self._active_queries.ready()

    async def models(self) -> list[str]:
        """Returns the names in the server's model list; empty if a `health_path` is configured and there is no list.
        Raises `BackendFault` if there is no list otherwise, or the server cannot be reached."""
        return await self._active_queries.models()

    async def identify(self) -> Identity:
        """Returns the identity that the server reports; see `ServerQueries.identify`."""
        return await self._active_queries.identify()

    async def count(self, request: ModelRequest) -> int | None:
        """Implements `TokenCounter.count`."""
        if self.wire.count_path is not None:
            return await self._active_queries.count(self.wire, request, self._header_fields(request))

        async def by_engine(engine: str | None, ask: Ask) -> int | None:
            return await count(engine, await offload(is_large(request), self.wire.write_request, request), ask)

        return await self._by_engine(by_engine)

    async def count_text(self, model: str, text: str) -> int | None:
        """Implements `TokenCounter.count_text`."""
        return await self._by_engine(lambda engine, ask: count_text(engine, model, text, ask))

    async def _report_prompt(self, request: ModelRequest, observer: BackendObserver) -> None:
        """Reports to `observer` the rendered prompt of a request whose tools are written by the model's chat template
        (R31.1a)."""
        engine = self._known_engine
        if not request.tools or request.tool_choice.mode != self.capabilities.template_choice or not renders(engine):
            return
        prompt = await self._active_queries.of_engine(
            lambda ask: rendered(engine, self._written(request), ask), PROBE_S
        )
        if prompt is not None:
            observer.rendered(prompt)

    @property
    def _known_engine(self) -> str | None:
        preset = self._config.preset
        return self._engine if preset in (AUTO, GENERIC) else preset

    async def _by_engine(self, query: Callable[[str | None, Ask], Awaitable[int | None]]) -> int | None:
        """Returns the token count by the engine's own path, or None. A server of unknown engine that never counted is
        not asked again for `COUNT_AGAIN_S`; after one success a failure counts for its request only."""
        now = time.monotonic()
        if now < self._count_again_at or self.base.host == OPENAI_HOST:
            return None
        engine = self._known_engine
        tokens = await self._active_queries.of_engine(lambda ask: query(engine, ask))
        if engine is None:
            self._counts = self._counts or tokens is not None
            if not self._counts:
                self._count_again_at = now + COUNT_AGAIN_S
        return tokens

    def learn(self, identity: Identity | None) -> None:
        """Sets the server's identity, which decides its capabilities; None: unknown. Capabilities that were set from
        outside are kept."""
        self._engine = None if identity is None else identity.engine
        self._counts, self._count_again_at = False, -math.inf
        if self.capabilities is self._by_config:
            self.capabilities = self._by_config = _capabilities(self._config, identity, self.wire)

    @property
    def _active_queries(self) -> ServerQueries:
        if self._questions is None:
            raise self._not_started()
        return self._questions

    def _not_started(self) -> RuntimeError:
        return RuntimeError(f"backend {self.name!r} is not started")

    def _header_fields(self, request: ModelRequest) -> dict[str, str]:
        """Returns the request fields that are sent as headers, each after the configured value."""
        fields = fields_of(request.protocol_fields, self.wire.name)
        values = {
            name: ",".join(filter(None, (always, fields.get(name)))) for name, always in self._field_headers.items()
        }
        return {name: value for name, value in values.items() if value}

    async def _refusal(self, answer: UpstreamAnswer, wire: ServerSide) -> GatewayError:
        body = bytearray()
        try:
            async with asyncio.timeout(PROBE_S):
                async for data in answer.reads():
                    body += data
                    if len(body) >= REFUSAL_BYTES:
                        break
        except (BackendFault, TimeoutError):
            pass  # the status alone is enough
        received = bytes(body[:REFUSAL_BYTES])
        return read_refusal(answer.status, answer.headers, received, private=self.private, read=wire.read_refusal)


def _capabilities(config: BackendConfig, identity: Identity | None, wire: ServerSide) -> Capabilities:
    return capabilities(config, identity, images=wire.images, effort=wire.reasoning_effort)


def base_url(url: str, path: str) -> URL:
    """Returns the base URL of a server's API.

    `url` may be an origin, end with `/v1` or a slash, or be the endpoint itself. `/v1` is added unless the path
    contains a version. Raises `ValueError` if `url` is not an HTTP URL, or its host no name that can be looked up.
    """
    parsed = URL(url)
    try:
        host = (parsed.raw_host or "").encode("idna")
    except UnicodeError:  # a part is empty, or longer than 63 characters
        host = b""
    if parsed.scheme not in ("http", "https") or not host:
        raise ValueError(f"not an HTTP URL: {url!r}")
    place = parsed.path.rstrip("/").removesuffix(path)
    if not any(API_VERSION.fullmatch(segment) for segment in place.split("/")):
        place += "/v1"
    return parsed.with_path(place)
