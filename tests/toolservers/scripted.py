"""Tool servers without a process: what they list and what their calls give is said beforehand. All else, from the check
of arguments on, is that of real ones."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from toolwire.config import GatewayConfig
from toolwire.configuration.settings import load
from toolwire.extras.mcp.server import Listing, McpServer, read_listing
from toolwire.model import ModelRequest, Text, ToolResult, ToolUse
from toolwire.servertools.source import Result, Tools
from toolwire.testing import WireAnswer, run_chain

URL = "https://tools.example/mcp"
OTHER = "https://other.example/mcp"
AWAY = "https://tools.example/away"


def listed(name: str, *, reads: bool = False, **properties: str) -> dict[str, Any]:
    schema = {
        "type": "object",
        "properties": {key: {"type": kind} for key, kind in properties.items()},
        "required": list(properties),
    }
    tool: dict[str, Any] = {"name": name, "description": f"Does {name}.", "inputSchema": schema}
    return {**tool, "annotations": {"readOnlyHint": True}} if reads else tool


LISTED = (
    listed("add", reads=True, a="integer", b="integer"),
    listed("write", text="string"),
    listed("fail"),
    listed("files/read.v2", path="string"),
)


def answered(name: str, arguments: Mapping[str, Any]) -> Result:
    match name:
        case "add":
            return Result(str(arguments["a"] + arguments["b"]))
        case "fail":
            return Result("the disk is full", failed=True)
        case _:
            return Result(f"{name}: {json.dumps(arguments)}")


@dataclass
class Seen:
    """What the servers saw: `made` are connections with their headers, `calls` server, tool and arguments, `ended`
    the connections that were ended."""

    made: list[tuple[str, Mapping[str, str]]] = field(default_factory=list)
    calls: list[tuple[str, str, Mapping[str, Any]]] = field(default_factory=list)
    ended: list[str] = field(default_factory=list)
    answer: Callable[[str, Mapping[str, Any]], Result] = answered
    tools: Sequence[Mapping[str, Any]] = LISTED


def scripted(seen: Seen) -> type[McpServer]:
    """The class of servers that `seen` is told of."""

    class ScriptedServer(McpServer):
        @asynccontextmanager
        async def running(self) -> AsyncIterator[McpServer]:
            url = self.config.url or ""
            seen.made.append((url, self.config.headers))
            if url == AWAY:
                self.state, self.error = "down", "nobody answers there"
            else:
                tools, left_out = read_listing("", seen.tools, ())
                self.listing = Listing({tool.spec.name: tool for tool in tools}, left_out)
                self.tools = Tools(type(self.tools.specs)(tool.spec for tool in tools), self._of(self.listing))
                self.state = "up"
                self.listed.set()
            self.settled.set()
            try:
                yield self
            finally:
                self.state = "stopped"
                seen.ended.append(url)

        def _of(self, listing: Listing) -> Any:
            async def run(use: ToolUse, limit_s: float, enter: Any) -> Result:
                return await self._run(listing, use, limit_s, enter)

            return run

        async def call(self, name: str, arguments: str, limit_s: float | None = None) -> Result:
            values = json.loads(arguments)
            seen.calls.append((self.config.url or "", name, values))
            return seen.answer(name, values)

    return ScriptedServer


def configuration(mode: str = "prompt", **sections: Any) -> GatewayConfig:
    """A gateway whose clients may name the servers above."""
    tools = {"mcp_from_clients": ["https://tools.example/*", OTHER]}
    base = {"store": {"kind": "memory"}, "backends": {"m": {"kind": "mock"}}, "defaults": {"mode": mode}}
    return load(None, env={}, overrides={**base, "tools": tools, **sections})


def server(label: str = "calc", url: str = URL, approve: Any = "never", **more: Any) -> dict[str, Any]:
    """One of them as a tool of a request."""
    approval = {} if approve is None else {"require_approval": approve}
    return {"type": "mcp", "server_label": label, "server_url": url, **approval, **more}


def approved(name: str = "write", arguments: str = "{}", *, ident: str = "mcpr_1") -> list[dict[str, Any]]:
    """A call of `calc` that was asked for, and the client's approval, as items that a client gives back."""
    asked = {"type": "mcp_approval_request", "id": ident, "server_label": "calc", "name": name, "arguments": arguments}
    return [asked, {"type": "mcp_approval_response", "approval_request_id": ident, "approve": True}]


def turn(mode: str, text: str = "", *calls: tuple[str, Mapping[str, Any]], after: str = "") -> dict[str, Any]:
    """What the model says, in the way of the mode."""
    if mode == "native":
        return {"text": text, "calls": [{"name": name, "arguments": arguments} for name, arguments in calls]}
    blocks = [f"<tool_call>{json.dumps({'name': name, 'arguments': given})}</tool_call>" for name, given in calls]
    return {"text": text + "".join(blocks) + after}


async def ask(
    config: GatewayConfig, script: Sequence[Any], *, given: Any = "hi", stream: bool = False, **more: Any
) -> WireAnswer:
    body = {"input": given, "stream": stream, **more}
    return await run_chain(config, body, replies=script, path="/v1/responses")


def said(request: ModelRequest) -> list[tuple[str, ...]]:
    """What a model was asked, part for part."""
    out: list[tuple[str, ...]] = []
    for message in request.messages:
        for part in message.parts:
            match part:
                case Text():
                    out.append((message.role, part.text))
                case ToolUse():
                    out.append(("call", part.name, part.arguments))
                case ToolResult():
                    texts = "".join(inner.text for inner in part.parts if isinstance(inner, Text))
                    out.append(("failed" if part.is_error else "result", part.name or "", texts))
    return out
