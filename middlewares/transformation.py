"""Turns text into calls, and separates reasoning from text.

It declares a scanner on the reply to every request whose prompt describes tools. Without an offer there are no calls to
find, and an answer in the client's own protocol keeps its bytes (R1.6, R1.7), with two exceptions. First, if the
model's format puts markup around all text, the markup is removed. Second, if the answer is rewritten anyway (another
protocol, or another stage), reasoning is found in the text, so that it goes into the field that the client's protocol
has for it (R7.8). If the server handles tools, the gateway describes none, but calls that the server left in its text
are found unless `calls.recognise` is `taught` (R23.1, R24.1). Arguments are streamed early only if the client reads a
stream, and no stage further out holds calls until they are complete: then all is done as for buffered calls.

If an answer contains a closing reasoning tag without an opening one, everything before it is reasoning: see
`toolwire.pipeline.scanning.preopened`. This is detected wherever a scanner is declared, unless the server handles
tools.

Calls inside of reasoning that never ends are detected in answers that are not streamed
(`toolwire.pipeline.scanning.reasoning_calls`).

After the scanner, markers that were escaped in the prompt are unescaped where the model copied them, so that later
stages see the original text (R5.6a). Nothing is declared if nothing was escaped. If calls are required or enforced, an
answer ends at the first repeated call (`toolwire.pipeline.transforms.repeats`). The client's stop sequences are applied
if the server does not apply them, or would not report which one matched (`toolwire.pipeline.transforms.stopping`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import ClassVar

from toolwire.call_policy.counted import CALL_FIELDS
from toolwire.events import BlockKind, Delta, Event, Open, is_live
from toolwire.formats.base import ToolFormat
from toolwire.formats.engine.rendering import prompt_name
from toolwire.model import ModelRequest, ToolChoice, ToolSpec
from toolwire.pipeline.answers.reply import Reply
from toolwire.pipeline.chain.middleware import ChainPlace, Middleware
from toolwire.pipeline.exchange.request_state import Exchange
from toolwire.pipeline.exchange.routing import Route
from toolwire.pipeline.scanning.offered_tools import OfferedTools
from toolwire.pipeline.scanning.preopened import OUTCOMES, PreopenedReasoning
from toolwire.pipeline.scanning.reasoning_calls import ReasoningCalls
from toolwire.pipeline.scanning.scan_stage import ScanStage
from toolwire.pipeline.scanning.scanners import not_taught
from toolwire.pipeline.transforms.block_texts import UnescapeStage, UnwrapStage
from toolwire.pipeline.transforms.repeats import RepeatStage
from toolwire.pipeline.transforms.stopping import ForeignStops, Stops, StopStage, divide_stops
from toolwire.record import AccessField, AccessRecord, CounterSpec
from toolwire.scanner import stream_after
from toolwire.schemas.schema import ToolSchema, ToolSchemas
from toolwire.upstream.pool.attempts import Attempts


class Transformation(Middleware):
    """Finds calls and reasoning in the answer's text, in the format that the prompt described."""

    proxied_requests = "stands_aside"
    access_fields: ClassVar[tuple[AccessField, ...]] = (
        AccessField("format", "The format in which calls were searched for."),
        AccessField(
            "form",
            "Other formats in which calls were found (`calls.recognise`): families of formats; `bare`, `fence`: JSON or"
            " Python.",
        ),
        *CALL_FIELDS,
        AccessField(
            "scanned_bytes",
            "Bytes of text that were searched for calls.",
            CounterSpec("toolwire_scanner_bytes_total", "Bytes of text that were searched for calls"),
        ),
        AccessField(
            "unopened_reasoning",
            "Answers that began inside of reasoning, or were treated so (`reasoning.preopened`).",
            CounterSpec(
                "toolwire_unopened_reasoning_total",
                "Answers that began inside of reasoning without an opening tag",
                "kind",
                OUTCOMES,
            ),
        ),
    )

    @classmethod
    def goes_with(cls, place: ChainPlace) -> Mapping[str, str]:
        if place.route.options.mode == "native":
            return {}
        return {"injection": "which describes the calls that it searches for"}

    @classmethod
    def stands_behind(cls, place: ChainPlace) -> Mapping[str, str]:
        return {
            "arguments": "which checks the calls that it finds",
            "output_format": "which reads the text without its calls",
        }

    async def on_request(self, exchange: Exchange, request: ModelRequest) -> ModelRequest:
        """Removes stop sequences from the request that the server does not accept, or that it would not report to a
        client that wants to know which one matched (R24.5)."""
        pool, asked = exchange.route.pool, request.sampling.stop
        wire = pool.protocol
        if not asked and (wire is None or not wire.own_stops):
            return request
        takes = pool.capabilities
        names = takes.names_stop or (wire is not None and wire.name == exchange.protocol.name)
        unreported = exchange.protocol.reports_stop_sequence and not names
        stops = exchange.state[Transformation] = divide_stops(asked, takes, wire, unreported=unreported)
        if stops.server == asked:
            return request
        return replace(request, sampling=replace(request.sampling, stop=stops.server))

    def declare(self, exchange: Exchange, reply: Reply) -> None:
        route, record = exchange.route, exchange.record
        options, request = route.options, exchange.request
        taught, native = exchange.offer, exchange.tools_by == "server"
        offer = _left_to_server(exchange) if taught is None and native else taught
        # An answer ends at a repeated call if a call is required, or the server enforces calls.
        repeats = bool(request.tools) and (
            exchange.constrained or request.tool_choice.forces or request.enforced_choice is not None
        )
        if offer is not None:
            stage = ScanStage(
                offer,
                options,
                route.limits,
                record.count,
                label=record.label,
                near=exchange.nearly,
                decided=record.decided if record.observers else None,
                stream_after=partial(_stream_after, exchange, reply)
                if exchange.received.stream and not native
                else None,
                history=exchange.request.messages,
                schemas=partial(_schema, exchange),
                native=taught is None,
                keeps_repeats=repeats,
                shows_cut=exchange.tools_by == "template",
                preopened=None if taught is None else _preopened(exchange, reply),
            )
            reply.map(stage)
            if offer.tools and not exchange.received.stream:
                observed = bool(record.observers)
                reply.map(ReasoningCalls(stage.factory, exchange.nearly, record.decided, observed=observed))
            elif offer.tools and record.observers:
                reply.watch(ReasoningCalls(stage.factory, None, record.decided, observed=True).see)
            if taught is not None:
                record.note("format", offer.format.name)
            exchange.at_end(lambda: record.count("scanned_bytes", stage.scanned_bytes))
        else:
            tool_format = route.format_for(exchange.request.model)
            framed = not native and tool_format.framing is not None
            wire, client = reply.wire, exchange.protocol
            is_translated = wire is None or wire.protocol.name != client.name  # or the answer comes as events
            # Reasoning in text is searched if the answer is rewritten, because it comes in another protocol than the
            # client's, or if the client's protocol has a field for it. Probabilities belong to the model's own tokens,
            # so an answer with them stays unchanged.
            has_place = not client.inline_thinking or (wire is not None and is_translated)
            if framed or (has_place and options.reasoning.tags and not exchange.received.extra.get("logprobs")):
                preopened = _preopened(exchange, reply) if not native else None
                nothing = _nothing(route, tool_format, framed)
                passes = not framed and not is_translated
                stage = ScanStage(
                    nothing, options, route.limits, record.count, preopened=preopened, only_rewritten=passes
                )
                reply.map(stage)
        if record.observers and exchange.request.tools:
            reply.watch(_WrittenKinds(record))
        if repeats:
            reply.map(RepeatStage(_size(exchange), partial(_repeated, exchange), choices=exchange.request.sampling.n))
        if exchange.escapes is not None and exchange.escapes.results is not None:
            reply.map(UnwrapStage(exchange.escapes))
        if exchange.escapes:
            reply.map(UnescapeStage(exchange.escapes))
        if exchange.protocol.reports_stop_sequence:
            reply.map(ForeignStops(exchange.received.sampling.stop))
        stops: Stops | None = exchange.state.get(Transformation)
        if stops is not None and (stops.gateway or stops.own):
            choices = exchange.request.sampling.n
            reply.map(StopStage(stops.gateway, _size(exchange), own=stops.own, choices=choices))


