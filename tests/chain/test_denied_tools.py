"""Every way to a tool that `tool_filter` denies (R33.6): spellings, places in the chain, what is not in `tools`."""

from __future__ import annotations

from typing import Any

import pytest
from aiohttp import web

from tests.cases import every
from tests.chain.test_tool_filter import ASK, NATIVE, SERVER_SIDE, TOOLS, filtered
from tests.e2e.conftest import CHAT, read_config
from tests.e2e.meaning import said
from tests.waiting import GUARD_S
from toolwire.config import MiddlewareConfig
from toolwire.formats.engine.toolset import ToolSet
from toolwire.model import ModelRequest, OpaquePart, ToolSpec, ToolUse
from toolwire.pipeline.chain.middleware import Middleware
from toolwire.pipeline.exchange.permission import Permission
from toolwire.pipeline.exchange.request_state import Exchange
from toolwire.protocols.shared.tool_names import brought_by, brought_by_server, names_of, names_of_item
from toolwire.support.conversion import ConfigError
from toolwire.testing import ScriptedBackend, run_chain

STREAMED = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
DENY = {"deny": ["delete_*", "disk__*", "web_search", "shell"]}
SPELLED = (
    "delete_file", "Delete_File", "DELETE_FILE", " delete_file", "functions.delete_file", "default_api:delete_file",
    "tools/delete_file", "functions.Delete_file", "delete-file", "deletefile", "delet_file", "delete_fil", "dleete_file",
    "disk__delete_file",
)  # fmt: skip
NEAR = ("delete-file", "deletefile", "delet_file", "dleete_file")


@STREAMED
@pytest.mark.parametrize("offered", [True, False], ids=["offered", "not offered"])
async def test_no_spelling_of_a_denied_name_is_called(offered: bool, stream: bool) -> None:
    body = {**ASK, "tools": TOOLS if offered else TOOLS[:2], "stream": stream}
    calls = [{"name": name, "arguments": {"path": f"/{number}/"}} for number, name in enumerate(SPELLED)]
    answer = await filtered(body, DENY, {"calls": calls})
    text, made, _ = said(CHAT, answer, stream)
    # Near names are those of no tool that anybody has named, unless one is on offer.
    assert [name for name, _ in made] == ([] if offered else [*NEAR])
    assert all(f"/{number}/" in text for number, name in enumerate(SPELLED) if offered or name not in NEAR)


async def test_a_neighbour_of_a_denied_name_that_is_on_offer_is_called() -> None:
    tools = [{"type": "function", "function": {"name": name}} for name in ("delete_file", "elete_file")]
    answer = await filtered({**ASK, "tools": tools}, DENY, {"calls": [{"name": "elete_file", "arguments": {}}]})
    assert '"name":"elete_file"' in answer.body.decode()


@pytest.mark.parametrize("last", ["arguments", "transformation", "injection"])
async def test_a_filter_that_could_not_see_the_calls_is_a_mistake(last: str) -> None:
    chain: list[Any] = ["conversation", "validation", "arguments", "transformation", "injection"]
    chain.insert(chain.index(last) + 1, MiddlewareConfig(use="tool_filter", options=DENY))
    with pytest.raises(ConfigError, match=f"needs `{last}` further in"):
        await run_chain(chain, ASK, replies=["ok"], options=NATIVE)


