"""Allows and denies tools of a route by name.

A tool is known by its name, and a tool of a group (a `namespace` of Responses) also as `group__name`. `deny` overrides
`allow`, and ignores letter case and prefixes that models write before a name (`functions.`).

A denied tool is denied on all paths to the tools of a route, wherever this middleware is in the chain
(`toolwire.pipeline.exchange.permission`): `execution` checks tools of the gateway and of tool servers. This middleware
removes tools from requests, and calls from answers: a model may call a tool that it was not offered, and such a call
becomes text.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import ClassVar, Final, Literal

from ...call_policy.near import is_near
from ...errors import ClientFault, quote
from ...events import Close, Delta, Event, Kind, Opaque, Open, text_block
from ...formats.engine.longjson import compact
from ...formats.engine.rendering import prompt_name
from ...model import ModelRequest, ToolChoice, ToolSpec, ToolUse
from ...pipeline.answers.reply import Reply
from ...pipeline.chain.middleware import ChainPlace, Middleware
from ...pipeline.exchange.request_state import Exchange
from ...pipeline.exchange.tool_servers import tool_server_declarations
from ...protocols.shared.tool_names import is_item, names_of
from ...record import AccessField, CallDecision

SEES_CALLS: Final = ("arguments", "transformation", "injection", "forwarding")
"""Middlewares that offer the remaining tools, or find and name the calls that are checked here."""

_SEPARATORS: Final = ".:/"
"""The ends of prefixes that models and clients write before a name: `functions.f`, `server:f`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolFilterOptions:
    """Patterns of allowed and denied names, and the reaction to a denied tool in a request: drop the tool, or refuse
    the request."""

    allow: tuple[str, ...] = ("*",)
    deny: tuple[str, ...] = ()
    on_denied: Literal["drop", "refuse"] = "drop"

    def __post_init__(self) -> None:
        if self.allow == ("*",) and not self.deny:
            raise ValueError("nothing is filtered: set `allow` or `deny`")


class ToolFilter(Middleware):
    """Removes tools from requests, and their calls from answers."""

    proxied_requests = "stands_aside"
    Options: ClassVar[type] = ToolFilterOptions
    access_fields: ClassVar[tuple[AccessField, ...]] = (
        AccessField("tools_denied", "Tools that `tool_filter` removed from the request."),
        AccessField("calls_denied", "Calls of denied tools, which became text."),
    )

    @classmethod
    def needs(cls, place: ChainPlace) -> Mapping[str, str]:
        chain = place.config.chain if place.route.chain is None else place.route.chain
        named = {entry.use for entry in chain}
        return {name: "which offers tools, or finds the calls that are checked" for name in SEES_CALLS if name in named}

    def forbids(self, names: tuple[str, ...]) -> bool:
        """Returns True if a tool with one of these names is denied."""
        spelled = [spelling for name in names for spelling in _spellings(name)]
        denied = any(fnmatchcase(name, glob.casefold()) for glob in self.options.deny for name in spelled)
        return denied or not any(fnmatchcase(name, glob) for glob in self.options.allow for name in names)

    async def on_request(self, exchange: Exchange, request: ModelRequest) -> ModelRequest:
        """Removes denied tools from the request. Raises `ClientFault` `tool_not_allowed`, or `invalid_tool_choice` if
        the client requires a call that is no longer possible."""
        permission = exchange.route.permission
        permitted = permission.permitted(request.tools, tool_server_declarations(exchange, request.tools))
        if permitted is not request.tools:
            if self.options.on_denied == "refuse":
                raise _refused(request.tools, permitted)
            exchange.record.count("tools_denied", len(request.tools) - len(permitted))
            taken = [tool for tool in request.tools if not any(tool is other for other in permitted)]
            exchange.state.setdefault(ToolFilter, []).extend(taken)
            choice = _narrowed(request.tool_choice, permitted)
            request = replace(request, tools=permitted, tool_choice=choice)
        return permission.elsewhere(request)

    def declare(self, exchange: Exchange, reply: Reply) -> None:
        reply.map(_FilteredCalls(exchange).see, Kind.CALL | Kind.OPAQUE)


