"""The call policy: what of the text that a scanner found becomes a call (R9).

Rules of this module:

1. A call policy never raises and never waits. Whatever a model wrote becomes calls, text, nothing, or one error.
2. Nothing is half done: a block that holds several calls, one of them bad, is text as a whole (soft) or a failure
   (strict). So no call runs that the model wrote together with one that the client never sees. Where calls are given
   out while they come (R6.13) that can only hold for what was not given out: there a call is judged alone as soon as
   the next one of its block begins, and if the rest is bad the answer fails.
3. What stands in a block, in whatever encoding, `assembly.py` says; here is what becomes of it.
4. "Strict" is the named tool's own `strict: true`; where no tool of the offer is named, strict if any tool is (C28).

5. A block in a form that was not taught is a call only if all in it pass the test of `recognised.py`, else it is text:
   never a failure, never held, and nothing that looked like a call by chance is counted as one that failed.
6. Where the gateway runs every tool on offer, a call of another name in the taught form is a call too: who runs calls
   says to the model that there is no such tool (R15.5). It is never strict, and no near miss: it has its answer.

Schemas of calls in the taught form are not looked at here (R9.4): they concern calls of native backends as well, see
`middlewares/arguments.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Final, Literal

from ..config import BadAnswersConfig, LimitsConfig, RouteOptions
from ..errors import GatewayError, ModelFault, quote
from ..formats.recognition import BARE
from ..formats.rendering import prompt_parameters
from ..model import CallKind, ToolChoice, ToolSpec
from ..scan._grammar import AS_TEXT, DROPPED, Block, BlockSyntax, Decision, Field, Found, ValueKind, Why
from ..scan.repair import REPAIR_KINDS, compact_json
from .assembly import Assembly, assemble, begun, begun_member, member
from .candidate import CandidateCall, Names, names_on_offer, settled
from .heads import is_object, is_only_a_name, reading_on_offer
from .ids import CallIds
from .json_calls import raw_arguments, settle_arguments
from .near import NearMiss, is_marked, is_template, means_call, misfit, near_name, recites, unreadable
from .recognised import RECITED, Recogniser, Schemas, Unrecognised, checker
from .untyped import ParameterTypes
from .written import WrittenCall

__all__ = ["CallPolicy", "FailureCode", "settle_arguments", "strict_failure"]

FailureCode = Literal["malformed_tool_arguments", "invalid_tool_arguments", "unknown_tool_call"]

REPAIRS: Final = (*REPAIR_KINDS, "closer")
"""How a call can have been repaired: its JSON, or its closing tag was missing."""

PARSE_FAILURES: Final = ("unclosed", "unreadable", "oversize", "arguments")
"""Why a block is no call: it has no end, it is not written as its format says, it is too large, its arguments are no
JSON."""

_UNTYPED: Final = ParameterTypes(None)
_BROKEN: Final = "The model's tool call cannot be read: it is neither JSON nor a call in Python."
_UNENDED: Final = "The answer ended inside a tool call."


def strict_failure(code: FailureCode, detail: str, options: BadAnswersConfig) -> ModelFault | str:
    """What a strict failure becomes under `options.strict_failure` (R9.6): the error that ends the answer, or the text
    that stands in the place of the call."""
    if options.strict_failure == "assistant_message":
        return f"[tool call rejected: {code}: {detail}]"
    return ModelFault(detail, code=code)


class _Rejected(Exception):
    """Not a call: text if soft, a failure if strict. `counter` is counted either way, `reason` is the label of it.
    `near` is the near miss that it is, if it is one. `name` is that of a tool which is not on offer."""

    def __init__(
        self,
        code: FailureCode,
        detail: str,
        *,
        strict: bool,
        counter: str | None = None,
        reason: str | None = None,
        near: NearMiss | None = None,
        name: str | None = None,
    ) -> None:
        super().__init__(detail)
        self.code = code
        self.detail = detail
        self.strict = strict
        self.counter = counter
        self.reason = reason
        self.near = near
        self.name = name


class CallPolicy:
    """Decides about the blocks of one answer, in order of appearance: the `CallPolicy` of `proxy.scan._grammar`.

    `tools` and `choice` say which names may be called; with `tools` None any name may and nothing is strict. Without
    `parallel` everything after the first call is dropped (R2.19). `count` is called with the name of a counter:
    `calls`, `repaired`, `object_arguments`, `unclosed_repaired` for calls that are emitted; `parse_failures`,
    `unknown_names`, `excess_calls`, `strict_failures` for blocks that are not; `dropped_parallel`, `deduped`,
    `truncated_calls` for what vanishes; `withdrawn_calls` for those that had begun to go out (R6.13). `label` is called
    with the name of a counter and what more is to be said: how a call was `repaired` (`REPAIRS`), the reason of
    `parse_failures` (`PARSE_FAILURES`), the code of `strict_failures`. `near` is told of text that
    tried to be a call (R23.4). `refused` is told why a block in the taught form is no call, and
    the name that it gave if that is none of a tool on offer. `ids` gives the calls their ids.

    Of forms that were not taught: calls are counted as `recognised` besides, the label is the family of the syntax,
    those in a damaged or unknown form (R30.1) as `recovered` too, and as `coerced` if they were mended; what names a
    tool on offer and is none, as `unrecognised`, the label is one of `REASONS`. `schemas` has the checkers for the
    tools; default: they are compiled here. While `recognises` is off, nothing in such a form is a call.
    """

    def __init__(
        self,
        tools: Sequence[ToolSpec] | None,
        *,
        choice: ToolChoice,
        parallel: bool,
        options: RouteOptions,
        limits: LimitsConfig,
        count: Callable[[str], object] | None = None,
        label: Callable[[str, str], object] | None = None,
        near: Callable[[NearMiss], object] | None = None,
        refused: Callable[[str, str | None], object] | None = None,
        ids: CallIds | None = None,
        schemas: Schemas | None = None,
    ) -> None:
        self.recognises = True
        self.unwrap = options.calls.sentinel_arguments != "string"
        self._tools = tools
        self._choice = choice
        self._names: Names | None = None
        self._parallel = parallel
        self._calls = options.calls
        self._bad_answers = options.bad_answers
        self._limits = limits
        self._count: Callable[[str], object] = count or (lambda name: None)
        self._label: Callable[[str, str], object] = label or (lambda name, label: None)
        self._near: Callable[[NearMiss], object] = near or (lambda miss: None)
        self._refused: Callable[[str, str | None], object] = refused or (lambda why, name: None)
        self._ids = ids or CallIds()
        self._made = 0
        self._live = 0  # calls that were opened, and are not judged yet
        self._seen: set[tuple[str, str]] = set()
        self._parameters = _UNTYPED  # of the call that was opened last
        self._schemas = schemas
        self._recogniser: Recogniser | None = None  # until a block is found in a form that was not taught

    def block(self, block: Block) -> Decision:
        """See `proxy.scan._grammar.CallPolicy`. A block whose closer is missing is a call only if the rest is complete
        (R6.8)."""
        if block.syntax.untaught:
            return self._untaught(block)
        if block.opened is not None:
            self._live -= 1
        if self._made and not self._parallel:
            self._count("dropped_parallel")
            return DROPPED
        if block.pieces and block.pieces[-1][0] == "said":  # and nothing after it
            return Decision(replacement=block.pieces[-1][1])
        try:
            calls = self._wanted(self._read(block))
        except _Rejected as rejected:
            return self._refuse(rejected)
        if not block.closed:
            self._count("unclosed_repaired")
        if not calls:
            return DROPPED
        first, *others = calls  # the one that was opened, if any was
        return Decision(calls=(self._emit(first, block.opened), *[self._emit(call, None) for call in others]))

    @property
    def callable_names(self) -> tuple[str, ...]:
        """See `proxy.scan._grammar.CallPolicy`."""
        return self._offered.callable

    def may_call(self, name: str, untaught: bool) -> bool:
        """See `proxy.scan._grammar.CallPolicy`. Whoever runs all tools answers for any name (rule 6)."""
        known, allowed, *_, gateways = self._offered
        if allowed is None or (gateways and not untaught):
            return True
        return name in allowed or near_name((name,), known, allowed) is not None

    @property
    def strict(self) -> bool:
        """See `proxy.scan._grammar.CallPolicy`."""
        return self._offered.strict

    def opening(self, syntax: BlockSyntax, pieces: tuple[tuple[Field, str], ...]) -> Found | None:
        """See `proxy.scan._grammar.CallPolicy`. Not for a strict tool, one that takes free text, or where calls are
        compared."""
        options = self._calls
        most = self._limits.calls_per_response if self._parallel else 1
        if options.dedupe_calls or self._made + self._live >= most:
            return None
        try:
            written, tool, strict = self._named(begun(syntax, pieces))
        except _Rejected:
            return None
        if strict or (tool is not None and tool.kind == "custom"):
            return None
        self._parameters = types = ParameterTypes(None if tool is None else prompt_parameters(tool))
        if is_object(syntax) and any(key in types.names for key in syntax.parameters):
            return None  # whether what stands there is all arguments or one of them shows only at its end
        self._live += 1
        call_id = self._ids.settle(written.call_id)
        if tool is None:
            return Found(written.name, call_id, "")
        return Found(tool.name, call_id, "", namespace=tool.namespace)

    def argument(self, syntax: BlockSyntax, opened: Found, key: str, value: str) -> str:
        """See `proxy.scan._grammar.CallPolicy`."""
        return member(syntax, key, value, self._parameters)

    def value_kind(self, syntax: BlockSyntax, opened: Found, key: str, begun: str) -> tuple[str, ValueKind]:
        """See `proxy.scan._grammar.CallPolicy`."""
        return begun_member(syntax, key, begun, self._parameters)

    def withdrawn(self, opened: Found) -> GatewayError:
        """See `proxy.scan._grammar.CallPolicy`."""
        self._count("withdrawn_calls")
        detail = f"The model's call of {quote(opened.name)} is malformed: it did not end as it began."
        return ModelFault(detail, code="malformed_tool_arguments")

    def unfinished(self, syntax: BlockSyntax, body: str, why: Why) -> Decision:
        """CallPolicy a block that has no end (R6.8, R6.9). What the backend cut off for length vanishes and is counted,
        also if it is strict (C18); else it is text or a failure."""
        if syntax.untaught:
            if why == "end" and self.recognises:
                self._note_untaught(unreadable(_UNENDED, syntax, body, self._offered, ended=False))
            return AS_TEXT
        if why == "truncated" and is_only_a_name(syntax, body):
            return AS_TEXT
        if why == "truncated":
            self._count("truncated_calls")
            return DROPPED
        if why == "oversize":
            detail, reason = f"The model's tool call is larger than {self._limits.block_bytes} bytes.", "oversize"
        else:
            again = self._read_as_untaught(syntax, body)
            if again is not None:
                return again
            detail, reason = _UNENDED, "unclosed"
        return self._refuse(self._unreadable(detail, reason, syntax, "" if why == "oversize" else body, ended=False))

    def broken(self, syntax: BlockSyntax, begun: str) -> None:
        """See `proxy.scan._grammar.CallPolicy`."""
        if self.recognises:
            self._note_untaught(unreadable(_BROKEN, syntax, begun, self._offered, cut=True))

    def _note_untaught(self, miss: NearMiss | None) -> None:
        """Note the near miss that a block is whose form was not taught, if it is one."""
        if miss is not None:
            self._count("unrecognised")
            self._label("unrecognised", "arguments")
            self._near(miss)

    def _read_as_untaught(self, syntax: BlockSyntax, body: str) -> Decision | None:
        """What lacks the last brackets of the taught form, where that is JSON without markers, is as good as if nobody
        had taught it."""
        if syntax.opener or self._live or self._calls.recognise == "taught":
            return None
        printed = replace(syntax, family=BARE, untaught=True)
        decision = self._untaught(Block(printed, body, (("calls", body),), closed=True, broken=True))
        return None if decision is AS_TEXT else decision

    def _refuse(self, rejected: _Rejected) -> Decision:
        self._refused(rejected.detail, rejected.name)
        if rejected.counter is not None:
            self._count(rejected.counter)
            if rejected.reason is not None:
                self._label(rejected.counter, rejected.reason)
        if not rejected.strict:
            if rejected.near is not None:
                self._near(rejected.near)
            return AS_TEXT
        self._count("strict_failures")
        self._label("strict_failures", rejected.code)
        outcome = strict_failure(rejected.code, rejected.detail, self._bad_answers)
        return Decision(replacement=outcome) if isinstance(outcome, str) else Decision(error=outcome)

    def _emit(self, call: CandidateCall, opened: Found | None) -> Found:
        self._made += 1
        self._count("calls")
        if call.repaired:
            self._count("repaired")
            for step in call.repaired:
                self._label("repaired", step)
        if call.unwrapped:
            self._count("object_arguments")
        if call.coerced:
            self._count("coerced")
            for reading in call.coerced:
                self._label("coerced", reading)
        tool = call.tool
        call_id = self._ids.settle(call.call_id) if opened is None else opened.call_id
        if tool is None:
            return Found(call.name, call_id, call.arguments, source=call.source)
        kind: CallKind = "custom" if tool.kind == "custom" else "function"
        return Found(tool.name, call_id, call.arguments, kind, tool.namespace, call.source)

    def _wanted(self, calls: Sequence[CandidateCall]) -> list[CandidateCall]:
        """The calls that are to be emitted: not repeated (C32), not parallel where that is off, not too many (R6.9)."""
        wanted: list[CandidateCall] = []
        for call in calls:
            if self._calls.dedupe_calls:
                key = (call.name, call.arguments if call.is_custom else compact_json(call.arguments))
                if key in self._seen:
                    self._count("deduped")
                    continue
                self._seen.add(key)
            if wanted and not self._parallel:
                self._count("dropped_parallel")
                continue
            wanted.append(call)
        most = self._limits.calls_per_response
        if self._made + len(wanted) > most:
            detail, strict = f"The model made more than {most} tool calls in one answer.", any(c.strict for c in wanted)
            raise _Rejected("malformed_tool_arguments", detail, strict=strict, counter="excess_calls")
        return wanted

    def _read(self, block: Block) -> Sequence[CandidateCall]:
        """The calls in a block. Raises `_Rejected`: the first strict failure, else the first soft one."""
        options = self._calls
        if not block.closed and options.unclosed != "repair":
            detail = "The closing tag of the model's tool call is missing."
            rejected = self._unreadable(detail, "unclosed", block.syntax, block.body, block.pieces)
            rejected.strict = options.unclosed == "error"
            raise rejected
        try:
            found = assemble(block, repair=options.repair == "safe")
        except ValueError as error:
            detail = f"The model's tool call cannot be read: {error}."
            raise self._unreadable(detail, "unreadable", block.syntax, block.body, block.pieces) from None
        if not found.calls and block.syntax.opener and not block.syntax.first_keys:
            return []  # a list of no calls between its own tags
        if not found.calls:
            raise _Rejected("malformed_tool_arguments", "The model's tool call is empty.", strict=False)
        calls: list[CandidateCall] = []
        failures: list[_Rejected] = []
        for written in found.calls:
            try:
                calls.append(self._call(written, found, block))
            except _Rejected as rejected:
                unknown = self._unknown(written, rejected, block)
                if unknown is not None:
                    calls.append(unknown)
                    continue
                failures.append(rejected)
        if failures:
            first = next((failure for failure in failures if failure.strict), failures[0])
            near = [failure.near for failure in failures if failure is not first and failure.near is not None]
            if first.near is not None and first.near.place == "alone" and near:
                first.near = None  # a list of tools that was asked for
            elif first.near is not None:
                first.near = first.near.beside(*(miss.tools for miss in near), [call.name for call in calls])
            raise first
        return calls

    @property
    def _offered(self) -> Names:
        """Noted when it is asked for first: most answers hold no call."""
        if self._names is None:
            self._names = names_on_offer(self._tools, self._choice)
        return self._names

    def _named(self, written: WrittenCall) -> tuple[WrittenCall, ToolSpec | None, bool]:
        """The reading of a call that names a tool which may be called, the tool, and whether that is strict. Raises
        `_Rejected`."""
        known, allowed, *_ = self._offered
        written = reading_on_offer(written, known)
        name = written.name
        if not name:
            detail = "The model's tool call has no name."
            raise _Rejected("unknown_tool_call", detail, strict=self.strict, counter="unknown_names")
        tool = known.get(name)
        strict = self.strict if tool is None else tool.strict is True
        if allowed is not None and name not in allowed:
            detail = f"The model called the tool {quote(name)}, which is not on offer."
            meant = near_name((name, written.alias), known, allowed)
            near = None if meant is None else NearMiss(f"{detail} Its name is {quote(meant)}.", (meant,))
            raise _Rejected("unknown_tool_call", detail, strict=strict, counter="unknown_names", near=near, name=name)
        return written, tool, strict

    def _call(self, written: WrittenCall, found: Assembly, block: Block) -> CandidateCall:
        """The call of a tool that may be called, with its arguments. Raises `_Rejected`."""
        try:
            return self._read_call(written, found, block)
        except _Rejected as rejected:
            if (near := rejected.near) is not None and near.place != "alone":
                miss = misfit(near.why, block.syntax, block.body, written)
                rejected.near = None if miss is None else replace(miss, tools=near.tools)
            raise

    def _read_call(self, written: WrittenCall, found: Assembly, block: Block) -> CandidateCall:
        written, tool, strict = self._named(written)
        name = written.name
        if tool is not None and recites(written, lambda: ParameterTypes(prompt_parameters(tool)).names):
            detail = RECITED.format(quote(name))
            near = NearMiss(detail, (name,), block.body, "alone")
            raise _Rejected(
                "malformed_tool_arguments",
                detail,
                strict=strict,
                counter="parse_failures",
                reason="arguments",
                near=near,
            )
        try:
            if strict and found.flaw is not None:
                raise ValueError(found.flaw)
            arguments, repaired, unwrapped = settled(written, tool, self._calls, strict=strict)
            if (repaired or found.repaired) and is_template(block.body):
                raise ValueError("it is a template")
        except ValueError as error:
            unread = raw_arguments(written.arguments) if tool is not None and tool.server else None
            if unread is not None:  # who runs it tells the model what is wrong (R15.5)
                return CandidateCall(name, unread, tool, False, (), False, written.call_id, written.source)
            detail = f"The model's call of {quote(name)} is malformed: {error}."
            raise _Rejected(
                "malformed_tool_arguments",
                detail,
                strict=strict,
                counter="parse_failures",
                reason="arguments",
                near=NearMiss(detail, (name,)),
            ) from None
        mended = dict.fromkeys((*found.repaired, *repaired, *(() if block.closed else ("closer",))))
        return CandidateCall(name, arguments, tool, strict, mended, unwrapped, written.call_id, written.source)

    def _unknown(self, written: WrittenCall, rejected: _Rejected, block: Block) -> CandidateCall | None:
        """The call of a tool that is not on offer, for who runs calls; rule 6."""
        name, syntax = rejected.name, block.syntax
        if name is None or not self._offered.gateways or not means_call(syntax, block.body, written):
            return None
        try:
            arguments = settled(written, None, self._calls, strict=False).text
        except ValueError:
            if not is_marked(syntax):
                return None
            arguments = raw_arguments(written.arguments) or ""
        self._count("unknown_names")
        return CandidateCall(name, arguments, None, False, (), False, written.call_id, written.source)

    # --- forms that were not taught ---------------------------------------------------------------------------------

    def _untaught(self, block: Block) -> Decision:
        """The decision on a block in a form that was not taught."""
        if self._recogniser is None:
            self._recogniser = Recogniser(self._calls, self._schemas or partial(checker, limits=self._limits))
        before = 0
        try:
            if not self.recognises:
                return AS_TEXT
            if block.reasoning and len(block.pieces) == 1:
                return Decision(drop=True, reasoning=block.reasoning)
            if block.syntax.loose:
                calls, before = self._recogniser.recovered(block, self._offered)
            else:
                calls = self._recogniser.calls(block, self._offered)
        except Unrecognised as unrecognised:
            self._count("unrecognised")
            self._label("unrecognised", unrecognised.reason)
            if unrecognised.near is not None:
                self._near(unrecognised.near)
            return AS_TEXT
        if not calls:
            return AS_TEXT
        if self._made and not self._parallel:
            self._count("dropped_parallel")
            return DROPPED
        try:
            wanted = self._wanted(calls)
        except _Rejected as rejected:
            rejected.strict = False
            return self._refuse(rejected)
        if not block.closed:
            self._count("unclosed_repaired")
        for _ in wanted:
            self._count("recognised")
            self._label("recognised", block.syntax.family)
            if block.syntax.loose:
                self._count("recovered")
        found = tuple(self._emit(call, None) for call in wanted)
        return Decision(calls=found, drop=not wanted, before=before, reasoning=block.reasoning)

    def _unreadable(
        self,
        detail: str,
        reason: str,
        syntax: BlockSyntax,
        body: str,
        pieces: Sequence[tuple[Field, str]] = (),
        *,
        ended: bool = True,
    ) -> _Rejected:
        near = unreadable(detail, syntax, body, self._offered, pieces=pieces, ended=ended)
        counter, strict = "parse_failures", self.strict
        return _Rejected("malformed_tool_arguments", detail, strict=strict, counter=counter, reason=reason, near=near)
