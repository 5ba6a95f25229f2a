"""Tools that a Messages conversation finds, adds and takes away (R28.1)."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from tests.cases import every
from toolwire.errors import ClientFault
from toolwire.model import ModelRequest, ToolSpec
from toolwire.protocols.messages.protocol import MessagesProtocol
from toolwire.protocols.messages.request import changes_in, in_force

HI = {"role": "user", "content": "hi"}
SEARCH = {"name": "ToolSearch", "input_schema": {"type": "object"}}
LATE = {"name": "late", "input_schema": {"type": "object"}, "defer_loading": True}
LATER = {**LATE, "name": "later"}


def read(*messages: Any, tools: list[Any]) -> ModelRequest:
    body = {"model": "m", "max_tokens": 9, "messages": [*messages, HI], "tools": tools}
    return MessagesProtocol().read_request(body, orjson.dumps(body))


def names(*messages: Any, tools: list[Any]) -> list[str]:
    return [tool.name for tool in read(*messages, tools=tools).tools]


def found(*found: str) -> list[dict[str, Any]]:
    """A search, and what it has found."""
    references = [{"type": "tool_reference", "tool_name": name} for name in found]
    return [
        HI,
        {"role": "assistant", "content": [{"type": "tool_use", "id": "t1", "name": "ToolSearch", "input": {}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": references}]},
    ]


def said(kind: str, tool: Any) -> dict[str, Any]:
    return {"role": "system", "content": [{"type": kind, "tool": tool}]}


def reference(name: str) -> dict[str, str]:
    return {"type": "tool_reference", "name": name}


def test_what_is_deferred_is_on_offer_once_it_was_found() -> None:
    assert names(tools=[SEARCH, LATE, LATER]) == ["ToolSearch"]
    assert names(*found("later", "nobody"), tools=[SEARCH, LATE, LATER]) == ["ToolSearch", "later"]


def test_where_nobody_else_could_find_them_all_are_on_offer() -> None:
    assert names(tools=[LATE, LATER]) == ["late", "later"]
    regex = {"type": "tool_search_tool_regex_20251119", "name": "tool_search_tool_regex"}
    assert names(tools=[regex, LATE]) == ["tool_search_tool_regex", "late"]


def test_a_tool_is_added_and_taken_away() -> None:
    new = {"name": "new", "description": "Is new.", "input_schema": {"type": "object"}}
    added = said("tool_addition", {"type": "tool_definition", "definition": new})
    assert names(HI, added, tools=[SEARCH]) == ["ToolSearch", "new"]
    assert names(HI, said("tool_removal", reference("ToolSearch")), tools=[SEARCH, LATE]) == []
    away, back = said("tool_removal", reference("ToolSearch")), said("tool_addition", reference("ToolSearch"))
    assert names(HI, away, back, tools=[SEARCH]) == ["ToolSearch"]
    assert names(HI, said("tool_addition", reference("late")), tools=[SEARCH, LATE]) == ["ToolSearch", "late"]


@every("wrong", [{"input_schema": 7}, {"input_schema": [1]}, {"description": 7}, {"strict": "yes"}])
def test_a_definition_that_is_none_is_the_clients_fault(wrong: dict[str, Any]) -> None:
    definition = {"type": "tool_definition", "definition": {"name": "new", "input_schema": {}, **wrong}}
    summary = {"type": "compaction", "content": "x", "tool_changes": [{"type": "tool_addition", "tool": definition}]}
    for message in (said("tool_addition", definition), {"role": "user", "content": [summary]}):
        with pytest.raises(ClientFault) as caught:
            read(HI, message, tools=[SEARCH])
        [field] = wrong
        assert (caught.value.code, f"'{field}'" in caught.value.message) == ("invalid_type", True)


@pytest.mark.parametrize("role", ["user", "assistant"])
def test_a_summary_brings_the_changes_of_what_it_stands_for(role: str) -> None:
    new = {"name": "new", "input_schema": {"type": "object"}}
    changes = [
        {"type": "tool_removal", "tool": reference("ToolSearch")},
        {"type": "tool_addition", "tool": {"type": "tool_definition", "definition": new}},
        "odd",
    ]
    summary = {"type": "compaction", "content": "They talked.", "signature": "s", "tool_changes": changes}
    request = read({"role": role, "content": [summary]}, tools=[SEARCH, {**new, "name": "kept"}])
    assert [tool.name for tool in request.tools] == ["kept", "new"]
    written = MessagesProtocol().write_request(request)
    assert written["messages"][-2]["content"] == [{k: v for k, v in summary.items() if k != "tool_changes"}]
    later = said("tool_removal", reference("new"))
    assert names({"role": role, "content": [summary]}, HI, later, tools=[SEARCH]) == []
    for odd in (None, 5, [], {"type": "tool_removal"}):
        assert names({"role": role, "content": [{**summary, "tool_changes": odd}]}, tools=[SEARCH]) == ["ToolSearch"]


@pytest.mark.parametrize("tool", [None, 5, {}, {"type": "tool_reference"}, {"type": "mcp_toolset_reference"}], ids=str)
def test_what_cannot_be_read_changes_nothing(tool: Any) -> None:
    assert names(HI, said("tool_addition", tool), said("tool_removal", tool), tools=[SEARCH]) == ["ToolSearch"]


def test_what_is_said_of_tools_is_no_message() -> None:
    beside = {"type": "text", "text": "Be brief."}
    away = {"type": "tool_removal", "tool": reference("x")}
    request = read(
        HI, said("tool_removal", reference("x")), {"role": "system", "content": [away, beside]}, tools=[SEARCH]
    )
    assert [(message.role, message.text) for message in request.messages] == [
        ("user", "hi"),
        ("system", "Be brief."),
        ("user", "hi"),
    ]


def test_tools_that_nothing_changes_are_the_same_object() -> None:
    """What was made of them is found by identity (R3.9)."""
    tools = read(tools=[SEARCH]).tools
    assert in_force(tools, changes_in([HI, *found("x")], None), _unread) is tools


def _unread(definition: Any) -> ToolSpec:
    raise AssertionError(definition)