class _FilteredCalls:
    """Checks the calls of one answer; a call of a denied tool becomes the text that the model wrote."""

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange
        self._permission = exchange.route.permission
        offered = self._permission.permitted(
            exchange.request.tools, tool_server_declarations(exchange, exchange.request.tools)
        )
        self._offered = {name for tool in offered for name in names_of(tool)}
        self._taken = {name for tool in exchange.state.get(ToolFilter, ()) for name in names_of(tool)}
        self._denied: dict[int, tuple[Open, list[str]]] = {}
        self._texts = (
            0  # block numbers of replacements for calls that are not blocks; negative, because real blocks count from 0
        )

    def see(self, event: Event) -> Event | Iterable[Event] | None:
        """Returns the event, or its replacement."""
        match event:
            case Open() if self._is_denied(event):
                self._denied[event.block] = (event, [])
                return None
            case Delta() if event.block in self._denied:
                self._denied[event.block][1].append(event.text)
                return None
            case Close() if event.block in self._denied:
                opened, arguments = self._denied.pop(event.block)
                self._deny(opened.choice, opened.name)
                written = opened.extra.get("source") or compact({"name": opened.name, "arguments": "".join(arguments)})
                return text_block(event.block, written, opened.choice)
            case Opaque() if self._permission.denies_item(event.payload):
                if not is_item(event.payload):
                    return None  # announces an item that comes complete later
                self._deny(0, None)
                self._texts += 1
                return text_block(-self._texts, compact(event.payload), 0)
        return event

    def _deny(self, choice: int, name: str | None) -> None:
        record = self._exchange.record
        record.count("calls_denied")
        which = "a hosted tool" if name is None else f"the tool {quote(name)}"
        record.decided(CallDecision("denied", f"The model called {which}, which `tool_filter` denies.", choice, name))

    def _is_denied(self, opened: Open) -> bool:
        use = ToolUse("", opened.name or "", "", namespace=opened.namespace)
        if self._permission.denies(use):
            return True
        names = names_of(use)
        if not self._taken or any(name in self._offered for name in names):
            return False
        spelled = {spelling for name in names for spelling in _spellings(name)}
        return any(is_near(name, taken.casefold()) for name in spelled for taken in self._taken)


def _spellings(name: str) -> Iterable[str]:
    """Returns a name in lower case, with and without a prefix."""
    name = name.strip().casefold()
    bare = name[max(map(name.rfind, _SEPARATORS)) + 1 :]
    return dict.fromkeys((name, bare))


def _refused(tools: Sequence[ToolSpec], remaining: Sequence[ToolSpec]) -> ClientFault:
    allowed = set(map(prompt_name, remaining))
    index, tool = next((index, tool) for index, tool in enumerate(tools) if prompt_name(tool) not in allowed)
    return ClientFault(
        f"The tool {quote(prompt_name(tool))} may not be used here.",
        code="tool_not_allowed",
        param=f"tools[{index}]",
        hint="Leave it out.",
    )


def _narrowed(choice: ToolChoice, remaining: Sequence[ToolSpec]) -> ToolChoice:
    """Returns the choice restricted to the remaining tools. Raises `ClientFault` if a required call is not possible."""
    names = {tool.name for tool in remaining}
    if choice.mode == "named":
        if choice.name not in names:
            raise _impossible(f"the tool {quote(choice.name)} may not be used here")
        return choice
    allowed = None if choice.allowed is None else tuple(name for name in choice.allowed if name in names)
    if remaining and allowed != ():
        return replace(choice, allowed=allowed)
    if choice.forces:
        raise _impossible("none of the tools may be used here")
    return ToolChoice("none")


def _impossible(why: str) -> ClientFault:
    return ClientFault(
        f"`tool_choice` requires a call, but {why}.",
        code="invalid_tool_choice",
        param="tool_choice",
        hint="Use `auto`.",
    )
