"""Items of tool servers: exact bytes, and what comes back of them. Beside others: `test_corners_write.py`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.protocols.blocks import call, text
from tests.protocols.responses_wires import options, payloads, write
from tests.protocols.test_responses_stream import START, finish
from toolwire.events import Event
from toolwire.model import Message, OpaquePart, ToolResult, ToolSpec, ToolUse
from toolwire.protocols.responses.tool_servers import ResponsesToolServers
from toolwire.protocols.shared.tool_servers import ToolServerTool

GOLDEN = Path(__file__).parents[1] / "golden"
FORM = ResponsesToolServers()
SPEC = ToolSpec("add", "Adds.", {"type": "object", "properties": {"a": {"type": "integer"}}}, namespace="calc")
ADD = ToolUse("call_a", "add", '{"a":1}', namespace="calc")
WRITE = ToolUse("call_b", "write/it", "", namespace="files")
TOOLS = [
    {"type": "mcp", "server_label": "calc", "server_url": "https://tools.example/key-in-a-path/mcp", "headers": {"X-Key": "secret"}, "authorization": "secret"}
]  # fmt: skip
SERVED: list[Event] = [
    START,
    FORM.listed("calc", [ToolServerTool("add", SPEC, read_only=True)], None),
    FORM.listed("files", [], "it cannot be reached"),
    FORM.ran(WRITE, "written", False, "mcpr_1"),
    *text(0, "Let me ", "add."),
    FORM.began(ADD, None),
    FORM.ran(ADD, "1", False, None),
    FORM.ran(ADD, "no disk: “ü”", True, None),
    *text(1, "Done."),
    FORM.approval_request(WRITE),
    *call(2, "call_c", "look", "{}"),
    finish(),
]


def test_golden_bytes() -> None:
    data = write(SERVED, options({"tools": TOOLS}))
    assert data.decode() == (GOLDEN / "responses-tool-servers.sse").read_text(encoding="utf-8")
    assert b"secret" not in data
    assert b"key-in-a-path" not in data


texts = st.text(max_size=12)
uses = st.builds(ToolUse, texts, texts, texts, namespace=st.none() | texts)


def history(*items: dict[str, Any]) -> Any:
    parts = tuple(OpaquePart("responses", item) for item in items)
    return FORM.history({"input": list(items)}, (Message("assistant", parts),))


@given(st.lists(uses, max_size=5), st.booleans())
def test_what_was_shown_is_read_as_a_call_with_its_result(made: list[ToolUse], failed: bool) -> None:
    events = [START, *(FORM.ran(use, "said", failed, None) for use in made), finish()]
    output = payloads(write(events, options()))[-1]["response"]["output"]
    told = [part for message in history(*output).messages for part in message.parts]
    assert [part for part in told if not isinstance(part, ToolUse | ToolResult)] == []
    read_uses = [part for part in told if isinstance(part, ToolUse)]
    results = [part for part in told if isinstance(part, ToolResult)]
    assert [(use.name, use.namespace or None) for use in read_uses] == [
        (use.name, use.namespace or None) for use in made
    ]
    assert [result.call_id for result in results] == [use.call_id for use in read_uses]
    assert all(result.is_error is failed for result in results)


def test_items_that_say_too_little_are_told_nobody() -> None:
    found = history(
        {"type": "mcp_call", "server_label": "x"},
        {"type": "mcp_approval_request", "server_label": "x", "name": "f", "arguments": "{}"},
        {"type": "mcp_list_tools"},
    )
    assert found.messages == ()
    assert found.listed == {}


def test_other_conversations_are_left_alone() -> None:
    messages = (Message("assistant", (OpaquePart("responses", {"type": "web_search_call"}),)),)
    assert FORM.history({}, messages).messages is messages
