"""Scanners of the texts of one reply, each with its call policy.

Each of several answers (`choice`) has a scanner. They number their blocks in separate ranges; the server's blocks keep
lower numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Final, NamedTuple

from ...call_policy.candidate import names_on_offer
from ...call_policy.ids import CallIds
from ...call_policy.near import NearMiss
from ...call_policy.policy import CallPolicy
from ...call_policy.recognised import Schemas
from ...config import LimitsConfig, RouteOptions
from ...events import BlockKind, Event, Open
from ...fastparse import CallScanner
from ...formats.base import ToolFormat
from ...formats.engine.rendering import prompt_name
from ...formats.recognised.recognition import recognising
from ...model import Message, ToolUse
from ...record import CallDecision, Decided
from ...scan._grammar import Grammar, Node, without_calls
from ...scan.spans import Span
from ...scanner import Signs, build_scanner, signs_of, triggers
from .offered_tools import OfferedTools
from .preopened import Pair, ReasoningTags, keep_closing_tags, marks_of, pairs_of

_PER_CHOICE: Final = 1 << 32


@lru_cache(maxsize=256)
def not_taught(tool_format: ToolFormat) -> ToolFormat:
    """Returns the format for a request whose prompt does not teach it: its calls count like those of other untaught
    forms, but reasoning and framing are still found as the format says."""
    syntaxes = tool_format.grammar.syntaxes
    calls = {one.opener for one in syntaxes if any(map(_holds, one.nodes))}
    own = tuple(
        replace(one, untaught=True, family=one.family or tool_format.name) if one.opener in calls else one
        for one in syntaxes
    )
    return replace(tool_format, grammar=replace(tool_format.grammar, syntaxes=own))


def _holds(node: Node) -> bool:
    """True if a part of a call may stand here; framing has no such node."""
    return any(branch.read != "nothing" for branch in node)


@dataclass(slots=True)
class Counters:
    """Receivers of a scanner's findings: a counter and a label by name, near misses by choice, and decisions if the
    exchange is observed."""

    count: Callable[[str], object]
    label: Callable[[str, str], object] = lambda name, label: None
    near: Callable[[int, NearMiss], None] | None = None
    decided: Callable[[CallDecision], None] | None = None


class _Decisions:
    """Reports the decisions of one call policy, each with its place in the text."""

    def __init__(self, choice: int, counters: Counters, decided: Callable[[CallDecision], None]) -> None:
        self._choice = choice
        self._counters = counters
        self._decided = decided
        self._notes: list[str] = []
        self._why = ""
        self._name: str | None = None

    def count(self, name: str) -> None:
        """Notes a counter and forwards it."""
        self._notes.append(name)
        self._counters.count(name)

    def label(self, name: str, label: str) -> None:
        """Notes a label and forwards it."""
        self._notes.append(f"{name}:{label}")
        self._counters.label(name, label)

    def near(self, miss: NearMiss) -> None:
        """Notes a near miss and forwards it."""
        self._why = self._why or miss.why
        if self._counters.near is not None:
            self._counters.near(self._choice, miss)

    def refused(self, why: str, name: str | None) -> None:
        """Notes the reason why a block is no call, and its tool's name."""
        self._why, self._name = why, name

    def found(self, span: Span) -> None:
        """Reports the decision on a block. Plain text, which needs no decision, is not reported."""
        why, name, notes = self._why, self._name, tuple(self._notes)
        self._why, self._name = "", None
        self._notes.clear()
        decision = span.decision
        kind: Decided = "refused"
        if decision.calls:
            kind = "found"
        elif decision.error is not None:
            kind, why = "failed", why or decision.error.message
        elif decision.drop:
            kind = "dropped"
        if span.kind == "block" and (kind != "refused" or why or notes):
            self._decided(CallDecision(kind, why, self._choice, name, notes=notes, start=span.start, end=span.end))


_UNCOUNTED: Final = Counters(lambda name: None)


class ScanPlan(NamedTuple):
    """Everything for making scanners that depends only on the offered tools and the route's options."""

    options: RouteOptions
    grammar: Grammar
    pairs: tuple[Pair, ...]
    """Tags of reasoning, see `pairs_of`."""
    marks: ReasoningTags
    signs: Signs
    names: tuple[str, ...]
    """Names that may be called."""


def plan_of(offer: OfferedTools, options: RouteOptions) -> ScanPlan:
    """Returns the plan for this offer under these options. It is cached with the offer."""
    plan: ScanPlan | None = offer.made.get(ScanPlan)
    if plan is None or plan.options is not options:
        grammar = offer.format.grammar
        grammar = recognising(grammar, options.calls.recognise) if offer.tools else without_calls(grammar)
        names = names_on_offer(offer.known, offer.choice).callable
        pairs, signs = pairs_of(grammar, options.reasoning), signs_of(grammar, options.reasoning)
        plan = offer.made[ScanPlan] = ScanPlan(options, grammar, pairs, marks_of(pairs), signs, names)
    return plan


