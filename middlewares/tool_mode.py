"""The choice of who does tools, where the route leaves it open (`mode: hybrid`, `auto` and `text`, R24.1, R31.2).

Sets `Exchange.tools_by`, and nothing else knows of the modes: whoever stands further in does what that says, and this
middleware calls them once more if the first way leads nowhere (docs/adr/0033). It is left out of the chain under
`prompt`, `template` and `native`.

Under `text` and `auto` the model's own chat template teaches the tools where a probe has shown that it can
(`toolwire.upstream.pool.template_probing`, docs/adr/0046), and a request waits `WAIT_S` at most for a probe. Else,
under `text`, the gateway does all; under `auto`, it goes on as under `hybrid`:

A server is given the tools first. If it refuses them, by its status or at the beginning of its answer, the same request
goes on as under `mode: prompt`; what it had refused in any case is not learned. If its answer nearly calls, `reask`
throws it away as it always does, and this asks for the next one in the other way. Under `auto` a model of which nothing
is known is probed before.

A verdict is kept for each backend and model (`toolwire.upstream.pool.verdicts`) and counts for all clients, so no
client's request is enough for one against the server: a refusal may follow from what that client sent, and an answer
may nearly call because its prompt asks for that. Such a request only switches itself; the gateway's own probe then
decides for all (R33.6).

An exchange goes over from the server to the gateway, never back. The servers of a route have to agree: tools are the
server's business only if none of them needs the gateway.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Final

from aiohttp import web

from toolwire.errors import GatewayError
from toolwire.events import BlockKind, Event, Fault, Open, Start
from toolwire.model import ModelRequest, ToolResult, ToolUse
from toolwire.pipeline.chain.middleware import ChainPlace, Handler, Middleware, ask_again
from toolwire.pipeline.chain.reply import Reply
from toolwire.pipeline.chain.stages import Batches
from toolwire.pipeline.exchange.exchange import EXCHANGE, Exchange, ToolsBy
from toolwire.record import AccessField, CounterSpec
from toolwire.upstream.pool.pool import WeightedEndpoint
from toolwire.upstream.pool.probing import Probed, probe
from toolwire.upstream.pool.verdicts import MOST, Cause, of_all_tools
from toolwire.upstream.servers.upstream_errors import refuses_tools

PROBE_AGAIN_S: Final = 60.0
"""A model that clients' requests put in doubt is probed at most once in so long."""

WAIT_S: Final = 3.0
"""A request waits so long for a probe. Then it goes on with what is known, and the probe too."""

SWITCHED: Final[tuple[Cause, ...]] = ("refused", "near_miss")

_Again = Callable[[], Awaitable[web.StreamResponse]]
"""Gives the answer to the same request, of everything further in."""


@dataclass(slots=True)
class _Tried:
    """What was tried in one exchange. `known`: of each server there is a verdict. `thrown`: so many answers had been
    thrown away when the server was asked."""

    known: bool = False
    thrown: int = 0


