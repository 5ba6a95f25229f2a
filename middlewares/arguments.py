"""Checks finished calls against the tools on offer.

Every call is checked against its tool's schema (R9.4). An argument of the wrong type is converted if only one
conversion makes sense, unless the tool is strict (R23.3). Calls that the scanner found in text have passed the call
policy; calls that a native backend returned as structures are checked here: name (R9.2), JSON (R9.3), missing arguments
(R9.5), number of calls (R2.19), a call id that is new in the conversation. Arguments that are not JSON and cannot be
repaired never become a call, because clients fail on them; they become visible text. A call without arguments whose
tool requires some, and which the backend did not mark as finished, is dropped, or ends the answer if it is its first
call (R29.2). An unknown name is only counted, because the client or the gateway decides about it; if the gateway runs
every tool on offer, such a call is neither a strict failure nor a near miss. A missing required call is detected at the
end (R9.9). Calls whose arguments are streamed early are not held back for these checks (R6.13): their tools are not
strict, so a violation only logs a warning.

If no tool can be called, nothing is declared on the reply, and the answer keeps its bytes (R1.6).
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import ClassVar, Final

from toolwire.call_policy.candidate import are_gateways, custom_input, free_text
from toolwire.call_policy.coercion import coerce
from toolwire.call_policy.counted import CALL_FIELDS
from toolwire.call_policy.ids import CallIds
from toolwire.call_policy.json_calls import settle_arguments
from toolwire.call_policy.near import NearMiss, near_name
from toolwire.call_policy.policy import FailureCode, strict_failure
from toolwire.errors import ModelFault, quote
from toolwire.events import Call, Event, Finish, Kind, text_block
from toolwire.formats.engine.rendering import by_prompt_name, prompt_name
from toolwire.model import ModelRequest, ToolChoice, ToolSpec, ToolUse
from toolwire.pipeline.answers.reply import Reply
from toolwire.pipeline.chain.middleware import ChainPlace, Middleware
from toolwire.pipeline.exchange.request_state import Exchange
from toolwire.protocols.shared.wire import dump, unfinished_call_fault
from toolwire.record import AccessField, CallDecision, Decided
from toolwire.repair.relaxed_json import parses
from toolwire.schemas.schema import SchemaProblem, ToolSchema, ToolSchemas

LOG: Final = logging.getLogger("toolwire.arguments")


@dataclass(slots=True)
class _CheckedAnswer:
    """The state of one answer. `made`: the choices with a call; `satisfied`: the choices with a call of a tool on
    offer; `finished`: the number of ended calls per choice. `received`: the arguments of the current call as they came;
    `notes`: what was done to them. `gateways`: see `are_gateways`."""

    choice: ToolChoice
    offered: Mapping[str, ToolSpec]
    known: Mapping[str, ToolSpec]
    schemas: ToolSchemas
    ids: CallIds
    gateways: bool
    made: set[int] = field(default_factory=set)
    finished: Counter[int] = field(default_factory=Counter)
    received: str = ""
    notes: list[str] = field(default_factory=list)
    satisfied: set[int] = field(default_factory=set)

    def schema(self, tool: ToolSpec) -> ToolSchema:
        """Returns the checker of a tool: the one from validation, else compiled here, once. Raises `SchemaProblem`."""
        return self.schemas.of(prompt_name(tool), tool.parameters)

    def is_strict(self, tool: ToolSpec | None, use: ToolUse) -> bool:
        """Returns the strictness of the called tool. `tool` is the one on offer; a tool that may not be called has its
        own strictness too, and for an unknown name it is True if any tool of the request is strict (C28)."""
        if tool is not None or (tool := self.known.get(prompt_name(use))) is not None:
            return tool.strict is True
        return any(tool.strict is True for tool in self.known.values())


class _Failure(Exception):
    """A call that breaks a rule. A soft failure adds to `counter`; `near` is set if it is also a near miss."""

    def __init__(self, code: FailureCode, detail: str, counter: str, near: NearMiss | None = None) -> None:
        super().__init__(detail)
        self.code = code
        self.detail = detail
        self.counter = counter
        self.near = near


def _malformed(use: ToolUse, flaw: str) -> _Failure:
    detail = f"The model's call of {quote(use.name)} is malformed: {flaw}."
    return _Failure("malformed_tool_arguments", detail, "parse_failures", NearMiss(detail, (prompt_name(use),)))


def _unfit(use: ToolUse, flaw: str) -> _Failure:
    detail = f"The model's call of {quote(use.name)} does not fit the tool's schema: {flaw}"
    return _Failure("invalid_tool_arguments", detail, "schema_warnings")


def _as_offered(use: ToolUse, tool: ToolSpec, arguments: str) -> ToolUse:
    """Returns the call with these arguments; for a custom tool, with the text in them. Raises `ValueError`."""
    if tool.kind == "custom":
        return replace(use, arguments=custom_input(arguments), kind="custom")
    return replace(use, arguments=arguments)


class Arguments(Middleware):
    """Checks finished calls: soft failures are logged and counted, strict ones end the answer or become text (R9.6)."""

    proxied_requests = "stands_aside"
    for_tools = True
    wants: ClassVar[Kind] = Kind.FINISHED_CALL | Kind.EDGES
    access_fields: ClassVar[tuple[AccessField, ...]] = (
        *CALL_FIELDS,
        AccessField("choice_missed", "A required call was not made."),
    )

    @classmethod
    def stands_behind(cls, place: ChainPlace) -> Mapping[str, str]:
        return {"execution": "which runs checked calls"}

    def declare(self, exchange: Exchange, reply: Reply) -> None:
        request = exchange.request
        # Replaces the state of an earlier answer: a middleware further out may have asked again, perhaps for other
        # tools.
        exchange.state[Arguments] = request
        if _offered(exchange, request):
            wants = self.wants if request.tool_choice.forces else Kind.FINISHED_CALL
            reply.map(partial(self.on_event, exchange), wants, live=True)

    def on_event(self, exchange: Exchange, event: Event) -> Event | Iterable[Event] | None:
        """Returns the checked event, or its replacement. Raises `ModelFault` or `BackendFault`, which end the
        answer."""
        match event:
            case Call():
                return self._call(exchange, event)
            case Finish():
                self._finish(exchange, event)
        return event

    def _call(self, exchange: Exchange, call: Call) -> Event | Iterable[Event] | None:
        answer = _answer(exchange)
        count = exchange.record.count
        if call.source is None and call.choice in answer.made and not exchange.received.parallel_tool_calls:
            return self._drop(exchange, call, "dropped_parallel")
        answer.finished[call.choice] += 1
        answer.received, answer.notes = call.use.arguments, []
        tool = answer.offered.get(prompt_name(call.use))
        if call.source is None:
            if call.status == "truncated" and (call.use.kind == "custom" or not parses(call.use.arguments)):
                return self._drop(exchange, call, "truncated_calls")
            if self._may_be_unfinished(answer, tool, call.use):
                if call.choice not in answer.made:
                    raise unfinished_call_fault()
                return self._drop(exchange, call, "truncated_calls")
            call = self._with_use(call, replace(call.use, call_id=answer.ids.settle(call.use.call_id)))
        elif call.status == "truncated":
            return call  # its arguments were streamed early, and the call policy has counted it
        if tool is not None and tool.server:
            if call.source is None:  # the server has no namespaces and got another name
                call = self._with_use(call, replace(call.use, name=tool.name, namespace=tool.namespace))
            call = self._coerced(exchange, answer, tool, call)
            return self._made(exchange, answer, tool, call)  # who runs the call tells the model its mistakes (R15.5)
        if tool is None and answer.gateways:
            if call.source is None:  # else the call policy has counted it
                count("unknown_names")
            LOG.warning("request %s: %s is a call of a tool that is not on offer", exchange.id, quote(call.use.name))
            return self._made(exchange, answer, tool, call)  # the gateway reports the mistake to the model here too
        strict = answer.is_strict(tool, call.use)
        try:
            if call.source is None:
                call = self._settled(exchange, answer, tool, call, repair=not strict)
            flaw = self._flaw(answer, tool, call)
            if flaw is not None and tool is not None:
                mended = self._coerced(exchange, answer, tool, call)
                if mended is not call:
                    call, flaw = mended, self._flaw(answer, tool, mended)
            if flaw is not None:
                raise _unfit(call.use, flaw)
        except _Failure as failure:
            if strict:
                return self._refuse(exchange, answer, call, failure)
            count(failure.counter)
            if failure.counter == "parse_failures":
                exchange.record.label("parse_failures", "arguments")
            text = failure.code == "malformed_tool_arguments"
            self._decided(exchange, answer, call, "refused" if text else "misfit", failure.detail)
            LOG.warning("request %s: %s in a call of %s", exchange.id, failure.code, quote(call.use.name))
            if failure.near is not None:
                exchange.nearly(call.choice, failure.near)
            if text:
                return text_block(call.block, _written(call.use), call.choice)
        return self._made(exchange, answer, tool, call)

    @staticmethod
    def _may_be_unfinished(answer: _CheckedAnswer, tool: ToolSpec | None, use: ToolUse) -> bool:
        """Returns True if a call has no arguments, its tool requires some, and the backend did not mark it as finished:
        the arguments may be missing (R29.2)."""
        if use.kind == "custom" or use.arguments.strip() or tool is None or tool.strict is True:
            return False
        if tool.kind == "custom":
            return True
        try:
            return answer.schema(tool).check("{}") is not None
        except SchemaProblem:
            return False

    @staticmethod
    def _made(exchange: Exchange, answer: _CheckedAnswer, tool: ToolSpec | None, call: Call) -> Call:
        """Counts a call that is passed on."""
        if call.source is None:
            exchange.record.count("calls")
        answer.made.add(call.choice)
        if tool is not None:
            answer.satisfied.add(call.choice)
        Arguments._decided(exchange, answer, call, "made")
        return call

    @staticmethod
    def _drop(exchange: Exchange, call: Call, counter: str) -> None:
        """Leaves out a call of the server, and counts it."""
        exchange.record.count(counter)
        exchange.record.decided(CallDecision("dropped", "", call.choice, call.use.name, (counter,)))

    @staticmethod
    def _decided(exchange: Exchange, answer: _CheckedAnswer, call: Call, kind: Decided, why: str = "") -> None:
        """Reports the decision about a call to the observers."""
        if not exchange.record.observers:
            return
        use, notes = call.use, tuple(answer.notes)
        arguments = use.arguments if use.arguments != answer.received else None
        index = answer.finished[call.choice] - 1
        exchange.record.decided(CallDecision(kind, why, call.choice, use.name, notes, index=index, arguments=arguments))

    def _settled(
        self, exchange: Exchange, answer: _CheckedAnswer, tool: ToolSpec | None, call: Call, *, repair: bool
    ) -> Call:
        """Returns a call of a native backend with its name checked, its arguments repaired, and its tool in the
        client's form: a server without namespaces or custom tools got functions. Raises `_Failure`."""
        use = call.use
        if tool is None:
            detail = f"The model called the tool {quote(use.name)}, which is not on offer."
            similar = near_name((use.name,), answer.offered, answer.offered)
            near = None if similar is None else NearMiss(f"{detail} Its name is {quote(similar)}.", (similar,))
            raise _Failure("unknown_tool_call", detail, "unknown_names", near)
        named = replace(use, name=tool.name, namespace=tool.namespace)
        if use.kind == "custom":
            return self._with_use(call, named)
        most = exchange.route.limits.block_bytes
        if len(use.arguments) > most:
            raise _malformed(use, f"its arguments are larger than {most} bytes (`limits.block_bytes`)")
        safe = repair and exchange.route.options.calls.repair == "safe"
        try:
            arguments, repaired = settle_arguments(use.arguments, repair=safe)
            named = _as_offered(named, tool, arguments)
        except ValueError as error:
            text = free_text(use.arguments) if tool.kind == "custom" else None
            if text is not None:
                return self._with_use(call, replace(named, arguments=text, kind="custom"))
            raise _malformed(use, str(error)) from None
        if repaired:
            exchange.record.count("repaired")
            for kind in repaired:
                exchange.record.label("repaired", kind)
                answer.notes.append(f"repaired:{kind}")
        return self._with_use(call, named)

    @staticmethod
    def _with_use(call: Call, use: ToolUse) -> Call:
        """Returns the finished call with this `use`; the call itself if nothing changes."""
        if use == call.use and call.status == "complete":
            return call
        return Call(call.block, use, choice=call.choice, source=call.source)

    @staticmethod
    def _flaw(answer: _CheckedAnswer, tool: ToolSpec | None, call: Call) -> str | None:
        """Returns why the arguments do not fit the tool's schema; None if they do."""
        if tool is None or call.use.kind == "custom":
            return None
        try:
            return answer.schema(tool).check(call.use.arguments)
        except SchemaProblem as problem:
            return f"it cannot be used. {problem.message}"

    def _coerced(self, exchange: Exchange, answer: _CheckedAnswer, tool: ToolSpec, call: Call) -> Call:
        """Returns the call with converted arguments if they do not fit the schema of a tool that is not strict (R23.3);
        else the call itself. Arguments that were streamed early stay."""
        streamed = call.source == ""
        if streamed or tool.strict is True or exchange.route.options.calls.coerce == "off":
            return call
        try:
            mended = coerce(call.use.arguments, answer.schema(tool))
        except SchemaProblem:
            return call
        if mended is None:
            return call
        exchange.record.count("coerced")
        for kind in mended.kinds:
            exchange.record.label("coerced", kind)
            answer.notes.append(f"coerced:{kind}")
        return self._with_use(call, replace(call.use, arguments=mended.text))

    def _refuse(self, exchange: Exchange, answer: _CheckedAnswer, call: Call, failure: _Failure) -> Iterable[Event]:
        exchange.record.count("strict_failures")
        exchange.record.label("strict_failures", failure.code)
        self._decided(exchange, answer, call, "failed", failure.detail)
        outcome = strict_failure(failure.code, failure.detail, exchange.route.options.bad_answers)
        if isinstance(outcome, ModelFault):
            raise outcome
        return text_block(call.block, outcome, call.choice)

    def _finish(self, exchange: Exchange, finish: Finish) -> None:
        answer, answers = _answer(exchange), range(1 + len(finish.others))
        choice = answer.choice
        if not choice.forces or answer.satisfied.issuperset(answers):
            return
        exchange.record.count("choice_missed")
        wanted = f"the tool {quote(choice.name)}" if choice.mode == "named" else "a tool"
        why = f"The model did not call {wanted}, as `tool_choice` demands."
        exchange.record.decided(CallDecision("missed", why))
        if exchange.route.options.bad_answers.choice_miss == "error":
            raise ModelFault(why, code="tool_choice_not_satisfied")
        LOG.warning("request %s: a required call was not made. %s", exchange.id, _remedy(exchange))


