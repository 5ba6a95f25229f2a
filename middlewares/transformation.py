"""Text back into calls, and reasoning out of it.

Declares a scanner on every reply to a request into which tools were injected. Without an offer there is no call to
find, and an answer in the client's own protocol keeps its bytes (R1.6, R1.7); but where the model's format puts markup
around everything that is said, that is no part of the answer. One in another protocol is written anew in any case:
there reasoning is found in the text all the same, so that it goes to the place that the client's protocol has for it
(R7.8); and so it is in the client's own protocol, if somebody else has the answer written anew and its clients know no
thoughts in text. Where the server does tools nothing is taught, and calls that the server left in the text are found
unless `calls.recognise` is `taught` (R23.1, R24.1). Arguments are given out while they come only where the client reads
a stream: in a whole answer nothing is gained by it.

An answer that closes thinking which nothing opened began inside of it: see `toolwire.pipeline.reasoning.preopened`.
That is noticed wherever a scanner is declared, but where the server does tools.

Calls inside of a thought that never closes are noticed in whole answers
(`toolwire.pipeline.reasoning.reasoning_calls`).

Behind the scanner, what was escaped in the prompt is undone where the model copied it, so that whoever works on the
answer sees what was meant (R5.6a). Where nothing was escaped nothing is declared. Where calls are demanded or enforced,
an answer ends at the first repeat of one of its calls (`toolwire.pipeline.transforms.repeats`). And the client's stop
sequences are applied where the server does not, or would not say which one matched
(`toolwire.pipeline.transforms.stopping`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import ClassVar

from toolwire.call_policy.counted import CALL_FIELDS
from toolwire.events import Open, is_live
from toolwire.formats.base import ToolFormat
from toolwire.formats.engine.rendering import prompt_name
from toolwire.model import ModelRequest, ToolChoice, ToolSpec
from toolwire.pipeline.chain.middleware import ChainPlace, Middleware
from toolwire.pipeline.chain.reply import Reply
from toolwire.pipeline.exchange.exchange import Exchange, OfferedTools
from toolwire.pipeline.exchange.routing import Route
from toolwire.pipeline.reasoning.preopened import OUTCOMES, PreopenedReasoning
from toolwire.pipeline.reasoning.reasoning_calls import ReasoningCalls
from toolwire.pipeline.transforms.repeats import RepeatStage
from toolwire.pipeline.transforms.scanners import not_taught
from toolwire.pipeline.transforms.scanning import ScanStage
from toolwire.pipeline.transforms.stopping import ForeignStops, Stops, StopStage, divided
from toolwire.pipeline.transforms.unescaping import UnescapeStage
from toolwire.pipeline.transforms.unwrapping import UnwrapStage
from toolwire.record import AccessField, CounterSpec
from toolwire.schemas.schema import ToolSchema, ToolSchemas
from toolwire.upstream.pool.attempts import Attempts


class Transformation(Middleware):
    """Finds calls in the answer's text, in the format that the injection taught, and what the model thought."""

    proxied_requests = "stands_aside"
    access_fields: ClassVar[tuple[AccessField, ...]] = (
        AccessField("format", "The format in which calls were looked for in the answer's text."),
        AccessField(
            "form",
            "The forms in which calls were read although they were not taught (`calls.recognise`): families of formats; `bare`, `fence`: JSON or"
            " Python.",
        ),
        *CALL_FIELDS,
        AccessField(
            "scanned_bytes",
            "Text that was searched for calls.",
            CounterSpec("toolwire_scanner_bytes_total", "Text that was searched for calls"),
        ),
        AccessField(
            "unopened_reasoning",
            "Answers that began inside of thinking which nothing opened, or were taken for such (`reasoning.preopened`).",
            CounterSpec(
                "toolwire_unopened_reasoning_total",
                "Answers that began inside of thinking which nothing opened",
                "kind",
                OUTCOMES,
            ),
        ),
    )

    @classmethod
    def goes_with(cls, place: ChainPlace) -> Mapping[str, str]:
        """See `Middleware.goes_with`."""
        if place.route.options.mode == "native":
            return {}
        return {"injection": "which teaches the calls that it looks for"}

    @classmethod
    def stands_behind(cls, place: ChainPlace) -> Mapping[str, str]:
        """See `Middleware.stands_behind`. Further in they would see the text of calls."""
        return {
            "arguments": "which checks the calls that it finds",
            "output_format": "which reads the text without its calls",
        }

    async def on_request(self, exchange: Exchange, request: ModelRequest) -> ModelRequest:
        """See `Middleware.on_request`. Stop sequences that the server does not take, or of which it would not say which
        one matched to a client that wants to know, are not for it (R24.5)."""
        pool, asked = exchange.route.pool, request.sampling.stop
        wire = pool.protocol
        if not asked and (wire is None or not wire.own_stops):
            return request
        takes = pool.capabilities
        names = takes.names_stop or (wire is not None and wire.name == exchange.protocol.name)
        unsaid = exchange.protocol.tells_stop and not names
        stops = exchange.state[Transformation] = divided(asked, takes, wire, unsaid=unsaid)
        if stops.server == asked:
            return request
        return replace(request, sampling=replace(request.sampling, stop=stops.server))

    def declare(self, exchange: Exchange, reply: Reply) -> None:
        """See `Middleware.declare`."""
        route, record = exchange.route, exchange.record
        options = route.options
        taught, native = exchange.offer, exchange.native
        offer = _left_to_server(exchange) if taught is None and native else taught
        repeats = bool(exchange.request.tools) and _ends_at_repeats(exchange)
        if offer is not None:
            stage = ScanStage(
                offer,
                options,
                route.limits,
                record.count,
                label=record.label,
                near=exchange.nearly,
                incremental=exchange.received.stream and _comes_early(exchange),
                history=exchange.request.messages,
                schemas=partial(_schema, exchange),
                native=taught is None,
                keeps_repeats=repeats,
                preopened=None if taught is None else _preopened(exchange, reply),
            )
            reply.map(stage)
            if offer.tools and not exchange.received.stream:
                reply.map(ReasoningCalls(stage.factory, exchange.nearly))
            if taught is not None:
                record.note("format", offer.format.name)
            exchange.at_end(lambda: record.count("scanned_bytes", stage.scanned_bytes))
        else:
            tool_format = route.format_for(exchange.request.model)
            framed = not native and tool_format.framing is not None
            wire, client = reply.wire, exchange.protocol
            is_translated = wire is None or wire.protocol.name != client.name  # or the answer comes as events
            # Thoughts in the middle of text are looked for where the answer is written anew: it comes in another
            # protocol than the client's, or its clients do not know such thoughts. Probabilities belong to the model's
            # own tokens: an answer with them stays as it is.
            has_place = not client.inline_thinking or (wire is not None and is_translated)
            if framed or (has_place and options.reasoning.tags and not exchange.received.extra.get("logprobs")):
                preopened = _preopened(exchange, reply) if not native else None
                nothing = _nothing(route, tool_format, framed)
                passes = not framed and not is_translated
                stage = ScanStage(
                    nothing, options, route.limits, record.count, preopened=preopened, only_rewritten=passes
                )
                reply.map(stage)
        if repeats:
            reply.map(RepeatStage(_size(exchange), partial(_repeated, exchange), choices=exchange.request.sampling.n))
        if exchange.escapes is not None and exchange.escapes.results is not None:
            reply.map(UnwrapStage(exchange.escapes))
        if exchange.escapes:
            reply.map(UnescapeStage(exchange.escapes))
        if exchange.protocol.tells_stop:
            reply.map(ForeignStops(exchange.received.sampling.stop))
        stops: Stops | None = exchange.state.get(Transformation)
        if stops is not None and (stops.gateway or stops.own):
            choices = exchange.request.sampling.n
            reply.map(StopStage(stops.gateway, _size(exchange), own=stops.own, choices=choices))


