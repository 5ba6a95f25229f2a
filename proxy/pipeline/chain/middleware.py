"""The plug-in interface of middlewares, and the runner of a chain.

Rules:

1. A middleware is a plain aiohttp middleware, `async (request, handler) -> response`, or a `Middleware` with typed
   hooks. The built-in middlewares are `Middleware`s. Any third-party aiohttp middleware works in the same list
   (`toolwire.pipeline.chain.plain`).
2. There is one order: the list in the configuration, outermost first. There is one runner, `Onion`.
3. What `handler` returns has not been sent yet: headers and cookies may still be set, and the events of a `Reply` can
   be mapped.
4. A hook that a class does not define costs nothing: hooks are looked up once per class, not per request or event.
5. An unexpected exception names the middleware (R16.4). It fails the request, or the middleware is skipped.
6. The class of a middleware declares everything that the gateway must know of it (`access_fields`, `idle`, `needs`,
   `goes_with`, `stands_behind`, `asked_for_by`, `missed`, `start_note`, `forbids`, `runs_server_tools`,
   `gives_answer`). Other code knows no middleware by its name.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal

from aiohttp import web

from ...errors import Defect, GatewayError
from ...events import Event, Kind
from ...model import ModelReply, ModelRequest
from ..answers.reply import Reply
from ..answers.stages import collected
from ..exchange.request_state import EXCHANGE, Exchange
from ..exchange.routing import Handler as Handler

if TYPE_CHECKING:
    from ...config import GatewayConfig, MiddlewareConfig, RouteConfig
    from ...protocols.base import ClientSide
    from ...record import AccessField

PlainMiddleware = Callable[[web.Request, Handler], Awaitable[web.StreamResponse]]

Ask = Callable[[ModelRequest], Awaitable[web.StreamResponse]]
"""Returns the answer of all inner middlewares to a request."""

LOG: Final = logging.getLogger("toolwire.middleware")


@dataclass(frozen=True, slots=True, kw_only=True)
class NoOptions:
    """The options of a middleware without options."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainPlace:
    """A place in a chain, with everything that is known when chains are built. `options` are those of the middleware at
    this place; `limited` is True if the configuration has any rate limit."""

    config: GatewayConfig
    route: RouteConfig
    limited: bool
    options: Any