class _WrittenKinds:
    """Notes the kinds of blocks with content in an answer (`AccessRecord.written`), for observers."""

    def __init__(self, record: AccessRecord) -> None:
        self._written = record.written = set()
        self._blocks: dict[int, BlockKind] = {}

    def __call__(self, event: Event) -> None:
        """Takes the next event of the answer."""
        match event:
            case Open():
                self._blocks[event.block] = event.kind
            case Delta() if event.block in self._blocks and event.text.strip():
                self._written.add(self._blocks.pop(event.block))


def _size(exchange: Exchange) -> int:
    origin = exchange.received.origin
    return 0 if origin is None else origin.size


def _repeated(exchange: Exchange, opened: Open) -> None:
    """Counts a call that was dropped because it repeats another one, or follows a repeated one."""
    record = exchange.record
    record.count("deduped")
    if "source" in opened.extra or is_live(opened):  # the call policy has counted it
        record.count("calls", -1)


class _HoldsCalls:
    """The key in `Exchange.state` for whether a stage holds calls until they are complete."""


def _stream_after(exchange: Exchange, reply: Reply) -> int | None:
    """Returns how many bytes of arguments a call has before it is streamed; None if a stage holds it anyway. The first
    reply of an exchange, on which all stages are declared, decides for all."""
    holds: bool = exchange.state.setdefault(_HoldsCalls, reply.holds_calls)
    return None if holds else stream_after(exchange.route.options)


