"""`open_scanner`: formats by name, tools in any syntax, and the product's own policy behind it."""

from __future__ import annotations

from typing import Any

import pytest

import toolwire
from tests.options import route_options
from toolwire.config import LimitsConfig, ReasoningConfig
from toolwire.errors import ClientFault
from toolwire.events import BlockKind, Delta, Event, Fault, Finish, Open, Start
from toolwire.folding import fold
from toolwire.model import Text, ToolChoice, ToolSpec, ToolUse
from toolwire.scanner import read_tool
from toolwire.support.conversion import ConfigError

READ = '<tool_call>{"name":"read_file","arguments":"{\\"path\\":\\"a\\"}"}</tool_call>'


def uses(events: list[Event]) -> list[tuple[str, str]]:
    """Names and arguments of the calls."""
    reply = fold([Start("", "", 0), *events, Finish()])
    return [(call.name, call.arguments) for call in reply.calls]


def test_three_words_are_enough() -> None:
    scanner = toolwire.open_scanner()
    events = scanner.feed(f"Reading. {READ}") + scanner.finish()
    parts = fold([Start("", "", 0), *events, Finish()]).choices[0].parts
    assert parts[0] == Text("Reading.")
    assert isinstance(parts[1], ToolUse)
    assert (parts[1].name, parts[1].arguments) == ("read_file", '{"path":"a"}')
    assert parts[1].call_id.startswith("call_")


@pytest.mark.parametrize(
    "tool",
    [
        ToolSpec("read_file"),
        "read_file",
        {"type": "function", "name": "read_file"},
        {"type": "function", "function": {"name": "read_file"}},
        {"name": "read_file"},
    ],
)
def test_tools_in_any_syntax(tool: Any) -> None:
    scanner = toolwire.open_scanner(tools=[tool])
    assert uses(scanner.feed(READ) + scanner.finish()) == [("read_file", '{"path":"a"}')]
    other = toolwire.open_scanner(tools=[tool])
    text = READ.replace("read_file", "other")
    assert [e.text for e in other.feed(text) + other.finish() if isinstance(e, Delta)] == [text]


def test_the_outer_field_of_a_tool_wins() -> None:
    tool = {"type": "function", "strict": None, "name": "outer", "function": {"name": "inner", "strict": True}}
    assert (read_tool(tool).name, read_tool(tool).strict) == ("outer", True)
    assert read_tool({"type": "web_search"}).kind == "hosted"
    assert read_tool({"type": "custom", "custom": {"name": "c"}}).kind == "custom"
    with pytest.raises(ClientFault, match="no name") as caught:
        read_tool({"type": "function", "function": {}})
    assert caught.value.code == "invalid_tool_schema"


@pytest.mark.parametrize("options", [{"tools": []}, {"tools": ["read_file"], "choice": ToolChoice("none")}])
def test_without_a_callable_tool_blocks_are_text(options: dict[str, Any]) -> None:
    """R1.7, also for a block that the backend cut off."""
    for text in (READ, f" {READ}", READ[:-30]):
        scanner = toolwire.open_scanner(**options)
        events = scanner.feed(text) + scanner.finish(truncated=True)
        assert "".join(e.text for e in events if isinstance(e, Delta)) == text


def test_options_and_limits_reach_the_scanner() -> None:
    counted: list[str] = []
    options = route_options(
        trim="none", reasoning=ReasoningConfig(tags=("[T]", "[/T]"), preopened=True, scan_calls=True)
    )
    scanner = toolwire.open_scanner(tools=["read_file"], options=options, count=counted.append)
    events = scanner.feed(f"hm {READ}[/T] a {READ} ") + scanner.finish()
    assert [e.kind for e in events if isinstance(e, Open)] == [
        *[BlockKind.REASONING, BlockKind.TOOL_CALL, BlockKind.TEXT, BlockKind.TOOL_CALL]
    ]
    assert [e.text for e in events if isinstance(e, Delta)][::2] == ["hm ", " a "]
    assert counted.count("calls") == 2
    small = toolwire.open_scanner(tools=["read_file"], limits=LimitsConfig(block_bytes=40))
    assert uses(small.feed(READ) + small.finish()) == []


def test_a_strict_failure_is_the_last_event() -> None:
    tool = {"type": "function", "name": "read_file", "strict": True}
    scanner = toolwire.open_scanner(tools=[tool])
    events = scanner.feed("a <tool_call>{]</tool_call> b")
    assert isinstance(events[-1], Fault)
    assert events[-1].error.code == "malformed_tool_arguments"
    assert scanner.feed("more") == []


def test_an_unknown_format_is_named_with_a_suggestion() -> None:
    with pytest.raises(ConfigError, match="sentinel"):
        toolwire.open_scanner("sentinal")
