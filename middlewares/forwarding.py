"""To the backend: the innermost middleware.

Sends the client's own bytes when nobody changed the request and the backend speaks the client's protocol (R1.6), or its
body if that protocol has something to say to it (`ServerSide.own_body`), else the current request, made fit for the
backend. Which backend that is, and which is asked when it fails, is decided by
`toolwire.upstream.pool.attempts` and `toolwire.upstream.pool.pool` (R10.5, R10.6). Declares an estimate of the token
counts where the backend may give none (R11.3).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from functools import partial
from typing import ClassVar

import orjson

from toolwire.errors import ClientFault, quote
from toolwire.events import Delta, Event, Finish, Open, changed
from toolwire.known.kinds import kinds_of, plain_in
from toolwire.known.past import fold
from toolwire.model import Message, ModelRequest, PlainMessages, Reasoning, Text, ToolUse, Usage, replace
from toolwire.pipeline.chain.middleware import Middleware
from toolwire.pipeline.chain.reply import Counting, Reply
from toolwire.pipeline.exchange.exchange import Exchange
from toolwire.pipeline.exchange.routing import Route
from toolwire.pipeline.paths.renaming import Renaming
from toolwire.pipeline.transforms.sealing import ALMOST, DROPPED, Marking, server_name
from toolwire.protocols.shared.client_tools import is_client_tool
from toolwire.protocols.shared.noise import KINDS, LEFT_OUT, NAMELESS, UNKNOWN_END
from toolwire.protocols.shared.opaque import for_server
from toolwire.protocols.shared.wire import dump_in_pieces
from toolwire.record import AccessField, CounterSpec
from toolwire.support.offload import is_large, is_slow
from toolwire.support.repeated_ids import as_written
from toolwire.upstream.pool.attempts import Attempts
from toolwire.upstream.pool.choices import ChoiceInWords
from toolwire.upstream.pool.conceding import AllOf, Conceding
from toolwire.upstream.pool.enforcing import Relaxation
from toolwire.upstream.pool.pool import WeightedEndpoint
from toolwire.upstream.pool.wire_attempts import WireAttempts
from toolwire.upstream.servers.adapt import (
    adapt,
    has_client_tool,
    is_strained,
    limited,
    may_be_asked,
    takes_usual_reasoning,
)
from toolwire.upstream.servers.base import TokenCounter
from toolwire.upstream.servers.concessions import NONE, Concessions
from toolwire.upstream.servers.fit_media import fit_images
from toolwire.upstream.servers.tokenizing import BY_SERVER
from toolwire.upstream.servers.usage import Estimator


class Forwarding(Middleware):
    """Asks a server of the route. Must be the last of the chain: nothing further in is asked."""

    passing = "stands_aside"
    gives_answer = True
    access_fields: ClassVar[tuple[AccessField, ...]] = (
        AccessField("attempts", "How many times a backend was asked, if more than once."),
        AccessField(
            "retries",
            "Of those, how many followed a failure.",
            CounterSpec("toolwire_retries_total", "Further tries, by what the one before failed with", "code"),
        ),
        AccessField("retry_wait_ms", "Time spent waiting between them."),
        AccessField(
            DROPPED,
            "Opaque reasoning that was left out: not made here for this key and route, or too large.",
            CounterSpec("toolwire_reasoning_dropped_total", "Opaque reasoning that was left out"),
        ),
        AccessField(
            LEFT_OUT,
            "Frames and items of a server that were neither answer nor error, and were left out.",
            CounterSpec(
                "toolwire_left_out_total",
                "What servers sent that was neither answer nor error, and was left out",
                "kind",
                KINDS,
            ),
        ),
        AccessField(
            UNKNOWN_END,
            "Answers that ended with a word that is not known.",
            CounterSpec("toolwire_unknown_ends_total", "Answers that ended with a word that is not known"),
        ),
        AccessField(
            NAMELESS,
            "Calls to which a server gave no name, and which were left out.",
            CounterSpec(
                "toolwire_nameless_calls_total", "Calls to which servers gave no name, and which were left out"
            ),
        ),
        AccessField(
            "unconstrained",
            "Tries without the constraint on calls, which the backend refuses.",
            CounterSpec(
                "toolwire_unconstrained_total",
                "Tries without the constraint on calls, which the server refuses",
                "backend",
            ),
        ),
    )

    def __init__(self, options: object = None, *, name: str | None = None) -> None:
        super().__init__(options, name=name)
        self._estimators: dict[str, Estimator] = {}

    async def on_request(self, exchange: Exchange, asked: ModelRequest) -> Reply:
        """See `Middleware.on_request`. Gives the answer."""
        if not exchange.protocol.whole_history:
            _refuse_lost_turns(exchange)
        route, record = exchange.route, exchange.record
        usage, wire = route.options.usage, route.pool.protocol
        same = wire is not None and wire.name == exchange.protocol.name
        past = asked.past
        plain = type(asked.messages) is PlainMessages or plain_in(asked.messages, past)
        reasons = not plain and Reasoning in kinds_of(asked.messages, past)
        # The client's body says all there is to say, at most with another model name.
        origin = asked.origin
        own = same and asked is exchange.received and bool(origin and origin.body) and usage.source != "estimate"
        if own and origin is not None and ALMOST in origin.body:  # nothing of the gateway is for a server
            own = False
        own = own and not any(map(_is_only_reasoning, asked.messages if reasons else ()))
        if own and origin is not None and b"--" in origin.body:  # rarely, and rarer still behind an id
            own = not _has_numbered_ids(asked)
        sent = asked

        def prepare(member: WeightedEndpoint) -> tuple[ModelRequest, bytes | None]:
            nonlocal sent
            name = member.name_of(asked.model, route.config.upstream_model)
            sent = asked if name == asked.model else replace(asked, model=name)
            in_words = words is not None and words.applies(member, sent.model)
            endpoint = member.endpoint
            takes = endpoint.backend.capabilities
            given_up = conceding.of(member, sent) if conceding.given_up or endpoint.lessons else NONE
            context = None if sent.sampling.max_tokens is None else _context(member, sent.model)
            fits = not reasons or takes_usual_reasoning(takes, wire)
            takes_own = own and fits and not in_words and (not asked.tools or _knows_tools(asked, member))
            strained = given_up is not NONE
            if takes_own and wire is not None and not strained:
                strained = is_strained(sent, takes, wire, context, plain=plain)
            if takes_own and not strained:
                conceding.sent[member] = sent
                if sent is asked and member.passes_bodies and asked.origin is not None:
                    return sent, asked.origin.body
                return sent, _own_bytes(exchange, sent, member)
            if relaxation is not None and not relaxation.applies(member, sent.model):
                sent = replace(sent, constraint=None)
            if not plain and _says_more(sent):
                messages = for_server(sent.messages, name_of(member))
                sent = sent if messages is sent.messages else replace(sent, messages=messages)
            sent = self._adapted(exchange, sent, member, given_up, context, in_words=in_words, own=takes_own)
            conceding.sent[member] = sent
            return sent, None

        key = _sticky_key(exchange) if route.config.balance == "sticky" else b""
        relaxation = words = None
        conceding = Conceding(exchange.owner)
        exchange.constrained = asked.constraint is not None
        if asked.constraint is not None:
            relaxation = Relaxation(asked.constraint, exchange.owner, record, exchange.id)
        if asked.tools and asked.tool_choice.names is not None:
            words = ChoiceInWords(exchange.owner)
        source = (Attempts if wire is None else WireAttempts)(
            route.pool,
            route.options.retry,
            prepare,
            record=record,
            request_id=exchange.id,
            large=is_slow(asked),
            key=key,
            relaxation=conceding if words is None and relaxation is None else AllOf(conceding, words, relaxation),
        )
        await source.open()
        reply = Reply(source, streamed=sent.stream)
        sealed = route.sealed
        if wire is not None and wire.opaque_fields and (not same or (sealed is not None and sealed.several)):
            reply.map(
                Marking(wire, lambda: name_of(_answering(route, source)), moves=not exchange.protocol.opaque_on_calls)
            )
        if sent.model != exchange.received.model and reply.protocol is not None:
            reply.renaming = Renaming(exchange.received.model, reply.protocol.model_in)
        if record.observers and not own:  # else nobody may want to read the answer, and then it passes unread
            reply.watch(source.saw)
        # Of a stream with tools, or that the gateway asked for in its own words, nothing passes that R7.7 rules out.
        unasked = sent.stream and exchange.protocol.counts_on_demand and not (own and not asked.tools)
        if usage.source == "backend":
            reply.count(lambda: (_unknown, None), passes=same, changes=unasked)
        else:
            reply.count(
                lambda: self._counter(route, source, sent).both,
                passes=own,
                changes=unasked or not own,
                always=usage.source == "estimate",
            )
        return reply

    def _counter(self, route: Route, source: Attempts, sent: ModelRequest) -> Counter:
        usage = route.options.usage
        server = _counting(route, source) if usage.count == "backend_tokenize" else None
        estimator = self._estimators.get(usage.encoding)
        if estimator is None:
            estimator = self._estimators[usage.encoding] = Estimator(usage.encoding)
        return Counter(estimator, sent, always=usage.source == "estimate", server=server)

    def _adapted(
        self,
        exchange: Exchange,
        sent: ModelRequest,
        member: WeightedEndpoint,
        given_up: Concessions,
        context: int | None,
        *,
        in_words: bool,
        own: bool,
    ) -> ModelRequest:
        backend = member.endpoint.backend
        takes = may_be_asked(exchange.received, backend.capabilities, backend.protocol)
        if in_words and takes.choice_objects:
            takes = dataclasses.replace(takes, choice_objects=False)
        # Where the client's own body would have passed, everything of it that is not odd does.
        forward = "all" if own else exchange.route.options.requests.forward_unknown
        try:
            wire, client = backend.protocol, exchange.protocol
            anywhere = client.instructs_anywhere or (wire is not None and wire.name == client.name)
            return adapt(
                sent,
                takes,
                forward_unknown=forward,
                wire=wire,
                late_system=anywhere,
                own=own,
                given_up=given_up,
                context=context,
                tell=partial(_tell, exchange),
            )
        except ClientFault:
            fit_images(
                exchange.received.messages, takes, partial(_tell, exchange)
            )  # says the same, with the index that the client knows
            raise


def _tell(exchange: Exchange, name: str, detail: str) -> None:
    exchange.record.tolerate(name, detail, exchange.id)


def _context(member: WeightedEndpoint, model: str) -> int | None:
    """The tokens of prompt and answer together, as the server has said."""
    said = member.endpoint.identity
    served = None if said is None else said.find(model)
    return None if served is None else served.context


def _knows_tools(request: ModelRequest, member: WeightedEndpoint) -> bool:
    """Whether a server may get the tools as the client wrote them: its configuration does not say that it takes no such
    ones, and those that were sent by their types alone it has."""
    types, backend = member.endpoint.config.tool_types, member.endpoint.backend
    for tool in request.tools:
        if types is not None and tool.received.get("type", tool.kind) not in types:
            return False
        if is_client_tool(tool) and not has_client_tool(tool, backend.capabilities, backend.protocol):
            return False
    return True


def _own_bytes(exchange: Exchange, sent: ModelRequest, member: WeightedEndpoint) -> bytes:
    wire = member.endpoint.backend.protocol
    assert wire is not None  # it is the client's own
    body = wire.own_body(limited(exchange.body, member.endpoint.config, wire))
    if sent is not exchange.received:
        body = {**body, "model": sent.model}
    if body is not exchange.body:
        return dump_in_pieces(body) if is_large(sent) else orjson.dumps(body)
    assert exchange.received.origin is not None
    return exchange.received.origin.body


def _sticky_key(exchange: Exchange) -> bytes:
    """What keeps requests on one server: a header, or the begin of the conversation, which its later turns share."""
    by = exchange.route.config.sticky_by
    if by != "prompt":
        return exchange.headers.get(by, "").encode(errors="backslashreplace")
    words: list[str] = []
    for message in exchange.request.messages:
        words += [message.role, *(part.text for part in message.parts if isinstance(part, Text))]
        if message.role == "user":
            break
    return "\0".join(words).encode(errors="backslashreplace")


def _has_numbered_ids(request: ModelRequest) -> bool:
    """Whether ids of calls are to be told to the server as it wrote them (R28.6)."""
    parts = (part for message in request.messages for part in message.parts)
    return any(isinstance(part, ToolUse) and as_written(part.call_id) != part.call_id for part in parts)


def _says_more(request: ModelRequest) -> bool:
    """Whether of a call or of reasoning more is said than the model has a place for: perhaps what is opaque."""

    def more(found: bool, messages: Sequence[Message], start: int, made: list[None]) -> bool:
        return found or any(
            part.extra for message in messages for part in message.parts if isinstance(part, Reasoning | ToolUse)
        )

    return fold(request.past, "says_more", request.messages, False, more)[1]


def _is_only_reasoning(message: Message) -> bool:
    return message.role == "assistant" and all(isinstance(part, Reasoning) for part in message.parts)


def name_of(member: WeightedEndpoint | None) -> str:
    """The name of a server in what clients bring back."""
    return "" if member is None else server_name(member.name, member.endpoint.config)


def _answering(route: Route, source: Attempts) -> WeightedEndpoint | None:
    """The server that answers."""
    name = "" if source.asked is None else source.asked[0]
    return next((member for member in route.pool.every if member.name == name), None)


def _refuse_lost_turns(exchange: Exchange) -> None:
    """A chain without `conversation` must not answer as if nothing had been said before (R12.2)."""
    previous = exchange.body.get("previous_response_id")
    if previous is not None and exchange.conversation is None:
        raise ClientFault(
            f"Previous response with id {quote(previous)} not found: this route keeps no conversations.",
            code="previous_response_not_found",
            param="previous_response_id",
        )
    if exchange.background is not None and exchange.background.turn is None:
        raise ClientFault(
            "Invalid 'background': this route keeps no responses.",
            code="unsupported_parameter",
            param="background",
            hint="Leave it out, or put `conversation` into the route's chain.",
        )
    form = exchange.protocol.turns
    if form is not None and form.conversations and exchange.conversation is None and exchange.body.get("conversation"):
        raise ClientFault(
            "The conversation cannot be gone on from: this route keeps none.",
            code="unsupported_parameter",
            param="conversation",
            hint="Send all of it as 'input', or put `conversation` into the route's chain.",
        )


def _counting(route: Route, source: Attempts) -> TokenCounter | None:
    """The server that answers, if it can count."""
    member = _answering(route, source)
    if member is not None and isinstance(member.endpoint.backend, TokenCounter):
        return member.endpoint.backend
    return None


async def _unknown(last: Event) -> Event:
    """The same event; a `Finish` without all counts says that they are unknown."""
    if not isinstance(last, Finish) or (last.usage is not None and last.usage.missing is None):
        return last
    return changed(last, usage=Usage(missing="both"))


class Counter:
    """Fills in the token counts of one answer: those of the text really sent and of the raw text really generated. The
    `server` is asked first if it can count."""

    def __init__(
        self, estimator: Estimator, sent: ModelRequest, *, always: bool, server: TokenCounter | None = None
    ) -> None:
        self._estimator = estimator
        self._server = server
        self._sent = sent
        self._always = always
        self._written: list[str] = []

    @property
    def both(self) -> Counting:
        """See `Reply.count`."""
        return self.fill, self.see

    def see(self, event: Event) -> None:
        """Remember what was generated."""
        if isinstance(event, Delta):
            self._written.append(event.text)
        elif isinstance(event, Open) and event.name is not None:
            self._written.append(event.name)

    async def fill(self, last: Event) -> Event:
        """The same event; a `Finish` without usage gets an estimate, and of one with half of it the other half."""
        if not isinstance(last, Finish):
            return last
        known = None if self._always else last.usage
        if known is not None and known.missing is None:
            return last
        given = None if known is None or known.missing == "input" else known.input_tokens
        written = None if known is None or known.missing == "output" else known.output_tokens
        by_server = True
        if given is None and (given := await self._by_server()) is None:
            given, by_server = await self._estimator.count_request(self._sent), False
        text = "".join(self._written)
        if written is None and (written := await self._by_server(text)) is None:
            written, by_server = await self._estimator.count(text), False
        usage = replace(
            known or Usage(),
            input_tokens=given,
            output_tokens=written,
            estimated=True,
            tokenizer=BY_SERVER if by_server else self._estimator.tokenizer,
            missing=None,
        )
        return changed(last, usage=usage)

    async def _by_server(self, written: str | None = None) -> int | None:
        """What the server's tokenizer says of a text that was written, else of the prompt; None: it does not."""
        if self._server is None or written == "":
            return None
        if written is None:
            return await self._server.count(self._sent)
        return await self._server.count_text(self._sent.model, written)