def _left_to_server(exchange: Exchange) -> OfferedTools | None:
    """Returns an offer of the tools that a server got, if its answer is searched for calls that it did not parse; else
    None. Probabilities belong to the model's own tokens, so an answer with them stays unchanged."""
    options, request = exchange.route.options, exchange.request
    tools = request.callable_tools if request.tools and options.calls.recognise != "taught" else ()
    if not tools or exchange.received.extra.get("logprobs"):
        return None
    tool_format = not_taught(exchange.route.format_for(request.model))
    return OfferedTools(tools, request.tool_choice, request.parallel_tool_calls, tool_format, request.tools)


def _schema(exchange: Exchange, tool: ToolSpec) -> ToolSchema:
    """Returns the checker of a tool, shared within the exchange. Raises `SchemaProblem`."""
    schemas: ToolSchemas = exchange.state.setdefault(ToolSchemas, ToolSchemas())
    return schemas.of(prompt_name(tool), tool.parameters)


def _preopened(exchange: Exchange, reply: Reply) -> PreopenedReasoning | None:
    """Returns the state that finds out whether the answer begins inside of reasoning; None if the configuration
    decides."""
    route = exchange.route
    if route.options.reasoning.preopened is not None:
        return None

    def asked() -> tuple[str, ModelRequest] | None:
        return reply.source.asked if isinstance(reply.source, Attempts) else None  # other sources have no next answer

    return PreopenedReasoning(
        route.config.model,
        route.learned,
        asked,
        exchange.record,
        whole=not exchange.received.stream,
        owner=exchange.owner,
    )


def _nothing(route: Route, tool_format: ToolFormat, framed: bool) -> OfferedTools:
    """Returns an offer without tools, so that only reasoning is searched for, and framing if the answer is `framed`."""
    known: OfferedTools | None = route.made.get(key := (_nothing, tool_format, framed))
    if known is None:
        if framed and tool_format.framing is not None:
            tool_format = replace(tool_format, grammar=tool_format.framing)
        known = route.made[key] = OfferedTools((), ToolChoice("none"), True, tool_format, ())
    return known
