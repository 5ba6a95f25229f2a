"""Tool servers: MCP servers that a client names in its request and that the gateway calls for it (R26.2). Values shared
by all protocols with such requests, and the interface of those protocols.

Rules:

1. Calls are part of the answer: the client gets each with its result, or is asked for approval. The client sends them
   back with its history, so the gateway stores nothing.
2. Credentials (`ToolServer.headers`) are for that server alone. They never occur in an event, a message, a log or a
   store.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any, Final, Protocol

from ...events import Event
from ...model import Message, ModelRequest, OpaquePart, ToolChoice, ToolSpec, ToolUse, dataclass


@dataclass(frozen=True, slots=True)
class ToolServerFilter:
    """Selects tools of a server: by `names`, and by whether they are read-only. None selects all."""

    names: frozenset[str] | None = None
    read_only: bool | None = None

    def selects(self, name: str, read_only: bool) -> bool:
        """Returns True if the filter selects the tool `name`; `read_only` tells whether it is read-only."""
        return (self.names is None or name in self.names) and (self.read_only is None or self.read_only is read_only)


ALL_TOOLS: Final = ToolServerFilter()


@dataclass(frozen=True, slots=True)
class ToolServerTool:
    """A tool of a tool server that is on offer as `spec`, whose namespace is the server's label. `name` is the server's
    own name for it, which the client gets. `read_only` is the server's claim that the tool is read-only."""

    name: str
    spec: ToolSpec
    read_only: bool = False


Definitions = list[tuple[object, object, object]]
"""Name, description and schema of each tool of a server: what a user has seen who approves a call."""


def definitions(tools: Sequence[ToolServerTool]) -> Definitions:
    """Returns the definitions of these tools."""
    return [(tool.name, tool.spec.description, tool.spec.parameters) for tool in tools]


@dataclass(frozen=True, slots=True)
class ToolServer:
    """A tool server in a request. `label` is the client's name for it, unique in the request, `description` the
    client's text about it, `allowed` selects the tools on offer. `headers` are sent with every request to it. `always`
    and `never` select the calls that need the client's approval: `always` wins where both match, and calls that match
    neither need approval. `param` is the server's place in the request: `tools[0]`."""

    label: str
    url: str
    param: str
    description: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict, hash=False, repr=False)
    allowed: ToolServerFilter = ALL_TOOLS
    always: ToolServerFilter | None = None
    never: ToolServerFilter | None = None

    def needs_approval(self, name: str, read_only: bool) -> bool:
        """Returns True if a call of the tool `name` needs the client's approval; `read_only` tells whether it is
        read-only."""
        if self.always is not None and self.always.selects(name, read_only):
            return True
        return self.never is None or not self.never.selects(name, read_only)


@dataclass(frozen=True, slots=True)
class ApprovedCall:
    """A call that the client has approved and that has not run yet. `request_id` is the id of the approval request."""

    use: ToolUse
    request_id: str


@dataclass(frozen=True, slots=True)
class ToolServerHistory:
    """A conversation with earlier server calls and results as ordinary calls and results (R5.7, R5.8). `listed` are the
    tools that the client already got, as `definitions` returns them, by their server's label."""

    messages: tuple[Message, ...]
    approved: tuple[ApprovedCall, ...] = ()
    listed: Mapping[str, Definitions] = field(default_factory=dict)


class ToolServerForm(Protocol):
    """Interface of a protocol with tool servers: reads them from requests and writes their calls. `body` is a client's
    parsed JSON. A call has the server's label as its `namespace`, and the server's own name for the tool."""

    def servers(self, body: Mapping[str, Any]) -> Sequence[ToolServer]:
        """Returns the servers in a request that the gateway can call. Raises `ClientFault` for one with wrong
        fields."""

    def others(self, tools: Sequence[ToolSpec]) -> Sequence[ToolSpec]:
        """Returns the tools of a request without those that stand for such servers."""

    def choice(
        self, body: Mapping[str, Any], request: ModelRequest, served: Sequence[ToolServerTool]
    ) -> tuple[ToolChoice, Sequence[ToolServerTool]]:
        """Returns the request's tool choice, and the tools among `served` (the servers' tools) that it names; `request`
        has all other tools. Raises `ClientFault` `invalid_tool_choice` for an unknown tool."""

    def history(self, body: Mapping[str, Any], messages: tuple[Message, ...]) -> ToolServerHistory:
        """Returns `messages` with this protocol's items for server calls converted to ordinary calls and results.
        Raises `ClientFault` for an answer to an approval that was never requested."""

    def is_server_item(self, part: OpaquePart) -> bool:
        """True if `history` converts this part."""

    def listed(self, label: str, tools: Sequence[ToolServerTool], error: str | None) -> Event:
        """Returns the event that shows the tools of a server, or the error why it lists none."""

    def began(self, use: ToolUse, request_id: str | None) -> Event:
        """Returns the event that shows a call that is running now; the event of `ran` follows directly. `request_id` is
        that of an approval."""

    def ran(self, use: ToolUse, text: str, failed: bool, request_id: str | None) -> Event:
        """Returns the event that shows a call with its result."""

    def approval_request(self, use: ToolUse) -> Event:
        """Returns the event that asks the client to approve a call."""
