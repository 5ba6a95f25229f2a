"""Writes the tools into the prompt.

A request with tools becomes one without: a prompt segment describes the tools, and earlier calls and results are
written as text (R5). The tools are recorded as the exchange's offer, so that the answer's text is scanned for calls. A
request is left unchanged if the server handles tools itself (`Exchange.tools_by`), or if it has no tools and no tool
history (R1.6). If the model's chat template describes the tools, tools, calls and results stay in their fields, and
only the policy is added to the prompt (R31.1, `toolwire.prompting.beside_template`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from aiohttp import web

from toolwire.config import PromptConfig
from toolwire.errors import ClientFault
from toolwire.formats.base import ToolFormat, tagged_answer, whole_answer
from toolwire.formats.engine.rendering import as_taught
from toolwire.formats.engine.results import Escapes
from toolwire.formats.engine.toolset import NAME_BYTES, SPEC_BYTES, ToolSet, note, note_of
from toolwire.formats.gbnf.grammar import AllowedText, GrammarBounds, Inexpressible
from toolwire.formats.recognised.brackets import reading_brackets
from toolwire.formats.recognised.recognition import recognised_markers
from toolwire.known.kinds import HISTORY, kinds_of
from toolwire.model import Constraint, ModelRequest, OpaquePart, ToolChoice, ToolSpec, replace
from toolwire.pipeline.chain.middleware import ChainPlace, Middleware
from toolwire.pipeline.exchange.caches import CACHES
from toolwire.pipeline.exchange.file_texts import FileTexts
from toolwire.pipeline.exchange.request_state import Exchange
from toolwire.pipeline.exchange.routing import Route
from toolwire.pipeline.scanning.offered_tools import OfferedTools
from toolwire.prompting.beside_template import policy_beside, shown_tools, templated
from toolwire.prompting.placing import SYSTEM
from toolwire.prompting.prompt import content_key, form_sentence, reminder, segment, with_form
from toolwire.prompting.transcript import Flatten, guarded, inject
from toolwire.scanner import reasoning_tags
from toolwire.support.cache import BudgetedCache, CacheBudget, weight_of
from toolwire.support.offload import is_large, offload
from toolwire.upstream.servers.adapt import CLIENTS_OWN, needs_instructions, supported_format
from toolwire.upstream.servers.presets import (
    FREE_GRAMMARS,
    GRAMMAR_CONSTRAINTS,
    PROVEN,
    SCHEMA_CONSTRAINTS,
    TAG_CONSTRAINTS,
)

T = TypeVar("T")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class InjectionOptions:
    """Limits for grammars of constrained decoding where the schema sets none: characters of a string, items of a list,
    digits of a number, and calls in one answer. None: no limit, so that no data is cut. Models of a few hundred
    million parameters need limits, because they fill all the space that a grammar allows."""

    string_chars: int | None = None
    list_items: int | None = None
    number_digits: int | None = None
    calls: int | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class _Taught:
    """The description of a set of tools on one route. `key` is equal for equal tools; `offer` is None if no tool can be
    called."""

    route: Route
    key: bytes
    text: str
    reminder: str
    offer: OfferedTools | None


@dataclasses.dataclass(frozen=True, slots=True)
class _Constrained:
    """The constraint for answers of one route; None if they cannot be constrained."""

    route: Route
    constraint: Constraint | None


@dataclasses.dataclass(frozen=True, slots=True)
class _PromptRules:
    """The settings for prompts of one route and one format. `recognised`: markers of calls in other formats; `also`:
    all markers that answers are searched for besides the format's own; `wire`: the name of the protocol."""

    flatten: Flatten
    recognised: tuple[str, ...]
    also: tuple[str, ...]
    turns: frozenset[str]
    wire: str | None


