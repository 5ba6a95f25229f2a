"""Which tools a route lets clients offer, by name.

A tool is known by its name, and one of a group (a `namespace` of Responses) also as `group__name`. `deny` wins over
`allow`. A model may call what it was not offered; such a call becomes text here, so that a denied tool is never called
through this route. Inside of `execution` that holds for server-side tools too.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import partial
from typing import ClassVar, Literal

from proxy.errors import ClientFault, quote
from proxy.events import Close, Delta, Event, Kind, Open, text_block
from proxy.formats.longjson import compact
from proxy.formats.rendering import prompt_name
from proxy.formats.toolset import NAME_BYTES, ToolSet, note, note_of
from proxy.model import ModelRequest, ToolChoice, ToolSpec, ToolUse
from proxy.pipeline.exchange import Exchange
from proxy.pipeline.middleware import Middleware
from proxy.pipeline.reply import Reply
from proxy.record import AccessField


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

    passing = "stands_aside"
    Options: ClassVar[type] = ToolFilterOptions
    access_fields: ClassVar[tuple[AccessField, ...]] = (
        AccessField("tools_denied", "Tools that the middleware `tool_filter` took away."),
        AccessField("calls_denied", "Calls of such tools."),
    )

    async def on_request(self, exchange: Exchange, request: ModelRequest) -> ModelRequest:
        """See `Middleware.on_request`. Raises `tool_not_allowed`, or `ClientFault` `invalid_tool_choice` if the client
        demands a call that is not possible any more."""
        kept = self._kept(request)
        if kept is request.tools:
            return request
        if self.options.on_denied == "refuse":
            raise _refused(request.tools, kept)
        exchange.record.count("tools_denied", len(request.tools) - len(kept))
        return replace(request, tools=kept, tool_choice=_narrowed(request.tool_choice, kept))

    def declare(self, exchange: Exchange, reply: Reply) -> None:
        """See `Middleware.declare`."""
        if exchange.request.tools or exchange.received.tools:
            reply.map(partial(_Calls(self, exchange).see), Kind.CALL)

    def allows(self, *names: str) -> bool:
        """Whether a tool of these names may be used."""

        def fits(globs: Iterable[str]) -> bool:
            return any(fnmatchcase(name, glob) for glob in globs for name in names)

        return fits(self.options.allow) and not fits(self.options.deny)

    def _kept(self, request: ModelRequest) -> tuple[ToolSpec, ...]:
        """The tools that may stay; the very same tuple if that is all of them. Noted with a list that comes again."""
        noted: tuple[ToolSpec, ...] | None = note_of(request.tools, self)
        if noted is not None:
            return noted
        kept = ToolSet((t for t in request.tools if self.allows(t.name, prompt_name(t))), of=request.tools)
        same = len(kept) == len(request.tools)
        return note(request.tools, self, request.tools if same else kept, NAME_BYTES * len(kept))


class _Calls:
    """Follows the calls of one answer; one of a denied tool comes out as the text that the model wrote."""

    def __init__(self, tools: ToolFilter, exchange: Exchange) -> None:
        self._tools = tools
        self._exchange = exchange
        self._denied: dict[int, tuple[Open, list[str]]] = {}

    def see(self, event: Event) -> Event | Iterable[Event] | None:
        """The event, or what takes its place."""
        match event:
            case Open() if not self._tools.allows(event.name or "", _grouped(event)):
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
        return event


def _grouped(opened: Open) -> str:
    return prompt_name(ToolUse("", opened.name or "", "", namespace=opened.namespace))


def _refused(tools: tuple[ToolSpec, ...], kept: tuple[ToolSpec, ...]) -> ClientFault:
    allowed = set(map(prompt_name, kept))
    index, tool = next((index, tool) for index, tool in enumerate(tools) if prompt_name(tool) not in allowed)
    return ClientFault(
        f"The tool {quote(prompt_name(tool))} may not be used here.",
        code="tool_not_allowed",
        param=f"tools[{index}]",
        hint="Leave it out.",
    )


def _narrowed(choice: ToolChoice, kept: tuple[ToolSpec, ...]) -> ToolChoice:
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
