"""Sends the request to a model server: the innermost middleware.

It sends the client's own bytes if no middleware changed the request and the backend speaks the client's protocol
(R1.6), or the client's body as changed by the protocol (`ServerSide.own_body`); else the current request, adapted to
the backend. `toolwire.upstream.pool` chooses the backend and the fallbacks (R10.5, R10.6). If the backend may report no
token counts, an estimate is declared (R11.3).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from functools import partial
from typing import ClassVar

import orjson

from toolwire.errors import ClientFault, quote
from toolwire.events import Delta, Event, Finish, Open
from toolwire.known.kinds import kinds_of
from toolwire.known.past import NUMBERED, SEALED, fold_items, make_once
from toolwire.model import Message, ModelRequest, Reasoning, Text, ToolSpec, ToolUse, Usage, replace
from toolwire.pipeline.answers.renaming import Renaming
from toolwire.pipeline.answers.reply import Counting, Reply
from toolwire.pipeline.answers.stages import Watcher
from toolwire.pipeline.chain.middleware import Middleware
from toolwire.pipeline.exchange.request_state import Exchange
from toolwire.pipeline.exchange.route_seals import DROPPED, server_name
from toolwire.pipeline.exchange.routing import Route
from toolwire.pipeline.transforms.sealing import Marking
from toolwire.pipeline.transforms.stopping import StopStage
from toolwire.prompting.prompt import with_form
from toolwire.protocols.shared.call_ids import as_written
from toolwire.protocols.shared.client_tools import is_client_tool
from toolwire.protocols.shared.noise import KINDS, LEFT_OUT, NAMELESS, UNKNOWN_END
from toolwire.protocols.shared.opaque_reasoning import for_server
from toolwire.protocols.shared.wire import dump_in_pieces
from toolwire.record import AccessField, CounterSpec
from toolwire.support.offload import is_large
from toolwire.tolerances import REFUSED
from toolwire.upstream.pool.attempts import Attempts, RetryWithLess
from toolwire.upstream.pool.concession_retries import CombinedRetries, ConcessionRetries
from toolwire.upstream.pool.constraint_retries import ConstraintRetries
from toolwire.upstream.pool.server_pool import WeightedServer
from toolwire.upstream.pool.wire_attempts import WireAttempts
from toolwire.upstream.servers.adapt import (
    adapt,
    has_client_tool,
    needs_changes,
    needs_instructions,
    requestable,
    takes_usual_reasoning,
    with_limit_field,
)
from toolwire.upstream.servers.base import TokenCounter
from toolwire.upstream.servers.concessions import FIELDS, NONE, Concessions, reduced_capabilities
from toolwire.upstream.servers.fit_media import fit_images
from toolwire.upstream.servers.tokenizing import BY_SERVER
from toolwire.upstream.servers.usage import Estimator


class Forwarding(Middleware):
    """Calls a server of the route. Must be the last middleware of the chain: those further in are never run."""

    proxied_requests = "stands_aside"
    gives_answer = True
    access_fields: ClassVar[tuple[AccessField, ...]] = (
        AccessField("attempts", "Number of backend requests, if more than one."),
        AccessField(
            "retries",
            "Those of `attempts` that followed a failure.",
            CounterSpec("toolwire_retries_total", "Retries, by the error of the attempt before", "code"),
        ),
        AccessField("retry_wait_ms", "Time spent waiting between attempts."),
        AccessField(
            DROPPED,
            "Items of sealed reasoning that were dropped: too large, or not sealed for this key and route.",
            CounterSpec("toolwire_reasoning_dropped_total", "Items of opaque reasoning that were dropped"),
        ),
        AccessField(
            LEFT_OUT,
            "Frames and items that were neither answer nor error, and were dropped.",
            CounterSpec(
                "toolwire_left_out_total",
                "Frames and items of servers that were neither answer nor error, and were dropped",
                "kind",
                KINDS,
            ),
        ),
        AccessField(
            UNKNOWN_END,
            "Answers with an unknown finish reason.",
            CounterSpec("toolwire_unknown_ends_total", "Answers with an unknown finish reason"),
        ),
        AccessField(
            NAMELESS,
            "A server's calls without a name, which were dropped.",
            CounterSpec("toolwire_nameless_calls_total", "Calls from servers without a name, which were dropped"),
        ),
        AccessField(
            "unconstrained",
            "Attempts without constrained decoding, which the backend refused.",
            CounterSpec(
                "toolwire_unconstrained_total",
                "Attempts without constrained decoding, because the server refused it",
                "backend",
            ),
        ),
    )

    def __init__(self, options: object = None, *, name: str | None = None) -> None:
        super().__init__(options, name=name)
        self._estimators: dict[str, Estimator] = {}

    async def on_request(self, exchange: Exchange, asked: ModelRequest) -> Reply:
        """Sends the request to a server of the route and returns the model's answer. Raises `GatewayError`."""
        if not exchange.protocol.whole_history:
            _refuse_lost_turns(exchange)
        route, record = exchange.route, exchange.record
        usage, wire = route.options.usage, route.pool.protocol
        requests = _ServerRequests(exchange, asked)
        exchange.constrained = asked.constraint is not None
        source = (Attempts if wire is None else WireAttempts)(
            route.pool,
            route.options.retry,
            requests.prepare,
            record=record,
            request_id=exchange.id,
            large=is_large(asked, reused=True),
            key=_sticky_key(exchange) if route.config.balance == "sticky" else b"",
            relaxation=requests.retries,
        )
        await source.open()
        requests.conceding.keeps_shape = True  # what the answer needs is chosen now
        sent, own, same = requests.sent, requests.own, requests.same
        reply = Reply(source, streamed=asked.stream)
        formed = sent.response_format is asked.response_format or asked.response_format is None
        lost = requests.lost() if route.pool.sole is None else frozenset()  # the answer may be another server's
        if reply.wire is not None and not (formed and sent.stream is asked.stream and lost <= {"stop"}):
            reply.wire.converts = True  # also for a form that the server did not get: `output_format` checks the answer
        asked_stops = asked.sampling.stop
        refused = not sent.sampling.stop or "stop" in lost
        if asked_stops and refused and (stops := tuple(filter(None, asked_stops))):
            reply.map(StopStage(stops, sent.size, choices=asked.sampling.n))
        sealed = route.sealed
        if wire is not None and wire.opaque_fields and (not same or (sealed is not None and sealed.several)):
            reply.map(
                Marking(wire, lambda: name_of(_answering(route, source)), moves=not exchange.protocol.opaque_on_calls)
            )
        if sent.model != exchange.received.model and reply.protocol is not None:
            reply.renaming = Renaming(exchange.received.model, reply.protocol.model_in)
        if record.observers and (asked.tools or not own):  # an answer without calls may be forwarded unread
            reply.watch(source.observe)
        # Events that R7.7 excludes are removed from streams with tools, and from streams requested in the gateway's own
        # form.
        unasked = sent.stream and exchange.protocol.counts_on_demand and not (own and not asked.tools)
        if usage.source == "backend":
            reply.count(lambda: (_mark_unknown, None), keeps_bytes=same, changes=unasked)
        else:
            reply.count(
                lambda: self._counter(route, source, requests.sent),
                keeps_bytes=own,
                changes=unasked or not own,
                always=usage.source == "estimate",
            )
        return reply

    def _counter(self, route: Route, source: Attempts, sent: ModelRequest) -> Counting:
        usage = route.options.usage
        server = _counting(route, source) if usage.count == "backend_tokenize" else None
        estimator = self._estimators.get(usage.encoding)
        if estimator is None:
            estimator = self._estimators[usage.encoding] = Estimator(usage.encoding)
        counting = TokenCounting(estimator, sent, always=usage.source == "estimate", server=server)
        return counting.fill, counting


