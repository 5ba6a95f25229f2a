"""Token counts of requests, for clients that ask before they send them (R14.4).

Rules:

1. The request is counted as a server would get it. It runs through the chain of its route, to a stand-in server that
   notes it and returns an empty answer. Tools are counted as they are taught, and invalid requests are refused.
2. A server is asked only if it can count (R11.6). No model is used, and no limit on tokens.
3. Headers of the answer name the counter, server or gateway, and the tokenizer.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import replace
from typing import Final

from aiohttp import web

from ...events import Event
from ...folding import unfold
from ...ingress.budget import BodyShare
from ...model import ModelReply, ModelRequest, ReplyChoice, Usage
from ...protocols.base import ClientSide, ServerSide
from ...protocols.streams import WriteOptions
from ...record import AccessRecord, BackendObserver
from ...upstream.pool.attempts import Attempts
from ...upstream.pool.server import UpstreamServer
from ...upstream.pool.server_pool import ServerPool, WeightedServer
from ...upstream.servers.base import Backend, Capabilities, TokenCounter, WireSource
from ...upstream.servers.tokenizing import BY_SERVER
from ...upstream.servers.usage import Estimator
from ..answers.reply import Reply
from ..exchange.request_state import Exchange
from ..exchange.response_head import TOKENIZER, USAGE_SOURCE
from ..exchange.routing import Route
from ..sending.delivery import Delivery, Serving, answered_by

_Counted = tuple[int, Mapping[str, str]]
"""The number of tokens, and the headers with the source of the count."""

_NOTHING: Final = ModelReply("", "", 0, (ReplyChoice(()),), Usage())


class Counting(Delivery):
    """Serves one protocol's path for token counts."""

    _detaches = False

    def __init__(self, serving: Serving, protocol: ClientSide) -> None:
        super().__init__(serving, protocol)
        self._read = protocol.read_counted
        self._estimators: dict[str, Estimator] = {}

    async def _exchange(self, request: web.Request, record: AccessRecord, ident: str, share: BodyShare) -> Exchange:
        exchange = await super()._exchange(request, record, ident, share)
        exchange.route = self._counted(exchange.route)
        exchange.only_counted = exchange.aside = True
        return exchange

    def _counted(self, route: Route) -> Route:
        """Returns the route with a stand-in server whose answers are empty."""
        return replace(answered_by(route, self._protocol.name, self._answered), pool=NotingPool(route.pool))

    async def _answered(self, exchange: Exchange, reply: Reply) -> web.Response:
        asked: tuple[str, ModelRequest] | None = reply.source.asked if isinstance(reply.source, Attempts) else None
        request = exchange.request if asked is None else asked[1]
        tokens, headers = await self._by_server(exchange.route, request) or await self._by_estimate(
            exchange.route.options.usage.encoding, request
        )
        body = self._protocol.write_count(tokens)
        return web.Response(body=body, content_type="application/json", headers=headers)

    async def _by_server(self, route: Route, request: ModelRequest) -> _Counted | None:
        pool = route.pool
        if route.options.usage.count == "estimate" or not isinstance(pool, NotingPool) or pool.counter is None:
            return None
        tokens = await pool.counter.count(request)
        return None if tokens is None else (tokens, {USAGE_SOURCE: "backend", TOKENIZER: BY_SERVER})

    async def _by_estimate(self, encoding: str, request: ModelRequest) -> _Counted:
        estimator = self._estimators.setdefault(encoding, Estimator(encoding))
        tokens = await estimator.count_request(request)
        return tokens, {USAGE_SOURCE: "estimate", TOKENIZER: estimator.tokenizer}


class NotingPool(ServerPool):
    """A pool with the properties of a route's servers, and one stand-in server that gets the request in their place."""

    def __init__(self, real: ServerPool) -> None:
        vars(self).update(vars(real))
        first = real.members[0]
        endpoint = UpstreamServer(
            first.name, NotingBackend(first.endpoint.backend, real.capabilities), first.endpoint.config
        )
        endpoint.verdicts = first.endpoint.verdicts
        endpoint.identity, endpoint.rename = first.endpoint.identity, first.endpoint.rename
        self.members = self.every = (WeightedServer(endpoint, upstream_model=first.upstream_model),)
        self.fallback = ()
        self.sole = self.members[0]
        backend = first.endpoint.backend
        self.counter = backend if isinstance(backend, TokenCounter) and first.endpoint.available else None
        """The route's first server, if it can count tokens and is available."""


class NotingBackend(Backend):
    """A stand-in for the backend `real`: accepts the same requests and returns empty answers."""

    def __init__(self, real: Backend, takes: Capabilities) -> None:
        self.name = real.name
        self.capabilities = takes
        self.protocol = real.protocol

    async def start(self) -> None:
        """Does nothing: there is no connection to open."""

    async def close(self) -> None:
        """Does nothing: there is no connection to close."""

    async def open(
        self,
        request: ModelRequest,
        *,
        request_id: str,
        body: bytes | None = None,
        observer: BackendObserver | None = None,
    ) -> WireSource:
        return _Empty(self.protocol, request)

    async def ready(self) -> bool:
        """Returns True: a stand-in is always ready."""
        return True


class _Empty(WireSource):
    """An empty answer, for middlewares that read the answer on its way out."""

    def __init__(self, protocol: ServerSide | None, request: ModelRequest) -> None:
        if protocol is not None:
            self.protocol = protocol
        self._options = WriteOptions(request=request, created=0)

    async def batches(self) -> AsyncIterator[list[Event]]:
        yield unfold(_NOTHING)

    async def pump(self, sink: Callable[[bytes], None]) -> None:
        sink(self.protocol.writer(self._options).feed(unfold(_NOTHING)))

    def redirect(self, sink: Callable[[bytes], None]) -> None:
        pass

    def pause(self) -> None:
        pass

    def resume(self) -> None:
        pass

    async def body(self) -> bytes:
        return self.protocol.write_reply(_NOTHING, self._options)

    async def close(self) -> None:
        pass
