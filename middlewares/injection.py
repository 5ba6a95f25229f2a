"""Tools into the prompt.

On the way in a request with tools becomes one without: a prompt segment teaches the tools, earlier calls and results
are written as text (R5). What was taught is noted as the exchange's offer, so that the answer's text is scanned. Where
the server does tools itself (`Exchange.native`) a request is left alone, and so is one without tools and without tool
history (R1.6). Where the model's own chat template teaches them (`Exchange.templated`) tools, calls and results stay in
their fields, and only the policy is written beside (R31.1, `toolwire.prompting.beside_template`).
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
from toolwire.formats.engine.brackets import reading_brackets
from toolwire.formats.engine.escaping import Escaping
from toolwire.formats.engine.recognition import recognised_markers
from toolwire.formats.engine.rendering import as_taught
from toolwire.formats.engine.restoring import Escapes
from toolwire.formats.engine.toolset import NAME_BYTES, SPEC_BYTES, ToolSet, note, note_of
from toolwire.formats.gbnf.grammar import Around, Bounds, Inexpressible
from toolwire.known.kinds import history_in, plain_in
from toolwire.model import Constraint, ModelRequest, PlainMessages, ToolChoice, ToolSpec, replace
from toolwire.pipeline.chain.middleware import Middleware, Place
from toolwire.pipeline.exchange.caches import CACHES
from toolwire.pipeline.exchange.exchange import Exchange, OfferedTools
from toolwire.pipeline.exchange.file_texts import FileTexts
from toolwire.pipeline.exchange.routing import Route
from toolwire.prompting.beside_template import policy_beside, shown_tools, templated
from toolwire.prompting.placing import SYSTEM, placed
from toolwire.prompting.prompt import content_key, form_sentence, reminder, segment
from toolwire.prompting.transcript import Flatten, escaping_of, guarded, inject
from toolwire.scanner import reasoning_tags
from toolwire.support.cache import Cache, CacheBudget, weight_of
from toolwire.support.offload import is_slow, offload
from toolwire.upstream.servers.adapt import CLIENTS_OWN, said_in_words, taken_form
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
    """These bound what a grammar for constrained
    decoding leaves open: characters of a string, items of a list and digits of a number whose schema sets no bound, and
    calls in one answer. None: no bound, so that no data is cut short. Models of a few hundred million parameters need
    bounds: they fill whatever room they get."""

    string_chars: int | None = None
    list_items: int | None = None
    number_digits: int | None = None
    calls: int | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class _Taught:
    """How tools are taught on one route. `key` says the same about equal tools; `offer` is None if none can be
    called."""

    route: Route
    key: bytes
    text: str
    reminder: str
    offer: OfferedTools | None


@dataclasses.dataclass(frozen=True, slots=True)
class _Constrained:
    """How the answers of one route are constrained; None if they cannot be."""

    route: Route
    constraint: Constraint | None


@dataclasses.dataclass(frozen=True, slots=True)
class _Way:
    """How prompts are written on one route for models of one format. `recognised` are markers of calls that were not
    taught, `also` all that answers are searched for beside the format's own, `wire` is the name of the protocol."""

    flatten: Flatten
    recognised: tuple[str, ...]
    also: tuple[str, ...]
    escaping: Escaping
    turns: frozenset[str]
    wire: str | None


def _way(route: Route, tool_format: ToolFormat) -> _Way:
    known: _Way | None = route.made.get(key := (_Way, tool_format))
    if known is None:
        options, wire = route.options, route.pool.protocol
        recognised = recognised_markers(options.calls.recognise)
        thinking = reasoning_tags(tool_format.grammar, options.reasoning)
        turns = frozenset() if wire is None else wire.turn_markers
        flatten: Flatten = options.prompt.flatten if options.prompt.flatten != "auto" else "sentinel"
        also = (*(tag.strip() for tags in thinking for tag in tags), *recognised, *turns)
        known = route.made[key] = _Way(
            flatten=flatten,
            recognised=recognised,
            also=also,
            escaping=escaping_of(tool_format, flatten == "bracket", also),
            turns=turns,
            wire=None if wire is None else wire.name,
        )
    return known


