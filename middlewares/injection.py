"""Tools into the prompt.

On the way in a request with tools becomes one without: a prompt segment teaches the tools, earlier calls and results are
written as text (R5). What was taught is noted as the exchange's offer, so that the answer's text is scanned. Routes with
`mode: native` are left alone, and so is a request without tools and without tool history (R1.6).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

from proxy.backends.presets import SCHEMA_CONSTRAINTS
from proxy.config import PromptConfig
from proxy.errors import ClientFault
from proxy.exchange import Exchange, Offer
from proxy.formats.base import ToolFormat
from proxy.formats.rendering import as_taught
from proxy.gbnf.grammar import Bounds, Inexpressible
from proxy.middleware import Middleware
from proxy.model import Constraint, ModelRequest
from proxy.offload import is_large, offload
from proxy.prompt import TextCache, content_key, form_sentence, segment
from proxy.routing import Route
from proxy.toolset import ToolSet, note, note_of
from proxy.transcript import Flatten, inject


@dataclass(frozen=True, slots=True, kw_only=True)
class InjectionOptions:
    """`cache_entries`: prompt segments and grammars that are kept. The others bound what a grammar for constrained decoding
    leaves open: characters of a string and items of a list whose schema sets no bound, and calls in one answer. Small
    models need tight bounds: they fill whatever room they get."""

    cache_entries: int = 256
    string_chars: int = 2000
    list_items: int = 16
    calls: int = 8


@dataclass(frozen=True, slots=True)
class _Taught:
    """How tools are taught on one route. `key` says the same about equal tools; `offer` is None if none can be called."""

    route: Route
    key: bytes
    text: str
    offer: Offer | None


class Injection(Middleware):
    """Writes the tools on offer into the prompt, and demands a call where the client does (R10.10)."""

    Options: ClassVar[type] = InjectionOptions

    def __init__(self, options: Any = None, *, name: str | None = None) -> None:
        super().__init__(options, name=name)
        chosen = self.options
        self._bounds = Bounds(string=chosen.string_chars, items=chosen.list_items, calls=chosen.calls)
        self._segments = TextCache(chosen.cache_entries)
        self._grammars = TextCache(chosen.cache_entries)
        self._templates: dict[str, str] = {}

    async def on_request(self, exchange: Exchange, request: ModelRequest) -> ModelRequest:
        """See `Middleware.on_request`. Raises `ClientFault` `unsupported_parameter` if `constrain: required` cannot be met."""
        route = exchange.route
        if route.options.mode == "native":
            return request
        # A new grammar takes as long as a large request.
        slow = is_large(request) or request.tool_choice.forces
        prepare = self._prepare
        flatten = route.options.flatten if route.options.flatten != "auto" else exchange.protocol.flatten
        form = _form_in_words(exchange, request)
        if form is not None:
            request = replace(request, response_format=None)
        args = (request, route, route.format_for(request.model), flatten, form)
        changed, exchange.offer = await offload(True, prepare, *args) if slow else prepare(*args)
        return changed

    def _prepare(
        self,
        request: ModelRequest,
        route: Route,
        tool_format: ToolFormat,
        flatten: Flatten,
        form: Mapping[str, Any] | None,
    ) -> tuple[ModelRequest, Offer | None]:
        text, key, offer = "", b"", None
        if request.tools:
            taught = self._taught(request, route, tool_format)
            text, key, offer = taught.text, taught.key, taught.offer
        if form is not None:
            text = "\n\n".join(filter(None, (text, form_sentence(form, tool_format))))
        placement = route.options.prompt.placement
        changed = inject(request, text, tool_format, placement=placement, flatten=flatten)
        if tool_format.special_tokens and changed is not request and (offer or tool_format.framing):
            changed = replace(changed, special_tokens=True)
        if offer is not None and request.tool_choice.forces and route.options.constrain != "off":
            constraint = self._constraint(request, route, tool_format, key)
            if constraint is not None:
                changed = replace(changed, constraint=constraint)
        return changed, offer

    def _taught(self, request: ModelRequest, route: Route, tool_format: ToolFormat) -> _Taught:
        """What the tools amount to in a prompt: as noted with these very tools, else by their content."""
        about = (self, request.tool_choice, request.parallel_tool_calls, tool_format.name)
        noted: _Taught | None = note_of(request.tools, about)
        if noted is not None and noted.route is route:
            return noted
        prompt = self._with_template(route.options.prompt)
        key = content_key(request, tool_format.name, prompt)
        text = self._segments.get(key, lambda: segment(request, tool_format, prompt)) or ""
        tools = request.callable_tools
        tools = request.tools if len(tools) == len(request.tools) else ToolSet(tools)
        offer = Offer(tools, request.tool_choice, request.parallel_tool_calls, tool_format, request.tools)
        return note(request.tools, about, _Taught(route, key, text, offer if tools else None))

    def _with_template(self, prompt: PromptConfig) -> PromptConfig:
        """The template's text in place of its file, which is read once; the settings have checked it."""
        file = prompt.template_file
        if file is None:
            return prompt
        if file not in self._templates:
            self._templates[file] = Path(file).read_text("utf-8")
        return replace(prompt, template=self._templates[file], template_file=None)

    def _constraint(
        self, request: ModelRequest, route: Route, tool_format: ToolFormat, key: bytes
    ) -> Constraint | None:
        options, feature = route.options, route.targets.capabilities.constrain
        # A schema makes the whole answer one JSON value: only a format without tags can be enforced that way.
        able = feature != "none" and (feature not in SCHEMA_CONSTRAINTS or tool_format.json_answer)
        # An answer that begins inside thinking would have to think in the form of a call.
        able = able and not options.reasoning.preopened
        grammar = self._grammars.get(key, lambda: self._grammar(request, tool_format)) if able else None
        if grammar is not None:
            return Constraint(grammar, tuple(map(as_taught, request.callable_tools)))
        if options.constrain == "required":
            raise ClientFault(
                f"This route cannot enforce `tool_choice` for the format {tool_format.name!r} and these tools.",
                code="unsupported_parameter",
                param="tool_choice",
                hint="Use `auto`, or set `constrain: auto` for the route.",
            )
        return None

    def _grammar(self, request: ModelRequest, tool_format: ToolFormat) -> str | None:
        if tool_format.gbnf is None:
            return None
        # A named choice means one call; and a small model would go on as long as the grammar lets it.
        several = request.parallel_tool_calls and request.tool_choice.mode != "named"
        try:
            return tool_format.gbnf(request.callable_tools, several, self._bounds)
        except Inexpressible:
            return None


def _form_in_words(exchange: Exchange, request: ModelRequest) -> Mapping[str, Any] | None:
    """The `response_format` that the prompt has to ask for (R2.22). A constrained answer could not call a tool, so with
    tools in play the form is said in words; without, only where the backend is not told and does not get the client's bytes."""
    form = request.response_format
    if form is None or form.get("type") not in ("json_object", "json_schema"):
        return None
    backend = exchange.route.targets
    told = backend.capabilities.response_format or (
        backend.protocol is not None and backend.protocol.name == exchange.protocol.name
    )
    return form if request.callable_tools or not told else None