@pytest.mark.parametrize(
    ("mode", "outside", "stream"),
    [("prompt", True, False), ("prompt", False, True), ("native", True, True), ("native", False, False)],
)
async def test_it_holds_for_tools_of_the_gateway_wherever_it_stands(tmp_path, stream, outside, mode) -> None:
    (tmp_path / "disk.py").write_text(SERVER_SIDE)
    entry = {"use": "tool_filter", "options": {"deny": ["Delete_*"]}}
    places = [entry, "execution"] if outside else ["execution", entry]
    chain = ["conversation", "validation", *places, "arguments", "transformation", "injection", "forwarding"]
    tools = {"folder": str(tmp_path), "timeout_s": GUARD_S, "watch_s": 0}
    config = read_config(
        {"tools": tools, "chain": chain, "backends": {"m": {"kind": "mock"}}, "defaults": {"mode": mode}}
    )
    names = ("delete_file", "read_clock")
    blocks = "".join(f'<tool_call>{{"name":"{name}","arguments":"{{}}"}}</tool_call>' for name in names)
    reply: Any = blocks if mode == "prompt" else {"calls": [{"name": name, "arguments": {}} for name in names]}
    body = {"messages": ASK["messages"], "stream": stream}
    backend = ScriptedBackend([reply, "Done."])
    answer = await run_chain(config, body, backend=backend)
    asked = backend.requests[0]
    assert "delete_file" not in asked.messages[0].text
    assert "delete_file" not in {tool.name for tool in asked.tools}
    assert (tmp_path / "disk.ran").read_text() == "read_clock\n"
    assert "Done" in answer.body.decode()
    named = {"type": "function", "function": {"name": "delete_file"}}
    refused = await run_chain(config, {**body, "tool_choice": named}, backend=ScriptedBackend(["x"]))
    assert (refused.status, refused.json()["error"]["code"]) == (400, "invalid_tool_choice")


