"""Server-side tools (R15): offers them beside the client's tools, runs their calls, and calls the model again with the
results.

Rules:

1. The client sees one answer: one `Start`, one `Finish`, blocks numbered consecutively, the texts of all rounds in
   order with an empty line between them, the total usage of all rounds. Calls of server-side tools and their results
   are left out, unless `tool_loop.expose_server_tools` is set and the protocol can show results.
2. A call belongs to the gateway if it names a tool that the gateway offered; if the client offered no tools, every call
   does. A tool that is not on offer is never run: the model gets an error. A tool that the route forbids
   (`toolwire.pipeline.exchange.permission`) is neither offered nor run, even if the client approved it.
3. Text, reasoning and arguments are streamed as they arrive. From the first complete call of a client's tool on, the
   rest of an answer waits for its end, because server-side calls run first (R15.9). Then the client's calls are sent
   and the exchange ends.
4. A required tool choice applies until a tool on offer was called, which is nearly always in the first answer.
5. Calls beyond the client's limit (`max_tool_calls` of Responses) are not run; the model is told and may answer with
   what it has.
6. Calls of tool servers that the client names (`pipeline.served_tools`) are part of the answer, with their results,
   where the model made them. Text after such a call waits for the result. If a call needs an approval, the answer ends
   with the request for it; an approved call runs before the model is called.
7. At a limit of the route the answer ends as it is, with `stop`. The header `x-tool-loop: limit` is set if the headers
   have not been sent yet; the log always reports it. Approved calls beyond `max_calls` are not run.

This middleware must come after `conversation`, so that a conversation is loaded and stored once, and before all
middlewares that read an answer, so that they see each round. It is left out of the chain if there are no server-side
tools.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import ClassVar, Final, cast

from aiohttp import web

from toolwire.call_policy.candidate import are_gateways
from toolwire.errors import BackendFault, ClientFault, GatewayError, quote
from toolwire.events import Delta, Event, Fault, Finish, Open, Start
from toolwire.formats.engine.rendering import prompt_name, result_text
from toolwire.formats.engine.toolset import NAME_BYTES, ToolSet, note, note_of
from toolwire.model import Image, Message, ModelRequest, Text, ToolChoice, ToolResult, ToolSpec, ToolUse
from toolwire.pipeline.answers.reply import Reply
from toolwire.pipeline.answers.stages import Batches
from toolwire.pipeline.chain.middleware import ChainPlace, Handler, Middleware
from toolwire.pipeline.conversations.stored import CONVERSATIONS, STORE_FAILURES, Conversations
from toolwire.pipeline.exchange.request_state import EXCHANGE, Exchange
from toolwire.pipeline.exchange.tool_memory import ToolMemory, keep, keeps, note_rounds, restored
from toolwire.pipeline.exchange.tool_servers import Key, RequestToolServers, without_served
from toolwire.pipeline.transforms.model_turns import LoopState, ModelTurn, Shown
from toolwire.record import AccessField, CounterSpec, ObservedTool
from toolwire.servertools.folder import CallProgress
from toolwire.servertools.source import NO_TOOLS, CallState, Tools, not_permitted, unknown_tool
from toolwire.support.offload import weight
from toolwire.upstream.servers.fit_media import IMAGE_OMITTED

LOG: Final = logging.getLogger("toolwire.tools")

LOOP_HEADER: Final = "x-tool-loop"
NOT_RUN: Final = "Error: the limit on server-side tools is reached"
NOT_ALLOWED: Final = "Error: not run, no more calls of this tool are allowed for this answer. Go on without it."

Ask = Callable[[ModelRequest], Awaitable[web.StreamResponse]]


class Execution(Middleware):
    """Offers and runs server-side tools."""

    proxied_requests = "stands_aside"
    runs_server_tools = True
    access_fields: ClassVar[tuple[AccessField, ...]] = (
        AccessField(
            "executions",
            "Calls of server-side tools that were run.",
            CounterSpec(
                "toolwire_tool_executions_total",
                "States entered by executions of server-side tools",
                "state",
                tuple(state.value for state in CallState),
            ),
        ),
        AccessField("failed_executions", "Those of `executions` that failed."),
        AccessField("unlisted_servers", "Clients' MCP servers that did not list their tools."),
        AccessField(
            "tool_loop",
            "`limit`: a limit of `tool_loop` ended the answer; `max_tool_calls`: the client allowed no more calls.",
        ),
        STORE_FAILURES,
    )

    @classmethod
    def idle(cls, place: ChainPlace) -> bool:
        """Returns True without server-side tools. If it stayed in the chain, streams could not use the fast path."""
        return not place.config.tools.any

    @classmethod
    def needs(cls, place: ChainPlace) -> Mapping[str, str]:
        if cls.idle(place) or place.route.options.mode == "native":
            return {}
        return {
            "transformation": "which finds the calls to run",
            "injection": "which describes the offered tools in the prompt",
        }

    @classmethod
    def stands_behind(cls, place: ChainPlace) -> Mapping[str, str]:
        return {"conversation": "which must load and store a conversation once, not in each round"}

    async def __call__(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        exchange = request[EXCHANGE]
        source, servers = exchange.route.server_tools, exchange.route.client_servers
        if source is None and servers is None:
            return await handler(request)
        conversations = request.app[CONVERSATIONS]
        exchange.request = await restored(exchange, conversations, exchange.request)
        served = None if servers is None else await RequestToolServers.open(exchange, servers)
        if served is not None:
            exchange.request = served.without(exchange.request)
        tools = NO_TOOLS if source is None else source.tools
        asked = _with_tools(exchange, exchange.request, tools)
        if served is not None:
            asked = served.offer(asked)
        elif asked is exchange.request:
            return await handler(request)

        async def ask(changed: ModelRequest) -> web.StreamResponse:
            before, exchange.request = exchange.request, changed
            try:
                return await handler(request)
            finally:
                exchange.request = before

        loop = Loop(exchange, tools, served, conversations, asked, ask)
        reply = await loop.begin()
        if isinstance(reply, Reply):
            reply.rewrite(loop.run)
        return reply


def _with_tools(exchange: Exchange, request: ModelRequest, tools: Tools) -> ModelRequest:
    """Returns the request with the server-side tools added; the request itself if none of them may be called. Raises
    `ClientFault` `duplicate_tool_name`."""
    choice = request.tool_choice
    if not request.tools and choice.mode == "none" and exchange.body.get("tool_choice") is None:
        choice = ToolChoice("auto")  # the default without tools, but now there are tools
    permission = exchange.route.permission
    ours = permission.permitted(tools.specs)
    if not ours or choice.mode == "none" or request.sampling.n > 1:
        return request
    policy = exchange.route.options.tool_loop.tool_conflict
    merged: tuple[ToolSpec, ...] = ours
    if request.tools:
        key = (_with_tools, tools, permission, policy)
        noted: ToolSet | None = note_of(request.tools, key)
        if noted is None:
            noted = _merged(request, ours, policy)
            note(request.tools, key, noted, NAME_BYTES * len(noted))
        merged = noted
    changed = replace(request, tools=merged, tool_choice=choice)
    return changed if any(tool.server for tool in changed.callable_tools) else request


def _merged(request: ModelRequest, ours: Sequence[ToolSpec], policy: str) -> ToolSet:
    """Returns the client's tools and the gateway's, merged (R15.10). Raises `ClientFault` `duplicate_tool_name`."""
    mine = {
        tool.name: index for index, tool in enumerate(request.tools) if tool.kind != "hosted" and not tool.namespace
    }
    both = mine.keys() & {tool.name for tool in ours}
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
    gateways = (tool for tool in ours if policy == "server_wins" or tool.name not in both)
    return ToolSet((*clients, *gateways), of=request.tools)


def _not_run(calls: Iterable[ToolUse], why: str) -> list[ToolResult]:
    """Returns results for calls that are not run, with the reason `why`."""
    return [ToolResult(use.call_id, (Text(why),), use.name, is_error=True) for use in calls]


class Loop:
    """The loop of model answers and tool calls for one request, seen by the client as one answer. `ask` calls the
    model; the first reply, from `begin`, is the one that is sent."""

    def __init__(
        self,
        exchange: Exchange,
        tools: Tools,
        served: RequestToolServers | None,
        conversations: Conversations,
        asked: ModelRequest,
        ask: Ask,
    ) -> None:
        options = exchange.route.options
        self._exchange = exchange
        self._tools = tools
        self._served = served
        self._opening: list[Event] = [] if served is None else served.opening
        self._conversations = conversations
        self._asked = asked
        self._initial = len(asked.messages)
        self._first: Reply
        self._ask = ask
        self._limits = options.tool_loop
        self._show = exchange.protocol.show_result if options.tool_loop.expose_server_tools else None
        self._exposes = self._show is not None
        self._keeps = not self._exposes and keeps(exchange, conversations)
        self._names = frozenset((tool.namespace, tool.name) for tool in asked.tools if tool.server)
        self._all_ours = are_gateways(asked.tools)
        self._until = time.monotonic() + self._limits.max_seconds
        self._rounds = 0
        self._made = 0
        self._allowed = exchange.protocol.most_server_calls(exchange.received)
        self._state = LoopState()
        self._progresses: Sequence[CallProgress] = ()

    async def begin(self) -> web.StreamResponse:
        """Runs the calls that the client has approved, then returns the first answer."""
        await self._run_approved()
        try:
            response = await self._ask(self._asked)
        except GatewayError as error:
            self._discourage_retry(error)
            raise
        if isinstance(response, Reply):
            self._first = response
        return response

    async def _run_approved(self) -> None:
        served = self._served
        if served is None or not served.approved or self._exchange.only_counted:
            return
        uses, most = [one.use for one in served.approved], self._limits.max_calls
        results = [*await self._results(uses[:most], served.keys), *_not_run(uses[most:], NOT_RUN)]
        self._enter(CallState.IDLE)
        ran = zip(uses, results, served.approved, strict=True)
        self._opening += [served.ran(use, result, one.request_id) for use, result, one in ran]
        before = self._asked.messages
        previous = before[-1].parts if before and before[-1].role == "assistant" else ()
        answers = (Message("tool", (result,)) for result in results)
        messages = (*before[: -1 if previous else None], Message("assistant", (*previous, *uses)), *answers)
        grown = self._asked.grown + weight((uses, results))
        self._asked, self._initial = replace(self._asked, messages=messages, grown=grown), len(messages)

    async def run(self, batches: Batches) -> AsyncGenerator[list[Event], None]:
        """Yields the events of all rounds as those of one answer."""
        reply = self._first
        while True:
            self._rounds += 1
            answer = ModelTurn(
                self._state, self._is_ours, exposes=self._exposes, shows=self._is_served, marks=self._keeps
            )
            async with aclosing(cast("AsyncGenerator[list[Event], None]", batches)):
                async for batch in batches:
                    if out := answer.feed(batch):
                        if isinstance(out[-1], Fault):
                            self._discourage_retry(out[-1].error)
                        yield self._opened(out)
                    if answer.over:
                        break
            if answer.finish is None:
                return  # the answer has ended with a fault
            calls = [use for use in answer.calls if not self._must_ask(use)]
            limited = bool(calls) and self._at_limit(len(calls))
            results: list[ToolResult] = []
            if calls and not limited:
                if begun := self._begun(answer, calls[0]):
                    yield begun
                results = await self._results(calls, self._callable)
            # Every call that is shown gets a result.
            shown_results = results or _not_run(calls, NOT_RUN)
            held = self._released(answer, calls, shown_results)
            own = next((place for place, event in enumerate(held) if answer.is_clients(event)), len(held))
            if out := [*held[:own], *self._results_shown(calls, shown_results)]:
                yield out
            asks = len(calls) < len(answer.calls) or answer.asks_client
            if limited or not answer.calls or asks:
                await self._store_rounds(answer, calls, results)
                self._enter(CallState.IDLE)
                yield [*held[own:], self._end(answer.finish, limited)]
                return
            self._go_on(answer, results)
            if time.monotonic() >= self._until or self._asked.size > self._exchange.route.limits.body_bytes:
                await self._store_rounds(answer, (), ())
                self._enter(CallState.IDLE)
                yield [self._end(answer.finish, True)]
                return
            await reply.source.close()  # drops the unread rest if the answer ended early
            self._enter(CallState.AWAITING_LLM_RESPONSE)
            try:
                reply = await self._next()
            except GatewayError as error:
                yield [Fault(self._discourage_retry(error))]
                return
            finally:
                self._enter(CallState.IDLE)
            batches = reply.events()

    def _is_ours(self, opened: Open) -> bool:
        """Returns True if the call belongs to the gateway (rule 2)."""
        own = (opened.namespace, opened.name) in self._names
        return opened.call_kind == "function" and (self._all_ours or own)

    # --- calls of servers that the client names -----------------------------------------------------------------------

    def _discourage_retry(self, error: GatewayError) -> GatewayError:
        """Marks an error as not worth a retry if tools of the client's servers were called, because they may have
        changed something; returns it."""
        if self._served is not None and self._made:
            error.headers["x-should-retry"] = "false"
        return error

    def _is_served(self, opened: Open) -> bool:
        return self._served is not None and self._served.has(opened.namespace, opened.name)

    def _is_theirs(self, use: ToolUse) -> bool:
        return self._served is not None and self._served.has(use.namespace, use.name)

    def _must_ask(self, use: ToolUse) -> bool:
        return self._served is not None and self._served.must_ask(use)

    def _results_shown(self, calls: Sequence[ToolUse], results: Sequence[ToolResult]) -> list[Event]:
        """Returns the events that show the results of server-side calls; empty unless they are exposed."""
        if self._show is None:
            return []
        pairs = zip(calls, results, strict=True)
        return [self._show(use, result_text(result)) for use, result in pairs if not self._is_theirs(use)]

    def _opened(self, out: list[Event]) -> list[Event]:
        """Returns the events with the opening ones inserted after the start of the answer."""
        if not self._opening or not isinstance(out[0], Start):
            return out
        opening, self._opening = self._opening, []
        return [out[0], *opening, *out[1:]]

    def _begun(self, answer: ModelTurn, first: ToolUse) -> list[Event]:
        """Returns the event that shows the start of the `first` call, if that is the next event to show; else
        nothing."""
        if self._served is None or self._exposes or not answer.held or not isinstance(answer.held[0], Shown):
            return []
        return [self._served.began(first)] if answer.shown_calls[0] is first else []

    def _released(self, answer: ModelTurn, calls: Sequence[ToolUse], results: Sequence[ToolResult]) -> list[Event]:
        """Returns the held-back events, with shown calls at their places."""
        shown = iter(answer.shown_calls)
        out: list[Event] = []
        for held in answer.held:
            if not isinstance(held, Shown):
                out.append(held)
                self._state.has_text = self._state.has_text or isinstance(held, Delta)
                continue
            assert self._served is not None
            use = next(shown)
            at = next((number for number, one in enumerate(calls) if one is use), None)
            out.append(self._served.asks(use) if at is None else self._served.ran(use, results[at]))
            self._state.has_text = False  # a shown call separates texts
        return out

    def _at_limit(self, calls: int) -> bool:
        limits = self._limits
        if self._allowed is not None:
            calls = min(calls, max(0, self._allowed - self._made))
        beyond = self._made + calls > limits.max_calls or self._rounds >= limits.max_iterations
        return beyond or time.monotonic() >= self._until

    def _end(self, finish: Finish, limited: bool) -> Finish:
        """Returns the end of the whole answer."""
        if not limited:
            return Finish(finish.reason, self._state.usage, extra=finish.extra, choices=finish.choices)
        self._exchange.record.note("tool_loop", "limit")
        LOG.warning("request %s: a limit of `tool_loop` ended the answer", self._exchange.id)
        if not self._first.prepared:
            self._first.headers[LOOP_HEADER] = "limit"
        return Finish("stop", self._state.usage, extra=finish.extra)

    # --- the next round ---------------------------------------------------------------------------------------------

    def _go_on(self, answer: ModelTurn, results: Sequence[ToolResult]) -> None:
        """Adds the model's answer and the results to the next request. If a required call was made, the choice becomes
        `auto` (rule 4)."""
        choice = self._asked.tool_choice
        if choice.forces and any((use.namespace, use.name) in self._callable for use in answer.calls):
            choice = replace(choice, mode="auto", name=None)
        more = (Message("assistant", answer.parts()), *(Message("tool", (result,)) for result in results))
        self._asked = replace(
            self._asked,
            messages=(*self._asked.messages, *more),
            tool_choice=choice,
            grown=self._asked.grown + weight(more),
        )

    async def _next(self) -> Reply:
        """Returns the model's next answer. Raises `GatewayError`."""
        if self._first.closed:
            raise BackendFault("The answer was cancelled.", code="upstream_disconnected")
        response = await self._ask(self._asked)
        if not isinstance(response, Reply):
            raise TypeError(f"a middleware answered a later round with a {type(response).__name__}")
        self._first.goes_on(response)
        return response

    async def _store_rounds(self, answer: ModelTurn, calls: Sequence[ToolUse], results: Sequence[ToolResult]) -> None:
        """Stores the rounds that the client does not see, for requests that continue this answer."""
        before: Sequence[Message] = self._asked.messages[self._initial :]
        if self._served is not None:
            before = without_served(before, self._served.keys)
            calls = [use for use in calls if not self._is_theirs(use)]
            results = [result for result in results if any(result.call_id == use.call_id for use in calls)]
        rounds = ToolMemory(before, calls if results else (), results)
        if self._exposes or not (rounds.before or results):
            return
        if self._keeps and answer.asks_client:
            await keep(self._exchange, self._conversations, answer.mark(), rounds)
        else:
            note_rounds(self._exchange, rounds)

    # --- calls ------------------------------------------------------------------------------------------------------

    @property
    def _callable(self) -> frozenset[Key]:
        """The keys of server-side tools that may be called in this round."""
        return frozenset([(tool.namespace, tool.name) for tool in self._asked.callable_tools if tool.server])

    async def _results(self, calls: Sequence[ToolUse], on_offer: frozenset[Key]) -> list[ToolResult]:
        """Runs the calls of one answer that are on offer, within rule 5. Returns a result for every call."""
        left = len(calls) if self._allowed is None else max(0, self._allowed - self._made)
        results = await self._execute(calls[:left], on_offer) if left else []
        if len(calls) > left:
            self._exchange.record.note("tool_loop", "max_tool_calls")
        return [*results, *_not_run(calls[left:], NOT_ALLOWED)]

    async def _execute(self, calls: Sequence[ToolUse], on_offer: frozenset[Key]) -> list[ToolResult]:
        """Runs the calls of one answer concurrently. Returns the results in the order of the calls (R5.8)."""
        record = self._exchange.record
        self._made += len(calls)
        record.count("executions", len(calls))
        self._progresses = [
            CallProgress(use, self._exchange.id, lambda state: record.label("executions", state)) for use in calls
        ]
        offered = [(use.namespace, use.name) in on_offer for use in calls]
        return await asyncio.gather(*map(self._run, calls, self._progresses, offered))

    async def _run(self, use: ToolUse, progress: CallProgress, on_offer: bool) -> ToolResult:
        with ObservedTool(self._exchange.record, prompt_name(use), use.call_id, use.arguments) as observed:
            if self._exchange.route.permission.denies(use):
                result = not_permitted(progress.enter)
            elif on_offer:
                left = max(0.0, self._until - time.monotonic())
                run = self._served.run if self._served is not None and self._is_theirs(use) else self._tools.run
                result = await run(use, left, progress.enter)
            else:
                result = unknown_tool(use.name, progress.enter)
            observed.ended(progress.state.value, result.text)
        if result.failed:
            self._exchange.record.count("failed_executions")
        return ToolResult(use.call_id, self._taken(result.content), use.name, is_error=result.failed)

    def _taken(self, parts: Sequence[Text | Image]) -> tuple[Text | Image, ...]:
        """Returns the parts of a result, with images replaced by notes unless every server of the route accepts images:
        a client that never saw the tool could not understand a refusal."""
        if self._exchange.route.pool.capabilities.images:
            return tuple(parts)
        return tuple(Text(IMAGE_OMITTED) if isinstance(part, Image) else part for part in parts)

    def _enter(self, state: CallState) -> None:
        """Changes the state of all calls of the last answer."""
        for progress in self._progresses:
            progress.enter(state)
        if state is CallState.IDLE:
            self._progresses = ()
