"""Tool servers that a Responses client names: `{"type": "mcp", "server_url": ...}` in `tools` (R26.2). The
`ToolServerForm` of this protocol.

Rules:

1. A tool without `server_url` (a connector, a tunnel) cannot be called by the gateway: like other hosted tools it is
   ignored and echoed (R3.8).
2. `require_approval` is `always` by default; a tool that its filters do not mention needs approval.
3. An approval is valid for one call, until a call refers to its request or the model has answered since.
4. Earlier calls, requested or made, are ordinary calls with results for the model, no matter who ran them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from ...errors import ClientFault, quote
from ...known.kinds import kinds_of
from ...model import (
    EMPTY,
    Message,
    ModelRequest,
    OpaquePart,
    Part,
    Refusal,
    Text,
    ToolChoice,
    ToolResult,
    ToolSpec,
    ToolUse,
    fields_of,
)
from ..shared.tool_servers import (
    ALL_TOOLS,
    ApprovedCall,
    Definitions,
    ToolServer,
    ToolServerFilter,
    ToolServerForm,
    ToolServerHistory,
    ToolServerTool,
)
from .items import PROTOCOL, own_items
from .tool_server_items import (
    CALL,
    LISTING,
    REQUEST,
    RESPONSE,
    approval_request,
    begun_call,
    finished_call,
    is_call,
    listing,
    read_listing,
    read_result,
    read_use,
    tool_result,
)

LABEL_CHARS: Final = 64
CALL_ID_CHARS: Final = 256
"""Maximum length of a call id, the same as for other calls of a request."""
_LABEL: Final = re.compile(rf"[A-Za-z][A-Za-z0-9_-]{{0,{LABEL_CHARS - 1}}}")
_FIELD_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_FIELD_VALUE: Final = re.compile(r"(?:[!-~](?:[\t -~]*[!-~])?)?")
_ONE_LINE: Final = "must be a text of one line, of ASCII characters, without blanks around it"
_NOT_THE_CLIENTS: Final = frozenset(
    {
        "accept", "accept-encoding", "connection", "content-encoding", "content-length", "content-type", "expect", "host",
        "keep-alive", "last-event-id", "mcp-method", "mcp-name", "mcp-protocol-version", "mcp-session-id",
        "proxy-authorization", "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade",
    }
)  # fmt: skip
"""Headers that control the connection; clients may not set them."""
_KINDS: Final = frozenset({CALL, LISTING, REQUEST, RESPONSE})

REFUSED: Final = "Error: the user refused this call. Do not make it again unless the user asks for it."
NOT_APPROVED: Final = "Error: not run, the user has not approved this call."
NOT_KNOWN: Final = "Error: what this call gave is not known any more."


class ResponsesToolServers(ToolServerForm):
    """The `ToolServerForm` of Responses."""

    def servers(self, body: Mapping[str, Any]) -> tuple[ToolServer, ...]:
        servers: dict[str, ToolServer] = {}
        for index, tool in enumerate(body.get("tools") or ()):
            if not is_served(tool):
                continue
            server = _server(tool, f"tools[{index}]")
            if server.label in servers:
                message = f"There is another server with the label {quote(server.label)}."
                raise _bad(f"{server.param}.server_label", message, "Give each server a label of its own.")
            servers[server.label] = server
        return tuple(servers.values())

    def others(self, tools: Sequence[ToolSpec]) -> Sequence[ToolSpec]:
        return [tool for tool in tools if tool.kind != "hosted" or not is_served(tool.extra.get(PROTOCOL))]

    def choice(
        self, body: Mapping[str, Any], request: ModelRequest, served: Sequence[ToolServerTool]
    ) -> tuple[ToolChoice, Sequence[ToolServerTool]]:
        given, others = body.get("tool_choice"), request.tool_choice
        if not isinstance(given, Mapping):
            return others, ()
        if given.get("type") == "mcp":
            chosen = _chosen(given, served)
            names = _names(chosen)
            single = given.get("name") is not None
            return ToolChoice("named", names[0]) if single else ToolChoice("required", allowed=names), chosen
        if given.get("type") == "allowed_tools":
            inner = given.get("allowed_tools")
            listed = (inner if isinstance(inner, Mapping) else given).get("tools")
            more = [
                tool
                for entry in (listed if isinstance(listed, list) else ())
                if isinstance(entry, Mapping) and entry.get("type") == "mcp"
                for tool in _chosen(entry, served)
            ]
            return replace(others, allowed=(*(others.allowed or ()), *_names(more))), more
        return others, ()

    def history(self, body: Mapping[str, Any], messages: tuple[Message, ...]) -> ToolServerHistory:
        if Message not in kinds_of(messages) or (history := _History(messages)).knows_nothing:
            return ToolServerHistory(messages)
        _check_approvals(body, history)
        return history.read()

    def is_server_item(self, part: OpaquePart) -> bool:
        return _item(part) is not None

    listed = staticmethod(listing)
    began = staticmethod(begun_call)
    ran = staticmethod(finished_call)
    approval_request = staticmethod(approval_request)


# --- tools ----------------------------------------------------------------------------------------------------------


def is_served(tool: Any) -> bool:
    """True if a tool stands for a server that the gateway can call (rule 1)."""
    return isinstance(tool, Mapping) and tool.get("type") == "mcp" and tool.get("server_url") is not None


def tool_server_secrets(tools: Sequence[ToolSpec]) -> list[str]:
    """Returns the credentials for all tool servers among the tools of a request."""
    credentials: list[str] = []
    for tool in tools:
        received = fields_of(tool.extra, PROTOCOL)
        if tool.kind != "hosted" or received.get("type") != "mcp":
            continue
        headers = received.get("headers")
        values = [received.get("authorization"), *(headers.values() if isinstance(headers, Mapping) else ())]
        for value in values:
            if isinstance(value, str):
                credentials += dict.fromkeys((value, value.rpartition(" ")[2]))
    return credentials


def _bad(param: str, message: str, hint: str | None = None) -> ClientFault:
    return ClientFault(message, code="invalid_tool_schema", param=param, hint=hint)


def _server(tool: Mapping[str, Any], param: str) -> ToolServer:
    """Returns the server in a tool. Raises `ClientFault` with the wrong field."""
    label, url, about = tool.get("server_label"), tool["server_url"], tool.get("server_description")
    if not isinstance(label, str) or not _LABEL.fullmatch(label):
        problem = "Missing" if label is None else f"Invalid label {quote(label)}"
        hint = f"A server has a label of 1 to {LABEL_CHARS} letters, digits, `_` and `-`, a letter first."
        raise _bad(f"{param}.server_label", f"{problem}: 'server_label'.", hint)
    if not isinstance(url, str):
        raise _bad(f"{param}.server_url", "'server_url' must be a text.")
    if about is not None and not isinstance(about, str):
        raise _bad(f"{param}.server_description", "'server_description' must be a text.")
    always, never = _approvals(tool.get("require_approval"), f"{param}.require_approval")
    return ToolServer(
        label=label,
        url=url,
        param=param,
        description=about or None,
        headers=_headers(tool, param),
        allowed=_filter(tool.get("allowed_tools"), f"{param}.allowed_tools"),
        always=always,
        never=never,
    )


def _headers(tool: Mapping[str, Any], param: str) -> Mapping[str, str]:
    """Returns the headers for each request to the server. Error messages do not quote values, because they are
    secret."""
    fields, token = tool.get("headers"), tool.get("authorization")
    if fields is not None and not isinstance(fields, Mapping):
        raise _bad(f"{param}.headers", "'headers' must be an object.")
    headers: dict[str, str] = {}
    for name, value in (fields or EMPTY).items():
        place = f"{param}.headers.{name}"
        if not _FIELD_NAME.fullmatch(name) or name.lower() in _NOT_THE_CLIENTS:
            raise _bad(place, f"The header {quote(name)} cannot be set.", "Leave it out.")
        if not isinstance(value, str) or not _FIELD_VALUE.fullmatch(value):
            raise _bad(place, f"The value of the header {quote(name)} {_ONE_LINE}.")
        headers[name.lower()] = value
    if token is not None:
        if not isinstance(token, str) or not _FIELD_VALUE.fullmatch(token):
            raise _bad(f"{param}.authorization", f"'authorization' {_ONE_LINE}.")
        if "authorization" in headers:
            raise _bad(f"{param}.authorization", "'headers' has an `Authorization` as well.", "Send one of the two.")
        headers["authorization"] = f"Bearer {token}"
    return headers


def _filter(value: Any, param: str) -> ToolServerFilter:
    """Returns the filter in `allowed_tools`, or one of those in `require_approval`."""
    if value is None:
        return ALL_TOOLS
    names, read_only = value, None
    if isinstance(value, Mapping):
        if unknown := sorted(value.keys() - {"tool_names", "read_only"}):
            hint = "Write 'tool_names' and 'read_only' only: a filter that is not understood would fit all tools."
            raise _bad(param, f"A filter of tools has no field {quote(unknown[0])}.", hint)
        names, read_only = value.get("tool_names"), value.get("read_only")
    if names is not None and not (isinstance(names, list) and all(isinstance(name, str) for name in names)):
        raise _bad(param, "Expected a list of names of tools, or an object with 'tool_names' and 'read_only'.")
    if read_only is not None and not isinstance(read_only, bool):
        raise _bad(f"{param}.read_only", "'read_only' must be true or false.")
    return ToolServerFilter(None if names is None else frozenset(names), read_only)


def _approvals(value: Any, param: str) -> tuple[ToolServerFilter | None, ToolServerFilter | None]:
    """Returns the filters of `require_approval`: the calls that always need approval, and those that never do. An empty
    filter selects no tool."""
    match value:
        case None | "always":
            return ALL_TOOLS, None
        case "never":
            return None, ALL_TOOLS
        case Mapping() if value.keys() <= {"always", "never"}:
            filters = (_filter(value.get(word), f"{param}.{word}") for word in ("always", "never"))
            always, never = (None if selected == ALL_TOOLS else selected for selected in filters)
            return always, never
    raise _bad(param, "Expected 'always', 'never', or an object with filters for 'always' and 'never'.")


def _names(tools: Iterable[ToolServerTool]) -> tuple[str, ...]:
    return tuple([tool.spec.name for tool in tools])


def _chosen(choice: Mapping[str, Any], served: Sequence[ToolServerTool]) -> Sequence[ToolServerTool]:
    """Returns the tools that a choice names. Raises `ClientFault` if there are none."""
    label, name = choice.get("server_label"), choice.get("name")
    chosen = [tool for tool in served if tool.spec.namespace == label and name in (None, tool.name)]
    if not chosen:
        which = "tools of the server" if name is None else f"the tool {quote(name)} of the server"
        raise ClientFault(
            f"'tool_choice' names {which} {quote(label)}, which cannot be called.",
            code="invalid_tool_choice",
            param="tool_choice",
            hint="Name a server of `tools` and a tool that it lists and that `allowed_tools` has.",
        )
    return chosen


# --- history --------------------------------------------------------------------------------------------------------


def _check_approvals(body: Mapping[str, Any], history: _History) -> None:
    """Checks that each approval in the request answers an approval request. Raises `ClientFault`."""
    items = own_items(body)
    for index, item in enumerate(items if isinstance(items, list) else ()):
        if item.get("type") != RESPONSE:
            continue
        ident = item["approval_request_id"]
        if ident not in history.requests:
            raise ClientFault(
                f"No approval was requested with the id {quote(ident)}.",
                param=f"input[{index}].approval_request_id",
                hint="Send the `mcp_approval_request` item back before it, or the `previous_response_id` of its answer.",
            )


class _History:
    """The items of tool servers in a conversation."""

    def __init__(self, messages: tuple[Message, ...]) -> None:
        self.requests: dict[str, Mapping[str, Any]] = {}
        self._messages = messages
        self._answers: dict[str, Mapping[str, Any]] = {}
        self._answered_at: dict[str, int] = {}
        self._done: set[str] = set()
        self._listed: dict[str, Definitions] = {}
        self._answered = -1  # position of the model's latest answer
        self._ids: set[str] = set()
        self._approved: list[ApprovedCall] = []
        place = 0
        self.knows_nothing = True
        for message in messages:
            for part in message.parts if message.role == "assistant" else ():
                place += 1
                if (item := _item(part)) is not None:
                    self.knows_nothing = False
                    self._note(item, place)
                elif isinstance(part, Text | Refusal | ToolUse):
                    self._answered = place

    def _note(self, item: Mapping[str, Any], place: int) -> None:
        match item["type"]:
            case "mcp_call":
                self._answered = place
                if isinstance(ident := item.get("approval_request_id"), str):
                    self._done.add(ident)
            case "mcp_list_tools":
                if isinstance(label := item.get("server_label"), str) and item.get("error") is None:
                    self._listed[label] = read_listing(item)
            case "mcp_approval_request":
                if is_call(item) and isinstance(ident := item.get("id"), str):
                    self.requests[ident] = item
            case _:
                if isinstance(ident := item.get("approval_request_id"), str):
                    self._answers[ident] = item
                    self._answered_at[ident] = place

    def read(self) -> ToolServerHistory:
        """Returns the converted conversation; see `ToolServerForm.history`."""
        messages = tuple(message for given in self._messages for message in self._read(given))
        return ToolServerHistory(messages, tuple(self._approved), self._listed)

    def _read(self, message: Message) -> Iterator[Message]:
        """Yields a message split at its calls, each followed by its result. It is unknown which calls were made in
        parallel, so each stands alone."""
        if message.role != "assistant" or all(_item(part) is None for part in message.parts):
            yield message
            return
        parts: list[Part] = []
        for part in message.parts:
            item = _item(part)
            if item is None:
                parts.append(part)
            elif (ran := self._ran(item)) is not None:
                use, result = ran
                yield replace(message, parts=(*parts, use))
                yield Message("tool", (result,))
                parts = []
        if parts:
            yield replace(message, parts=tuple(parts))

    def _ran(self, item: Mapping[str, Any]) -> tuple[ToolUse, ToolResult] | None:
        """Returns the call in an item and its result for the model; None if the model gets neither."""
        if not is_call(item):
            return None
        ident = item.get("id")
        if item["type"] == CALL:
            use = read_use(item, self._id(ident))
            return use, read_result(item, use)
        if not isinstance(ident, str) or ident in self._done:
            return None
        self._done.add(ident)  # the client may send back an item that is also in the stored response
        use = read_use(item, self._id(ident))
        answer = self._answers.get(ident)
        if answer is None:
            return use, tool_result(use, NOT_APPROVED, failed=True)
        if answer.get("approve") is not True:
            reason = answer.get("reason")
            text = f"{REFUSED} The reason: {reason}" if isinstance(reason, str) and reason.strip() else REFUSED
            return use, tool_result(use, text, failed=True)
        if self._answered_at[ident] < self._answered:
            return use, tool_result(use, NOT_KNOWN, failed=True)
        self._approved.append(ApprovedCall(use, ident))
        return None

    def _id(self, given: Any) -> str:
        """Returns the id of a call: its item's id if no other call has it, otherwise a new one."""
        own = isinstance(given, str) and 0 < len(given) <= CALL_ID_CHARS and given not in self._ids
        ident = str(given) if own else f"mcp_{len(self._ids) + 1}"
        self._ids.add(ident)
        return ident


def _item(part: Part) -> Mapping[str, Any] | None:
    """Returns the tool server's item in a part; None if it holds none."""
    if not isinstance(part, OpaquePart) or part.protocol != PROTOCOL or not isinstance(part.payload, Mapping):
        return None
    return part.payload if part.payload.get("type") in _KINDS else None
