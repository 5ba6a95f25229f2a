"""Chooses who handles tools, the server or the gateway, if the route leaves it open (`mode: hybrid`, `auto` and `text`,
R24.1, R31.2).

It sets `Exchange.tools_by`; no other code reads the modes. Middlewares further in follow that value, and this
middleware calls them again if the first choice fails (docs/adr/0033). It is left out of the chain with `prompt`,
`template` and `native`.

With `text` and `auto`, the model's chat template describes the tools if a test request has shown that it can
(`toolwire.upstream.pool.template_probing`, docs/adr/0046); a request waits at most `WAIT_S` for the test. Otherwise,
with `text` the gateway handles tools, and `auto` continues as `hybrid`:

The server gets the tools first. If it refuses them, by its status or at the start of its answer, or cannot read a call
of its model, the same request continues as with `mode: prompt`; a refusal that has other reasons is not remembered. If
its answer is a near miss, `reask` discards it as usual, and this middleware asks for the next one through the gateway.
With `auto`, an unknown model is tested first.

A verdict is stored for each backend and model (`toolwire.upstream.pool.verdicts`) and applies to all clients, so one
client's request is not enough for a verdict against the server: a refusal may be caused by that client's request, and a
near miss by its prompt. Such a request only switches itself; the gateway's own test then decides for all (R33.6).

An exchange switches from the server to the gateway, never back. Tools are left to the servers of a route only if none
of them needs the gateway.
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
from toolwire.pipeline.answers.reply import Reply
from toolwire.pipeline.answers.stages import Batches
from toolwire.pipeline.chain.middleware import ChainPlace, Handler, Middleware, ask_again
from toolwire.pipeline.exchange.request_state import EXCHANGE, Exchange, ToolsBy
from toolwire.record import AccessField, CounterSpec
from toolwire.support.tasks import cancel_all
from toolwire.upstream.pool.probing import ProbeResult, probe
from toolwire.upstream.pool.server_pool import WeightedServer
from toolwire.upstream.pool.verdicts import MOST, Cause
from toolwire.upstream.servers.refusals import cannot_read_calls, refuses_all_tools, refuses_tools

PROBE_AGAIN_S: Final = 60.0
"""The shortest time between two tests of a model that requests have put in doubt."""

WAIT_S: Final = 3.0
"""The longest wait of a request for a test. Then it continues with what is known; the test continues too."""

SWITCHED: Final[tuple[Cause, ...]] = ("refused", "near_miss")

_Again = Callable[[], Awaitable[web.StreamResponse]]
"""Returns the answer to the same request from the middlewares further in."""


@dataclass(slots=True)
class _Tried:
    """The attempts of one exchange. `known`: there is a verdict on each server. `thrown`: the number of discarded
    answers when the server was called."""

    known: bool = False
    thrown: int = 0


class ToolMode(Middleware):
    """Chooses between the server's own tool handling and the gateway's."""

    proxied_requests = "stands_aside"
    access_fields: ClassVar[tuple[AccessField, ...]] = (
        AccessField(
            "tool_mode",
            "The mode that was used, if `mode` leaves it open: `native`, `template` or `prompt`.",
        ),
        AccessField(
            "mode_switches",
            "Requests that switched to `prompt` (`mode: hybrid`, `auto`, `text`).",
            CounterSpec(
                "toolwire_mode_switches_total",
                "Requests in which tool handling switched from the server to the gateway",
                "cause",
                SWITCHED,
            ),
        ),
    )

    def __init__(self, options: object = None, *, name: str | None = None) -> None:
        super().__init__(options, name=name)
        self._probes: dict[tuple[str, str], asyncio.Task[ProbeResult]] = {}
        self._doubted: dict[tuple[str, str], float] = {}
        """The time of the last test of a model that was caused by a request."""

    @classmethod
    def idle(cls, place: ChainPlace) -> bool:
        return place.route.options.mode not in ("hybrid", "auto", "text")

    @classmethod
    def asked_for_by(cls, place: ChainPlace) -> str | None:
        return None if cls.idle(place) else "mode"

    @classmethod
    def needs(cls, place: ChainPlace) -> Mapping[str, str]:
        if cls.idle(place):
            return {}
        return {"transformation": "which finds calls in text", "injection": "which describes the tools in the prompt"}

    async def close(self) -> None:
        await cancel_all(self._probes.values())

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
        elif exchange.tools_by == "server" and exchange.record.counts["reasks"] > tried.thrown:
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
            if not _needs_gateway(fault):
                raise
            return await self._other_way(exchange, asked, partial(ask_again, handler, request, asked), fault)
        if exchange.tools_by == "server" and isinstance(response, Reply) and response.touched and not tried.known:
            response.rewrite(partial(self._beginning, exchange, asked, partial(ask_again, handler, request, asked)))
        return response

    # --- choice ---------------------------------------------------------------------------------------------------

    async def _way(self, exchange: Exchange, asked: ModelRequest) -> tuple[ToolsBy, bool]:
        """Returns who handles the tools of a request, and whether the verdicts are known."""
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
                    await _patiently([self._probing(member, model, None)])
        verdicts = [member.endpoint.verdict(model) for member, model in _asked_names(exchange, asked)]
        by_gateway = any(verdict and verdict.mode == "prompt" for verdict in verdicts)
        return "gateway" if by_gateway else "server", None not in verdicts

    async def _by_template(self, exchange: Exchange, asked: ModelRequest) -> bool:
        """Returns True if the chat templates of all servers' models are known to describe tools. Starts
        missing tests."""
        tool_format = exchange.route.known_format(asked.model)
        if tool_format is None:
            return False
        named, templates = _asked_names(exchange, asked), exchange.route.pool.templates
        unknown = [one for one in named if templates.known(one[0].endpoint, one[1]) is None]
        if unknown and not exchange.only_counted:
            special = tool_format.special_tokens
            begun = [templates.begin(m.endpoint, model, special_tokens=special) for m, model in unknown]
            await _patiently(filter(None, begun))
        verdicts = [templates.known(member.endpoint, model) for member, model in named]
        return all(verdict is not None and verdict.mode == "template" for verdict in verdicts)

    def _probing(self, member: WeightedServer, model: str, doubt: Cause | None) -> asyncio.Task[ProbeResult]:
        """Returns the running test of a model, which simultaneous callers share; starts it if needed. Its result
        becomes a verdict. With a `doubt` (what a client's request suggests) only a result that confirms or refutes it
        does."""
        key = member.name, model
        task = self._probes.get(key)
        if task is None:

            async def probed() -> ProbeResult:
                result = await probe(member.endpoint, model)
                if result.mode is not None and result.cause is not None:
                    if result.mode == "native" or doubt is None or doubt == result.cause:
                        member.endpoint.store_verdict(model, result.mode, result.cause)
                    elif doubt == "near_miss":
                        member.endpoint.store_verdict(model, result.mode, doubt)
                return result

            task = self._probes[key] = asyncio.create_task(probed())
            task.add_done_callback(lambda _: self._probes.pop(key, None))
        return task

    def doubt(self, exchange: Exchange, asked: ModelRequest, who: str | None, cause: Cause) -> None:
        """Called if a request suggests that a server (`who`, or the last one called) needs the gateway for tools.
        Starts a test that decides, unless there was one recently."""
        server = _asked_server(exchange, asked, who)
        if server is None:
            return
        member, model = server
        key, now = (member.name, model), time.monotonic()
        if now - self._doubted.get(key, -math.inf) < PROBE_AGAIN_S:
            return
        self._doubted.pop(key, None)
        if len(self._doubted) >= MOST:
            del self._doubted[next(iter(self._doubted))]
        self._doubted[key] = now
        self._probing(member, model, cause)

    # --- switching -------------------------------------------------------------------------------------------------

    def _switch(self, exchange: Exchange, cause: Cause) -> None:
        exchange.tools_by = "gateway"
        record = exchange.record
        record.count("mode_switches")
        record.label("mode_switches", cause)
        record.note("tool_mode", "prompt")

    async def _other_way(
        self, exchange: Exchange, asked: ModelRequest, again: _Again, fault: GatewayError
    ) -> web.StreamResponse:
        """Switches to the gateway after a refusal, or a call that the server could not read, and returns its answer. If
        that works after a refusal, the server is put in doubt."""
        who, templated = _who(exchange, fault), exchange.tools_by == "template"
        self._switch(exchange, "refused" if refuses_tools(fault) else "near_miss")
        response = await again()
        if refuses_all_tools(fault) and templated:
            self._doubt_template(exchange, asked, who)
        elif refuses_all_tools(fault):
            self.doubt(exchange, asked, who, "refused")
        return response

    def _doubt_template(self, exchange: Exchange, asked: ModelRequest, who: str | None) -> None:
        """Tests the chat template again, after the server (`who`, or the last one called) has refused tools."""
        server, tool_format = _asked_server(exchange, asked, who), exchange.route.known_format(asked.model)
        if server is not None and tool_format is not None:
            member, model = server
            templates = exchange.route.pool.templates
            templates.begin(member.endpoint, model, special_tokens=tool_format.special_tokens)

    async def _beginning(
        self, exchange: Exchange, asked: ModelRequest, again: _Again, batches: Batches
    ) -> AsyncGenerator[list[Event], None]:
        """Yields the answer of a server without a verdict on tools; if the answer begins with a refusal of tools, the
        gateway's answer instead."""
        held: list[Event] = []
        begun = False
        refused: GatewayError | None = None
        try:
            async for batch in batches:
                last = batch[-1] if batch else None
                if begun:
                    yield batch
                    continue
                if isinstance(last, Fault) and _needs_gateway(last.error):
                    refused = last.error
                    break
                held += batch
                if all(isinstance(event, Start) for event in batch):
                    continue
                begun = True
                if not isinstance(last, Fault) and (server := _asked_server(exchange, asked, None)):
                    member, model = server
                    member.endpoint.store_verdict(model, "native", "accepted")
                yield held
        except GatewayError as fault:
            if begun or not _needs_gateway(fault):
                raise
            refused = fault
        if refused is None:
            return
        response = await self._other_way(exchange, asked, again, refused)
        if isinstance(response, Reply):
            async with aclosing(response.events()) as others:
                async for batch in others:
                    yield batch


def _needs_gateway(fault: GatewayError) -> bool:
    return refuses_tools(fault) or cannot_read_calls(fault)


class _Learning:
    """Observes the gateway's answer after a near miss of the server: a call in it puts the server in doubt."""

    def __init__(self, middleware: ToolMode, exchange: Exchange, asked: ModelRequest) -> None:
        self._middleware = middleware
        self._exchange = exchange
        self._asked = asked
        self._over = False

    def see(self, event: Event) -> None:
        """Puts the server in doubt at the first call."""
        if not self._over and isinstance(event, Open) and event.kind is BlockKind.TOOL_CALL:
            self._over = True
            self._middleware.doubt(self._exchange, self._asked, None, "near_miss")


_MODES: Final[Mapping[ToolsBy, str]] = {"server": "native", "gateway": "prompt", "template": "template"}


async def _patiently(probes: Iterable[asyncio.Task[Any]]) -> None:
    """Waits for tests; a cancelled waiter does not cancel them."""
    if running := tuple(probes):
        await asyncio.wait(running, timeout=WAIT_S)


def _concerns_tools(request: ModelRequest) -> bool:
    return bool(request.tools) or any(
        isinstance(part, ToolUse | ToolResult) for message in request.messages for part in message.parts
    )


def _asked_names(
    exchange: Exchange, asked: ModelRequest, members: Iterable[WeightedServer] | None = None
) -> list[tuple[WeightedServer, str]]:
    """Returns the servers of the route, or `members`, each with its name for the model."""
    route = exchange.route
    several = route.pool.every if members is None else members
    return [(member, member.name_of(asked.model, route.config.upstream_model)) for member in several]


def _who(exchange: Exchange, fault: GatewayError) -> str | None:
    """Returns the name of the server that failed with this fault; None if unknown."""
    return next((name for known, name in reversed(exchange.record.failures) if known is fault), None)


def _asked_server(exchange: Exchange, asked: ModelRequest, who: str | None) -> tuple[WeightedServer, str] | None:
    """Returns the server `who`, or the last one called, with its name for the model; None if unknown."""
    name = who or exchange.record.notes.get("backend", exchange.route.pool.name)
    return next((server for server in _asked_names(exchange, asked) if server[0].name == name), None)