class Middleware:
    """Base class with typed hooks; define only those you need.

    `wants` says which events `on_event` must see. `for_turns`: it is needed only for protocols whose
    conversations the server stores (`ClientSide.turns`), in addition to `serves`. `for_tools`: it does not process the
    answer to a request without tools. `Options` is a frozen dataclass; the mapping in the configuration is checked
    against it when the configuration is loaded, and the instance is `self.options`. Each entry of a chain has one
    instance, which serves many requests at once.

    `access_fields` are what it counts and notes in the record of an exchange: fields of the access line, and counters
    on the metrics page. `runs_server_tools`: it offers and runs the tools of the gateway; a route without one has none.
    `gives_answer`: it always answers by itself, so the middlewares after it are never run.
    `proxied_requests` says what it does with requests that are proxied unread
    (`toolwire.pipeline.chain.proxied_requests`): it `runs`, it `stands_aside`, or it `forbids` them, because it has to
    see every request to a model.
    """

    __middleware_version__: Final = 1  # aiohttp 3.x takes a callable object for an old-style factory without this
    wants: ClassVar[Kind] = Kind.NONE
    for_turns: ClassVar[bool] = False
    for_tools: ClassVar[bool] = False
    Options: ClassVar[type] = NoOptions
    access_fields: ClassVar[tuple[AccessField, ...]] = ()
    runs_server_tools: ClassVar[bool] = False
    gives_answer: ClassVar[bool] = False
    proxied_requests: ClassVar[Literal["runs", "stands_aside", "forbids"]] = "forbids"

    def __init__(self, options: Any = None, *, name: str | None = None) -> None:
        self.options: Any = options if options is not None else self.Options()
        self.name = name or type(self).__name__
        if self.defines("on_event") and not self.wants:
            raise TypeError(f"{type(self).__name__} defines on_event but wants nothing: set `wants`, e.g. Kind.TEXT")

    @classmethod
    def defines(cls, hook: str) -> bool:
        """Returns whether the class overrides this hook."""
        return getattr(cls, hook) is not getattr(Middleware, hook)

    @classmethod
    def idle(cls, place: ChainPlace) -> bool:
        """Returns True if the middleware has nothing to do at this place. The chain leaves it out then."""
        return False

    @classmethod
    def needs(cls, place: ChainPlace) -> Mapping[str, str]:
        """Returns the middlewares that must stand further in, each with what it does for this one: `{"arguments":
        "which checks the calls"}`. A chain without them is a configuration error."""
        return {}

    @classmethod
    def goes_with(cls, place: ChainPlace) -> Mapping[str, str]:
        """Returns the middlewares without which this one is useless, wherever they stand, each with what it does for
        this one."""
        return {}

    @classmethod
    def stands_behind(cls, place: ChainPlace) -> Mapping[str, str]:
        """Returns the middlewares that must stand further out if the chain has them, each with the reason."""
        return {}

    @classmethod
    def asked_for_by(cls, place: ChainPlace) -> str | None:
        """Returns the key of the route's options that requires this middleware, or None. Called for middlewares of the
        default chain: a chain without a required one is a configuration error."""
        return None

    @classmethod
    def missed(cls, place: ChainPlace) -> str | None:
        """Returns what a chain at this place does wrong without this middleware, or None. Called for middlewares of the
        default chain; `toolwire check` and the log report it."""
        return None

    @classmethod
    def start_note(cls, config: GatewayConfig, used: bool) -> str | None:
        """Returns a line for operators, for the log at the start and for `toolwire check`; None if there is nothing to
        report. Called for all used middlewares, and for those of the default chain also if no chain uses them."""
        return None

    def forbids(self, names: tuple[str, ...]) -> bool:
        """Returns whether a tool with these names (`toolwire.protocols.shared.tool_names`) must not be used on routes
        with this middleware. Called for each tool that is offered and each call that is run or delivered."""
        return False

    def serves(self, protocol: str) -> bool:
        """Returns whether the middleware has anything to do for requests of this protocol (`chat`, `responses`). Called
        when chains are built, not for each request."""
        return True

    async def start(self, app: web.Application) -> None:
        """Acquires resources. Called once, in the running loop."""

    async def close(self) -> None:
        """Releases resources. Called once, also if another middleware failed to start."""

    async def on_request(self, exchange: Exchange, request: ModelRequest) -> ModelRequest | web.StreamResponse:
        """Processes the request on its way in. Returns the request, a changed one (`dataclasses.replace`), or a
        response, which skips the inner middlewares. May raise a `GatewayError`."""
        return request

    def on_event(self, exchange: Exchange, event: Event) -> Event | Iterable[Event] | None:
        """Processes one event of the answer, of a kind in `wants`. Returns the event, another one, several, or None to
        drop it. Called for streamed and whole answers alike, on the event loop: never block here."""
        return event

    async def on_reply(self, exchange: Exchange, reply: ModelReply) -> ModelReply:
        """Processes the whole answer. Defining this hook holds back a stream until it is complete."""
        return reply

    def declare(self, exchange: Exchange, reply: Reply) -> None:
        """Declares what happens to the unsent answer (`reply.map`, `watch`, `finish`, `rewrite`). The default declares
        `on_event` and `on_reply`. Override it if that depends on the request."""
        if self.defines("on_event"):
            reply.map(partial(self.on_event, exchange), self.wants)
        if self.defines("on_reply"):
            reply.rewrite(collected(partial(self.on_reply, exchange)), holds=True)

    def review(self, exchange: Exchange, reply: Reply, ask: Ask) -> None:
        """Replaces `declare` for a middleware that may want another answer. `ask` returns the answer of all inner
        middlewares to a request, unsent like `reply`. Call it when events of `reply` have come (`reply.rewrite`,
        `reply.finish`)."""
        raise NotImplementedError

    async def __call__(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Runs the other hooks. Override it for full control; `handler` may be called more than once."""
        hooks = Layer(self.name, self, False)
        hooks.surrounds = False
        return await onion([hooks], handler)(request)


async def ask_again(handler: Handler, request: web.Request, changed: ModelRequest) -> web.StreamResponse:
    """Returns the answer of `handler` to another request than that of the exchange."""
    exchange = request[EXCHANGE]
    before, exchange.request = exchange.request, changed
    try:
        return await handler(request)
    finally:
        exchange.request = before


class Layer:
    """One middleware of a chain. Errors that it raises are reported under its name (R16.4).

    Under `on_failure: skip` a request continues without a middleware that fails. `failed` counts these errors; if it is
    None, errors are raised unchanged.
    """

    def __init__(
        self, name: str, middleware: PlainMiddleware, skip: bool, failed: Callable[[str], None] | None = None
    ) -> None:
        self.name = name
        self.middleware = middleware
        self.skip = skip
        self.failed = failed
        kind = type(middleware) if isinstance(middleware, Middleware) else Middleware
        self.surrounds = not isinstance(middleware, Middleware) or kind.defines("__call__")
        """True if `around` is its only hook."""
        self.asks = kind.defines("on_request")
        self.reviews = kind.defines("review")
        self.for_tools = kind.for_tools
        self.runs_server_tools = kind.runs_server_tools
        self.forbids = middleware.forbids if isinstance(middleware, Middleware) and kind.defines("forbids") else None
        self.proxied_requests = kind.proxied_requests if isinstance(middleware, Middleware) else "runs"
        self.declares = any(map(kind.defines, ("on_event", "on_reply", "declare", "review")))

    def serves(self, client: ClientSide) -> bool:
        """See `Middleware.serves`. Returns True for other kinds of middlewares."""
        if not isinstance(self.middleware, Middleware):
            return True
        return (client.turns is not None or not self.middleware.for_turns) and self.middleware.serves(client.name)

    async def around(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Calls the middleware as aiohttp does. `handler` is the rest of the chain; its errors are raised unchanged."""
        exchange = request[EXCHANGE]
        reply: web.StreamResponse | None = None
        inner: BaseException | None = None

        async def watched(request: web.Request) -> web.StreamResponse:
            nonlocal reply, inner
            asked = exchange.request
            try:
                reply = await handler(request)
            except BaseException as error:
                inner = error
                raise
            finally:
                exchange.request = asked  # `handler` may be called again, with the same request
            if isinstance(reply, Reply):
                reply.owner = self
            return reply

        try:
            response = await self.middleware(request, watched)
            if not isinstance(response, web.StreamResponse):
                raise TypeError(f"it returned {type(response).__name__}, not a response")
            if isinstance(response, Reply) and exchange.note(response):
                await exchange.end()
            return response
        except (GatewayError, web.HTTPException, asyncio.CancelledError):
            raise
        except Exception as error:
            if error is inner:
                raise
            self.failed_with(error)
            return reply if reply is not None else await handler(request)

    def failed_with(self, error: Exception) -> None:
        """Reports an error of this middleware. Raises the error that ends the request, unless the request continues
        without the middleware."""
        if self.failed is None:
            raise error
        self.report(error)
        if not self.skip:
            raise self.defect() from error

    def report(self, error: Exception) -> None:
        """Logs and counts an error of this middleware."""
        LOG.error("middleware %r failed: %s", self.name, error, exc_info=error)
        if self.failed is not None:
            self.failed(self.name)

    def defect(self) -> Defect:
        """Returns the error that the client gets if this middleware fails."""
        return Defect(f"The middleware {self.name!r} failed.", hint="The log has the reason under this request's id.")


def instantiate(
    entry: MiddlewareConfig, found: Any, options: Callable[[type, Mapping[str, Any]], Any]
) -> PlainMiddleware:
    """Returns the middleware for one entry of the configuration.

    `found` is the registry's value: a subclass of `Middleware`; a plain aiohttp middleware (`takes_request`); or a
    factory, any other callable and any other class, which is called with the options as keywords and returns one of
    these. `options` turns a mapping into the class's `Options`. Raises `TypeError` or `ValueError`.
    """
    if inspect.isclass(found) and issubclass(found, Middleware):
        kind = found.Options
        if not is_dataclass(kind):
            raise TypeError(f"{found.__name__}.Options must be a dataclass")
        if entry.options and not fields(kind):
            raise _no_options(entry)
        return found(options(kind, entry.options), name=entry.use)
    if not callable(found):
        raise TypeError(f"{entry.use!r} is a {type(found).__name__}, not a middleware")
    if takes_request(found):
        if entry.options:
            raise _no_options(entry)
        plain: PlainMiddleware = found
        return plain
    try:
        made = found(**entry.options)
    except TypeError as error:
        raise TypeError(f"middleware factory {entry.use!r} does not take the options: {error}") from error
    if inspect.iscoroutine(made):
        made.close()
        raise TypeError(
            f"{entry.use!r} is async, but takes no (request, handler): it is neither a middleware nor a factory of one"
        )
    if not takes_request(made):
        raise TypeError(
            f"middleware factory {entry.use!r} returned {type(made).__name__}, which does not take (request, handler)"
        )
    product: PlainMiddleware = made
    return product


def _no_options(entry: MiddlewareConfig) -> ValueError:
    return ValueError(f"middleware {entry.use!r} takes no options, but has {', '.join(sorted(entry.options))}")


def takes_request(found: object) -> bool:
    """Returns whether `found` is a middleware itself: aiohttp marks it so (`@web.middleware`), or it takes a request
    and a handler and is `async` or names its parameters so. A class is not a middleware, but its instances may be."""
    if inspect.isclass(found) or not callable(found):
        return False
    if getattr(found, "__middleware_version__", None) == 1:
        return True
    try:
        signature = inspect.signature(found)
        names = list(signature.bind(None, None).arguments)
    except (ValueError, TypeError):  # its signature is unknown or different
        return False
    if inspect.iscoroutinefunction(found) or inspect.iscoroutinefunction(type(found).__call__):
        return names[:1] != ["app"]  # (app, handler) is aiohttp's form before version 3
    return len(names) == 2 and "req" in names[0] and "handler" in names[1]


class Onion:
    """The only runner of middlewares: runs the hooks of `layers` in their order on the way in and in the reverse order
    on the way out. A layer with `around` gets the rest of the chain as its handler; `end` answers after the last layer.
    `insides` holds for each layer the handler of all layers inside it."""

    def __init__(self, layers: Sequence[Layer], end: Handler, insides: Mapping[Layer, Handler]) -> None:
        self._insides = insides
        self._hooks: list[tuple[Layer, Middleware]] = []
        self._handler = end
        for layer in layers:
            if layer.surrounds:
                self._handler = partial(layer.around, handler=insides[layer])
                break
            assert isinstance(layer.middleware, Middleware)
            self._hooks.append((layer, layer.middleware))

    async def __call__(self, request: web.Request) -> web.StreamResponse:
        exchange = request[EXCHANGE]
        declaring: list[tuple[Layer, Middleware, ModelRequest]] = []
        response: web.StreamResponse | None = None
        for layer, middleware in self._hooks:
            if layer.asks:
                try:
                    result = await middleware.on_request(exchange, exchange.request)
                    if not isinstance(result, ModelRequest):
                        if not isinstance(result, web.StreamResponse):
                            raise TypeError(
                                f"on_request must return a ModelRequest or a response, not {type(result).__name__}"
                            )
                        response = result
                        break
                except (GatewayError, web.HTTPException):
                    raise
                except Exception as error:
                    layer.failed_with(error)
                    continue
                exchange.request = result
            if layer.declares:
                declaring.append((layer, middleware, exchange.request))
        if response is None:
            response = await self._handler(request)
        if isinstance(response, Reply):
            if exchange.note(response):
                await exchange.end()
            for layer, middleware, sent in reversed(declaring):
                if layer.for_tools and not sent.tools and exchange.offer is None:
                    continue
                if layer.failed is not None:
                    response.owner = layer
                exchange.request = sent
                try:
                    if layer.reviews:
                        ask = partial(ask_again, self._insides[layer], request)
                        middleware.review(exchange, response, ask)
                    else:
                        middleware.declare(exchange, response)
                except (GatewayError, web.HTTPException):
                    raise
                except Exception as error:
                    layer.failed_with(error)
        return response


async def _no_end(request: web.Request) -> web.StreamResponse:
    raise Defect("No middleware of the chain answered.", hint="End the chain with `forwarding`.")


def compose(chain: Sequence[Layer], client: ClientSide, end: Handler = _no_end) -> Handler:
    """Returns one handler for a chain, built once for each route and protocol. Requests that no middleware answers
    reach `end`."""
    return onion([layer for layer in chain if layer.serves(client)], end)


def onion(layers: Sequence[Layer], end: Handler) -> Onion:
    """Returns the runner of these layers, which are listed outermost first."""
    insides: dict[Layer, Handler] = {}
    for place in range(len(layers), 0, -1):
        if layers[place - 1].surrounds or layers[place - 1].reviews:
            insides[layers[place - 1]] = Onion(layers[place:], end, insides)
    return Onion(layers, end, insides)
