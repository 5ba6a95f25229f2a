"""The middleware `tool_filter`."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest

from tests.options import route_options
from toolwire.config import MiddlewareConfig, RouteOptions
from toolwire.extras.middlewares.tool_filter import ToolFilterOptions
from toolwire.testing import WireAnswer, run_chain

NAMES = ("read_file", "read_mail", "delete_file")
TOOLS = [{"type": "function", "function": {"name": name}} for name in NAMES]
FLAT = [{"type": "function", "name": name} for name in NAMES]
ASK = {"messages": [{"role": "user", "content": "hi"}], "tools": TOOLS}
NATIVE = RouteOptions(mode="native")
READERS = {"allow": ["read_*"]}


async def filtered(
    body: dict[str, Any],
    filter_options: dict[str, Any],
    reply: Any = "ok",
    options: RouteOptions = NATIVE,
    path: str = "/v1/chat/completions",
) -> WireAnswer:
    entry = MiddlewareConfig(use="tool_filter", options=filter_options)
    chain = ["conversation", "validation", entry, "arguments", "transformation", "injection"]
    return await run_chain(chain, body, replies=[reply], options=options, path=path)


@pytest.mark.parametrize(
    ("options", "left"),
    [
        (READERS, ["read_file", "read_mail"]),
        ({"deny": ["delete_*"]}, ["read_file", "read_mail"]),
        ({"allow": ["read_*"], "deny": ["*_mail"]}, ["read_file"]),
        ({"allow": ["*_file", "read_mail"]}, list(NAMES)),
        ({"deny": ["*"]}, []),
    ],
    ids=str,
)
async def test_the_model_server_gets_what_is_allowed(options, left):
    request = (await filtered(ASK, options)).requests[0]
    assert [tool.name for tool in request.tools] == left
    assert request.tool_choice.mode == ("auto" if left else "none")


async def test_removed_tools_are_counted(caplog):
    caplog.set_level(logging.INFO, "toolwire.access")
    await filtered(ASK, {"deny": ["*_file"]})
    (fields,) = [vars(record)["fields"] for record in caplog.records if record.name == "toolwire.access"]
    assert fields["tools_denied"] == 2


async def test_tools_of_a_group_are_known_by_both_names():
    group = {"type": "namespace", "name": "disk", "description": "d", "tools": FLAT[1:]}
    body = {"input": "hi", "tools": [FLAT[0], group]}
    for deny, left in (["disk__*"], ["read_file"]), (["read_mail"], ["read_file", "disk__delete_file"]):
        request = (await filtered(body, {"deny": deny}, path="/v1/responses")).requests[0]
        assert [tool.name for tool in request.tools] == left


@pytest.mark.parametrize(
    ("choice", "mode", "allowed"),
    [
        ("auto", "auto", None),
        ("required", "required", None),
        ("none", "none", None),
        ({"type": "function", "function": {"name": "read_file"}}, "named", None),
        ({"mode": "auto", "of": ["read_file", "delete_file"]}, "auto", ("read_file",)),
        ({"mode": "auto", "of": ["delete_file"]}, "none", None),
    ],
    ids=str,
)
async def test_the_choice_is_one_among_those_that_are_left(choice, mode, allowed):
    if isinstance(choice, dict) and "of" in choice:
        tools = [{"type": "function", "function": {"name": name}} for name in choice["of"]]
        choice = {"type": "allowed_tools", "allowed_tools": {"mode": choice["mode"], "tools": tools}}
    request = (await filtered({**ASK, "tool_choice": choice}, READERS)).requests[0]
    assert (request.tool_choice.mode, request.tool_choice.allowed) == (mode, allowed)


@pytest.mark.parametrize(
    ("choice", "options"),
    [({"type": "function", "function": {"name": "delete_file"}}, READERS), ("required", {"deny": ["*"]})],
    ids=str,
)
async def test_a_call_that_is_not_possible_cannot_be_demanded(choice, options):
    answer = await filtered({**ASK, "tool_choice": choice}, options)
    assert (answer.status, answer.json()["error"]["code"]) == (400, "invalid_tool_choice")
    assert answer.json()["error"]["param"] == "tool_choice"


async def test_a_request_can_be_refused_instead():
    answer = await filtered(ASK, {**READERS, "on_denied": "refuse"})
    error = answer.json()["error"]
    assert (answer.status, error["type"], error["code"]) == (403, "permission_error", "tool_not_allowed")
    assert error["param"] == "tools[2]"
    assert "delete_file" in error["message"]
    assert (await filtered({**ASK, "tools": TOOLS[:2]}, {**READERS, "on_denied": "refuse"})).status == 200


CALL = {"name": "delete_file", "arguments": {"path": "/"}}
DENIED = [
    "<tool_call>" + json.dumps({**CALL, "arguments": json.dumps(CALL["arguments"])}) + "</tool_call>",
    {"calls": [CALL]},
]


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("reply", DENIED, ids=["in text", "native"])
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/responses"])
async def test_a_denied_tool_is_never_called(stream, reply, path):
    body = ASK if "chat" in path else {"input": "hi", "tools": FLAT}
    options = route_options(argument_streaming=0) if isinstance(reply, str) else NATIVE
    answer = await filtered({**body, "stream": stream}, READERS, reply, options, path)
    shown = answer.body.decode()
    assert answer.status == 200
    assert '"tool_calls"' not in shown
    assert '"function_call"' not in shown
    assert "path" in shown  # what the model wrote is text


def test_a_filter_that_filters_nothing():
    with pytest.raises(ValueError, match="set `allow` or `deny`"):
        ToolFilterOptions()


SERVER_SIDE = """
import pathlib

TOOLS = [
    {"type": "function", "function": {"name": name, "description": "d", "parameters": {"type": "object", "properties": {}}}}
    for name in ("read_clock", "delete_file")
]

def handle_tool_call(tool_name, tool_input):
    with pathlib.Path(__file__).with_suffix(".ran").open("a") as ran:
        ran.write(tool_name + "\\n")
    return "done"
"""