def _prompt_rules(route: Route, tool_format: ToolFormat) -> _PromptRules:
    known: _PromptRules | None = route.made.get(key := (_PromptRules, tool_format))
    if known is None:
        options, wire = route.options, route.pool.protocol
        recognised = recognised_markers(options.calls.recognise)
        thinking = reasoning_tags(tool_format.grammar, options.reasoning)
        turns = frozenset() if wire is None else wire.turn_markers
        flatten: Flatten = options.prompt.flatten if options.prompt.flatten != "auto" else "sentinel"
        also = (*(tag.strip() for tags in thinking for tag in tags), *recognised, *turns)
        known = route.made[key] = _PromptRules(
            flatten=flatten,
            recognised=recognised,
            also=also,
            turns=turns,
            wire=None if wire is None else wire.name,
        )
    return known


class Injection(Middleware):
    """Describes the offered tools in the prompt, and requests constrained decoding if the backend supports it: for
    required calls (R10.10), and for calls that the model chooses to make (R23.2)."""

    proxied_requests = "stands_aside"
    Options: ClassVar[type] = InjectionOptions

    def __init__(self, options: Any = None, *, name: str | None = None) -> None:
        super().__init__(options, name=name)
        chosen = self.options
        self._bounds = GrammarBounds(
            string=chosen.string_chars, items=chosen.list_items, digits=chosen.number_digits, calls=chosen.calls
        )
        self._open(CacheBudget())
        self._templates: dict[str, str] = {}

    def _open(self, budget: CacheBudget) -> None:
        self._segments: BudgetedCache[tuple[str | None]] = budget.cache("prompts")
        self._grammars: BudgetedCache[tuple[str | None]] = budget.cache("grammars")
        self._files = FileTexts(budget)

    async def start(self, app: web.Application) -> None:
        self._open(app[CACHES])

    @classmethod
    def goes_with(cls, place: ChainPlace) -> Mapping[str, str]:
        if place.route.options.mode == "native":
            return {}
        return {"transformation": "which finds the calls that it describes"}

    @classmethod
    def stands_behind(cls, place: ChainPlace) -> Mapping[str, str]:
        if place.route.options.mode == "native":
            return {}
        return {
            "validation": "which checks the client's tools",
            "conversation": "which loads turns that must be written as text",
            "loop_detection": "which checks earlier calls",
        }

    @classmethod
    def missed(cls, place: ChainPlace) -> str | None:
        """Returns what happens to tools on a route without this middleware; None if the server gets them anyway."""
        mode = place.route.options.mode
        if mode == "native":
            return None
        return f"with `mode: {mode}` it describes the tools; without it the server gets them as with `mode: native`"

    @classmethod
    def asked_for_by(cls, place: ChainPlace) -> str | None:
        options = place.route.options
        return "decoding.constrain" if options.decoding.constrain == "required" and options.mode != "native" else None

    async def on_request(self, exchange: Exchange, request: ModelRequest) -> ModelRequest:
        """Returns the request with the tools in its prompt. Raises `ClientFault` `unsupported_parameter` if
        `decoding.constrain: required` cannot be fulfilled."""
        route = exchange.route
        kinds = kinds_of(request.messages, request.past)
        if OpaquePart in kinds:
            request = await self._files.read(exchange, request)
        enforced = _with_enforced_choice(request)
        if exchange.tools_by == "server":
            return _with_form_in_prompt(exchange, enforced)
        by_template = exchange.tools_by == "template"
        wire = route.pool.protocol
        turns = wire is not None and wire.turn_markers
        asks = request.tools or request.response_format is not None
        if not (asks or turns or (not by_template and not kinds.isdisjoint(HISTORY))):
            exchange.escapes = exchange.offer = None
            return request
        tool_format = route.format_for(request.model)
        # Building a new grammar takes as long as preparing a large request.
        constrains = self._constrains(enforced, route)
        slow = is_large(request, reused=True) or (constrains and self._noted(enforced, route, tool_format) is None)
        prepare = self._prepare
        form = None
        if request.response_format is not None:
            form = _form_for_prompt(exchange, request)
            request = _with_supported_form(exchange, request, form)
        escapes = exchange.escapes = Escapes()
        args = (request, route, tool_format, _prompt_rules(route, tool_format), form, escapes, constrains, by_template)
        changed, exchange.offer = await offload(True, prepare, *args) if slow else prepare(*args)
        return changed

    def _prepare(
        self,
        request: ModelRequest,
        route: Route,
        tool_format: ToolFormat,
        rules: _PromptRules,
        form: Mapping[str, Any] | None,
        escapes: Escapes,
        constrains: bool,
        by_template: bool,
    ) -> tuple[ModelRequest, OfferedTools | None]:
        text, reminded, offer = "", "", None
        if request.tools:
            taught = self._taught(request, route, tool_format, rules, by_template)
            text, reminded, offer = taught.text, taught.reminder, taught.offer
        if form is not None:
            text = "\n\n".join(filter(None, (text, form_sentence(form, tool_format))))
        if rules.turns:
            request = guarded(request, rules.turns, escapes, SYSTEM)
        special = tool_format.special_tokens and (offer is not None or tool_format.framing is not None)
        if by_template:
            changed = self._templated(request, route, tool_format, rules, text, reminded, escapes, special)
        else:
            changed = inject(
                request,
                text,
                tool_format,
                placement=route.options.prompt.placement,
                flatten=rules.flatten,
                also=rules.also,
                escapes=escapes,
                reminder=reminded,
                wire=rules.wire,
                special_tokens=special,
            )
        if rules.turns and changed is request:
            changed = guarded(request, rules.turns, escapes)
            if special and changed is not request:
                changed = replace(changed, special_tokens=True)
        elif rules.turns and rules.flatten == "native":
            changed = replace(changed, guarded=False)  # calls and results keep their form
        if offer is not None and constrains:
            constraint = self._constraint(_with_enforced_choice(request), route, tool_format)
            if constraint is not None:
                changed = replace(changed, constraint=constraint)
                if not constraint.free and request.parallel_tool_calls:
                    # Only a stream can be stopped early; without that the server may repeat a call until `max_tokens`
                    # (R30.8).
                    changed = replace(changed, stream=True, include_usage=True)
        return changed, offer

    @staticmethod
    def _templated(
        request: ModelRequest,
        route: Route,
        tool_format: ToolFormat,
        rules: _PromptRules,
        beside: str,
        reminded: str,
        escapes: Escapes,
        special: bool,
    ) -> ModelRequest:
        """Returns the request with its tools and history in their fields, and `beside` in the prompt."""
        prompt = route.options.prompt
        return templated(
            request,
            shown_tools(request, prompt),
            ToolChoice(route.pool.capabilities.template_choice),
            beside,
            tool_format,
            placement=prompt.placement,
            also=rules.also,
            escapes=escapes,
            reminder=reminded,
            wire=rules.wire,
            special_tokens=special,
        )

    def _taught(
        self,
        request: ModelRequest,
        route: Route,
        tool_format: ToolFormat,
        rules: _PromptRules,
        by_template: bool,
    ) -> _Taught:
        """Returns the description of the tools: as noted with this tool list, else from the cache by content."""
        choice = request.tool_choice
        parallel = request.parallel_tool_calls
        about = (self, by_template, choice.mode, choice.name, choice.allowed, parallel, tool_format.name)
        noted: _Taught | None = note_of(request.tools, about)
        if noted is not None and noted.route is route:
            return noted
        prompt = self._with_template(route.options.prompt)
        key = content_key(request, tool_format.name, prompt, rules.recognised, by_template)
        if by_template:
            text = policy_beside(request, tool_format, prompt)
        else:
            text = (
                _cached_text(self._segments, key, lambda: segment(request, tool_format, prompt, rules.recognised)) or ""
            )
        tools = request.callable_tools
        tools = request.tools if len(tools) == len(request.tools) else ToolSet(tools, of=request.tools)
        read = reading_brackets(tool_format) if rules.flatten == "bracket" and not by_template else tool_format
        offer = OfferedTools(tools, request.tool_choice, parallel, read, request.tools)
        line = reminder(request, tool_format, prompt)
        taught = _Taught(route, key, text, line, offer if tools else None)
        return note(request.tools, about, taught, weight_of(key, text, line) + NAME_BYTES * len(tools))

    def _with_template(self, prompt: PromptConfig) -> PromptConfig:
        """Returns the settings with the template file replaced by its text. The file is read once; loading the
        configuration has checked it."""
        file = prompt.template_file
        if file is None:
            return prompt
        if file not in self._templates:
            self._templates[file] = Path(file).read_text("utf-8")
        return dataclasses.replace(prompt, template=self._templates[file], template_file=None)

    # --- constrained decoding ---------------------------------------------------------------------------------------

    @staticmethod
    def _constrains(request: ModelRequest, route: Route) -> bool:
        """Returns True if the answer should be constrained."""
        options = route.options.decoding
        if request.tool_choice.mode in ("required", "named"):
            return options.constrain != "off"
        # A client that constrains the answer itself knows the server.
        if not request.tools or request.tool_choice.mode != "auto" or request.extra.keys() & CLIENTS_OWN:
            return False
        if options.constrain_auto is None:
            return options.constrain != "off" and route.pool.capabilities.constrain in PROVEN
        return options.constrain_auto == "on"

    def _noted(self, request: ModelRequest, route: Route, tool_format: ToolFormat) -> _Constrained | None:
        """Returns the constraint noted with this tool list; None if there is none."""
        noted: _Constrained | None = note_of(request.tools, self._about_constraint(request, route, tool_format))
        return noted if noted is not None and noted.route is route else None

    def _about_constraint(self, request: ModelRequest, route: Route, tool_format: ToolFormat) -> tuple[object, ...]:
        feature = route.pool.capabilities.constrain  # it may change when the server is identified
        choice, retried = request.tool_choice, request.enforced_choice is not None
        return self, "constraint", choice, retried, request.parallel_tool_calls, tool_format.name, feature

    def _constraint(self, request: ModelRequest, route: Route, tool_format: ToolFormat) -> Constraint | None:
        noted = self._noted(request, route, tool_format)
        if noted is None:
            made = self._made_constraint(request, route, tool_format)
            noted = _Constrained(route, made)
            weight = 0 if made is None else weight_of(made.gbnf, made.tags) + SPEC_BYTES * len(made.calls)
            note(request.tools, self._about_constraint(request, route, tool_format), noted, weight)
        if noted.constraint is None and self._is_binding(request, route):
            raise ClientFault(
                f"This route cannot enforce `tool_choice` for the format {tool_format.name!r} and these tools.",
                code="unsupported_parameter",
                param="tool_choice",
                hint="Use `auto`, or set `decoding.constrain: auto` for the route.",
            )
        return noted.constraint

    def _made_constraint(self, request: ModelRequest, route: Route, tool_format: ToolFormat) -> Constraint | None:
        feature = route.pool.capabilities.constrain
        forced = request.tool_choice.forces
        reasoning = route.options.reasoning
        called_inside = reasoning.scan_calls or tool_format.grammar.calls_in_reasoning
        thinking = () if called_inside else reasoning_tags(tool_format.grammar, reasoning)
        around = AllowedText(text=not forced, thinking=thinking, preopened=bool(thinking and reasoning.preopened))
        # A named choice means one call; a small model would make more if the grammar allowed it.
        parallel = request.parallel_tool_calls and request.tool_choice.mode != "named"
        tools = request.callable_tools
        grammar = tags = None
        if feature in TAG_CONSTRAINTS or (not forced and feature in GRAMMAR_CONSTRAINTS - FREE_GRAMMARS):
            # A tag that requires a call leaves no room for reasoning before it.
            if not (forced and around.preopened):
                tags = self._attempt(lambda: tagged_answer(tool_format, tools, parallel, self._bounds, demanded=forced))
        elif feature in GRAMMAR_CONSTRAINTS or (
            feature in SCHEMA_CONSTRAINTS and self._is_schema_enough(tool_format, around)
        ):
            key = content_key(request, tool_format.name, around)
            grammar = _cached_text(
                self._grammars, key, lambda: self._attempt(lambda: self._grammar(tool_format, tools, parallel, around))
            )
        if grammar is None and tags is None:
            return None
        binding = self._is_binding(request, route)
        return Constraint(grammar or "", tuple(map(as_taught, tools)), tags, not forced, binding)

    @staticmethod
    def _is_binding(request: ModelRequest, route: Route) -> bool:
        """Returns True if an answer is useless without the enforced choice. This does not apply to retries."""
        demanded = request.tool_choice.forces and request.enforced_choice is None
        return demanded and route.options.decoding.constrain == "required"

    @staticmethod
    def _is_schema_enough(tool_format: ToolFormat, around: AllowedText) -> bool:
        """Returns True if a JSON schema is enough to enforce a call: it makes the whole answer one JSON value, so the
        format must have no tags and the answer must be a call."""
        return tool_format.json_answer and not around.text and not around.preopened

    def _grammar(
        self, tool_format: ToolFormat, tools: tuple[ToolSpec, ...], parallel: bool, around: AllowedText
    ) -> str | None:
        if around.text or around.preopened:
            return whole_answer(tool_format, tools, parallel, self._bounds, around=around)
        return None if tool_format.gbnf is None else tool_format.gbnf(tools, parallel, self._bounds)

    @staticmethod
    def _attempt(build: Callable[[], T]) -> T | None:
        try:
            return build()
        except Inexpressible:
            return None


