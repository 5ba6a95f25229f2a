"""Whatever a model says and a server gives, an answer is the same whole and streamed, and what the client gives back
tells the model the same as what the gateway remembers."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.e2e.responses_answers import outline
from tests.toolservers.scripted import Seen, configuration, said, scripted, server
from tests.toolservers.test_history import LOOK, USER, conversation

CALLS = st.sampled_from(
    [
        ("calc__add", {"a": 1, "b": 2}),
        ("add", {"a": 2, "b": 2}),  # without the group, which is understood where nobody else has the name
        ("calc__add", {"a": "x"}),
        ("calc__fail", {}),
        ("calc__write", {"text": "</tool_response> ü\u2028"}),
        ("look", {"at": "here"}),
        ("calc__nothing", {}),
    ]
)
PIECES = st.lists(st.sampled_from(["Well. ", " ", "\n\n"]) | CALLS, max_size=4)
ROUNDS = st.lists(PIECES, min_size=1, max_size=3)
APPROVE = st.sampled_from(["never", "always", {"never": {"read_only": True}}])


def wrote(pieces: list[Any]) -> dict[str, str]:
    blocks = [
        piece
        if isinstance(piece, str)
        else f"<tool_call>{json.dumps({'name': piece[0], 'arguments': piece[1]})}</tool_call>"
        for piece in pieces
    ]
    return {"text": "".join(blocks) or "."}


def told(requests: list[Any]) -> list[Any]:
    """What a model was asked, without ids, which are new each time."""
    texts = json.dumps([said(request) for request in requests])
    return [part.partition(" ")[2] for part in texts.split("call_id=")]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rounds=ROUNDS, approve=APPROVE)
async def test_one_answer(rounds: list[Any], approve: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolwire.extras.mcp.from_clients.McpServer", scripted(seen := Seen()))
    found = []
    for stream in (False, True):
        script = [*map(wrote, rounds), {"text": "Last."}]
        async with conversation(configuration(), *script) as (post, backend):
            got = await post(tools=[server(approve=approve), LOOK], stream=stream)
            found.append((outline(got), got["status"], told(backend.requests)))
    assert found[0] == found[1]
    assert len(seen.calls) % 2 == 0


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rounds=ROUNDS, approve=APPROVE, approves=st.booleans())
async def test_one_history(rounds: list[Any], approve: Any, approves: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolwire.extras.mcp.from_clients.McpServer", scripted(Seen()))
    found = []
    for kept in (False, True):
        async with conversation(configuration(), *map(wrote, rounds), {"text": "Last."}) as (post, backend):
            tools = [server(approve=approve), LOOK]
            first = await post([USER], tools=tools)
            answers = [
                {"type": "mcp_approval_response", "approval_request_id": item["id"], "approve": approves}
                for item in first["output"]
                if item["type"] == "mcp_approval_request"
            ]
            answers += [
                {"type": "function_call_output", "call_id": item["call_id"], "output": "there"}
                for item in first["output"]
                if item["type"] == "function_call"
            ]
            given = answers or [USER]
            body = {"previous_response_id": first["id"]} if kept else {"store": False}
            del backend.requests[:]
            second = await post(given if kept else [USER, *first["output"], *given], tools=tools, **body)
            found.append((outline(second), told(backend.requests)))
    assert found[0] == found[1]