def _remedy(exchange: Exchange) -> str:
    """Returns what can make the model call, as text for the operator."""
    if exchange.tools_by == "server":
        return "The server was asked to enforce it. `mode: text` lets the gateway teach the tools and read the calls."
    if exchange.constrained:
        return "The server was asked to enforce it and did not: look at `constrain` of the backend and its version."
    return (
        "The server does not enforce calls in this format: name a feature that it has (`preset` or `constrain` of the "
        "backend), use `format: bare_json`, which more servers enforce, or raise `bad_answers.reask`."
    )


def _offered(exchange: Exchange, request: ModelRequest) -> tuple[ToolSpec, ...]:
    """Returns the tools that a call may name: those described in the prompt, or those sent to the native backend."""
    return exchange.offer.tools if exchange.offer is not None else request.callable_tools


def _written(use: ToolUse) -> str:
    """Returns a rejected call as JSON text, so that nothing of it is lost."""
    return dump({"name": use.name, "arguments": use.arguments}).decode()


def _answer(exchange: Exchange) -> _CheckedAnswer:
    """Returns the state of this answer, created at its first call for the request that `declare` saw."""
    state: _CheckedAnswer | ModelRequest | None = exchange.state.get(Arguments)
    if isinstance(state, _CheckedAnswer):
        return state
    request = state or exchange.request
    tools = _offered(exchange, request)
    offered = by_prompt_name(tools)
    answer = exchange.state[Arguments] = _CheckedAnswer(
        choice=request.tool_choice,
        offered=offered,
        known=offered if tools is request.tools else by_prompt_name(request.tools),
        schemas=exchange.state.setdefault(ToolSchemas, ToolSchemas()),
        ids=CallIds(request.messages, numbers=True),
        gateways=are_gateways(request.tools),
    )
    return answer
