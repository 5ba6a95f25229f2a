"""Finished calls against what was offered.

Every call is checked against its tool's schema (R9.4); where a type is wrong and can only mean one thing, it is
mended, unless the tool is strict (R23.3). A call that the scanner found was already judged by its form; one that a
native backend gave as a structure is judged here: name (R9.2), JSON (R9.3), absent arguments (R9.5), number of
calls (R2.19), an id that the conversation does not have yet. Arguments that are not JSON and cannot be repaired
never leave as a call: no client survives them, so what the model gave becomes visible text. A call without
arguments that its tool demands, of which nobody said that it is over, is left out, or ends the answer if it is its
first (R29.2). An unknown name is only counted: clients know best what to do with a call that they do not expect,
and so does the gateway, where it runs every tool on offer: then such a call is neither strict nor a near miss. A
demanded call that was not made is noticed at the end (R9.9). Calls that are given out while they come are not held
for this (R6.13): their tools are not strict, so nothing follows from a schema that they break but a warning.

Nothing is declared on a reply when no tool could be called, so such an answer keeps its bytes (R1.6).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import ClassVar, Final

from toolwire.call_policy.candidate import are_gateways
from toolwire.call_policy.coercion import coerce
from toolwire.call_policy.counted import CALL_FIELDS
from toolwire.call_policy.custom import custom_input, free_text
from toolwire.call_policy.ids import CallIds
from toolwire.call_policy.json_calls import settle_arguments
from toolwire.call_policy.near import NearMiss, near_name
from toolwire.call_policy.policy import FailureCode, strict_failure
from toolwire.errors import ModelFault, quote
from toolwire.events import Call, Event, Finish, Kind, text_block
from toolwire.formats.engine.rendering import by_prompt_name, prompt_name
from toolwire.model import ModelRequest, ToolChoice, ToolSpec, ToolUse
from toolwire.pipeline.chain.middleware import ChainPlace, Middleware
from toolwire.pipeline.chain.reply import Reply
from toolwire.pipeline.exchange.exchange import Exchange
from toolwire.protocols.shared.wire import dump, unfinished
from toolwire.record import AccessField
from toolwire.repair.repair import parses
from toolwire.schemas.schema import SchemaProblem, ToolSchema, ToolSchemas

LOG: Final = logging.getLogger("toolwire.arguments")


@dataclass(slots=True)
class _Answer:
    """What this middleware remembers of one answer. `made`: the choices with a call; `satisfied`: with one that was on
    offer. `gateways`: see `are_gateways`."""

    choice: ToolChoice
    offered: Mapping[str, ToolSpec]
    known: Mapping[str, ToolSpec]
    schemas: ToolSchemas
    ids: CallIds
    gateways: bool
    made: set[int] = field(default_factory=set)
    satisfied: set[int] = field(default_factory=set)

    def schema(self, tool: ToolSpec) -> ToolSchema:
        """The checker for a tool: the one that the validation left, else compiled here, once. Raises
        `SchemaProblem`."""
        return self.schemas.of(prompt_name(tool), tool.parameters)

    def is_strict(self, name: str) -> bool:
        """The named tool's own strictness; of an unknown name, strict if any tool of the request is (C28)."""
        tool = self.known.get(name)
        if tool is not None:
            return tool.strict is True
        return any(tool.strict is True for tool in self.known.values())