class _ServerRequests:
    """The request `asked` of an exchange, as each server of its route gets it."""

    def __init__(self, exchange: Exchange, asked: ModelRequest) -> None:
        route = exchange.route
        past, origin, wire = asked.past, asked.origin, route.pool.protocol
        self._exchange = exchange
        self._asked = asked
        self._wire = wire
        self._kinds = kinds_of(asked.messages, past)
        self._reasons = Reasoning in self._kinds
        self.sent = asked
        """The request that a server was sent last."""
        self.same = wire is not None and wire.name == exchange.protocol.name
        """True if the servers have the client's protocol."""
        self.own = False
        """True if the client's own body can be sent. It is complete then; at most the model name differs."""
        unchanged = self.same and asked is exchange.received and route.options.usage.source != "estimate"
        if unchanged and origin is not None and origin.body:
            signs = origin.body if past is None else past.signs
            self.own = not (  # data of the gateway is not for servers
                SEALED in signs
                or (self._reasons and _any_message(asked, _has_only_reasoning))
                or (NUMBERED in signs and _any_message(asked, _has_numbered_id))
            )
        self.conceding = ConcessionRetries(exchange.owner)
        self._relaxation: ConstraintRetries | None = None
        if asked.constraint is not None:
            self._relaxation = ConstraintRetries(asked.constraint, exchange.owner, exchange.record, exchange.id)
        self.retries: RetryWithLess = (
            self.conceding if self._relaxation is None else CombinedRetries(self.conceding, self._relaxation)
        )
        """Retries at the same server without a part of the request that it refused."""

    def prepare(self, member: WeightedServer) -> tuple[ModelRequest, bytes | None]:
        """Returns the request for a server, and its body if that is the client's own."""
        asked, wire = self._asked, self._wire
        sent = self._named(member)
        endpoint = member.endpoint
        takes = endpoint.backend.capabilities
        conceding = self.conceding
        given_up = conceding.of(member, sent) if conceding.given_up or endpoint.lessons else NONE
        context = None if sent.sampling.max_tokens is None else _context_size(member, sent.model)
        own = self.own and (not self._reasons or takes_usual_reasoning(takes, wire))
        own = own and (not asked.tools or _knows_tools(asked, member))
        body: bytes | None = None
        if own and wire is not None and given_up is NONE and not needs_changes(sent, takes, wire, context, self._kinds):
            if sent is asked and member.relays_bodies and asked.origin is not None:
                body = asked.origin.body
            else:
                body = _own_bytes(self._exchange, sent, member)
        else:
            sent = self._fitted(sent, member, given_up, context, own=own)
        self.sent = conceding.sent[member] = sent
        return sent, body

    def lost(self) -> frozenset[str]:
        """Returns the names of `FIELDS` that the request has, that shape its answer, and that a server of the route is
        not sent."""
        refusing = (member for member in self._exchange.route.pool.every if member.endpoint.lessons)
        names = (name for member in refusing for name in self.conceding.of(member, self._named(member)).without)
        return frozenset(name for name in names if FIELDS[name].shapes and FIELDS[name].is_sent(self._asked))

    def _named(self, member: WeightedServer) -> ModelRequest:
        """Returns the request with the server's name for the model."""
        name = member.name_of(self._asked.model, self._exchange.route.config.upstream_model)
        return self._asked if name == self._asked.model else replace(self._asked, model=name)

    def _fitted(
        self, sent: ModelRequest, member: WeightedServer, given_up: Concessions, context: int | None, *, own: bool
    ) -> ModelRequest:
        """Returns the request changed to what the server accepts. Raises `ClientFault` for images that are refused."""
        exchange, backend = self._exchange, member.endpoint.backend
        if self._relaxation is not None and not self._relaxation.applies(member, sent.model):
            sent = replace(sent, constraint=None)
        options = exchange.route.options
        if given_up is not NONE and needs_instructions(
            sent.response_format, reduced_capabilities(backend.capabilities, given_up)
        ):
            _report(exchange, REFUSED, "the model server takes no such response_format; the prompt describes it")
            sent = with_form(sent, exchange.route.format_for(sent.model), options.prompt.placement)
        if Message in self._kinds and _any_message(sent, _has_part_fields):
            messages = for_server(sent.messages, name_of(member), sent.past)
            sent = sent if messages is sent.messages else replace(sent, messages=messages)
        takes = requestable(exchange.received, backend.capabilities, backend.protocol)
        wire, client, tell = backend.protocol, exchange.protocol, partial(_report, exchange)
        try:
            return adapt(
                sent,
                takes,
                # If the client's own body would have been sent, all its valid parts are sent.
                forward_unknown="all" if own else options.requests.forward_unknown,
                wire=wire,
                late_system=client.system_anywhere or (wire is not None and wire.name == client.name),
                own=own,
                given_up=given_up,
                context=context,
                kinds=self._kinds,
                tell=tell,
            )
        except ClientFault:
            fit_images(exchange.received.messages, takes, tell)  # raises the fault with the client's own index
            raise