class ToolMode(Middleware):
    """Chooses between the server's own tools and the gateway's."""

    proxied_requests = "stands_aside"
    access_fields: ClassVar[tuple[AccessField, ...]] = (
        AccessField(
            "tool_mode", "Who did tools in the end, where `mode` leaves it open: `native`, `template` or `prompt`."
        ),
        AccessField(
            "mode_switches",
            "Requests that went over to `prompt` (`mode: hybrid`, `auto`, `text`).",
            CounterSpec(
                "toolwire_mode_switches_total",
                "Requests in which tools went over from the server to the gateway",
                "cause",
                SWITCHED,
            ),
        ),
    )

    def __init__(self, options: object = None, *, name: str | None = None) -> None:
        super().__init__(options, name=name)
        self._probes: dict[tuple[str, str], asyncio.Task[Probed]] = {}
        self._doubted: dict[tuple[str, str], float] = {}
        """When a model was last probed because a request put it in doubt."""

    @classmethod
    def idle(cls, place: ChainPlace) -> bool:
        """See `Middleware.idle`."""
        return place.route.options.mode not in ("hybrid", "auto", "text")

    @classmethod
    def asked_for_by(cls, place: ChainPlace) -> str | None:
        """See `Middleware.asked_for_by`."""
        return None if cls.idle(place) else "mode"

    @classmethod
    def needs(cls, place: ChainPlace) -> Mapping[str, str]:
        """See `Middleware.needs`."""
        if cls.idle(place):
            return {}
        return {"transformation": "which finds calls in text", "injection": "which teaches the tools"}

    async def close(self) -> None:
        """See `Middleware.close`."""
        for task in self._probes.values():
            task.cancel()
        await asyncio.gather(*self._probes.values(), return_exceptions=True)

    async def __call__(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        exchange = request[EXCHANGE]
        asked = exchange.request
        if not _concerns_tools(asked):
            return await handler(request)
        tried: _Tried | None = exchange.state.get(_Tried)
        if tried is None:
            exchange.state[_Tried] = tried = _Tried()
            exchange.tools_by, tried.known = await self._way(exchange, asked)
            exchange.record.note("tool_mode", _MODES[exchange.tools_by])
        elif exchange.native and exchange.record.counts["reasks"] > tried.thrown:
            self._switch(exchange, "near_miss")
            response = await handler(request)
            if isinstance(response, Reply):
                response.watch(_Learning(self, exchange, asked).see)
            return response
        tried.thrown = exchange.record.counts["reasks"]
        if exchange.tools_by == "gateway":
            return await handler(request)
        try:
            response = await handler(request)
        except GatewayError as fault:
            if not refuses_tools(fault):
                raise
            return await self._other_way(exchange, asked, partial(ask_again, handler, request, asked), fault)
        if exchange.native and isinstance(response, Reply) and response.touched and not tried.known:
            response.rewrite(partial(self._beginning, exchange, asked, partial(ask_again, handler, request, asked)))
        return response

    # --- which way ------------------------------------------------------------------------------------------------

    async def _way(self, exchange: Exchange, asked: ModelRequest) -> tuple[ToolsBy, bool]:
        """The side that does tools, and whether that is known."""
        wire, mode = exchange.route.pool.protocol, exchange.route.options.mode
        if wire is not None and not wire.takes_tools:
            return "gateway", True
        if wire is not None and mode in ("auto", "text") and await self._by_template(exchange, asked):
            return "template", True
        if mode == "text":
            return "gateway", True
        if mode == "auto" and not exchange.only_counted:
            for member, model in _asked_names(exchange, asked, exchange.route.pool.members):
                if member.endpoint.verdict(model) is None:
                    await self._probe(member, model)
        verdicts = [member.endpoint.verdict(model) for member, model in _asked_names(exchange, asked)]
        by_gateway = any(verdict and verdict.mode == "prompt" for verdict in verdicts)
        return "gateway" if by_gateway else "server", None not in verdicts

    async def _by_template(self, exchange: Exchange, asked: ModelRequest) -> bool:
        """Whether the chat templates of all servers' models are known to teach tools. Begins the probes that are
        missing."""
        tool_format = exchange.route.known_format(asked.model)
        if tool_format is None:
            return False
        named = _asked_names(exchange, asked)
        unknown = [one for one in named if one[0].endpoint.templates.known(one[0].endpoint, one[1]) is None]
        if unknown and not exchange.only_counted:
            special = tool_format.special_tokens
            begun = [m.endpoint.templates.begin(m.endpoint, model, special_tokens=special) for m, model in unknown]
            await _patiently(filter(None, begun))
        verdicts = [member.endpoint.templates.known(member.endpoint, model) for member, model in named]
        return all(verdict is not None and verdict.mode == "template" for verdict in verdicts)

    async def _probe(self, member: WeightedEndpoint, model: str) -> None:
        """Probe a model, once for all that want to know."""
        await _patiently((self._probing(member, model, None),))

    def _probing(self, member: WeightedEndpoint, model: str, doubt: Cause | None) -> asyncio.Task[Probed]:
        """The probe of a model, which ends with a verdict if it shows something. `doubt` is what a client's request
        suggests: then only what confirms or disproves it is a verdict."""
        key = member.name, model
        task = self._probes.get(key)
        if task is None:

            async def probed() -> Probed:
                found = await probe(member.endpoint, model)
                if found.mode is not None and found.cause is not None:
                    if found.mode == "native" or doubt is None or doubt == found.cause:
                        member.endpoint.judge(model, found.mode, found.cause)
                    elif doubt == "near_miss":
                        member.endpoint.judge(model, found.mode, doubt)
                return found

            task = self._probes[key] = asyncio.create_task(probed())
            task.add_done_callback(lambda _: self._probes.pop(key, None))
        return task

    def doubt(self, exchange: Exchange, asked: ModelRequest, who: str | None, cause: Cause) -> None:
        """A request suggests that the server `who`, or the one that was asked last, needs the gateway for tools: let a
        probe decide, unless one has lately."""
        found = _asked_server(exchange, asked, who)
        if found is None:
            return
        member, model = found
        key, now = (member.name, model), time.monotonic()
        if now - self._doubted.get(key, -math.inf) < PROBE_AGAIN_S:
            return
        self._doubted.pop(key, None)
        if len(self._doubted) >= MOST:
            del self._doubted[next(iter(self._doubted))]
        self._doubted[key] = now
        self._probing(member, model, cause)

    # --- the other way ----------------------------------------------------------------------------------------------

    def _switch(self, exchange: Exchange, cause: Cause) -> None:
        exchange.tools_by = "gateway"
        record = exchange.record
        record.count("mode_switches")
        record.label("mode_switches", cause)
        record.note("tool_mode", "prompt")

    async def _other_way(
        self, exchange: Exchange, asked: ModelRequest, again: _Again, fault: GatewayError
    ) -> web.StreamResponse:
        """The answer under `prompt` to what the server refused. If it takes that, the server is in doubt."""
        who, templated = _who(exchange, fault), exchange.templated
        self._switch(exchange, "refused")
        response = await again()
        if of_all_tools(fault) and templated:
            self._doubt_template(exchange, asked, who)
        elif of_all_tools(fault):
            self.doubt(exchange, asked, who, "refused")
        return response

    def _doubt_template(self, exchange: Exchange, asked: ModelRequest, who: str | None) -> None:
        """The server `who`, or the one that was asked last, has refused the tools that its template was to write."""
        found, tool_format = _asked_server(exchange, asked, who), exchange.route.known_format(asked.model)
        if found is not None and tool_format is not None:
            endpoint = found[0].endpoint
            endpoint.templates.begin(endpoint, found[1], special_tokens=tool_format.special_tokens)

    async def _beginning(
        self, exchange: Exchange, asked: ModelRequest, again: _Again, batches: Batches
    ) -> AsyncGenerator[list[Event], None]:
        """The answer of a server of which it is not known whether it takes tools; the one in the other way if it says
        at the beginning that it does not."""
        held: list[Event] = []
        begun = False
        refused: GatewayError | None = None
        try:
            async for batch in batches:
                last = batch[-1] if batch else None
                if begun:
                    yield batch
                    continue
                if isinstance(last, Fault) and refuses_tools(last.error):
                    refused = last.error
                    break
                held += batch
                if all(isinstance(event, Start) for event in batch):
                    continue
                begun = True
                if not isinstance(last, Fault) and (found := _asked_server(exchange, asked, None)):
                    member, model = found
                    member.endpoint.judge(model, "native", "accepted")
                yield held
        except GatewayError as fault:
            if begun or not refuses_tools(fault):
                raise
            refused = fault
        if refused is None:
            return
        response = await self._other_way(exchange, asked, again, refused)
        if isinstance(response, Reply):
            async with aclosing(response.events()) as others:
                async for batch in others:
                    yield batch


class _Learning:
    """Looks on while a model that had nearly called is asked in the other way: a call puts the server in doubt."""

    def __init__(self, middleware: ToolMode, exchange: Exchange, asked: ModelRequest) -> None:
        self._middleware = middleware
        self._exchange = exchange
        self._asked = asked
        self._over = False

    def see(self, event: Event) -> None:
        """See `Reply.watch`."""
        if not self._over and isinstance(event, Open) and event.kind is BlockKind.TOOL_CALL:
            self._over = True
            self._middleware.doubt(self._exchange, self._asked, None, "near_miss")


_MODES: Final[Mapping[ToolsBy, str]] = {"server": "native", "gateway": "prompt", "template": "template"}


async def _patiently(probes: Iterable[asyncio.Task[Any]]) -> None:
    """Wait for probes, which go on whatever becomes of who waits."""
    if running := tuple(probes):
        await asyncio.wait(running, timeout=WAIT_S)


def _concerns_tools(request: ModelRequest) -> bool:
    return bool(request.tools) or any(
        isinstance(part, ToolUse | ToolResult) for message in request.messages for part in message.parts
    )


def _asked_names(
    exchange: Exchange, asked: ModelRequest, members: Iterable[WeightedEndpoint] | None = None
) -> list[tuple[WeightedEndpoint, str]]:
    """The servers of the route, or these, with the names by which they know the model."""
    route = exchange.route
    several = route.pool.every if members is None else members
    return [(member, member.name_of(asked.model, route.config.upstream_model)) for member in several]


def _who(exchange: Exchange, fault: GatewayError) -> str | None:
    """The name of the server that failed so."""
    return next((name for known, name in reversed(exchange.record.failures) if known is fault), None)


def _asked_server(exchange: Exchange, asked: ModelRequest, who: str | None) -> tuple[WeightedEndpoint, str] | None:
    """The server `who`, or the one that was asked last, with the name by which it knows the model."""
    name = who or exchange.record.notes.get("backend", exchange.route.pool.name)
    return next((found for found in _asked_names(exchange, asked) if found[0].name == name), None)
