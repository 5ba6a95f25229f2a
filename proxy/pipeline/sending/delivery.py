"""The outermost layer of every request: request id, key, error boundary, and the steps from a body to a sent answer.

Rules:

1. No exception escapes (R13.5): one that is not a `GatewayError` becomes `internal_error`, with the traceback in the
   log only.
2. Every answer carries the request id (R17.7), and every error has the envelope of the requested protocol (R13.1).
3. The body is read once; the route is found from `model` alone; then the route's chain runs.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from aiohttp import web
from aiohttp.typedefs import Middleware

from ...config import GatewayConfig
from ...errors import ClientFault, Defect, GatewayError
from ...events import Fault
from ...formats.engine.toolset import KnownTools
from ...ingress.auth import ApiKey, Keys
from ...ingress.bodies import parse_mended
from ...ingress.budget import BodyBudget, BodyShare
from ...ingress.known_conversations import ConversationLookup, KnownConversations
from ...ingress.liveness import LivenessMonitor, LivenessMonitors
from ...ingress.loop_pacing import LoopPacer
from ...ingress.receiving import read_body
from ...known.past import SEALED, Past, past_of
from ...model import EMPTY, ModelRequest, merged
from ...observability.telemetry import Metrics
from ...protocols.base import ClientSide, ClientSides
from ...protocols.shared.mending import Mending
from ...protocols.shared.turn import StoredTurn
from ...protocols.shared.wire import dump, dump_in_pieces
from ...ratelimit.admission import SLOT, Admission
from ...record import AccessRecord, ExchangeObserver, Observe, ReadRequest
from ...support.garbage_collection import CollectorThresholds
from ...support.offload import OFFLOAD_BYTES, OFFLOAD_OBJECTS, is_large, offload
from ...tolerances import HALVES
from ...upstream.servers import client_ids
from ...upstream.servers.hops import HEADER, HOPS, read_hops
from ..answers.reply import Reply
from ..chain.middleware import Handler
from ..chain.plain import HttpFault, set_unread_body
from ..exchange.request_state import EXCHANGE, TOOLS_BY, Exchange
from ..exchange.response_head import ADDED_HEADERS, REQUEST_ID, TIMED, move_head, request_id
from ..exchange.routing import Route, Router
from ..paths.whole import own_response
from ..transforms.sealing import seal_reply
from .background import BACKGROUND, DETACHED
from .relayed_body import show_output
from .stream_sender import send

LOG: Final = logging.getLogger("toolwire")
OWNER: Final = web.RequestKey("toolwire.owner", str)
"""The hash of the client's key; empty without keys."""
API_KEY: Final = web.RequestKey("toolwire.api_key", ApiKey)
"""The client's key as configured; missing without keys."""
CLIENTS: Final = web.AppKey("toolwire.clients", ClientSides)
"""The protocols that the application serves to clients."""
HALVES_FAULT: Final = web.RequestKey("toolwire.halves_fault", ClientFault)
"""The fault of a message over WebSocket whose halves of characters were replaced before this request was made of it."""
APART: Final = web.RequestKey("toolwire.apart", bool)
"""Set if the answer is made in the background, always as a stream; the value is True if the client wants a stream."""
MODEL_CHARS: Final = 128
"""Maximum number of characters of the model's name in the access line."""
TOOL_NAMES: Final = 32
"""Maximum number of tool names in the access line."""
_NONE: Final = (None,)
ALIVE: Final = ("/health", "/healthz", "/livez")
"""Paths of liveness checks: the gateway's own, and those that are usual with Kubernetes."""
READY: Final = ("/ready", "/readyz")
"""Paths of readiness checks."""
_OPEN_PATHS: Final = frozenset({*ALIVE, *READY})
"""Paths that need no key (R17.4)."""


