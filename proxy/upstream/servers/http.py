"""Model servers over HTTP: one class for all of them, with the protocol as a value.

Rules:

1. `open` returns when the server has accepted; everything before is raised, mapped by `upstream_errors` (R10.8).
2. A request is sent a second time only on a connection that proves to be stale; see `wire_client`. Real retries are a
   middleware's business.
3. Closing early closes the connection, so that the server stops working (R10.7). A kept connection is one that was read
   to its end, and then stayed silent.
4. Requests go out through `wire_client`. The gateway's own questions to the server (`asking`) go through aiohttp.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from functools import partial
from typing import Any, Final

import aiohttp
from yarl import URL

from toolwire._version import __version__
from toolwire.config import BackendConfig, LimitsConfig
from toolwire.errors import BackendFault, ClientFault, GatewayError, quote
from toolwire.events import Event, Fault, Finish
from toolwire.folding import unfold
from toolwire.model import ModelReply, ModelRequest, fields_of
from toolwire.protocols.base import ServerSide, WriteOptions
from toolwire.protocols.shared.numbers import choices_of
from toolwire.protocols.shared.passed import PassedProtocol
from toolwire.protocols.shared.wire import dump, dump_request
from toolwire.record import BackendObserver
from toolwire.support.offload import OFFLOAD_BYTES, in_thread, is_large, is_long, is_slow, offload
from toolwire.upstream.client.connections import OUT_OF_STEP_S, Answer, Client, check_header, too_large
from toolwire.upstream.client.content import STREAM, is_whole, may_be_stream
from toolwire.upstream.client.sessions import open_session
from toolwire.upstream.client.wire_client import WireClient
from toolwire.upstream.servers import client_ids
from toolwire.upstream.servers.adapt import limited, reasoning_named
from toolwire.upstream.servers.asking import API_VERSION, PROBE_S, Asking, engine_url
from toolwire.upstream.servers.base import Capabilities, WireSource, fold_batches
from toolwire.upstream.servers.client_ids import CLIENT_ID
from toolwire.upstream.servers.hops import HEADER, HOPS
from toolwire.upstream.servers.identity import Identity
from toolwire.upstream.servers.observed import ObservedAnswer
from toolwire.upstream.servers.presets import AUTO, GENERIC, OPENAI_HOST, capabilities
from toolwire.upstream.servers.private import private_of
from toolwire.upstream.servers.tokenizing import Ask, count, count_text, rendered, renders
from toolwire.upstream.servers.upstream_errors import cleaned, read_refusal

LOG: Final = logging.getLogger("toolwire.backends")

LINGER_S: Final = 0.2
"""How long a finished stream is given to end, so that its connection can be kept."""

COUNT_AGAIN_S: Final = 60.0
"""For so long a server of no known kind that cannot count tokens is not asked for it again."""

OUT_OF_STEP: Final = "out_of_step"
"""The code under which an answer that no request asked for is counted."""

REFUSAL_BYTES: Final = 64 * 1024
"""So much of an error answer is read."""


class HttpBackend:
    """A model server over HTTP that speaks `protocol`.

    Raises `ValueError` for a configuration it cannot use.
    """

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
        """What no client may see."""
        self._headers = {"Accept-Encoding": "identity", "User-Agent": f"toolwire/{__version__}"}
        self._headers.update(protocol.headers(config.api_key))
        given = {name: value for name, value in config.headers.items() if name.lower() not in protocol.field_headers}
        self._headers.update(given)
        self._field_headers = {
            name: ",".join(value for key, value in config.headers.items() if key.lower() == name)
            for name in protocol.field_headers
        }
        self._engine: str | None = None
        self._counts = False
        """A server of no known kind has counted once."""
        self._count_again_at = -math.inf
        self.client: Client | None = None
        self._others: dict[str, Client] = {}
        """For paths beside that of the protocol, when somebody asks for them."""
        self._prober: aiohttp.ClientSession | None = None
        self._questions: Asking | None = None
        self.count_error: Callable[[str], None] = lambda code: None
        """Counts what goes wrong with the server and belongs to no request, by code."""

    def hop(self, name: str) -> None:
        """Name the gateway, in every request, as `name` (`toolwire.upstream.servers.hops`). Before `start`."""
        self._headers[HEADER] = name

    async def start(self) -> None:
        """Open the connection pool. Raises `ValueError` for headers that cannot be sent."""
        for name, value in self._headers.items():
            check_header(name, value)
        self.client = self._connections(self.url)
        if self._config.websocket:
            from toolwire.upstream.client.socket_client import SocketClient

            self.client = SocketClient(self.url, self._headers, self._config, self.limits, self.client, self.wire)
        self._prober = open_session(self.url, self._headers, self._config)
        self._questions = Asking(
            self._prober,
            self.base,
            self._headers,
            self._config,
            list_bytes=self.limits.frame_bytes,
            private=self.private,
        )

    async def close(self) -> None:
        """Close all connections."""
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
        """Send the request and wait for the server to accept it."""
        client = self.client
        if client is None:
            raise self._not_started()
        if body is None:
            if is_large(request):
                body = await offload(is_slow(request), self._written_large, request)
            else:
                body = dump(self._written(request))
        further = self._further() if HOPS.get() or CLIENT_ID.get() else None
        if self._field_headers:
            further = {**self._said(request), **(further or {})}
        if observer is None:
            answer = await client.post(body, stream=request.stream, request_id=request_id, headers=further)
        else:
            observer.sent(body)
            await self._show(request, observer)
            headers = {**observer.headers(), **(further or {})}
            answer = await client.post(body, stream=request.stream, request_id=request_id, headers=headers)
            observer.answered(answer.status, answer.headers)
            answer = ObservedAnswer(answer, observer)
        if answer.status != 200:
            raise await self._refused(answer, self.wire)
        return HttpSource(self, request, answer, self.wire)

    async def pass_on(
        self, passed: PassedProtocol, request: ModelRequest, body: bytes, *, request_id: str
    ) -> HttpSource:
        """Send a body as it is to the path of `passed`, and wait for the server to accept it (R24.3)."""
        if self.client is None:
            raise self._not_started()
        client = self._others.get(passed.name)
        if client is None:
            base = self.base if passed.versioned else engine_url(self.base)
            client = self._others[passed.name] = self._connections(base.joinpath(passed.path.lstrip("/")))
        further = self._further() if HOPS.get() or CLIENT_ID.get() else None
        answer = await client.post(body, stream=request.stream, request_id=request_id, headers=further)
        if answer.status != 200:
            raise await self._refused(answer, passed)
        return HttpSource(self, request, answer, passed)

    def _written(self, request: ModelRequest) -> Mapping[str, Any]:
        body = limited(self.wire.write_request(request), self.capabilities, self.wire)
        return reasoning_named(body, self.capabilities, self.wire)

    def _written_large(self, request: ModelRequest) -> bytes:
        return dump_request(self._written(request), self.wire.items_field, request.past)

    def _connections(self, url: URL) -> Client:
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

    def _further(self) -> dict[str, str]:
        """Headers of the current request only: through whom it came, if the gateway has a name to add, and what its
        client calls it, unless the configuration says something else to this server."""
        found = {}
        if (hops := HOPS.get()) and HEADER in self._headers:
            found[HEADER] = f"{hops}, {self._headers[HEADER]}"
        if (ident := CLIENT_ID.get()) and all(name.lower() != client_ids.HEADER for name in self._headers):
            found[client_ids.HEADER] = ident
        return found

    async def _refused(self, answer: Answer, wire: ServerSide) -> GatewayError:
        """What the server says that does not accept. Closes its answer."""
        try:
            return await self._refusal(answer, wire)
        finally:
            await answer.close()

    async def ready(self) -> bool:
        """Any answer below 500 on the health path, or on the model list."""
        return await self._asking.ready()

    async def models(self) -> list[str]:
        """The names in the server's model list. Raises `BackendFault` if it has none, unless there is a `health_path`
        in its place, or cannot be reached."""
        return await self._asking.models()

    async def identify(self) -> Identity:
        """What the server says it is; see `Asking.identify`."""
        return await self._asking.identify()

    async def count(self, request: ModelRequest) -> int | None:
        """See `TokenCounter`."""
        if self.wire.count_path is not None:
            return await self._asking.count(self.wire, request, self._said(request))

        async def by_engine(engine: str | None, ask: Ask) -> int | None:
            return await count(engine, await offload(is_large(request), self.wire.write_request, request), ask)

        return await self._by_engine(by_engine)

    async def count_text(self, model: str, text: str) -> int | None:
        """See `TokenCounter`."""
        return await self._by_engine(lambda engine, ask: count_text(engine, model, text, ask))

    async def _show(self, request: ModelRequest, observer: BackendObserver) -> None:
        """Tell `observer` the prompt of a request whose tools the model's chat template writes (R31.1a)."""
        engine = self._known_engine
        if not request.tools or request.tool_choice.mode != self.capabilities.template_choice or not renders(engine):
            return
        prompt = await self._asking.of_engine(lambda ask: rendered(engine, self._written(request), ask), PROBE_S)
        if prompt is not None:
            observer.rendered(prompt)

    @property
    def _known_engine(self) -> str | None:
        preset = self._config.preset
        return self._engine if preset in (AUTO, GENERIC) else preset

    async def _by_engine(self, way: Callable[[str | None, Ask], Awaitable[int | None]]) -> int | None:
        """The count that an engine's own path gives. A server of no known kind that never could say is not asked for
        `COUNT_AGAIN_S`; that it could not say it of one request says nothing if it has counted before."""
        now = time.monotonic()
        if now < self._count_again_at or self.base.host == OPENAI_HOST:
            return None
        engine = self._known_engine
        tokens = await self._asking.of_engine(lambda ask: way(engine, ask))
        if engine is None:
            self._counts = self._counts or tokens is not None
            if not self._counts:
                self._count_again_at = now + COUNT_AGAIN_S
        return tokens

    def learn(self, said: Identity | None) -> None:
        """From now on this is what the server is; None: nothing is known. Who has set `capabilities` himself keeps
        them."""
        self._engine = None if said is None else said.engine
        self._counts, self._count_again_at = False, -math.inf
        if self.capabilities is self._by_config:
            self.capabilities = self._by_config = _capabilities(self._config, said, self.wire)

    @property
    def _asking(self) -> Asking:
        if self._questions is None:
            raise self._not_started()
        return self._questions

    def _not_started(self) -> RuntimeError:
        return RuntimeError(f"backend {self.name!r} is not started")

    def _said(self, request: ModelRequest) -> dict[str, str]:
        """The fields of a request that are headers; what the configuration says of one goes before."""
        fields = fields_of(request.protocol_fields, self.wire.name)
        values = {
            name: ",".join(filter(None, (always, fields.get(name)))) for name, always in self._field_headers.items()
        }
        return {name: value for name, value in values.items() if value}

    async def _refusal(self, answer: Answer, wire: ServerSide) -> GatewayError:
        body = bytearray()
        try:
            async with asyncio.timeout(PROBE_S):
                async for data in answer.reads():
                    body += data
                    if len(body) >= REFUSAL_BYTES:
                        break
        except (BackendFault, TimeoutError):
            pass  # the status alone says enough
        said = bytes(body[:REFUSAL_BYTES])
        return read_refusal(answer.status, answer.headers, said, private=self.private, read=wire.read_refusal)