class _Failure(Exception):
    """The call breaks a rule. `counter` is counted if it is soft; then `near` is the near miss that it is, if it is
    one."""

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
    """The call with these arguments; of a custom tool, with the text in them. Raises `ValueError`."""
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
        AccessField("choice_missed", "A demanded call was not made."),
    )

    @classmethod
    def stands_behind(cls, place: ChainPlace) -> Mapping[str, str]:
        """See `Middleware.stands_behind`."""
        return {"execution": "which runs calls when they have been checked"}

    def declare(self, exchange: Exchange, reply: Reply) -> None:
        """See `Middleware.declare`."""
        request = exchange.request
        # In place of what is remembered of an earlier answer, if somebody further out asks again, perhaps for other
        # tools.
        exchange.state[Arguments] = request
        if _offered(exchange, request):
            wants = self.wants if request.tool_choice.forces else Kind.FINISHED_CALL
            reply.map(partial(self.on_event, exchange), wants, live=True)

    def on_event(self, exchange: Exchange, event: Event) -> Event | Iterable[Event] | None:
        """See `Middleware.on_event`. Raises `ModelFault` or `BackendFault`, which end the answer."""
        match event:
            case Call():
                return self._call(exchange, event)
            case Finish():
                self._finish(exchange, event)
        return event

    def _call(self, exchange: Exchange, call: Call) -> Event | Iterable[Event] | None:
        answer = _answer(exchange)
        count = exchange.record.count
        if call.source is None:
            if call.choice in answer.made and not exchange.received.parallel_tool_calls:
                count("dropped_parallel")
                return None
            if call.status == "truncated" and (call.use.kind == "custom" or not parses(call.use.arguments)):
                count("truncated_calls")
                return None
            if self._is_unsaid(answer, call):
                if call.choice not in answer.made:
                    raise unfinished()
                count("truncated_calls")
                return None
            call = self._with_use(call, replace(call.use, call_id=answer.ids.settle(call.use.call_id)))
        elif call.status == "truncated":
            return call  # given out while it came, and counted by the call policy
        tool = answer.offered.get(prompt_name(call.use))
        if tool is not None and tool.server:
            if call.source is None:  # a server that knows no groups was given another name
                call = self._with_use(call, replace(call.use, name=tool.name, namespace=tool.namespace))
            call = self._coerced(exchange, answer, tool, call)
            return self._made(exchange, answer, call)  # who runs it says to the model what is wrong (R15.5)
        if tool is None and answer.gateways:
            if call.source is None:  # else the call policy has counted it
                count("unknown_names")
            LOG.warning("request %s: %s is a call of no tool on offer", exchange.id, quote(call.use.name))
            return self._made(exchange, answer, call)  # likewise
        strict = answer.is_strict(prompt_name(call.use))
        try:
            if call.source is None:
                call = self._settled(exchange, answer, call, repair=not strict)
            flaw = self._flaw(answer, tool, call)
            if flaw is not None and tool is not None:
                mended = self._coerced(exchange, answer, tool, call)
                if mended is not call:
                    call, flaw = mended, self._flaw(answer, tool, mended)
            if flaw is not None:
                raise _unfit(call.use, flaw)
        except _Failure as failure:
            if strict:
                return self._refuse(exchange, call, failure)
            count(failure.counter)
            if failure.counter == "parse_failures":
                exchange.record.label("parse_failures", "arguments")
            LOG.warning("request %s: %s in a call of %s", exchange.id, failure.code, quote(call.use.name))
            if failure.near is not None:
                exchange.nearly(call.choice, failure.near)
            if failure.code == "malformed_tool_arguments":
                return text_block(call.block, _written(call.use), call.choice)
        return self._made(exchange, answer, call)

    @staticmethod
    def _is_unsaid(answer: _Answer, call: Call) -> bool:
        """Whether nobody said that a call without arguments is over, and its tool demands some: they may just not have
        come (R29.2)."""
        use = call.use
        tool = answer.offered.get(prompt_name(use))
        if use.kind == "custom" or use.arguments.strip() or tool is None or tool.strict is True:
            return False
        if tool.kind == "custom":
            return True
        try:
            return answer.schema(tool).check("{}") is not None
        except SchemaProblem:
            return False

    @staticmethod
    def _made(exchange: Exchange, answer: _Answer, call: Call) -> Call:
        """Note a call that goes on."""
        if call.source is None:
            exchange.record.count("calls")
        answer.made.add(call.choice)
        if prompt_name(call.use) in answer.offered:
            answer.satisfied.add(call.choice)
        return call

    def _settled(self, exchange: Exchange, answer: _Answer, call: Call, *, repair: bool) -> Call:
        """A call of a native backend with its name checked, its arguments put right, and in the client's words: a
        server that knows neither groups nor custom tools was given functions. Raises `_Failure`."""
        use = call.use
        tool = answer.offered.get(prompt_name(use))
        if tool is None:
            detail = f"The model called the tool {quote(use.name)}, which is not on offer."
            meant = near_name((use.name,), answer.offered, answer.offered)
            near = None if meant is None else NearMiss(f"{detail} Its name is {quote(meant)}.", (meant,))
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
        return self._with_use(call, named)

    @staticmethod
    def _with_use(call: Call, use: ToolUse) -> Call:
        """The whole call with this `use`; itself if that says the same."""
        if use == call.use and call.status == "complete":
            return call
        return Call(call.block, use, choice=call.choice, source=call.source)

    @staticmethod
    def _flaw(answer: _Answer, tool: ToolSpec | None, call: Call) -> str | None:
        """Why the arguments do not fit the tool's schema; None if they do."""
        if tool is None or call.use.kind == "custom":
            return None
        try:
            return answer.schema(tool).check(call.use.arguments)
        except SchemaProblem as problem:
            return f"it cannot be used. {problem.message}"

    def _coerced(self, exchange: Exchange, answer: _Answer, tool: ToolSpec, call: Call) -> Call:
        """The call with its arguments mended, if they do not fit the schema of a tool that is not strict (R23.3); else
        itself. What was given out while it came stays."""
        given_out = call.source == ""
        if given_out or tool.strict is True or exchange.route.options.calls.coerce == "off":
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
        return self._with_use(call, replace(call.use, arguments=mended.text))

    def _refuse(self, exchange: Exchange, call: Call, failure: _Failure) -> Iterable[Event]:
        exchange.record.count("strict_failures")
        exchange.record.label("strict_failures", failure.code)
        outcome = strict_failure(failure.code, failure.detail, exchange.route.options.bad_answers)
        if isinstance(outcome, ModelFault):
            raise outcome
        return text_block(call.block, outcome, call.choice)

    def _finish(self, exchange: Exchange, finish: Finish) -> None:
        choice = _answer(exchange).choice
        answers = range(1 + len(finish.others))
        if not choice.forces or _answer(exchange).satisfied.issuperset(answers):
            return
        exchange.record.count("choice_missed")
        wanted = f"the tool {quote(choice.name)}" if choice.mode == "named" else "a tool"
        if exchange.route.options.bad_answers.choice_miss == "error":
            raise ModelFault(
                f"The model did not call {wanted}, as `tool_choice` demands.", code="tool_choice_not_satisfied"
            )
        LOG.warning("request %s: a demanded call was not made", exchange.id)


def _offered(exchange: Exchange, request: ModelRequest) -> tuple[ToolSpec, ...]:
    """The tools that a call may name: what was taught to the model, or what the native backend was given."""
    return exchange.offer.tools if exchange.offer is not None else request.callable_tools


def _written(use: ToolUse) -> str:
    """A call that is none, as text: nothing is lost."""
    return dump({"name": use.name, "arguments": use.arguments}).decode()


def _answer(exchange: Exchange) -> _Answer:
    """What is remembered of this answer; made for its first call, of the request that it was declared for."""
    kept: _Answer | ModelRequest | None = exchange.state.get(Arguments)
    if isinstance(kept, _Answer):
        return kept
    request = kept or exchange.request
    answer = exchange.state[Arguments] = _Answer(
        choice=request.tool_choice,
        offered=by_prompt_name(_offered(exchange, request)),
        known=by_prompt_name(request.tools),
        schemas=exchange.state.setdefault(ToolSchemas, ToolSchemas()),
        ids=CallIds(request.messages, numbers=True),
        gateways=are_gateways(request.tools),
    )
    return answer
