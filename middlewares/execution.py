"""Server-side tools (R15): offered beside the client's, run here, and the model asked again with their results.

Rules:

1. The client sees one answer: one `Start`, one `Finish`, blocks numbered once, the texts of all rounds in their order
   with an empty line between, the usage of all rounds together. Calls of server-side tools and their results are not
   part of it, unless `tool_loop.expose_server_tools` is set and its protocol has a place for results.
2. A call belongs to the gateway if it names a tool that the gateway offered; without tools of the client any call does.
3. Text, reasoning and arguments pass while they come. From the first whole call of the client on an answer waits for
   its own end, because server-side calls run first (R15.9). Then the client's calls are given out, and the exchange is
   over.
4. A choice that demands a call holds for the first answer only.
5. Calls beyond the number that the client allows (`max_tool_calls` of Responses) are not run; the model is told so, and
   may answer with what it has.
6. At a limit of the route the answer ends as it stands, with `stop`. `x-tool-loop: limit` says so unless the headers
   have left; the log always does.

Stands behind `conversation`, so that a conversation is loaded and kept once, and before everything that reads an
answer, so that this is done for each round. Left out of the chain where no `tools.folder` is configured.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import ClassVar, Final, cast

from aiohttp import web

from proxy.errors import BackendFault, ClientFault, GatewayError, quote
from proxy.events import Event, Fault, Finish, Open
from proxy.formats.rendering import result_text
from proxy.formats.toolset import ToolSet, note, note_of
from proxy.model import Message, ModelRequest, Text, ToolChoice, ToolResult, ToolUse
from proxy.pipeline.exchange import EXCHANGE, Exchange
from proxy.pipeline.middleware import Handler, Middleware, Place
from proxy.pipeline.model_turns import LoopState, ModelTurn
from proxy.pipeline.reply import Reply
from proxy.pipeline.stages import Batches
from proxy.pipeline.stored import CONVERSATIONS, STORE_FAILURES, Conversations
from proxy.pipeline.tool_memory import ToolMemory, keep, keeps, restored
from proxy.record import AccessField, CounterSpec, ObservedTool
from proxy.servertools.calls import Trail
from proxy.servertools.source import CallState, Tools

LOG: Final = logging.getLogger("toolwire.tools")

LOOP_HEADER: Final = "x-tool-loop"
NOT_RUN: Final = "Error: the limit on server-side tools is reached"
NOT_ALLOWED: Final = "Error: not run, no more calls of this tool are allowed for this answer. Go on without it."

Ask = Callable[[ModelRequest], Awaitable[web.StreamResponse]]


class Execution(Middleware):
    """Offers and runs server-side tools."""

    passing = "stands_aside"
    runs_server_tools = True
    access_fields: ClassVar[tuple[AccessField, ...]] = (
        AccessField(
            "executions",
            "Calls of server-side tools that were run.",
            CounterSpec(
                "toolwire_tool_executions_total",
                "States that server-side executions entered",
                "state",
                tuple(state.value for state in CallState),
            ),
        ),
        AccessField("failed_executions", "Of those: they gave no result."),
        AccessField(
            "tool_loop",
            "`limit` if a limit of `tool_loop` ended the answer; `max_tool_calls` if calls were not run because the client allowed no more.",
        ),
        STORE_FAILURES,
    )

    @classmethod
    def idle(cls, place: Place) -> bool:
        """See `Middleware.idle`. It would keep streams out of the fast path."""
        return place.config.tools.folder is None

    @classmethod
    def needs(cls, place: Place) -> Mapping[str, str]:
        """See `Middleware.needs`."""
        if cls.idle(place) or place.route.options.mode == "native":
            return {}
        return {
            "transformation": "which finds the calls that are run",
            "injection": "which teaches the tools that it offers",
        }

    @classmethod
    def stands_behind(cls, place: Place) -> Mapping[str, str]:
        """See `Middleware.stands_behind`."""
        return {"conversation": "which loads and keeps a conversation once, not in each round"}

    async def __call__(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        exchange = request[EXCHANGE]
        source = exchange.route.server_tools
        if source is None:
            return await handler(request)
        conversations = request.app[CONVERSATIONS]
        messages = await restored(exchange, conversations, exchange.request.messages)
        if messages is not exchange.request.messages:
            exchange.request = replace(exchange.request, messages=messages)
        tools = source.tools
        asked = _with_tools(exchange, exchange.request, tools)
        if asked is exchange.request:
            return await handler(request)

        async def ask(changed: ModelRequest) -> web.StreamResponse:
            before, exchange.request = exchange.request, changed
            try:
                return await handler(request)
            finally:
                exchange.request = before

        reply = await ask(asked)
        if isinstance(reply, Reply):
            reply.rewrite(Loop(exchange, tools, conversations, asked, reply, ask).run)
        return reply


def _with_tools(exchange: Exchange, request: ModelRequest, tools: Tools) -> ModelRequest:
    """The request with the server-side tools; itself if none of them may be called. Raises `ClientFault`
    `duplicate_tool_name`."""
    choice = request.tool_choice
    if not request.tools and choice.mode == "none" and exchange.body.get("tool_choice") is None:
        choice = ToolChoice("auto")  # the default without tools, and now there are some
    if not tools.specs or choice.mode == "none" or request.sampling.n > 1:
        return request
    policy = exchange.route.options.tool_loop.tool_conflict
    merged = tools.specs
    if request.tools:
        key = (_with_tools, tools, policy)
        noted: ToolSet | None = note_of(request.tools, key)
        merged = noted if noted is not None else note(request.tools, key, _merged(request, tools, policy))
    changed = replace(request, tools=merged, tool_choice=choice)
    return changed if any(tool.server for tool in changed.callable_tools) else request


def _merged(request: ModelRequest, tools: Tools, policy: str) -> ToolSet:
    """The client's tools and the gateway's (R15.10)."""
    mine = {
        tool.name: index for index, tool in enumerate(request.tools) if tool.kind != "hosted" and not tool.namespace
    }
    both = mine.keys() & tools.names
    if both and policy == "error":
        name = min(both, key=mine.__getitem__)
        raise ClientFault(
            f"The tool {quote(name)} has the name of a tool of the gateway.",
            code="duplicate_tool_name",
            param=f"tools[{mine[name]}]",
            hint="Rename it, or set `tool_loop.tool_conflict` for the route.",
        )
    clients = (
        t for t in request.tools if policy == "client_wins" or t.kind == "hosted" or t.namespace or t.name not in both
    )
    ours = (tool for tool in tools.specs if policy == "server_wins" or tool.name not in both)
    return ToolSet((*clients, *ours))


class Loop:
    """The answers to one request, as one. `first` is the reply that is sent; `ask` gives the next one."""

    def __init__(
        self,
        exchange: Exchange,
        tools: Tools,
        conversations: Conversations,
        asked: ModelRequest,
        first: Reply,
        ask: Ask,
    ) -> None:
        options = exchange.route.options
        self._exchange = exchange
        self._tools = tools
        self._conversations = conversations
        self._asked = asked
        self._given = len(asked.messages)
        self._first = first
        self._ask = ask
        self._limits = options.tool_loop
        self._show = exchange.protocol.show_result if options.tool_loop.expose_server_tools else None
        self._exposes = self._show is not None
        self._keeps = not self._exposes and keeps(exchange, conversations)
        self._names = frozenset(tool.name for tool in asked.tools if tool.server)
        self._all_ours = not any(tool.kind != "hosted" for tool in exchange.received.tools)
        self._until = time.monotonic() + self._limits.max_seconds
        self._rounds = 0
        self._made = 0
        self._allowed = exchange.protocol.most_server_calls(exchange.received)
        self._state = LoopState()
        self._trails: Sequence[Trail] = ()

    async def run(self, batches: Batches) -> AsyncGenerator[list[Event], None]:
        """The events of all rounds as those of one answer."""
        reply = self._first
        while True:
            self._rounds += 1
            answer = ModelTurn(self._state, self._is_ours, exposes=self._exposes, marks=self._keeps)
            async with aclosing(cast("AsyncGenerator[list[Event], None]", batches)):
                async for batch in batches:
                    if out := answer.feed(batch):
                        yield out
                    if answer.over:
                        break
            if answer.finish is None:
                return  # a fault ended it
            limited = bool(answer.calls) and self._at_limit(len(answer.calls))
            results = await self._results(answer.calls) if answer.calls and not limited else []
            if self._show is not None and answer.calls:
                # Every call that is shown has a result.
                texts = [result_text(result) for result in results] or [NOT_RUN] * len(answer.calls)
                yield list(map(self._show, answer.calls, texts))
            if limited or not answer.calls or answer.asks_client:
                if answer.asks_client:
                    await self._keep(answer, results)
                self._enter(CallState.IDLE)
                yield [*answer.held, self._end(answer.finish, limited)]
                return
            self._go_on(answer, results)
            if time.monotonic() >= self._until:
                self._enter(CallState.IDLE)
                yield [self._end(answer.finish, True)]
                return
            await reply.source.close()  # of what was not read, if the answer was ended early
            self._enter(CallState.AWAITING_LLM_RESPONSE)
            try:
                reply = await self._next()
            except GatewayError as error:
                yield [Fault(error)]
                return
            finally:
                self._enter(CallState.IDLE)
            batches = reply.events()

    def _is_ours(self, opened: Open) -> bool:
        """Rule 2."""
        own = opened.name in self._names and opened.namespace is None
        return opened.call_kind == "function" and (self._all_ours or own)

    def _at_limit(self, calls: int) -> bool:
        limits = self._limits
        if self._allowed is not None:
            calls = min(calls, max(0, self._allowed - self._made))
        beyond = self._made + calls > limits.max_calls or self._rounds >= limits.max_iterations
        return beyond or time.monotonic() >= self._until

    def _end(self, finish: Finish, limited: bool) -> Finish:
        """The end of the whole answer."""
        if not limited:
            return Finish(finish.reason, self._state.usage, extra=finish.extra, choices=finish.choices)
        self._exchange.record.note("tool_loop", "limit")
        LOG.warning("request %s: a limit of `tool_loop` ended the answer", self._exchange.id)
        if not self._first.prepared:
            self._first.headers[LOOP_HEADER] = "limit"
        return Finish("stop", self._state.usage, extra=finish.extra)

    # --- the next round ---------------------------------------------------------------------------------------------

    def _go_on(self, answer: ModelTurn, results: Sequence[ToolResult]) -> None:
        """What the model said and learned becomes part of what it is asked next; a demand for a call was met (rule
        4)."""
        choice = self._asked.tool_choice
        told = (Message("tool", (result,)) for result in results)
        self._asked = replace(
            self._asked,
            messages=(*self._asked.messages, Message("assistant", answer.parts()), *told),
            tool_choice=replace(choice, mode="auto", name=None) if choice.forces else choice,
        )

    async def _next(self) -> Reply:
        """The model's next answer. Raises `GatewayError`."""
        if self._first.closed:
            raise BackendFault("The answer was given up.", code="upstream_disconnected")
        response = await self._ask(self._asked)
        if not isinstance(response, Reply):
            raise TypeError(f"a middleware answered a later round with a {type(response).__name__}")
        self._first.goes_on(response)
        return response

    async def _keep(self, answer: ModelTurn, results: Sequence[ToolResult]) -> None:
        """The client will go on from its own calls: keep what it does not see."""
        before = self._asked.messages[self._given :]
        if self._keeps and (before or results):
            rounds = ToolMemory(before, answer.calls if results else (), results)
            await keep(self._exchange, self._conversations, answer.mark(), rounds)

    # --- calls ------------------------------------------------------------------------------------------------------

    async def _results(self, calls: Sequence[ToolUse]) -> list[ToolResult]:
        """What the model is told of the calls of one answer; rule 5."""
        left = len(calls) if self._allowed is None else max(0, self._allowed - self._made)
        results = await self._execute(calls[:left]) if left else []
        if len(calls) > left:
            self._exchange.record.note("tool_loop", "max_tool_calls")
        return [
            *results,
            *(ToolResult(use.call_id, (Text(NOT_ALLOWED),), use.name, is_error=True) for use in calls[left:]),
        ]

    async def _execute(self, calls: Sequence[ToolUse]) -> list[ToolResult]:
        """Run the calls of one answer, side by side. The results have the order of the calls (R5.8)."""
        record = self._exchange.record
        self._made += len(calls)
        record.count("executions", len(calls))
        self._trails = [Trail(use, self._exchange.id, lambda state: record.label("executions", state)) for use in calls]
        return await asyncio.gather(*map(self._run, calls, self._trails))

    async def _run(self, use: ToolUse, trail: Trail) -> ToolResult:
        with ObservedTool(self._exchange.record, use.name, use.call_id, use.arguments) as observed:
            left = max(0.0, self._until - time.monotonic())
            result = await self._tools.run(use, left, trail.enter)
            observed.ended(trail.state.value, result.text)
        if result.failed:
            self._exchange.record.count("failed_executions")
        return ToolResult(use.call_id, (Text(result.text),), use.name, is_error=result.failed)

    def _enter(self, state: CallState) -> None:
        """The calls of the last answer go on to this state."""
        for trail in self._trails:
            trail.enter(state)
        if state is CallState.IDLE:
            self._trails = ()