def _size(exchange: Exchange) -> int:
    origin = exchange.received.origin
    return 0 if origin is None else origin.size


def _ends_at_repeats(exchange: Exchange) -> bool:
    """Whether an answer is over that repeats a call: a call is demanded, or the server enforces calls."""
    request = exchange.request
    return exchange.constrained or request.tool_choice.forces or request.enforced_choice is not None


def _repeated(exchange: Exchange, opened: Open) -> None:
    """Count a call that was dropped because it repeats another one, or came behind such a call."""
    record = exchange.record
    record.count("deduped")
    if "source" in opened.extra or is_live(opened):  # the call policy has counted it
        record.count("calls", -1)


def _comes_early(exchange: Exchange) -> bool:
    """Whether arguments are given out while they come: the route or the client says so."""
    asked = exchange.route.options.calls.argument_streaming == "incremental"
    return asked or exchange.protocol.wants_arguments_early(exchange.received)


def _left_to_server(exchange: Exchange) -> OfferedTools | None:
    """The tools that a server which does tools was given, if calls that it did not read are to be found in its answer.
    Probabilities belong to the model's own tokens: an answer with them stays as it is."""
    options, request = exchange.route.options, exchange.request
    tools = request.callable_tools if request.tools and options.calls.recognise != "taught" else ()
    if not tools or exchange.received.extra.get("logprobs"):
        return None
    tool_format = not_taught(exchange.route.format_for(request.model))
    return OfferedTools(tools, request.tool_choice, request.parallel_tool_calls, tool_format, request.tools)


def _schema(exchange: Exchange, tool: ToolSpec) -> ToolSchema:
    """The checker for a tool: one for whoever asks in this exchange. Raises `SchemaProblem`."""
    schemas: ToolSchemas = exchange.state.setdefault(ToolSchemas, ToolSchemas())
    return schemas.of(prompt_name(tool), tool.parameters)


def _preopened(exchange: Exchange, reply: Reply) -> PreopenedReasoning | None:
    """What is known of where the answer begins; None if the configuration says it."""
    route = exchange.route
    if route.options.reasoning.preopened is not None:
        return None

    def asked() -> tuple[str, ModelRequest] | None:
        return reply.source.asked if isinstance(reply.source, Attempts) else None  # others have no next answer

    return PreopenedReasoning(
        route.config.model,
        route.learned,
        asked,
        exchange.record,
        whole=not exchange.received.stream,
        owner=exchange.owner,
    )


def _nothing(route: Route, tool_format: ToolFormat, framed: bool) -> OfferedTools:
    """An offer of no tools, so that only reasoning is looked for, and framing if the answer is `framed`."""
    known: OfferedTools | None = route.made.get(key := (_nothing, tool_format, framed))
    if known is None:
        if framed and tool_format.framing is not None:
            tool_format = replace(tool_format, grammar=tool_format.framing)
        known = route.made[key] = OfferedTools((), ToolChoice("none"), True, tool_format, ())
    return known