def boundary(
    keys: Keys,
    clients: ClientSides,
    own: str = "",
    *,
    open_paths: str | None = None,
    observe: Sequence[Observe] = (),
) -> Middleware:
    """Returns the application's only aiohttp-level middleware. It sets the request id, checks the key, refuses requests
    that loop through gateways, and answers errors outside of an exchange.

    `clients` are the protocols that are served: the path tells in whose envelope an error outside of an exchange is
    sent. `own` is the name of this gateway among others (`toolwire.upstream.servers.hops`). `open_paths` matches
    further paths that need no key. `observe` are observers of requests that are refused here.
    """

    asked = bool(keys)
    is_open = None if open_paths is None else re.compile(open_paths).fullmatch

    @web.middleware
    async def outermost(request: web.Request, handler: Handler) -> web.StreamResponse:
        request[OWNER], request[ADDED_HEADERS] = "", EMPTY
        ident = request[REQUEST_ID] = request_id(request.headers.get("X-Request-Id"))
        hops = named = None
        began = time.monotonic()
        try:
            headers = request.headers
            if client_ids.HEADER in headers and (given := client_ids.client_id(headers)):
                named = client_ids.CLIENT_ID.set(given)
                request[ADDED_HEADERS] = {client_ids.HEADER: given}
            if HEADER in headers:
                hops = HOPS.set(read_hops(headers, own))
            authorization, api_key = headers.getall("Authorization", _NONE), headers.getall("x-api-key", _NONE)
            if len(authorization) > 1 or len(api_key) > 1:
                raise _ambiguous("Authorization" if len(authorization) > 1 else "x-api-key")
            if asked and request.path not in _OPEN_PATHS and not (is_open is not None and is_open(request.path)):
                key = keys.check(authorization[0], api_key[0])
                if key is not None:
                    request[OWNER], request[API_KEY] = key.owner, key
            return await handler(request)
        except web.HTTPMethodNotAllowed as error:
            fault: GatewayError = _unkept(request, clients) or _wrong_method(request, error.headers["Allow"])
        except web.HTTPNotFound:
            fault = _unkept(request, clients) or _not_served(request.path)
        except web.HTTPException as raised:
            if raised.status < 400:
                raise
            fault = _of_http(raised)
        except GatewayError as error:
            fault = error
        finally:
            if hops is not None:
                HOPS.reset(hops)
            if named is not None:
                client_ids.CLIENT_ID.reset(named)
        side = clients.of(request.path, request.headers)
        request[TIMED] = side.time_header, began
        response = error_response(fault, side, ident)
        if observe:
            _observe_refusal([begin(request, ident) for begin in observe], fault, response)
        return response

    return outermost


def _observe_refusal(observers: Sequence[ExchangeObserver], fault: GatewayError, response: web.Response) -> None:
    record = AccessRecord()
    record.observers = observers
    record.ended_by(fault)
    record.status = response.status
    show_output(record, response.body)
    for observer in observers:
        observer.ended(record)


def _unkept(request: web.Request, clients: ClientSides) -> ClientFault | None:
    """Returns the error for a request for an earlier answer of a protocol that stores none."""
    side, place = clients.of(request.path, request.headers), request.path.removeprefix("/v1")
    listed = place == side.path and request.method in ("GET", "HEAD") and "Upgrade" not in request.headers
    if side.no_storage_message is None or not (listed or place.removesuffix("/").startswith(side.path + "/")):
        return None
    hint = "Use `/v1/responses`, whose answers are kept." if clients.keeps else None
    return ClientFault(side.no_storage_message, code="not_found", hint=hint)


def _not_served(path: str) -> ClientFault:
    """Returns the error for an unknown path. Clients add their paths to a base URL that their users write."""
    hint = None
    if path.startswith("/v1/v1/"):
        hint = "Leave out `/v1` at the end of the base URL."
    elif "//" in path:
        hint = "Leave out the slash at the end of the base URL."
    elif path.endswith("/"):
        hint = "Leave out the slash at the end of the path."
    return ClientFault(f"Nothing is served at {path[:200]}.", code="not_found", hint=hint)