def _with_enforced_choice(request: ModelRequest) -> ModelRequest:
    """Returns the request with the tool choice that the server is to enforce."""
    choice = request.enforced_choice
    return request if choice is None else replace(request, tool_choice=choice)


def _cached_text(cache: BudgetedCache[tuple[str | None]], key: bytes, build: Callable[[], str | None]) -> str | None:
    """Returns the cached text of `key`, and builds it if needed. Two threads may both build it, with equal results."""
    known = cache.get(key)
    if known is None:
        known = (build(),)
        cache.put(key, known, weight_of(known))
    return known[0]


def _form_for_prompt(exchange: Exchange, request: ModelRequest) -> Mapping[str, Any] | None:
    """Returns the `response_format` that the prompt has to describe (R2.22), or None. With tools it is always
    described, because a constrained answer could not call a tool; without tools only if the backend does not get it."""
    form = request.response_format
    if form is None or form.get("type") not in ("json_object", "json_schema"):
        return None
    return form if request.callable_tools or needs_instructions(form, exchange.route.pool.capabilities) else None


def _with_supported_form(
    exchange: Exchange, request: ModelRequest, described: Mapping[str, Any] | None = None
) -> ModelRequest:
    """Returns the request with the `response_format` that is sent to the server. `described`: the form that the prompt
    describes."""
    asked = request.response_format
    beside = described is not None and bool(request.callable_tools)
    form = None if beside else supported_format(asked, exchange.route.pool.capabilities)
    return request if form is asked else replace(request, response_format=form)


def _with_form_in_prompt(exchange: Exchange, request: ModelRequest) -> ModelRequest:
    """Returns the request for a server that handles tools itself, with the parts of the form that it does not get
    described in the prompt."""
    form = request.response_format
    if form is None:
        return request
    if not needs_instructions(form, exchange.route.pool.capabilities):
        return _with_supported_form(exchange, request)
    route = exchange.route
    described = with_form(request, route.format_for(request.model), route.options.prompt.placement)
    return _with_supported_form(exchange, described)
