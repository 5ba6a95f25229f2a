"""Tool servers that Responses clients name (R26.2), through a whole gateway: what the client is shown, whole and
streamed alike, and what the model and the servers are asked."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from tests.cases import every
from tests.e2e.responses_answers import Said, of_stream, of_whole, outline
from tests.toolservers.scripted import (
    AWAY,
    OTHER,
    URL,
    Seen,
    ask,
    configuration,
    said,
    server,
    turn,
)
from toolwire.model import ModelRequest
from toolwire.testing import WireAnswer

MODES = pytest.mark.parametrize("mode", ["prompt", "native"])
PAIRS = pytest.mark.parametrize(("mode", "stream"), [("prompt", True), ("native", False)])
"""Of any two: `test_laws.py` says that a stream and a whole answer are the same."""
ADD = ("calc__add", {"a": 1, "b": 2})
RAN_ADD: Said = ("ran", "calc", "add", "3")
LISTED: Said = ("listed", "calc")
LOOK = {"type": "function", "name": "look", "parameters": {"type": "object", "properties": {"at": {"type": "string"}}}}


def resource(answer: WireAnswer) -> Any:
    """The resource of an answer, after every check that holds for all."""
    streamed = answer.headers["Content-Type"].startswith("text/event-stream")
    return of_stream(answer).resource if streamed else of_whole(answer)


def lines(answer: WireAnswer) -> list[Said]:
    return outline(resource(answer))


def taught(request: ModelRequest) -> str:
    """What the model is told of tools, in either mode."""
    texts = "".join(text for role, *texts in said(request) for text in texts if role not in ("result", "call"))
    return texts + json.dumps([[tool.namespace, tool.name, tool.description] for tool in request.tools])


@PAIRS
async def test_tools_are_listed_and_calls_are_run_and_shown(mode: str, stream: bool, seen: Seen) -> None:
    script = [turn(mode, "Let me see.", ADD), {"text": "It is 3."}]
    got = await ask(configuration(mode), script, stream=stream, tools=[server()])
    assert lines(got) == [LISTED, ("text", "Let me see."), RAN_ADD, ("text", "It is 3.")]
    assert seen.calls == [(URL, "add", {"a": 1, "b": 2})]
    assert seen.made == [(URL, {})]
    assert seen.ended == [URL]
    item = resource(got)["output"][2]
    assert item == {
        "id": item["id"], "type": "mcp_call", "status": "completed", "approval_request_id": None,
        "arguments": item["arguments"], "error": None, "name": "add", "output": "3", "server_label": "calc",
    }  # fmt: skip
    assert json.loads(item["arguments"]) == {"a": 1, "b": 2}
    first, second = got.requests
    assert "Does write." in taught(first)
    assert resource(got)["status"] == "completed"
    spent = [3, 3]
    assert resource(got)["usage"]["total_tokens"] >= sum(spent)
    told = json.dumps(said(second))
    assert "add" in told
    assert "3" in told


async def test_a_list_says_what_the_server_said(seen: Seen) -> None:
    got = await ask(configuration(), [{"text": "ok"}], tools=[server()])
    (item, _) = resource(got)["output"]
    assert {tool["name"]: tool["annotations"] for tool in item["tools"]} == {
        "add": {"read_only": True}, "write": {"read_only": False}, "fail": {"read_only": False},
        "files/read.v2": {"read_only": False},
    }  # fmt: skip
    assert item["tools"][1]["input_schema"]["properties"] == {"text": {"type": "string"}}
    assert item["tools"][1]["description"] == "Does write."


async def test_failures_are_shown_and_told(seen: Seen) -> None:
    bad = ("calc__add", {"a": 1})
    script = [turn("prompt", "", ("calc__fail", {}), bad), {"text": "Sorry."}]
    got = await ask(configuration(), script, tools=[server()])
    _, failed, refused, text = lines(got)
    assert failed == ("failed", "calc", "fail", "the disk is full")
    assert refused[:3] == ("failed", "calc", "add")
    assert "required" in refused[3]
    assert text == ("text", "Sorry.")
    assert [name for _, name, _ in seen.calls] == ["fail"]
    told = json.dumps(said(got.requests[1]))
    assert "the disk is full" in told
    items = resource(got)["output"]
    assert [item["status"] for item in items[1:3]] == ["failed", "failed"]
    assert items[1]["output"] is None
    assert items[1]["error"]["type"] == "mcp_tool_execution_error"


async def test_a_server_that_lists_nothing_is_shown_and_the_answer_goes_on(seen: Seen) -> None:
    tools = [server("gone", AWAY), server(), LOOK]
    got = await ask(configuration(), [turn("prompt", "", ADD), {"text": "3"}], stream=True, tools=tools)
    (kind, label, why), *others = lines(got)
    assert (kind, label) == ("listed", "gone")
    assert "nobody answers there" in why
    assert others == [LISTED, RAN_ADD, ("text", "3")]
    assert "mcp_list_tools.failed" in of_stream(got).kinds


@MODES
async def test_equal_names_stay_apart(mode: str, seen: Seen) -> None:
    """Of two servers, and of a server and the client."""
    add = {**LOOK, "name": "add"}
    script = [turn(mode, "", ("b__add", {"a": 1, "b": 1}), ("a__add", {"a": 2, "b": 2}), ("add", {"at": "x"}))]
    tools = [server("a"), server("b", OTHER), add]
    got = await ask(configuration(mode), script, tools=tools)
    assert lines(got) == [
        ("listed", "a"), ("listed", "b"), ("ran", "b", "add", "2"), ("ran", "a", "add", "4"),
        ("call", "add", '{"at": "x"}' if mode == "prompt" else '{"at":"x"}'),
    ]  # fmt: skip
    assert [(url, name) for url, name, _ in seen.calls] == [(OTHER, "add"), (URL, "add")]


async def test_a_name_that_models_cannot_say_is_the_servers_own_for_the_client(seen: Seen) -> None:
    first = await ask(configuration(), [{"text": "ok"}], tools=[server()])
    (offered,) = {tool.name for tool in first.requests[0].tools if "read_v2" in tool.name} or {""}
    text = taught(first.requests[0])
    name = next(word.strip('"') for word in text.replace("\\", "").split('"') if word.startswith("calc__files_read_v2"))
    got = await ask(configuration(), [turn("prompt", "", (name, {"path": "p"})), {"text": "ok"}], tools=[server()])
    assert lines(got)[1] == ("ran", "calc", "files/read.v2", 'files/read.v2: {"path": "p"}')
    assert seen.calls[-1][1] == "files/read.v2"
    assert offered == "" or offered in name


@MODES
async def test_which_tools_are_offered_the_client_says(mode: str, seen: Seen) -> None:
    for allowed, names in (
        (["add"], ["add"]),
        ({"tool_names": ["add", "write"], "read_only": True}, ["add"]),
        ({"read_only": False}, ["write", "fail", "files/read.v2"]),
        ([], []),
    ):
        got = await ask(configuration(mode), [{"text": "ok"}], tools=[server(allowed_tools=allowed)])
        item = resource(got)["output"][0]
        assert [tool["name"] for tool in item["tools"]] == names
        assert ("Does write." in taught(got.requests[0])) is ("write" in names)


@MODES
@pytest.mark.parametrize(
    "choice",
    [
        {"type": "mcp", "server_label": "calc", "name": "add"},
        {"type": "mcp", "server_label": "calc"},
        {
            "type": "allowed_tools",
            "mode": "required",
            "tools": [{"type": "mcp", "server_label": "calc", "name": "add"}],
        },
        "required",
    ],
    ids=str,
)
async def test_a_choice_may_name_a_server(mode: str, choice: Any, seen: Seen) -> None:
    script = [turn(mode, "", ADD), {"text": "3"}]
    got = await ask(configuration(mode), script, tools=[server(), LOOK], tool_choice=choice)
    assert lines(got) == [LISTED, RAN_ADD, ("text", "3")]
    assert resource(got)["tool_choice"] == choice
    if mode == "native":
        first, second = got.requests
        assert first.tool_choice.forces
        assert second.tool_choice.mode == "auto"


@every(
    "choice",
    [
        {"type": "mcp", "server_label": "calc", "name": "nothing"},
        {"type": "mcp", "server_label": "nobody"},
        {"type": "function", "name": "nothing"},
    ],
)
async def test_a_choice_of_what_is_not_there(choice: Any, seen: Seen) -> None:
    got = await ask(configuration(), [{"text": "ok"}], tools=[server(), LOOK], tool_choice=choice)
    assert got.status == 400
    assert (got.json()["error"]["code"], got.json()["error"]["param"]) == ("invalid_tool_choice", "tool_choice")


async def test_nothing_may_be_called(seen: Seen) -> None:
    got = await ask(configuration(), [{"text": "ok"}], tools=[server()], tool_choice="none")
    assert lines(got) == [LISTED, ("text", "ok")]


BAD: Sequence[tuple[dict[str, Any], str]] = [
    (server(url="https://evil.example/mcp"), "server_url"),
    (server(url="https://tools.example.evil/mcp"), "server_url"),
    (server(url="https://tools.example@evil/mcp"), "server_url"),
    (server(url="https://tools.example:444/mcp"), "server_url"),
    (server(url="http://tools.example/mcp"), "server_url"),
    (server(url="https://other.example/mcp/more"), "server_url"),
    (server(url=5), "server_url"),  # type: ignore[arg-type]
    (server(label="a b"), "server_label"),
    (server(label=""), "server_label"),
    ({"type": "mcp", "server_url": URL}, "server_label"),
    (server(headers={"Host": "internal"}), "headers.Host"),
    (server(headers={"X": "a\r\nHost: b"}), "headers.X"),
    (server(headers={"X": "a\t"}), "headers.X"),
    (server(headers={"X": " a"}), "headers.X"),
    (server(headers={"X": "caf\u00e9"}), "headers.X"),
    (server(headers=["a"]), "headers"),
    (server(authorization="a\nb"), "authorization"),
    (server(authorization="a "), "authorization"),
    (server(authorization="a", headers={"authorization": "b"}), "authorization"),
    (server(allowed_tools="add"), "allowed_tools"),
    (server(allowed_tools={"read_only": "yes"}), "allowed_tools.read_only"),
    (server(allowed_tools={"tools": ["add"]}), "allowed_tools"),
    (server(headers={"MCP-Name": "write"}), "headers.MCP-Name"),
    (server(approve="sometimes"), "require_approval"),
    (server(approve={"never": {"names": ["add"]}}), "require_approval.never"),
    (server(approve={"always": {"tool_names": 5}}), "require_approval.always"),
    (server(server_description=5), "server_description"),
    (server("b", OTHER), "server_label"),  # a label of two
]


@every(("tool", "field"), BAD)
async def test_what_is_wrong_with_a_server_is_said(tool: dict[str, Any], field: str, seen: Seen) -> None:
    got = await ask(configuration(), [{"text": "ok"}], tools=[server("b"), tool])
    assert got.status == 400, got.body
    error = got.json()["error"]
    assert error["param"] == f"tools[1].{field}"
    if field == "server_url":
        assert error["code"] in ("tool_server_not_allowed", "invalid_tool_schema")
    assert seen.made == []
    assert got.requests == ()


async def test_without_a_list_of_servers_the_tool_is_ignored_and_echoed(seen: Seen) -> None:
    """As any other that the gateway does not simulate (R3.8)."""
    config = configuration(tools={})
    got = await ask(config, [{"text": "ok"}], tools=[server(url="https://evil.example/mcp")])
    assert lines(got) == [("text", "ok")]
    assert seen.made == []


@every(
    ("given", "shown"),
    [
        ({"headers": {"X-Key": "s3cret"}}, {"headers": {"X-Key": "<redacted>"}}),
        ({"headers": ["X-Key: s3cret"]}, {"headers": None}),
        ({"headers": "X-Key: s3cret"}, {"headers": None}),
        ({"authorization": "s3cret"}, {}),
        ({"server_url": "https://a.example/s3cret"}, {"server_url": "https://a.example/<redacted>"}),
        ({"server_url": "https://s3cret@a.example/"}, {"server_url": "https://a.example/<redacted>"}),
        ({"server_url": "s3cret"}, {"server_url": "<redacted>"}),
        ({"server_url": {"url": "s3cret"}}, {"server_url": "<redacted>"}),
    ],
)
async def test_nobody_is_shown_secrets_where_the_tool_is_ignored(given: Any, shown: Any, seen: Seen) -> None:
    """Whatever form they have: nothing was checked."""
    tool = {"type": "mcp", "server_label": "calc"}
    got = await ask(configuration(tools={}), [{"text": "ok"}], tools=[{**tool, **given}])
    assert resource(got)["tools"] == [{**tool, **shown}]
    assert "s3cret" not in got.body.decode()


async def test_connectors_are_ignored_and_echoed(seen: Seen) -> None:
    tool = {"type": "mcp", "server_label": "mail", "connector_id": "connector_gmail"}
    got = await ask(configuration(), [{"text": "ok"}], tools=[tool])
    assert lines(got) == [("text", "ok")]
    assert resource(got)["tools"] == [tool]


async def test_too_many_tools(seen: Seen) -> None:
    config = configuration(limits={"tools_max": 4, "tools_warn": 4})
    got = await ask(config, [{"text": "ok"}], tools=[LOOK, server()])
    assert got.status == 400
    assert got.json()["error"]["param"] == "tools[1].allowed_tools"
    assert (await ask(config, [{"text": "ok"}], tools=[LOOK, server(allowed_tools=["add"])])).status == 200


@every(
    "tools",
    [
        [{**LOOK, "name": "calc__add"}, server()],
        [{"type": "namespace", "name": "calc", "description": "x", "tools": [{**LOOK, "name": "add"}]}, server()],
    ],
)
async def test_what_models_would_not_tell_apart_is_refused(tools: Any, seen: Seen) -> None:
    got = await ask(configuration(), [{"text": "ok"}], tools=tools)
    error = got.json()["error"]
    assert (got.status, error["code"], error["param"]) == (400, "duplicate_tool_name", "tools[1].server_label")
    assert (await ask(configuration(), [{"text": "ok"}], tools=[*tools[:1], server("other")])).status == 200


@MODES
@pytest.mark.parametrize(
    ("choice", "meant"),
    [
        ({"type": "mcp", "server_label": "calc", "name": "write"}, {"calc__write"}),
        ({"type": "mcp", "server_label": "calc"}, {"calc__write"}),
        ({"type": "function", "name": "write"}, {"write"}),
        ({"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "write"}]}, {"write"}),
        (
            {"type": "allowed_tools", "mode": "auto", "tools": [
                {"type": "function", "name": "write"}, {"type": "mcp", "server_label": "more", "name": "write"}]},
            {"write", "more__write"},
        ),
        ("required", {"write", "calc__write", "more__write"}),
    ],
)  # fmt: skip
async def test_a_choice_means_no_other_tool_of_the_same_name(
    mode: str, choice: Any, meant: set[str], seen: Seen
) -> None:
    """Of the client, or of another server: none of them can be called then."""
    tools = [{**LOOK, "name": "write"}, server(), server("more", OTHER)]
    got = await ask(configuration(mode), [{"text": "ok"}], tools=tools, tool_choice=choice)
    told = taught(got.requests[0])
    assert {name for name in ("write", "calc__write", "more__write") if f'"{name}"' in told} == meant
