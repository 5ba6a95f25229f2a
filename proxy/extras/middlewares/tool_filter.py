"""Which tools may be used on a route, by name.

A tool is known by its name, and one of a group (a `namespace` of Responses) also as `group__name`. `deny` wins over
`allow`, and does not care for case or for what a model writes before a name (`functions.`).

What is forbidden here holds on every way to a tool of the route, wherever the middleware stands
(`toolwire.pipeline.exchange.permission`): for tools of the gateway and of tool servers `execution` sees to it. Here
tools are taken out of requests, and calls out of answers: a model may call what it was not offered, and such a call
becomes text.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import ClassVar, Final, Literal

from toolwire.call_policy.near import is_near
from toolwire.errors import ClientFault, quote
from toolwire.events import Close, Delta, Event, Kind, Opaque, Open, text_block
from toolwire.formats.engine.longjson import compact
from toolwire.formats.engine.rendering import prompt_name
from toolwire.model import ModelRequest, ToolChoice, ToolSpec, ToolUse
from toolwire.pipeline.chain.middleware import ChainPlace, Middleware
from toolwire.pipeline.chain.reply import Reply
from toolwire.pipeline.exchange.exchange import Exchange
from toolwire.pipeline.exchange.served_tools import stand_for_servers
from toolwire.protocols.shared.tool_names import is_item, names_of
from toolwire.record import AccessField

SEES_CALLS: Final = ("arguments", "transformation", "injection", "forwarding")
"""Middlewares that offer what is left, and that find and name the calls which are looked at here."""

_SEPARATORS: Final = ".:/"
"""Ends of what models and clients write before a name: `functions.f`, `server:f`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolFilterOptions:
    """Globs of names that are allowed and denied, and what becomes of a request that offers another one: the tool is
    dropped, or the request refused."""

    allow: tuple[str, ...] = ("*",)
    deny: tuple[str, ...] = ()
    on_denied: Literal["drop", "refuse"] = "drop"

    def __post_init__(self) -> None:
        if self.allow == ("*",) and not self.deny:
            raise ValueError("nothing is filtered: set `allow` or `deny`")


class ToolFilter(Middleware):
    """Takes tools out of requests, and calls of them out of answers."""

    proxied_requests = "stands_aside"
    Options: ClassVar[type] = ToolFilterOptions
    access_fields: ClassVar[tuple[AccessField, ...]] = (
        AccessField("tools_denied", "Tools that the middleware `tool_filter` took away."),
        AccessField("calls_denied", "Calls of such tools."),
    )

    @classmethod
    def needs(cls, place: ChainPlace) -> Mapping[str, str]:
        """See `Middleware.needs`."""
        chain = place.config.chain if place.route.chain is None else place.route.chain
        named = {entry.use for entry in chain}
        return {
            name: "which offers tools, or makes the calls that are looked at" for name in SEES_CALLS if name in named
        }

    def forbids(self, names: tuple[str, ...]) -> bool:
        """See `Middleware.forbids`."""
        spelled = [spelling for name in names for spelling in _spellings(name)]
        denied = any(fnmatchcase(name, glob.casefold()) for glob in self.options.deny for name in spelled)
        return denied or not any(fnmatchcase(name, glob) for glob in self.options.allow for name in names)

    async def on_request(self, exchange: Exchange, request: ModelRequest) -> ModelRequest:
        """See `Middleware.on_request`. Raises `tool_not_allowed`, or `ClientFault` `invalid_tool_choice` if the client
        demands a call that is not possible any more."""
        permission = exchange.route.permission
        kept = permission.permitted(request.tools, stand_for_servers(exchange, request.tools))
        if kept is not request.tools:
            if self.options.on_denied == "refuse":
                raise _refused(request.tools, kept)
            exchange.record.count("tools_denied", len(request.tools) - len(kept))
            taken = [tool for tool in request.tools if not any(tool is other for other in kept)]
            exchange.state.setdefault(ToolFilter, []).extend(taken)
            choice = _narrowed(request.tool_choice, kept)
            request = replace(request, tools=kept, tool_choice=choice)
        return permission.elsewhere(request)

    def declare(self, exchange: Exchange, reply: Reply) -> None:
        """See `Middleware.declare`."""
        reply.map(_Calls(exchange).see, Kind.CALL | Kind.OPAQUE)


class _Calls:
    """Follows the calls of one answer; one of a denied tool comes out as the text that the model wrote."""

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange
        self._permission = exchange.route.permission
        offered = self._permission.permitted(
            exchange.request.tools, stand_for_servers(exchange, exchange.request.tools)
        )
        self._offered = {name for tool in offered for name in names_of(tool)}
        self._taken = {name for tool in exchange.state.get(ToolFilter, ()) for name in names_of(tool)}
        self._denied: dict[int, tuple[Open, list[str]]] = {}
        self._texts = 0  # in place of calls that are no blocks; those have numbers from 0 on

    def see(self, event: Event) -> Event | Iterable[Event] | None:
        """The event, or what takes its place."""
        match event:
            case Open() if self._is_denied(event):
                self._denied[event.block] = (event, [])
                return None
            case Delta() if event.block in self._denied:
                self._denied[event.block][1].append(event.text)
                return None
            case Close() if event.block in self._denied:
                opened, arguments = self._denied.pop(event.block)
                self._exchange.record.count("calls_denied")
                written = opened.extra.get("source") or compact({"name": opened.name, "arguments": "".join(arguments)})
                return text_block(event.block, written, opened.choice)
            case Opaque() if self._permission.denies_item(event.payload):
                if not is_item(event.payload):
                    return None  # it tells of one that comes whole
                self._exchange.record.count("calls_denied")
                self._texts += 1
                return text_block(-self._texts, compact(event.payload), 0)
        return event

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
    """A name in small letters, and without what may stand before it."""
    name = name.strip().casefold()
    bare = name[max(map(name.rfind, _SEPARATORS)) + 1 :]
    return dict.fromkeys((name, bare))


def _refused(tools: Sequence[ToolSpec], kept: Sequence[ToolSpec]) -> ClientFault:
    allowed = set(map(prompt_name, kept))
    index, tool = next((index, tool) for index, tool in enumerate(tools) if prompt_name(tool) not in allowed)
    return ClientFault(
        f"The tool {quote(prompt_name(tool))} may not be used here.",
        code="tool_not_allowed",
        param=f"tools[{index}]",
        hint="Leave it out.",
    )


def _narrowed(choice: ToolChoice, kept: Sequence[ToolSpec]) -> ToolChoice:
    """The choice among those that are left. Raises `ClientFault` if a call is demanded that is not possible."""
    names = {tool.name for tool in kept}
    if choice.mode == "named":
        if choice.name not in names:
            raise _impossible(f"the tool {quote(choice.name)} may not be used here")
        return choice
    allowed = None if choice.allowed is None else tuple(name for name in choice.allowed if name in names)
    if kept and allowed != ():
        return replace(choice, allowed=allowed)
    if choice.forces:
        raise _impossible("none of the tools may be used here")
    return ToolChoice("none")


def _impossible(why: str) -> ClientFault:
    return ClientFault(
        f"`tool_choice` demands a call, but {why}.", code="invalid_tool_choice", param="tool_choice", hint="Use `auto`."
    )
