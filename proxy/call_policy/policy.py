"""The call policy: decides whether a block that the scanner found becomes calls, text, nothing or an error (R9).

Rules of this module:

1. A call policy never raises and never waits. Any text of a model becomes calls, text, nothing, or one error.
2. A block is handled as a whole: if one of its calls is bad, the block is text (soft) or a failure (strict). So no call
   runs that the model wrote together with one that the client never sees. Streamed calls (R6.13) are an exception: each
   is judged alone as soon as the next one of its block begins, and if the rest is bad, the answer fails.
3. `assembly.py` reads the content of a block in every encoding, `taught.py` finds the calls in it. This module decides
   what happens with them.
4. A block in an untaught form is a call only if all its calls pass the test of `recognised.py`; else it is text. It is
   never a failure, never held back, and never counted as a failed call.
5. If the gateway runs all tools on offer, a call of an unknown name in the taught form is a call too: the gateway then
   tells the model that there is no such tool (R15.5). Such a call is never strict and no near miss.

The arguments of calls in the taught form are not checked against schemas here (R9.4), because that also applies to
calls of native backends, see `middlewares/arguments.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from ..config import BadAnswersConfig, LimitsConfig, RouteOptions
from ..errors import GatewayError, ModelFault, quote
from ..formats.engine.rendering import prompt_parameters
from ..formats.recognised.recognition import BARE
from ..model import CallKind, ToolChoice, ToolSpec
from ..repair.relaxed_json import REPAIR_KINDS, compact_json
from ..scan._grammar import AS_TEXT, DROPPED, Block, BlockSyntax, Decision, EarlyCall, Field, FoundCall, Why
from ..schemas.schema import SchemaProblem
from .assembly import begin_call
from .candidate import CandidateCall, names_on_offer
from .coercion import coerce
from .early import InputGate, SafeCall, ValueGate
from .ids import CallIds
from .json_calls import settle_arguments
from .near import NearMiss, unreadable_block
from .recognised import Recogniser, Schemas, Unrecognised, checker
from .taught import FailureCode, Rejected, TaughtReader, has_object_calls, is_only_a_name
from .untyped import ParameterTypes
from .written import NAMESPACE

__all__ = ["CallPolicy", "FailureCode", "settle_arguments", "strict_failure"]

REPAIRS: Final = (*REPAIR_KINDS, "closer")
"""The kinds of repair: of its JSON, or of a missing closing tag."""

PARSE_FAILURES: Final = ("unclosed", "unreadable", "oversize", "arguments")
"""Why a block is not a call: it has no end, it does not follow its format, it is too large, or its arguments are not
JSON."""

_UNTYPED: Final = ParameterTypes(None)
_BROKEN: Final = "The model's tool call cannot be read: it is neither JSON nor a call in Python."
_UNENDED: Final = "The answer ended inside a tool call."


def strict_failure(code: FailureCode, detail: str, options: BadAnswersConfig) -> ModelFault | str:
    """Returns the outcome of a strict failure under `options.strict_failure` (R9.6): the error that ends the answer, or
    the text that replaces the call."""
    if options.strict_failure == "assistant_message":
        return f"[tool call rejected: {code}: {detail}]"
    return ModelFault(detail, code=code)


class CallPolicy:
    """Decides about the blocks of one answer, in order of appearance; implements `toolwire.scan._grammar.BlockPolicy`.

    `tools` and `choice` determine which names may be called; with `tools` None any name may, and nothing is strict.
    Without `parallel` everything after the first call is dropped (R2.19). `ids` gives calls their ids. `schemas`
    returns the checkers of tools (default: compiled here). With `recognises` False, no block in an untaught form is a
    call. With `shows_cut`, a block that the answer's end cut off is text.

    Callbacks:

    - `count` gets the name of a counter. For emitted calls: `calls`, `repaired`, `coerced`, `object_arguments`,
      `unclosed_repaired`, `recognised` (untaught form), `recovered` (damaged or unknown form, R30.1). For refused
      blocks: `parse_failures`, `unknown_names`, `excess_calls`, `strict_failures`, `unrecognised` (untaught, but names
      a tool on offer). For dropped calls: `dropped_parallel`, `deduped`, `truncated_calls`; for streamed calls that
      failed (R6.13): `withdrawn_calls`.
    - `label` gets the name of a counter and its label: the kind of repair (`REPAIRS`) or conversion, the reason of
      `parse_failures` (`PARSE_FAILURES`) or `unrecognised` (`REASONS`), the code of `strict_failures`, the family of
      `recognised` calls.
    - `near` gets each near miss (R23.4). `refused` gets the reason why a block in the taught form is not a call, and
      its name if no tool on offer has it.
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
        self.shows_cut = False
        self.unwrap = options.calls.sentinel_arguments != "string"
        self._parallel = parallel
        self._calls = options.calls
        self._bad_answers = options.bad_answers
        self._limits = limits
        self._count: Callable[[str], object] = count or (lambda name: None)
        self._label: Callable[[str, str], object] = label or (lambda name, label: None)
        self._taught = TaughtReader(names_on_offer(tools, choice), options.calls, self._count)
        self._near: Callable[[NearMiss], object] = near or (lambda miss: None)
        self._refused: Callable[[str, str | None], object] = refused or (lambda why, name: None)
        self._ids = ids or CallIds()
        self._made = 0
        self._live = 0  # streamed calls that are not judged yet
        self._seen: set[tuple[str, str]] = set()
        self._schema: Schemas = schemas or partial(checker, limits=self._limits)
        self._recogniser: Recogniser | None = None  # created for the first block in an untaught form

    def block(self, block: Block) -> Decision:
        """Returns the decision about a finished block. A block without its closer is a call only if the rest is
        complete (R6.8)."""
        if block.syntax.untaught:
            return self._untaught(block)
        if block.opened is not None:
            self._live -= 1
        if self._made and not self._parallel:
            self._count("dropped_parallel")
            return DROPPED
        if block.pieces and block.pieces[-1][0] == "said" and not block.broken:  # and nothing after it
            return Decision(replacement=block.pieces[-1][1])
        try:
            calls = self._wanted(self._taught.read(block))
        except Rejected as rejected:
            return self._refuse(rejected)
        if not block.closed:
            self._count("unclosed_repaired")
        if not calls:
            return DROPPED
        first, *others = calls
        if block.opened is not None:  # then it is the first
            first = self._coerced(first, block.opened.arguments)
        return Decision(calls=(self._emit(first, block.opened), *[self._emit(call, None) for call in others]))

    @property
    def callable_names(self) -> tuple[str, ...]:
        """The names that may be called; empty if any name may."""
        return self._taught.offered.callable

    def may_call(self, name: str, untaught: bool) -> bool:
        """Returns True if an unmarked object with this name may be a call or a near miss. If the gateway runs all
        tools, any name may be called (rule 5)."""
        _, allowed, *_, gateways = self._taught.offered
        if allowed is None or (gateways and not untaught):
            return True
        return name.removeprefix(NAMESPACE) in allowed or name in allowed or self._taught.meant(name) is not None

    @property
    def strict(self) -> bool:
        """True if any tool on offer is strict."""
        return self._taught.offered.strict

    def opening(self, syntax: BlockSyntax, pieces: tuple[tuple[Field, str], ...]) -> EarlyCall | None:
        """Returns the call if it may be streamed before its block ends (R6.13). None for strict tools, tools that the
        gateway runs, tools whose client wants arguments in one piece, and where calls are compared
        (`dedupe_calls`)."""
        try:
            written, tool, strict = self._taught.named(begin_call(syntax, pieces))
        except Rejected:
            return None
        if self._calls.dedupe_calls or strict or self._taught.offered.gateways or self._is_full():
            return None
        if tool is None:
            return SafeCall(partial(self._open, FoundCall(written.name, "", ""), written.call_id), _UNTYPED)
        types = ParameterTypes(prompt_parameters(tool))
        if tool.server or tool.buffered:
            return None
        if has_object_calls(syntax) and any(key in types.names for key in syntax.parameters):
            return None  # only its end shows whether the value is all arguments or one of them
        custom = tool.kind == "custom"
        call = FoundCall(tool.name, "", "", "custom" if custom else "function", tool.namespace)
        gate = InputGate() if custom else ValueGate(prompt_parameters(tool)) if self._calls.coerce == "safe" else None
        return SafeCall(partial(self._open, call, written.call_id), types, gate)

    def _is_full(self) -> bool:
        """Returns whether the answer has all calls that it may have."""
        return self._made + self._live >= (self._limits.calls_per_response if self._parallel else 1)

    def _open(self, call: FoundCall, call_id: str | None) -> FoundCall | None:
        """Returns a call that is streamed from now on, with its id; None if the answer may have no further call."""
        if self._is_full():
            return None
        self._live += 1
        return replace(call, call_id=self._ids.settle(call_id))

    def withdrawn(self, opened: FoundCall, *, cut: bool) -> GatewayError:
        """Returns the error for a streamed call whose final arguments differ from what was sent, or that was `cut` off
        in a form whose half looks complete to the client."""
        self._count("withdrawn_calls")
        flaw = "was cut off" if cut else "is malformed: it did not end as it began"
        return ModelFault(f"The model's call of {quote(opened.name)} {flaw}.", code="malformed_tool_arguments")

    def unfinished(self, syntax: BlockSyntax, body: str, why: Why) -> Decision:
        """Returns the decision about a block without an end (R6.8, R6.9). A block that the backend cut off for length
        is dropped and counted, even if it is strict (C18), unless `shows_cut`; any other is text or a failure."""
        if syntax.untaught:
            if why == "end" and self.recognises:
                self._note_untaught(unreadable_block(_UNENDED, syntax, body, self._taught.offered, ended=False))
            return AS_TEXT
        if why == "truncated" and (self.shows_cut or is_only_a_name(syntax, body)):
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
        return self._refuse(
            self._taught.unreadable(detail, reason, syntax, "" if why == "oversize" else body, ended=False)
        )

    def broken(self, syntax: BlockSyntax, begun: str) -> None:
        """Reports the near miss of an untaught block that turned out to be text, if it is one."""
        if self.recognises:
            self._note_untaught(unreadable_block(_BROKEN, syntax, begun, self._taught.offered, cut=True))

    def _note_untaught(self, miss: NearMiss | None) -> None:
        """Counts and reports the near miss of a block in an untaught form, if it is one."""
        if miss is not None:
            self._count("unrecognised")
            self._label("unrecognised", "arguments")
            self._near(miss)

    def _read_as_untaught(self, syntax: BlockSyntax, body: str) -> Decision | None:
        """Returns the decision about a taught block whose last brackets are missing, read as an untaught one; None if
        it is text. Only for JSON without markers."""
        if syntax.opener or self._live or self._calls.recognise == "taught":
            return None
        printed = replace(syntax, family=BARE, untaught=True)
        decision = self._untaught(Block(printed, body, (("calls", body),), closed=True, broken=True, first=True))
        return None if decision is AS_TEXT else decision

    def _refuse(self, rejected: Rejected) -> Decision:
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

    def _emit(self, call: CandidateCall, opened: FoundCall | None) -> FoundCall:
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
            return FoundCall(call.name, call_id, call.arguments, source=call.source)
        kind: CallKind = "custom" if tool.kind == "custom" else "function"
        return FoundCall(tool.name, call_id, call.arguments, kind, tool.namespace, call.source)

    def _coerced(self, call: CandidateCall, sent: str) -> CandidateCall:
        """Returns a call of which `sent` was streamed, with arguments converted to the types of its schema if they do
        not fit (R23.3). Those of other calls are converted when they are checked, see `middlewares/arguments.py`."""
        if call.tool is None or call.is_custom or self._calls.coerce == "off":
            return call
        try:
            schema = self._schema(call.tool)
        except SchemaProblem:
            return call
        mended = None if schema.check(call.arguments) is None else coerce(call.arguments, schema)
        if mended is None or not mended.text.startswith(sent):
            return call
        return replace(call, arguments=mended.text, coerced=(*call.coerced, *mended.kinds))

    def _wanted(self, calls: Sequence[CandidateCall]) -> list[CandidateCall]:
        """Returns the calls to be emitted: without repetitions (C32) and, if parallel calls are off, only one. Raises
        `Rejected` if there are too many (R6.9)."""
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
            raise Rejected("malformed_tool_arguments", detail, strict=strict, counter="excess_calls")
        return wanted

    # --- untaught forms ------------------------------------------------------------------------------------------

    def _untaught(self, block: Block) -> Decision:
        """Returns the decision about a block in an untaught form."""
        if self._recogniser is None:
            self._recogniser = Recogniser(self._calls, self._schema)
        before, said = 0, ("", "")
        try:
            if not self.recognises:
                return AS_TEXT
            if block.reasoning and len(block.pieces) == 1:
                return Decision(drop=True, reasoning=block.reasoning)
            if block.syntax.loose:
                calls, before = self._recogniser.recovered(block, self._taught.offered)
            else:
                calls, said = self._recogniser.calls(block, self._taught.offered)
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
        except Rejected as rejected:
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
        thought, content = said
        reasoning = block.reasoning or thought
        return Decision(calls=found, drop=not wanted, replacement=content or None, before=before, reasoning=reasoning)