class ScannerFactory:
    """Makes the scanners of answers. `history` are the messages before the answer, with calls not yet written as text.
    If no tool is on offer, only reasoning and framing are found. `schemas` has the checkers for the tools.
    `stream_after` returns the bytes of arguments after which calls are streamed, see `CallScanner`. `keeps_repeats`:
    repeated calls are kept, whatever the options say."""

    def __init__(
        self,
        offer: OfferedTools,
        options: RouteOptions,
        limits: LimitsConfig,
        *,
        stream_after: Callable[[], int | None] = lambda: None,
        history: Sequence[Message] = (),
        schemas: Schemas | None = None,
        keeps_repeats: bool = False,
    ) -> None:
        self.plan = plan_of(offer, options)
        self.grammar = self.plan.grammar
        self.options = options
        self._offer = offer
        self._limits = limits
        self._stream_after = stream_after
        self._history = history
        self._schemas = schemas
        self._keeps_repeats = keeps_repeats

    @property
    def markers(self) -> tuple[str, ...] | None:
        """The texts that begin a call, reasoning or framing: a text without them is plain text. None if they are
        unknown."""
        return triggers(self.grammar, self.options.reasoning)

    @property
    def calls_inside(self) -> bool:
        """True if calls inside reasoning count."""
        return self.options.reasoning.scan_calls or self.grammar.calls_in_reasoning

    def make(
        self,
        choice: int,
        counters: Counters,
        *,
        trim: bool,
        inside: Pair | None,
        called: bool | None = None,
        first_block: int | None = None,
    ) -> tuple[CallScanner, CallPolicy]:
        """Returns the scanner and the policy of an answer. `inside`: the tags inside which it begins. `called`: None if
        the server has made no call before this text; otherwise only reasoning is searched, and it is True if the call
        was made inside a reasoning block. `first_block`: the number of the next block, from an earlier scanner."""
        grammar, options, begins = self.grammar, self.options, (choice + 1) * _PER_CHOICE
        if called is not None:
            grammar, begins = without_calls(grammar), begins + _PER_CHOICE // 2
            options = replace(options, reasoning=replace(options.reasoning, preopened=called))
        decisions = None if counters.decided is None else _Decisions(choice, counters, counters.decided)
        policy = self._policy(choice, options, counters, self._schemas, decisions)
        scanner = build_scanner(
            grammar,
            policy,
            options,
            self._limits,
            on_span=None if decisions is None else decisions.found,
            choice=choice,
            first_block=begins if first_block is None else first_block,
            stream_after=self._stream_after(),
            trim=trim,
            inside=inside,
        )
        return scanner, policy

    def events_of(self, text: str) -> list[Event]:
        """Returns the events of a text, without counting or reporting anything."""
        policy = self._policy(0, self.options, _UNCOUNTED, None)
        scanner = build_scanner(
            keep_closing_tags(self.grammar, self.options.reasoning), policy, self.options, self._limits, trim=False
        )
        return [*scanner.feed(text), *scanner.finish()]

    def calls_at_end(self, text: str) -> tuple[str, ...]:
        """Returns the tools that a text calls at its end, by the names that the model knows; empty if it does not end
        with calls. Counts nothing."""
        policy = self._policy(0, self.options, _UNCOUNTED, self._schemas)
        scanner = build_scanner(self.grammar, policy, self.options, self._limits)
        names: list[str] = []
        for event in (*scanner.feed(text), *scanner.finish()):
            if isinstance(event, Open) and event.kind is BlockKind.TOOL_CALL and event.name is not None:
                names.append(prompt_name(ToolUse("", event.name, "", namespace=event.namespace)))
            elif isinstance(event, Open):
                names.clear()
        return tuple(names)

    def _policy(
        self,
        choice: int,
        options: RouteOptions,
        counters: Counters,
        schemas: Schemas | None,
        decisions: _Decisions | None = None,
    ) -> CallPolicy:
        offer = self._offer
        if self._keeps_repeats and options.calls.dedupe_calls:
            options = replace(options, calls=replace(options.calls, dedupe_calls=False))
        near = None if counters.near is None else partial(counters.near, choice)
        return CallPolicy(
            offer.known,
            choice=offer.choice,
            parallel=offer.parallel,
            options=options,
            limits=self._limits,
            count=counters.count if decisions is None else decisions.count,
            label=counters.label if decisions is None else decisions.label,
            near=near if decisions is None else decisions.near,
            refused=None if decisions is None else decisions.refused,
            ids=CallIds(self._history),
            schemas=schemas,
        )