def _report(exchange: Exchange, name: str, detail: str) -> None:
    exchange.record.tolerate(name, detail, exchange.id)


def _context_size(member: WeightedServer, model: str) -> int | None:
    """Returns the context size that the server reported for the model; None if unknown."""
    identity = member.endpoint.identity
    served = None if identity is None else identity.find(model)
    return None if served is None else served.context


def _knows_tools(request: ModelRequest, member: WeightedServer) -> bool:
    """Returns True if a server may get the tools as the client wrote them: its configuration accepts their types, and
    it has the tools that are sent by type only."""
    types = member.endpoint.config.tool_types
    takes, wire = member.endpoint.backend.capabilities, member.endpoint.backend.protocol

    def known(tool: ToolSpec) -> bool:
        if types is not None and tool.received.get("type", tool.kind) not in types:
            return False
        return not is_client_tool(tool) or has_client_tool(tool, takes, wire)

    return make_once(
        request.past, ("known tools", types, takes, wire), request.tools, lambda: all(map(known, request.tools))
    )


def _own_bytes(exchange: Exchange, sent: ModelRequest, member: WeightedServer) -> bytes:
    wire = member.endpoint.backend.protocol
    assert wire is not None  # the body is the client's own
    body = wire.own_body(with_limit_field(exchange.body, member.endpoint.config, wire))
    if sent is not exchange.received:
        body = {**body, "model": sent.model}
    if body is not exchange.body:
        return dump_in_pieces(body) if is_large(sent) else orjson.dumps(body)
    assert exchange.received.origin is not None
    return exchange.received.origin.body