def _wrong_method(request: web.Request, allowed: str) -> ClientFault:
    """Returns the error for an unserved method. After 426 a client that tried a WebSocket continues over HTTP at once
    (R28.2), also if a proxy has dropped `Upgrade`."""
    if request.headers.get("Upgrade", "").lower() == "websocket" or "Sec-WebSocket-Key" in request.headers:
        return ClientFault(
            "No WebSocket is served here.",
            code="websocket_not_served",
            hint=f"Send the request by HTTP: {allowed}.",
            headers={"Upgrade": "HTTP/1.1"},
        )
    hint = f"Allowed: {allowed}."
    return ClientFault(
        f"{request.method} is not allowed here.", code="method_not_allowed", hint=hint, headers={"Allow": allowed}
    )


def _ambiguous(name: str) -> ClientFault:
    """Returns the error for a duplicate authentication header: a proxy in between may have read the other one."""
    return ClientFault(f"The header `{name}` was sent more than once.", code="malformed_request", hint="Send one.")


def error_response(error: GatewayError, protocol: ClientSide, ident: str) -> web.Response:
    """Returns the HTTP response for an error, in the envelope of `protocol`, with the request id `ident`."""
    response = web.Response(
        status=protocol.status_of(error),
        body=protocol.write_error(error, ident),
        content_type="application/json",
        headers=error.headers,
    )
    if protocol.id_header is not None:
        response.headers[protocol.id_header] = ident
    if error.headers.get("Connection") == "close":
        response.force_close()
    return response