class Behind(Middleware):
    """Sees what the filter passes on."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[ModelRequest] = []

    async def on_request(self, exchange: Exchange, request: ModelRequest) -> ModelRequest | web.StreamResponse:
        self.seen.append(request)
        return web.json_response({})


async def passed_on(body: dict[str, Any], path: str = "/v1/chat/completions") -> ModelRequest:
    behind = Behind()
    await run_chain([MiddlewareConfig(use="tool_filter", options=DENY), behind], body, options=NATIVE, path=path)
    return behind.seen[0]


HOSTED = [
    {"type": "web_search"},
    {"type": "web_search_preview"},
    {"type": "web_search_preview_2025_03_11"},
    {"type": "web_search_2025_08_26"},
    {"type": "web_search", "name": "x"},
    {"type": "web_search", "server_label": "x"},
    {"type": "shell"},
    {"type": "mcp", "server_label": "s", "connector_id": "c"},
    {"type": "mcp", "server_label": "s", "server_url": "https://x", "allowed_tools": {"read_only": True}},
    {"type": "mcp", "server_label": "s", "server_url": "https://x", "allowed_tools": ["add", "delete_all"]},
    {"type": "mcp", "server_label": "disk", "server_url": "https://x", "allowed_tools": ["add"]},
]


async def test_hosted_tools_and_what_they_bring() -> None:
    keep = {"type": "mcp", "server_label": "s", "connector_id": "c", "allowed_tools": {"tool_names": ["add"]}}
    left = [keep, {"type": "file_search", "vector_store_ids": []}]
    sent = await passed_on({"input": "hi", "tools": [*HOSTED, *left]}, "/v1/responses")
    assert [dict(one.received) for one in sent.tools] == left


TOOLSETS = [
    ({"type": "mcp_toolset", "mcp_server_name": "s"}, None),
    ({"type": "mcp_toolset", "mcp_server_name": "s", "default_config": {"enabled": True}}, None),
    (
        {
            "type": "mcp_toolset",
            "mcp_server_name": "s",
            "default_config": {"enabled": False},
            "configs": {"a": {}, "b": {"enabled": False}},
        },
        [("a", "s__a")],
    ),
    ({"type": "web_fetch_20250910", "name": "web_fetch"}, []),
]


@every(("tool", "brought"), TOOLSETS)
def test_what_a_toolset_brings(tool: dict[str, Any], brought: Any) -> None:
    assert brought_by(ToolSpec("x", kind="hosted", extra={"messages": tool})) == brought


SERVERS = [
    ({"name": "s"}, None),
    ({"name": "s", "tool_configuration": {"enabled": False}}, []),
    ({"name": "s", "tool_configuration": {"allowed_tools": ["a"]}}, [("a", "s__a")]),
    ({"name": "t"}, []),
]


@every(("server", "brought"), SERVERS)
def test_what_a_server_of_messages_brings(server: dict[str, Any], brought: Any) -> None:
    toolset = ToolSpec("x", kind="hosted", extra={"messages": {"type": "mcp_toolset", "mcp_server_name": "t"}})
    assert brought_by_server(server, [toolset]) == brought


async def test_servers_and_searches_beside_the_tools() -> None:
    servers = [{"name": "s"}, {"name": "s", "tool_configuration": {"allowed_tools": ["add"]}}]
    body = {**ASK, "max_tokens": 9, "mcp_servers": servers, "tools": []}
    sent = await passed_on(body, "/v1/messages")
    assert everything_beside(sent)["mcp_servers"] == servers[1:]
    sent = await passed_on({**body, "mcp_servers": servers[:1]}, "/v1/messages")
    assert "mcp_servers" not in everything_beside(sent)
    sent = await passed_on({**ASK, "web_search_options": {}})
    assert "web_search_options" not in everything_beside(sent)


def everything_beside(request: ModelRequest) -> dict[str, Any]:
    return {
        key: value for fields in (request.extra, *request.protocol_fields.values()) for key, value in fields.items()
    }


async def test_tools_that_stand_in_the_conversation() -> None:
    found = [{"type": "function", "name": name, "parameters": {}} for name in ("delete_all", "add")]
    items = [
        {"type": "message", "role": "user", "content": "hi"},
        {"type": "tool_search_output", "call_id": "c", "execution": "client", "status": "completed", "tools": found},
        {"type": "mcp_list_tools", "server_label": "disk", "tools": [{"name": "add", "input_schema": {}}]},
    ]
    sent = await passed_on({"input": items}, "/v1/responses")
    listed = [
        part.payload["tools"] for message in sent.messages for part in message.parts if isinstance(part, OpaquePart)
    ]
    assert listed == [[]]
    assert [tool.name for tool in sent.tools] == ["add"]


ITEMS = [
    ({"type": "shell_call", "action": {}}, ("shell",)),
    ({"type": "computer_call"}, ("computer", "computer_use")),
    ({"type": "response.output_item.added", "item": {"type": "local_shell_call"}}, ("local_shell",)),
    ({"type": "response.shell_call.in_progress", "item_id": "x"}, ("shell",)),
    ({"type": "mcp_approval_request", "server_label": "s", "name": "f"}, ("f", "s__f")),
    ({"type": "mcp_call", "server_label": "s", "name": "f"}, ()),
    ({"type": "web_search_call"}, ()),
    ({"type": "message"}, ()),
    ({"type": "function_call_output"}, ()),
    ({"type": 5}, ()),
    ({}, ()),
]


@every(("payload", "names"), ITEMS)
def test_by_which_names_an_item_calls(payload: dict[str, Any], names: tuple[str, ...]) -> None:
    assert names_of_item(payload) == names


def test_nothing_is_denied_where_nothing_is_forbidden() -> None:
    permission = Permission()
    assert not permission.denies(ToolUse("", "delete_file", "{}"))
    assert not permission.denies_item({"type": "shell_call"})


def test_a_list_may_be_judged_with_and_without_its_tool_servers() -> None:
    """Tools that stand for servers stay; each of their tools is judged when it is listed."""
    permission, tools = Permission([lambda names: "calc" in names]), ToolSet([ToolSpec("calc"), ToolSpec("look")])
    assert [tool.name for tool in permission.permitted(tools)] == ["look"]
    assert permission.permitted(tools, tools[:1]) is tools
    assert [tool.name for tool in permission.permitted(tools)] == ["look"]


def test_a_tool_of_a_group_has_two_names() -> None:
    assert names_of(ToolUse("", "f", "{}", namespace="g")) == ("f", "g__f")