def _sticky_key(exchange: Exchange) -> bytes:
    """Returns the key that keeps requests on one server: a header, or the start of the conversation, which later turns
    share."""
    by = exchange.route.config.sticky_by
    if by != "prompt":
        return exchange.headers.get(by, "").encode(errors="backslashreplace")
    words: list[str] = []
    for message in exchange.request.messages:
        words += [message.role, *(part.text for part in message.parts if isinstance(part, Text))]
        if message.role == "user":
            break
    return "\0".join(words).encode(errors="backslashreplace")


def _has_numbered_id(message: Message) -> bool:
    """Returns True if the id of a call has to be sent to the server in the server's own form (R28.6)."""
    return any(isinstance(part, ToolUse) and as_written(part.call_id) != part.call_id for part in message.parts)


def _has_part_fields(message: Message) -> bool:
    """Returns True if a call or reasoning has unmodelled fields, which may be private data of a server."""
    return any(part.extra for part in message.parts if isinstance(part, Reasoning | ToolUse))


def _has_only_reasoning(message: Message) -> bool:
    """Returns True for an assistant message with nothing but reasoning."""
    return message.role == "assistant" and all(isinstance(part, Reasoning) for part in message.parts)


def _any_message(request: ModelRequest, test: Callable[[Message], bool]) -> bool:
    """Returns True if a message passes the test. The result is noted with the conversation, under the test."""

    def step(before: bool, messages: Sequence[Message], start: int, made: list[None]) -> bool:
        return before or any(map(test, messages))

    return fold_items(request.past, test, request.messages, False, step)[1]


