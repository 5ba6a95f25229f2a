"""The format, alone and in the gateway, with the test kit that comes with toolwire."""

from __future__ import annotations

import json
from typing import Any

import pytest

from toolwire import BlockKind, Delta, Event, Open, RouteOptions, ToolSpec, ToolUse, open_scanner, run_chain
from toolwire.registry import Registries, registries

FORMAT = pytest.importorskip(
    "toolwire_dots_format", reason="the example plug-in is not installed: pip install --no-deps ./examples/dots-format"
).FORMAT

WRITE = ToolSpec(
    "write_file",
    "Writes a file.",
    {"type": "object", "properties": {"path": {"type": "string"}, "lines": {"type": "integer"}}},
)
USES = (
    ToolUse("call_1", "write_file", '{"path":"a \\"b\\" </p>\\n.txt","lines":12}'),
    ToolUse("call_2", "write_file", "{}"),
)


def plugins() -> Registries:
    """An installed package is found by its entry point; from a checkout it is registered by hand."""
    found = registries()
    if "dots" not in found.formats.names():
        found.formats.register("dots", FORMAT)
    return found


def calls(pieces: list[str]) -> list[tuple[str, Any]]:
    scanner = open_scanner(FORMAT, [WRITE])
    events: list[Event] = [event for piece in pieces for event in scanner.feed(piece)]
    events += scanner.finish()
    found = {event.block: (event.name, "") for event in events if isinstance(event, Open)}
    assert all(event.kind is BlockKind.TOOL_CALL for event in events if isinstance(event, Open))
    for event in events:
        if isinstance(event, Delta):
            name, arguments = found[event.block]
            found[event.block] = (name, arguments + event.text)
    return [(name, json.loads(arguments)) for name, arguments in found.values()]


def test_what_is_written_is_read_back_at_every_split() -> None:
    assert FORMAT.render_calls is not None
    text = FORMAT.render_calls(USES)
    expected = [(use.name, json.loads(use.arguments)) for use in USES]
    assert calls([text]) == calls(list(text)) == expected


def test_a_result_opens_no_block() -> None:
    escaped = FORMAT.render_tools([ToolSpec("t", "Writes <dots_function_call>.")])
    assert "<dots_function_call>" not in escaped


@pytest.mark.parametrize("stream", [False, True])
async def test_in_the_gateway(stream: bool) -> None:
    tool = {"type": "function", "function": {"name": "write_file", "parameters": WRITE.parameters}}
    body = {"messages": [{"role": "user", "content": "hi"}], "tools": [tool], "stream": stream}
    chain = ["arguments", "transformation", "injection"]
    reply = {"text": f"Now. {FORMAT.render_call(USES[0])}", "chunk": 3}
    answer = await run_chain(chain, body, replies=[reply], options=RouteOptions(format="dots"), plugins=plugins())
    assert answer.status == 200
    assert b"write_file" in answer.body
    if not stream:
        (call,) = answer.json()["choices"][0]["message"]["tool_calls"]
        assert json.loads(call["function"]["arguments"]) == json.loads(USES[0].arguments)
