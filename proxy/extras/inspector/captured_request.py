"""The request of a captured exchange and its configuration: the input for reading its answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from ...config import LimitsConfig, ReasoningConfig, RouteOptions
from ...errors import GatewayError
from ...formats.base import ToolFormat
from ...model import Message, ModelRequest, ToolChoice, ToolSpec
from ...pipeline.scanning.offered_tools import OfferedTools
from ...pipeline.scanning.scanners import not_taught
from ...protocols.base import ServerSide
from ...protocols.shared.wire import BOUNDS, dump_in_pieces
from ...registry import Registries
from ...support.bounded_json import loads
from ...support.conversion import ConfigError, from_mapping
from ..capture.files import CapturedExchange
from ..capture.recording import recorded_protocol
from .bounds import MOST_TOOLS, SCHEMA_CHARS

_NOTHING: Final = ModelRequest("", ())


@dataclass(frozen=True, slots=True)
class CapturedRequest:
    """The request and the configuration of an exchange.

    `request` is None if it cannot be read. `offer` holds the tools whose calls the scanner finds. `format` is the name
    of the format that the route taught, empty if it taught none. `server` is the server's protocol.
    """

    request: ModelRequest | None
    options: RouteOptions
    limits: LimitsConfig
    offer: OfferedTools
    format: str
    server: ServerSide

    @property
    def history(self) -> Sequence[Message]:
        """The messages of the request."""
        return () if self.request is None else self.request.messages

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the tools on offer."""
        return tuple(tool.name for tool in self.offer.tools)


def read_captured_request(captured: CapturedExchange, plugins: Registries) -> CapturedRequest:
    """Reads the request and the configuration of a capture. Missing parts have their defaults."""
    head = captured.head
    options, limits = _settings(head.get("config") or {})
    request = _request(captured, plugins)
    format_, taught = _format(captured, options, plugins)
    known = _with_run(request or _NOTHING, captured)
    tools = known.callable_tools
    choice = known.tool_choice if tools else ToolChoice("none")
    offer = OfferedTools(tools, choice, known.parallel_tool_calls, format_, known.tools)
    kind = (head.get("backend") or {}).get("kind")
    server = recorded_protocol(kind, plugins)
    options = replace(options, reasoning=_reasoning(captured, options.reasoning, offer, server))
    return CapturedRequest(request, options, limits, offer, taught, server)


def _with_run(request: ModelRequest, captured: CapturedExchange) -> ModelRequest:
    """Returns the request with the server-side tools that the gateway ran for it added. The client does not list
    them."""
    known = {tool.name for tool in request.tools}
    run = dict.fromkeys(entry.fields["name"] for entry in captured.entries if entry.kind == "tool")
    more = tuple(ToolSpec(name, server=True) for name in run if name not in known)
    if not more:
        return request
    choice = request.tool_choice if request.tools else ToolChoice()
    return replace(request, tools=(*request.tools, *more), tool_choice=choice)


def _reasoning(
    captured: CapturedExchange, reasoning: ReasoningConfig, offer: OfferedTools, server: ServerSide
) -> ReasoningConfig:
    """Returns the settings for finding reasoning. An answer without tools between a server and a client of the same
    protocol is not searched for it."""
    if not offer.tools and server.name == captured.head.get("endpoint") and offer.format.framing is None:
        return replace(reasoning, tags=None)
    if reasoning.preopened is None and latest_notes(captured).get("unopened_reasoning"):
        return replace(reasoning, preopened=True)
    return reasoning


def _settings(config: Mapping[str, Any]) -> tuple[RouteOptions, LimitsConfig]:
    try:
        options = from_mapping(RouteOptions, config.get("defaults"), "defaults")
        return options, from_mapping(LimitsConfig, config.get("limits"), "limits")
    except ConfigError:  # the capture is from another version
        return RouteOptions(), LimitsConfig()


def _request(captured: CapturedExchange, plugins: Registries) -> ModelRequest | None:
    raw = captured.bytes_of("request")
    side = next((s for s in plugins.client_sides().sides if s.name == captured.head.get("endpoint")), None)
    if side is None or not raw:
        return None
    try:
        return _with_few_tools(side.read_request(loads(raw, BOUNDS), raw))
    except (GatewayError, ValueError, AttributeError, TypeError):
        return None


def _with_few_tools(request: ModelRequest) -> ModelRequest:
    """Returns the request without the tools beyond the bounds of the inspector."""
    tools = tuple(tool for tool in request.tools[:MOST_TOOLS] if len(dump_in_pieces(tool.parameters)) <= SCHEMA_CHARS)
    return request if len(tools) == len(request.tools) else replace(request, tools=tools)


def _format(captured: CapturedExchange, options: RouteOptions, plugins: Registries) -> tuple[ToolFormat, str]:
    """Returns the format in which the scanner looks for calls, and its name if the route taught it."""
    taught = latest_notes(captured).get("format")
    name = taught if isinstance(taught, str) else options.format
    found = plugins.formats.get(name if name in plugins.formats.names() else RouteOptions().format)
    if taught is not None:
        return found, found.name
    return (found if options.mode in ("prompt", "template", "text") else not_taught(found)), ""


def latest_notes(captured: CapturedExchange) -> Mapping[str, Any]:
    """Returns the notes and counts of an exchange: those at its end, or the latest ones while it is running."""
    return captured.end or captured.head.get("so_far") or {}