class HttpSource(WireSource):
    """One answer coming in, in the form of `wire`."""

    _ended = False

    def __init__(self, backend: HttpBackend, request: ModelRequest, answer: Answer, wire: ServerSide) -> None:
        self.protocol = self._wire = wire
        self.private = backend.private
        self.queued_s = answer.queued_s
        self._backend = backend
        self._request = request
        self._answer = answer
        kind = answer.content_type
        self._streams = kind == STREAM or (request.stream and may_be_stream(kind))

    async def pump(self, sink: Callable[[bytes], None]) -> None:
        """Give the wire bytes of the stream to `sink`; a whole answer is written as a stream, whatever its type
        says."""
        passed = type(self._wire) is PassedProtocol  # cheaper than `isinstance` of a class that is a `Protocol`
        if self._streams and passed:
            await self._answer.pump(sink)
        elif passed:
            raise contrary("did not stream, which it was asked to")
        elif not self._streams:
            sink(await self._as_stream(await self.reply()))
        else:
            whole = bytearray()

            def begin(data: bytes) -> None:
                if whole or is_whole(data):
                    self._hold(whole, data)
                    return
                if not data.isspace():
                    self._answer.redirect(sink)
                sink(data)

            await self._answer.pump(begin)
            if whole:
                sink(await self._as_stream(await self._read(bytes(whole))))

    def redirect(self, sink: Callable[[bytes], None]) -> None:
        """Give what comes next to this one."""
        self._answer.redirect(sink)

    def pause(self) -> None:
        """Stop reading."""
        self._answer.pause()

    def resume(self) -> None:
        """Go on reading."""
        self._answer.resume()

    async def batches(self) -> AsyncIterator[list[Event]]:
        """The events of the stream, ending with `Finish` or `Fault`."""
        try:
            if not self._streams:
                yield unfold(await self.reply())
                return
            limits = self._backend.limits
            choices = choices_of(self._request.sampling.n)
            reader = self._wire.reader(frame_bytes=limits.frame_bytes, choices=choices, note=self.note)
            size = held = 0
            whole = bytearray()
            async for data in self._answer.reads():
                if whole or (size == held == 0 and is_whole(data)):
                    self._hold(whole, data)
                    continue
                size += len(data)
                if size > limits.stream_bytes:
                    raise too_large(limits.stream_bytes)
                events = await in_thread(reader.feed, data) if held > OFFLOAD_BYTES else reader.feed(data)
                held += len(data)
                if events:
                    held = 0
                    self._seen(events)
                    yield events
                    if self._ended:
                        return
            if whole:
                yield unfold(await self._read(bytes(whole)))
                self._ended = True
                return
            events = await in_thread(reader.finish) if held > OFFLOAD_BYTES else reader.finish()
            self._seen(events)
        except GatewayError as error:
            events = [Fault(error)]
        yield events

    async def body(self) -> bytes:
        """The bytes of the whole answer; a stream of a server that was not asked for one is folded."""
        if self._streams:
            if isinstance(self._wire, PassedProtocol):
                raise contrary("streams what was not to be")
            reply = await self.reply()
            return self._wire.write_reply(reply, WriteOptions(request=self._request, created=reply.created))
        return await self._answer.read(self._backend.limits.reply_bytes)

    async def body_in_parts(self) -> AsyncGenerator[bytes, None]:
        """See `WireSource.body_in_parts`."""
        if self._streams:
            yield await self.body()
            return
        size, limit = 0, self._backend.limits.reply_bytes
        async for data in self._answer.reads():
            size += len(data)
            if size > limit:
                raise too_large(limit)
            yield data

    async def reply(self) -> ModelReply:
        """The whole answer."""
        if self._streams:
            return await fold_batches(self.batches())
        return await self._read()

    async def _read(self, body: bytes | None = None) -> ModelReply:
        """The whole answer in `body`, or in what comes."""
        try:
            body = await self.body() if body is None else body
            read = partial(self._wire.read_reply, choices=choices_of(self._request.sampling.n), note=self.note)
            return await offload(True, read, body) if len(body) > OFFLOAD_BYTES else read(body)
        except (BackendFault, ClientFault) as error:
            raise cleaned(error, private=self._backend.private) from None

    async def close(self) -> None:
        """Give the connection back if the answer ended, else close it."""
        await self._answer.close(linger_s=LINGER_S if self._ended else 0.0)

    def _hold(self, whole: bytearray, data: bytes) -> None:
        """Keep more of a whole answer. Raises `BackendFault` for one that is too large."""
        whole += data
        if len(whole) > self._backend.limits.reply_bytes:
            raise too_large(self._backend.limits.reply_bytes)

    async def _as_stream(self, reply: ModelReply) -> bytes:
        """A whole answer, written as a stream."""
        writer = self._wire.writer(WriteOptions(request=self._request, created=reply.created))
        return await offload(is_long(reply), lambda: writer.feed(unfold(reply)))

    def _seen(self, events: list[Event]) -> None:
        """Notice the end, and hide in an in-band error what a client may not see."""
        last = events[-1] if events else None
        if isinstance(last, Fault):
            events[-1] = Fault(cleaned(last.error, private=self._backend.private))
        self._ended = isinstance(last, Fault | Finish)


def _capabilities(config: BackendConfig, said: Identity | None, wire: ServerSide) -> Capabilities:
    return capabilities(config, said, images=wire.images, effort=wire.reasoning_effort)


def contrary(what: str) -> BackendFault:
    """A server gives another kind of answer than was asked for, of which nothing can be made."""
    return BackendFault(f"The model server {what}.", code="upstream_invalid_response")


def base_url(url: str, path: str) -> URL:
    """The base of a server's API. `url` may be a bare origin, end with `/v1` or a slash, or be the endpoint itself;
    `/v1` is added unless a version stands somewhere in the path. Raises `ValueError` if it is not an HTTP URL."""
    given = URL(url)
    if given.scheme not in ("http", "https") or not given.host:
        raise ValueError(f"not an HTTP URL: {url!r}")
    place = given.path.rstrip("/").removesuffix(path)
    if not any(API_VERSION.fullmatch(segment) for segment in place.split("/")):
        place += "/v1"
    return given.with_path(place)