class Injection(Middleware):
    """Writes the tools on offer into the prompt, and has calls enforced where the backend can do that: demanded ones
    (R10.10), and those that the model begins by itself (R23.2)."""

    passing = "stands_aside"
    Options: ClassVar[type] = InjectionOptions

    def __init__(self, options: Any = None, *, name: str | None = None) -> None:
        super().__init__(options, name=name)
        chosen = self.options
        self._bounds = Bounds(
            string=chosen.string_chars, items=chosen.list_items, digits=chosen.number_digits, calls=chosen.calls
        )
        self._open(CacheBudget())
        self._templates: dict[str, str] = {}

    def _open(self, budget: CacheBudget) -> None:
        self._segments: Cache[tuple[str | None]] = budget.cache("prompts")
        self._grammars: Cache[tuple[str | None]] = budget.cache("grammars")
        self._files = FileTexts(budget)

    async def start(self, app: web.Application) -> None:
        """See `Middleware.start`."""
        self._open(app[CACHES])

    @classmethod
    def goes_with(cls, place: Place) -> Mapping[str, str]:
        """See `Middleware.goes_with`."""
        if place.route.options.mode == "native":
            return {}
        return {"transformation": "which finds the calls that it teaches"}

    @classmethod
    def stands_behind(cls, place: Place) -> Mapping[str, str]:
        """See `Middleware.stands_behind`. What it has written is text, of which nobody can read what it was."""
        if place.route.options.mode == "native":
            return {}
        return {
            "validation": "which looks at the tools of the client",
            "conversation": "which loads turns that have to be written as text",
            "loop_detection": "which looks at earlier calls",
        }

    @classmethod
    def asked_for_by(cls, place: Place) -> str | None:
        """See `Middleware.asked_for_by`."""
        options = place.route.options
        return "decoding.constrain" if options.decoding.constrain == "required" and options.mode != "native" else None

    async def on_request(self, exchange: Exchange, request: ModelRequest) -> ModelRequest:
        """See `Middleware.on_request`. Raises `ClientFault` `unsupported_parameter` if `decoding.constrain: required`
        cannot be met."""
        route = exchange.route
        plain = type(request.messages) is PlainMessages
        if not (plain or plain_in(request.messages, request.past)):
            request = await self._files.read(exchange, request)
        held = _held(request)
        if exchange.native:
            return _with_form(exchange, held)
        by_template = exchange.templated
        wire = route.pool.protocol
        turns = wire is not None and wire.turn_markers
        asks = request.tools or request.response_format is not None
        if not (asks or turns or (not (plain or by_template) and history_in(request.messages, request.past))):
            exchange.escapes = exchange.offer = None
            return request
        tool_format = route.format_for(request.model)
        # A new grammar takes as long as a large request.
        constrains = self._constrains(held, route)
        slow = is_slow(request) or (constrains and self._noted(held, route, tool_format) is None)
        prepare = self._prepare
        form = None
        if request.response_format is not None:
            form = _form_in_words(exchange, request)
            request = _with_form_left(exchange, request, form)
        escapes = exchange.escapes = Escapes()
        args = (request, route, tool_format, _way(route, tool_format), form, escapes, constrains, by_template)
        changed, exchange.offer = await offload(True, prepare, *args) if slow else prepare(*args)
        return changed

    def _prepare(
        self,
        request: ModelRequest,
        route: Route,
        tool_format: ToolFormat,
        way: _Way,
        form: Mapping[str, Any] | None,
        escapes: Escapes,
        constrains: bool,
        by_template: bool,
    ) -> tuple[ModelRequest, OfferedTools | None]:
        text, reminded, offer = "", "", None
        if request.tools:
            taught = self._taught(request, route, tool_format, way, by_template)
            text, reminded, offer = taught.text, taught.reminder, taught.offer
        if form is not None:
            text = "\n\n".join(filter(None, (text, form_sentence(form, tool_format))))
        if way.turns:
            request = guarded(request, way.turns, escapes, SYSTEM)
        special = tool_format.special_tokens and (offer is not None or tool_format.framing is not None)
        if by_template:
            changed = self._templated(request, route, tool_format, way, text, reminded, escapes, special)
        else:
            changed = inject(
                request,
                text,
                tool_format,
                placement=route.options.prompt.placement,
                flatten=way.flatten,
                also=way.also,
                escapes=escapes,
                reminder=reminded,
                wire=way.wire,
                special_tokens=special,
                escaping=way.escaping,
            )
        if way.turns and changed is request:
            changed = guarded(request, way.turns, escapes)
            if special and changed is not request:
                changed = replace(changed, special_tokens=True)
        elif way.turns and way.flatten == "native":
            changed = replace(changed, guarded=False)  # calls and results are as they came
        if offer is not None and constrains:
            constraint = self._constraint(_held(request), route, tool_format)
            if constraint is not None:
                changed = replace(changed, constraint=constraint)
                if not constraint.free and request.parallel_tool_calls:
                    # A server can be stopped in a stream only; it may write the same call until `max_tokens` (R30.8).
                    changed = replace(changed, stream=True, include_usage=True)
        return changed, offer

    @staticmethod
    def _templated(
        request: ModelRequest,
        route: Route,
        tool_format: ToolFormat,
        way: _Way,
        beside: str,
        reminded: str,
        escapes: Escapes,
        special: bool,
    ) -> ModelRequest:
        """The request with its tools and history as they are, and `beside` in the prompt."""
        prompt = route.options.prompt
        return templated(
            request,
            shown_tools(request, prompt),
            ToolChoice(route.pool.capabilities.template_choice),
            beside,
            tool_format,
            placement=prompt.placement,
            also=way.also,
            escapes=escapes,
            reminder=reminded,
            wire=way.wire,
            special_tokens=special,
        )

    def _taught(
        self,
        request: ModelRequest,
        route: Route,
        tool_format: ToolFormat,
        way: _Way,
        by_template: bool,
    ) -> _Taught:
        """What the tools amount to in a prompt: as noted with these very tools, else by their content."""
        choice = request.tool_choice
        parallel = request.parallel_tool_calls
        about = (self, by_template, choice.mode, choice.name, choice.allowed, parallel, tool_format.name)
        noted: _Taught | None = note_of(request.tools, about)
        if noted is not None and noted.route is route:
            return noted
        prompt = self._with_template(route.options.prompt)
        key = content_key(request, tool_format.name, prompt, way.recognised, by_template)
        if by_template:
            text = policy_beside(request, tool_format, prompt)
        else:
            text = _once(self._segments, key, lambda: segment(request, tool_format, prompt, way.recognised)) or ""
        tools = request.callable_tools
        tools = request.tools if len(tools) == len(request.tools) else ToolSet(tools, of=request.tools)
        read = reading_brackets(tool_format) if way.flatten == "bracket" and not by_template else tool_format
        offer = OfferedTools(tools, request.tool_choice, parallel, read, request.tools)
        line = reminder(request, tool_format, prompt)
        taught = _Taught(route, key, text, line, offer if tools else None)
        return note(request.tools, about, taught, weight_of(key, text, line) + NAME_BYTES * len(tools))

    def _with_template(self, prompt: PromptConfig) -> PromptConfig:
        """The template's text in place of its file, which is read once; the settings have checked it."""
        file = prompt.template_file
        if file is None:
            return prompt
        if file not in self._templates:
            self._templates[file] = Path(file).read_text("utf-8")
        return dataclasses.replace(prompt, template=self._templates[file], template_file=None)

    # --- constrained decoding ---------------------------------------------------------------------------------------

    @staticmethod
    def _constrains(request: ModelRequest, route: Route) -> bool:
        """Whether the answer is to be constrained where that is possible."""
        options = route.options.decoding
        if request.tool_choice.mode in ("required", "named"):
            return options.constrain != "off"
        # A client that knows the server and constrains the answer itself means it.
        if not request.tools or request.tool_choice.mode != "auto" or request.extra.keys() & CLIENTS_OWN:
            return False
        if options.constrain_auto is None:
            return options.constrain != "off" and route.pool.capabilities.constrain in PROVEN
        return options.constrain_auto == "on"

    def _noted(self, request: ModelRequest, route: Route, tool_format: ToolFormat) -> _Constrained | None:
        """What was noted with these very tools."""
        noted: _Constrained | None = note_of(request.tools, self._about_constraint(request, route, tool_format))
        return noted if noted is not None and noted.route is route else None

    def _about_constraint(self, request: ModelRequest, route: Route, tool_format: ToolFormat) -> tuple[object, ...]:
        feature = route.pool.capabilities.constrain  # which may become known, or another one
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
        around = Around(text=not forced, thinking=thinking, preopened=bool(thinking and reasoning.preopened))
        # A named choice means one call; and a small model would go on as long as the grammar lets it.
        parallel = request.parallel_tool_calls and request.tool_choice.mode != "named"
        tools = request.callable_tools
        grammar = tags = None
        if feature in TAG_CONSTRAINTS or (not forced and feature in GRAMMAR_CONSTRAINTS - FREE_GRAMMARS):
            # A tag that demands a call leaves no room for thinking before it.
            if not (forced and around.preopened):
                tags = self._attempt(lambda: tagged_answer(tool_format, tools, parallel, self._bounds, demanded=forced))
        elif feature in GRAMMAR_CONSTRAINTS or (
            feature in SCHEMA_CONSTRAINTS and self._is_schema_enough(tool_format, around)
        ):
            key = content_key(request, tool_format.name, around)
            grammar = _once(
                self._grammars, key, lambda: self._attempt(lambda: self._grammar(tool_format, tools, parallel, around))
            )
        if grammar is None and tags is None:
            return None
        binding = self._is_binding(request, route)
        return Constraint(grammar or "", tuple(map(as_taught, tools)), tags, not forced, binding)

    @staticmethod
    def _is_binding(request: ModelRequest, route: Route) -> bool:
        """Whether an answer is worth nothing if the client's choice is not enforced. A retry is worth something."""
        demanded = request.tool_choice.forces and request.enforced_choice is None
        return demanded and route.options.decoding.constrain == "required"

    @staticmethod
    def _is_schema_enough(tool_format: ToolFormat, around: Around) -> bool:
        """A schema makes the whole answer one JSON value: only a format without tags can be enforced that way, and only
        a call."""
        return tool_format.json_answer and not around.text and not around.preopened

    def _grammar(
        self, tool_format: ToolFormat, tools: tuple[ToolSpec, ...], parallel: bool, around: Around
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


def _held(request: ModelRequest) -> ModelRequest:
    """The request with the choice that the server is held to."""
    choice = request.enforced_choice
    return request if choice is None else replace(request, tool_choice=choice)


def _once(cache: Cache[tuple[str | None]], key: bytes, build: Callable[[], str | None]) -> str | None:
    """The text of `key`, built if it is not there. Two threads may both build it, and get equal texts."""
    known = cache.get(key)
    if known is None:
        known = (build(),)
        cache.put(key, known, weight_of(known))
    return known[0]


def _form_in_words(exchange: Exchange, request: ModelRequest) -> Mapping[str, Any] | None:
    """The `response_format` that the prompt has to ask for (R2.22). A constrained answer could not call a tool, so with
    tools in play the form is said in words; without, only what the backend is not told."""
    form = request.response_format
    if form is None or form.get("type") not in ("json_object", "json_schema"):
        return None
    return form if request.callable_tools or said_in_words(form, exchange.route.pool.capabilities) else None


def _with_form_left(exchange: Exchange, request: ModelRequest, said: Mapping[str, Any] | None = None) -> ModelRequest:
    """The request with what the server is told of its form, of which the prompt has `said` all."""
    asked = request.response_format
    beside = said is not None and bool(request.callable_tools)
    form = None if beside else taken_form(asked, exchange.route.pool.capabilities)
    return request if form is asked else replace(request, response_format=form)


def _with_form(exchange: Exchange, request: ModelRequest) -> ModelRequest:
    """The request for a server that does tools itself: with the form in words that it is not told."""
    form = request.response_format
    if form is None:
        return request
    if not said_in_words(form, exchange.route.pool.capabilities):
        return _with_form_left(exchange, request)
    route = exchange.route
    words = form_sentence(form, route.format_for(request.model))
    messages = placed(request.messages, words, route.options.prompt.placement)
    return _with_form_left(exchange, replace(request, messages=tuple(messages)))