def name_of(member: WeightedServer | None) -> str:
    """Returns the name of a server as it is used in data that clients send back."""
    return "" if member is None else server_name(member.name, member.endpoint.config)


def _answering(route: Route, source: Attempts) -> WeightedServer | None:
    """Returns the server that answers; None if there is none yet."""
    name = "" if source.asked is None else source.asked[0]
    return next((member for member in route.pool.every if member.name == name), None)


def _refuse_lost_turns(exchange: Exchange) -> None:
    """Raises `ClientFault` for requests that need a stored conversation if the chain has no `conversation`: the answer
    would ignore the earlier turns (R12.2)."""
    previous = exchange.body.get("previous_response_id")
    if previous is not None and exchange.conversation is None:
        raise ClientFault(
            f"Previous response with id {quote(previous)} not found: this route stores no conversations.",
            code="previous_response_not_found",
            param="previous_response_id",
        )
    if exchange.background is not None and exchange.background.turn is None:
        raise ClientFault(
            "Invalid 'background': this route stores no responses.",
            code="unsupported_parameter",
            param="background",
            hint="Leave it out, or put `conversation` into the route's chain.",
        )
    form = exchange.protocol.turns
    if form is not None and form.conversations and exchange.conversation is None and exchange.body.get("conversation"):
        raise ClientFault(
            "The conversation cannot be continued: this route stores no conversations.",
            code="unsupported_parameter",
            param="conversation",
            hint="Send all of it as 'input', or put `conversation` into the route's chain.",
        )


def _counting(route: Route, source: Attempts) -> TokenCounter | None:
    """Returns the server that answers if it can count tokens, else None."""
    member = _answering(route, source)
    if member is not None and isinstance(member.endpoint.backend, TokenCounter):
        return member.endpoint.backend
    return None


async def _mark_unknown(last: Event) -> Event:
    """Returns the event; a `Finish` without all counts is marked as unknown."""
    if not isinstance(last, Finish) or (last.usage is not None and last.usage.missing is None):
        return last
    return dataclasses.replace(last, usage=Usage(missing="both"))


class TokenCounting(Watcher):
    """Fills in the token counts of one answer, from the text really sent and the text really generated, which it sees
    as a stage. The `server` counts if it can."""

    def __init__(self, estimator: Estimator, sent: ModelRequest, *, always: bool, server: TokenCounter | None) -> None:
        self._estimator = estimator
        self._server = server
        self._sent = sent
        self._always = always
        self._written: list[str] = []

    def feed(self, events: list[Event]) -> list[Event]:
        """Records the generated text."""
        for event in events:
            if isinstance(event, Delta):
                self._written.append(event.text)
            elif isinstance(event, Open) and event.name is not None:
                self._written.append(event.name)
        return events

    async def fill(self, last: Event) -> Event:
        """Returns the event; a `Finish` without usage gets an estimate, and one with half of the counts the
        other half."""
        if not isinstance(last, Finish):
            return last
        known = None if self._always else last.usage
        if known is not None and known.missing is None:
            return last
        read = None if known is None or known.missing == "input" else known.input_tokens
        written = None if known is None or known.missing == "output" else known.output_tokens
        text, server = "".join(self._written), self._server
        if server is not None:
            if read is None:
                read = await server.count(self._sent)
            if written is None and text:
                written = await server.count_text(self._sent.model, text)
        by_server = read is not None and written is not None
        if read is None:
            read = await self._estimator.count_request(self._sent)
        if written is None:
            written = await self._estimator.count(text)
        usage = replace(
            known or Usage(),
            input_tokens=read,
            output_tokens=written,
            estimated=True,
            tokenizer=BY_SERVER if by_server else self._estimator.tokenizer,
            missing=None,
        )
        return dataclasses.replace(last, usage=usage)
