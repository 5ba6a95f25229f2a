"""Tools that `tool_filter` forbids stay forbidden on tool servers of clients, wherever the filter stands in the chain
(R33.6)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.cases import every
from tests.e2e.responses_answers import outline
from tests.toolservers.scripted import Seen, approved, ask, configuration, server, turn
from tests.toolservers.test_history import MODES, USER, WRITE, conversation, going_on, reply_to
from toolwire.config import DEFAULT_CHAIN, GatewayConfig

DENY = pytest.mark.parametrize(
    ("mode", "deny"),
    [("prompt", "write"), ("native", "calc__write"), ("prompt", "WR*"), ("native", "*__write"), ("prompt", "calc__*")],
)


def filtered(mode: str, before: str, **options: Any) -> GatewayConfig:
    """A gateway with a filter in the chain, outside of the middleware `before`."""
    chain: list[Any] = list(DEFAULT_CHAIN)
    chain.insert(chain.index(before), {"use": "tool_filter", "options": options})
    return configuration(mode, chain=chain)


@pytest.mark.parametrize(
    ("mode", "stream", "before", "kept"),
    [
        ("prompt", False, "validation", False),
        ("native", True, "execution", True),
        ("prompt", True, "reask", True),
        ("native", False, "arguments", False),
    ],
)
async def test_an_approved_call_of_a_denied_tool_is_not_run(
    mode: str, stream: bool, before: str, kept: bool, seen: Seen
) -> None:
    """The client says that it was asked for, as one does that was asked by another gateway, or before a reload."""
    asked, answer = approved()
    async with conversation(filtered(mode, before, deny=["write"]), {"text": "a"}, {"text": "b"}) as (post, _):
        first = await post([USER, asked])
        sent = {"given": [answer], "previous_response_id": first["id"]} if kept else {"given": [USER, asked, answer]}
        second = await post(**sent, tools=[server(approve="always")], stream=stream)
    assert seen.calls == []
    assert "may not be used here" in json.dumps(second["output"])
    assert outline(second)[-1] == ("text", "b")


@DENY
async def test_a_denied_tool_is_neither_listed_nor_offered_nor_asked_for(mode: str, deny: str, seen: Seen) -> None:
    script = [turn(mode, "So:", WRITE), {"text": "Done."}]
    config = filtered(mode, "arguments", deny=[deny])
    async with conversation(config, *script) as (post, backend):
        first = await post(tools=[server(approve="always")])
    listing = next(item for item in first["output"] if item["type"] == "mcp_list_tools")
    assert "write" not in {tool["name"] for tool in listing["tools"]}
    assert "calc__write" not in json.dumps([message.text for message in backend.requests[0].messages])
    assert "calc__write" not in {f"calc__{tool.name}" for tool in backend.requests[0].tools}
    assert "mcp_approval_request" not in {item["type"] for item in first["output"]}
    assert seen.calls == []


@MODES
async def test_a_reload_that_denies_a_tool_ends_its_approvals(mode: str, seen: Seen) -> None:
    """What was asked for by the gateway before is an item of the client's history after."""
    async with conversation(configuration(mode), turn(mode, "", WRITE)) as (post, _):
        first = await post(tools=[server(approve="always")])
    assert [kind for kind, *_ in outline(first)] == ["listed", "asks"]
    async with conversation(filtered(mode, "arguments", deny=["write"]), {"text": "ok"}) as (post, _):
        second = await post(**going_on(False, first, reply_to(first)), tools=[server(approve="always")])
    assert seen.calls == []
    assert "may not be used here" in json.dumps(second["output"])


NAMES = [
    ({"deny": ["mcp"]}, []),
    ({"deny": ["MCP"]}, []),
    ({"allow": ["add", "calc__wr*"]}, ["add", "write"]),
    ({"allow": ["mcp"], "deny": ["files/*"]}, ["add", "write", "fail"]),
    ({"allow": ["files_read_*"]}, ["files/read.v2"]),
    ({"deny": ["files_*"]}, ["add", "write", "fail"]),
]


@every(("options", "left"), NAMES)
async def test_the_names_of_a_tool_of_a_server(options: Any, left: list[str], seen: Seen) -> None:
    answer = await ask(filtered("prompt", "execution", **options), [{"text": "ok"}], tools=[server()])
    listing = next(item for item in answer.json()["output"] if item["type"] == "mcp_list_tools")
    assert [tool["name"] for tool in listing["tools"]] == left


@pytest.mark.parametrize("choice", [{"type": "mcp", "server_label": "calc", "name": "write"}, None], ids=["mcp", "of"])
async def test_a_choice_cannot_name_it(choice: Any, seen: Seen) -> None:
    named = choice or {
        "type": "allowed_tools",
        "mode": "required",
        "tools": [{"type": "mcp", "server_label": "calc", "name": "write"}],
    }
    answer = await ask(
        filtered("prompt", "arguments", deny=["write"]), [{"text": "ok"}], tools=[server()], tool_choice=named
    )
    assert (answer.status, answer.json()["error"]["code"]) == (400, "invalid_tool_choice")
