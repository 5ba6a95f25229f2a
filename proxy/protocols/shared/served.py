"""Servers of tools that a client names in its request, so that the gateway asks them for the client (R26.2): what every
protocol that can say such a thing says of them, and what is asked of the protocol.

Rules:

1. Calls are part of the answer: the client sees each with its result, or is asked whether it may be run at all. So the
   client gives them back with its history, and the gateway keeps nothing of them.
2. What lets the gateway in there (`ToolServer.headers`) is for that server alone. It stands in no event, no message, no
   log and no store.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any, Final, Protocol

from toolwire.events import Event
from toolwire.model import Message, ModelRequest, Opaque, ToolChoice, ToolSpec, ToolUse, dataclass


@dataclass(frozen=True, slots=True)
class ToolFilter:
    """Some of a server's tools: those with these `names`, and those that say they only read, or that do not. None: all
    of them."""

    names: frozenset[str] | None = None
    read_only: bool | None = None

    def fits(self, name: str, reads: bool) -> bool:
        """Whether the tool `name` is meant, which only `reads` or not."""
        return (self.names is None or name in self.names) and (self.read_only is None or self.read_only is reads)


ALL_TOOLS: Final = ToolFilter()


@dataclass(frozen=True, slots=True)
class ServedTool:
    """A tool of a server that is offered: as `spec`, whose namespace is the server's label. `name` is the server's own
    for it, which the client gets to see; `reads`: it says of itself that it only reads, which may be wrong."""

    name: str
    spec: ToolSpec
    reads: bool = False


@dataclass(frozen=True, slots=True)
class ToolServer:
    """A server of tools that a client names. `label` is the client's name for it, unique in the request, `description`
    what the client says of it, `allowed` which of its tools are offered. `headers` go with every request to it.
    `always` and `never`: which calls the client has to approve before they are run; `always` counts where both fit, and
    a tool of which neither speaks has to be approved. `param` is its place in the request: `tools[0]`."""

    label: str
    url: str
    param: str
    description: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict, hash=False, repr=False)
    allowed: ToolFilter = ALL_TOOLS
    always: ToolFilter | None = None
    never: ToolFilter | None = None

    def asks(self, name: str, reads: bool) -> bool:
        """Whether the client has to approve a call of the tool `name`, which only `reads` or not."""
        if self.always is not None and self.always.fits(name, reads):
            return True
        return self.never is None or not self.never.fits(name, reads)


@dataclass(frozen=True, slots=True)
class Approved:
    """A call that the client has approved and that was not run yet. `request_id` is the id under which it was asked
    for."""

    use: ToolUse
    request_id: str


@dataclass(frozen=True, slots=True)
class ServedHistory:
    """A conversation in which earlier calls are calls with their results, as for any model (R5.7, R5.8). `listed` are
    the labels of servers whose tools the client has been shown."""

    messages: tuple[Message, ...]
    approved: tuple[Approved, ...] = ()
    listed: frozenset[str] = frozenset()


class ServedForm(Protocol):
    """How a protocol names servers of tools, and shows what becomes of their calls. `body` is a client's parsed JSON.
    A call has the server's label as its `namespace`, and the server's own name for the tool."""

    def servers(self, body: Mapping[str, Any]) -> Sequence[ToolServer]:
        """The servers that a request names and that the gateway can ask. Raises `ClientFault` for one that is not
        said well."""

    def others(self, tools: Sequence[ToolSpec]) -> Sequence[ToolSpec]:
        """The tools of a request without those that stand for such servers."""

    def choice(
        self, body: Mapping[str, Any], request: ModelRequest, served: Sequence[ServedTool]
    ) -> tuple[ToolChoice, Sequence[ServedTool]]:
        """What a request says of which tools may or must be called, where `served` are the tools of its servers and
        `request` has all others; and those of `served` that it names by that. Raises `ClientFault`
        `invalid_tool_choice` for one that is not there."""

    def history(self, body: Mapping[str, Any], messages: tuple[Message, ...]) -> ServedHistory:
        """What `messages` say in the words of this protocol, in the words of the model. Raises `ClientFault` where the
        request answers what was never asked."""

    def reads(self, part: Opaque) -> bool:
        """Whether a part of a conversation is one of those that `history` puts in the words of the model."""

    def listed(self, label: str, tools: Sequence[ServedTool], error: str | None) -> Event:
        """Shows the tools of a server, or why it lists none."""

    def began(self, use: ToolUse, request_id: str | None) -> Event:
        """Shows that a call is being run now; `ran` follows before anything else is shown. `request_id` is that of an
        approval."""

    def ran(self, use: ToolUse, text: str, failed: bool, request_id: str | None) -> Event:
        """Shows a call with its result."""

    def asks(self, use: ToolUse) -> Event:
        """Shows a call that is run only if the client approves it."""