def _failed_stream(request: web.Request, error: GatewayError) -> web.Response | None:
    """Returns a stream of nothing but `error`, if the client expects that of a stream that never began; else None. A
    background response has its end in the store, or was never begun."""
    exchange = request.get(EXCHANGE)
    if exchange is None or not exchange.received.stream or exchange.background is not None:
        return None
    protocol = exchange.protocol
    if not protocol.fails_within_stream(error, request.headers):
        return None
    events = protocol.writer(exchange.write_options()).feed([Fault(error)])
    return web.Response(body=events, headers={"Content-Type": protocol.content_type, "Cache-Control": "no-cache"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    """The parts of an application that serve the paths of all its protocols. `tools` and `conversations` are those of
    earlier requests, `observe` the observers of each exchange."""

    config: GatewayConfig
    router: Router
    metrics: Metrics
    tools: KnownTools
    conversations: KnownConversations
    monitors: LivenessMonitors
    budget: BodyBudget
    collecting: CollectorThresholds
    staggered: LoopPacer
    admission: Admission | None
    observe: Sequence[Observe]


class Delivery:
    """Serves the requests to models that clients send at one protocol's path."""

    _detaches = True
    """True if answers may be made in the background."""

    def __init__(self, serving: Serving, protocol: ClientSide) -> None:
        self._limits = serving.config.limits
        self._body_s = serving.config.server.body_s
        self._protocol = protocol
        self._read = protocol.read_request
        self._router = serving.router
        self._metrics = serving.metrics
        self._known = serving.tools
        self._conversations = serving.conversations
        self._items_key = b"" if protocol.items_field is None else dump(protocol.items_field)
        self._observe = serving.observe
        self._monitors = serving.monitors
        self._budget = serving.budget
        self._collecting = serving.collecting
        self._staggered = serving.staggered
        self._admission = serving.admission

    async def __call__(self, request: web.Request) -> web.StreamResponse:
        record = self._metrics.begin()
        ident = request[REQUEST_ID]
        share = BodyShare(self._budget, request[OWNER])
        monitor = self._monitors.begin(request)
        if self._observe:
            record.observers = [begin(request, ident) for begin in self._observe]
        protocol = self._protocol
        added = request[ADDED_HEADERS]
        if added:
            record.notes["client_request_id"] = added[client_ids.HEADER]
        if protocol.id_header is not None:
            request[ADDED_HEADERS] = {**added, protocol.id_header: ident}
        request[TIMED] = protocol.time_header, record.started
        return await self._attend(request, record, ident, monitor, share)

    async def _attend(
        self, request: web.Request, record: AccessRecord, ident: str, monitor: LivenessMonitor, share: BodyShare
    ) -> web.StreamResponse:
        try:
            response = await self._answer(request, record, ident, monitor, share)
            if DETACHED in request:
                return response
            record.status = response.status
            if record.observers and isinstance(response, web.Response) and not isinstance(response, Reply):
                show_output(record, response.body)
            return response
        except (asyncio.CancelledError, ConnectionError):
            if not record.status and DETACHED not in request:  # else the client left after its whole answer
                record.status, record.code = 499, "client_closed_request"
            raise
        finally:
            monitor.end()
            if self._collecting.requests:
                self._collecting.release(request)
            if DETACHED not in request:
                self._end(request, record, ident, share)

    def _end(self, request: web.Request, record: AccessRecord, ident: str, share: BodyShare) -> None:
        """Releases what the exchange holds, and counts it."""
        share.release()
        if self._admission is not None and (slot := request.get(SLOT)) is not None:
            slot.abandon()
        self._metrics.finish(record, endpoint=self._protocol.name, request_id=ident)
        for observer in record.observers:
            observer.ended(record)
        record.failures.clear()  # their tracebacks refer to the record: a reference cycle

    async def _answer(
        self, request: web.Request, record: AccessRecord, ident: str, monitor: LivenessMonitor, share: BodyShare
    ) -> web.StreamResponse:
        response: web.StreamResponse | None = None
        shown: web.Response | None = None
        error: GatewayError
        try:
            exchange = request.get(EXCHANGE)  # present if the request was detached
            if exchange is None:
                if self._admission is not None:
                    await self._enter(self._admission, request, monitor)
                exchange = request[EXCHANGE] = await self._exchange(request, record, ident, share)
                if APART in request:
                    return await self._detach(request, exchange, monitor, share)
            try:
                response = await exchange.route.chains[self._protocol.name](request)
                if isinstance(response, Reply):
                    seal_reply(response, exchange)
                    return await send(request, exchange, response, monitor)
                await _leave(request, share)
                return response
            finally:
                await exchange.end()
        except HttpFault as fault:
            error, shown = fault.error, own_response(fault)
        except GatewayError as fault:
            error = fault
        except asyncio.CancelledError:
            reason = monitor.stop_reason()
            if reason is None and not monitor.is_cancelled():
                reason = _failed(ident)
            if reason is None or request.writer.output_size:  # an error response would end up inside the answer
                raise
            error = reason
        except web.HTTPException as raised:
            if raised.status < 400:
                raise
            error = _of_http(raised)
        except Exception as failure:
            if isinstance(failure, ConnectionError) and (request.transport is None or request.transport.is_closing()):
                raise
            error = _failed(ident)
        record.ended_by(error)
        if (failed := request.get(EXCHANGE)) is not None:
            failed.failure = error
        error.__traceback__ = None  # refers to this frame, and to others that keep the error: reference cycles
        await _leave(request, share)
        answer = shown or _failed_stream(request, error) or error_response(error, self._protocol, ident)
        if response is not None:
            move_head(response, answer)
        return answer

    async def _detach(
        self, request: web.Request, exchange: Exchange, monitor: LivenessMonitor, share: BodyShare
    ) -> web.StreamResponse:
        """Continues the exchange in the background. Returns the queued response, or its events."""
        background, form = request.app[BACKGROUND], exchange.protocol.turns
        assert form is not None

        async def work(detached: web.Request) -> web.StreamResponse:
            alone = self._monitors.begin(detached)
            assert exchange.background is not None
            exchange.background.monitor = alone
            return await self._attend(detached, exchange.record, exchange.id, alone, share)

        begun = await background.begin(request, exchange, work)
        if not isinstance(begun, StoredTurn):
            return begun
        if (slot := request.get(SLOT)) is not None:
            await slot.end()  # the background work has its own slot, and the client may ask for its result meanwhile
        if request[APART]:
            return await background.replay(begun, form).send(request, monitor)
        return web.Response(body=dump_in_pieces(form.shown(begun)), content_type="application/json")

    async def _enter(self, admission: Admission, request: web.Request, monitor: LivenessMonitor) -> None:
        """Takes a place among the concurrent requests. Raises as `Admission.enter`."""
        arriving = None if request.content.is_eof() else monitor
        slot = await admission.enter(request.get(API_KEY), self._protocol, arriving)
        if slot is not None:
            request[SLOT] = slot

    async def _exchange(self, request: web.Request, record: AccessRecord, ident: str, share: BodyShare) -> Exchange:
        """Reads a request up to its exchange. Raises `GatewayError`."""
        raw, body, halves = await self._read_body(request, share)
        owner = share.account
        key = request[API_KEY] if owner else None
        route = await self._find_route(body.get("model"), key, record)
        if halves is not None:
            if route.options.requests.validation == "strict":
                raise halves
            record.tolerate(HALVES, "the body was mended", ident)
        past = past_of(body.get(self._protocol.items_field or "")) if len(raw) >= self._conversations.least else None
        received, body = await self._read_request(route, raw, body, past, record, ident)
        if self._protocol.field_headers:
            received = _with_headers(received, self._protocol, request)
        if (sealed := route.sealed) is not None and SEALED in (raw if past is None else past.signs):
            received = await offload(
                is_large(received, reused=True), sealed.open_request, received, owner, record, ident
            )
        record.stream = received.stream
        notes = record.notes
        notes["route"], notes["backend"] = route.config.model, route.pool.name
        if received.tools:
            notes["tools"] = len(received.tools)
            notes["tool_names"] = [tool.name for tool in received.tools[:TOOL_NAMES]]
        if record.observers:
            secrets = self._protocol.secrets(received)
            seen = ReadRequest(self._protocol.name, route.config, route.options, owner, received, secrets)
            for observer in record.observers:
                observer.read(seen, record)
        return Exchange(
            ident,
            self._protocol,
            route,
            received,
            received,
            body,
            record,
            owner=owner,
            key=key,
            tools_by=TOOLS_BY.get(route.options.mode, "gateway"),
            headers=request.headers,
        )

    async def _read_body(
        self, request: web.Request, share: BodyShare
    ) -> tuple[bytes, Mapping[str, Any], ClientFault | None]:
        """Returns the bytes and the JSON object of the body, and the fault if halves of characters had to be replaced.
        They ask for a stream if the answer is made in the background."""
        if request.headers.get("Content-Type") != "application/json" != request.content_type:
            raise ClientFault(
                f"The body must be application/json, not {request.content_type[:100]}.", code="unsupported_media_type"
            )
        raw = await read_body(request, self._limits.body_bytes, self._body_s, share)
        if self._admission is not None and (slot := request.get(SLOT)) is not None:
            slot.arrived()
        set_unread_body(request, raw)
        body: Mapping[str, Any]
        raw, body, halves = await parse_mended(
            raw,
            self._limits,
            self._known,
            self._lookup(share) if len(raw) >= self._conversations.least else None,
            lambda objects: self._collecting.hold(request, objects),
        )
        if halves is not None:
            set_unread_body(request, raw)
        if self._monitors.streams or (body.get("stream") is True and len(self._monitors.running) > 1):
            await self._staggered.wait()  # so that streams send between two requests, which cost more this way
        if self._detaches and body.get("background") is True and self._protocol.turns is not None:
            request[APART] = body.get("stream") is True
            body = {**body, "stream": True}
            raw = dump_in_pieces(body)
        return raw, body, halves or request.get(HALVES_FAULT)

    async def _find_route(self, model: object, key: ApiKey | None, record: AccessRecord) -> Route:
        """Returns the route for a model. Raises `ClientFault` if there is none or the key may not use it."""
        if not isinstance(model, str) or not model:
            raise _no_model(model)
        record.notes["model"] = model if len(model) <= MODEL_CHARS else model[: MODEL_CHARS - 1] + "…"
        route = self._router.find(model, key)
        record.route = route.config.model
        if key is not None:
            key.require(route.config.model, model)
            record.note("key", key.name)
        if route.pool.unsettled:
            await route.pool.settle()
        record.model = route.label(model)
        if route.options.requests.unknown_model == "error":
            route.require(model)
        return route

    async def _read_request(
        self, route: Route, raw: bytes, body: Mapping[str, Any], past: Past | None, record: AccessRecord, ident: str
    ) -> tuple[ModelRequest, Mapping[str, Any]]:
        """Returns the request in a body, and the body, which is mended where the route allows it. Large ones are read
        in a thread."""
        read = self._read
        if past is not None and past.new < len(raw):
            large = past.new > OFFLOAD_BYTES
        else:
            large = len(raw) > OFFLOAD_BYTES or raw.count(b"{") > OFFLOAD_OBJECTS
        try:
            return await offload(True, read, body, raw) if large else read(body, raw), body
        except ClientFault:
            if route.options.requests.validation == "strict":
                raise
        mending = Mending()

        def read_mended() -> tuple[ModelRequest, Mapping[str, Any]]:
            mended = self._protocol.mended(body, mending)
            return read(mended, dump_in_pieces(mended)), mended

        received, body = await offload(large, read_mended)
        for name in mending.names:
            record.tolerate(name, "the request was mended", ident)
        return received, body

    def _lookup(self, share: BodyShare) -> ConversationLookup | None:
        """Returns where to look up the conversation of a request; None if the protocol has no field for it."""
        key = self._items_key
        return ConversationLookup(self._conversations, key, share.account, self._protocol.name) if key else None


def answered_by(route: Route, name: str, answer: Callable[[Exchange, Reply], Awaitable[web.Response]]) -> Route:
    """Returns a route whose chain for the protocol `name` sends what `answer` makes of the reply. A middleware's own
    response is sent as it is."""
    chain = route.chains[name]

    async def handler(request: web.Request) -> web.StreamResponse:
        response = await chain(request)
        return await answer(request[EXCHANGE], response) if isinstance(response, Reply) else response

    return replace(route, chains={name: handler})


def _no_model(model: object) -> ClientFault:
    """Returns the error for a body with this value in place of a model."""
    if model is None:
        return ClientFault("Missing required parameter: 'model'.", code="missing_required_parameter", param="model")
    return ClientFault(
        f"'model' must be a non-empty string, not {json.dumps(model)[:200]}.",
        code="invalid_type" if not isinstance(model, str) else "invalid_value",
        param="model",
    )


async def _leave(request: web.Request, share: BodyShare) -> None:
    """Releases what the request holds, before its answer is sent, so that a client can send the next request at
    once."""
    share.release()
    if (slot := request.get(SLOT)) is not None:
        await slot.end()


def _with_headers(received: ModelRequest, protocol: ClientSide, request: web.Request) -> ModelRequest:
    """Returns the request with those headers that are fields for a server."""
    given = {name: ",".join(request.headers.getall(name, ())) for name in protocol.field_headers}
    said = {name: value for name, value in given.items() if value and value.isascii() and value.isprintable()}
    if not said:
        return received
    return replace(received, protocol_fields=merged(received.protocol_fields, {protocol.name: said}))


def _failed(ident: str) -> Defect:
    """Logs the current exception. Returns the error for the client."""
    LOG.exception("exchange %s failed", ident)
    return Defect("The gateway failed.", hint="The log has the reason under this request's id.")


def _of_http(raised: web.HTTPException) -> GatewayError:
    """Returns the error for an aiohttp exception of a third-party middleware, in the gateway's envelope."""
    kind = "invalid_request_error" if raised.status < 500 else "server_error"
    code = re.sub(r"\W+", "_", raised.reason.lower())
    headers = {k: v for k, v in raised.headers.items() if k.lower() not in ("content-type", "content-length")}
    return GatewayError(raised.text or raised.reason, code=code, status=raised.status, type=kind, headers=headers)
