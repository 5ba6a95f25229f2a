"""The output of the demo, and when it counts as a success. The demo as a whole is in tests/e2e/test_model.py."""

from __future__ import annotations

import asyncio
import json
import shlex
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from tests.cases import every
from toolwire.config import ToolsConfig
from toolwire.extras.demo import engine, walkthrough
from toolwire.extras.demo.show import StreamedAnswer, columns, curl, paragraph
from toolwire.extras.demo.walkthrough import DemoError, check_server_tool, example, read_call
from toolwire.model import ToolUse
from toolwire.servertools.joined import source_of
from toolwire.testing import chunk


def frames(*deltas: dict[str, Any], reason: str = "tool_calls", end: str = "[DONE]") -> list[str]:
    return [*map(json.dumps, [*map(chunk, deltas), chunk({}, reason)]), end]


def call_deltas(*arguments: str) -> list[dict[str, Any]]:
    first = {"index": 0, "id": "call_1", "type": "function", "function": {"name": "get_weather", "arguments": ""}}
    more = [{"index": 0, "function": {"arguments": text}} for text in arguments]
    return [{"role": "assistant"}, *({"tool_calls": [part]} for part in (first, *more))]


def test_a_call_is_put_together_from_its_chunks() -> None:
    seen = read_call(StreamedAnswer(frames(*call_deltas('{"city":"Pa', 'ris","unit":"celsius"}'))))
    assert (seen.id, seen.function.name) == ("call_1", "get_weather")
    assert seen.function.arguments_json() == {"city": "Paris", "unit": "celsius"}


@every(
    ("answer", "reason"),
    [
        ([], "ended early: 0 frames"),
        (frames(*call_deltas("{}"), end='{"error":{"message":"x"}}'), 'ended early: {"error":{"message":"x"}}'),
        (frames({"content": "It is sunny."}, reason="stop"), "Expected one call"),
        (frames(*call_deltas('{"city":"Paris","unit":"cel')), "do not fit"),
        (frames(*call_deltas('{"city":"Paris"}')), "do not fit"),
        (frames(*call_deltas('{"city":"Paris","unit":"kelvin"}')), "do not fit"),
    ],
)
def test_anything_else_is_a_failure_with_its_reason(answer: list[str], reason: str) -> None:
    with pytest.raises(DemoError, match=reason):
        read_call(StreamedAnswer(answer))


SAID = frames({"content": "10 am"}, reason="stop")


@every(
    ("answer", "results", "reason"),
    [
        ([], ["10 am"], "ended early"),
        (SAID, [], "called none"),
        (SAID, ["Error: Tool execution timed out"], "timed out"),
        (frames(*call_deltas("{}")), ["10 am"], "should have hidden"),
    ],
)
def test_a_tool_of_the_gateway_was_run_and_the_client_saw_nothing_of_it(
    answer: list[str], results: list[str], reason: str
) -> None:
    check_server_tool(StreamedAnswer(SAID), ["10 am"])
    with pytest.raises(DemoError, match=reason):
        check_server_tool(StreamedAnswer(answer), results)


def test_an_answer_is_shown_with_joined_text() -> None:
    """R35.1. One row for the text however it was cut, and for arguments as well."""
    texts = [{"role": "assistant", "content": ""}, {"content": "On Sun"}, {"content": "day."}, {"content": None}]
    assert StreamedAnswer(frames(*texts, reason="stop")).lines() == ["content: On Sunday.", "finish_reason: stop"]
    assert StreamedAnswer(frames(*call_deltas('{"city":', '"Oslo"}'))).lines() == [
        "tool call: get_weather",
        'arguments: {"city":"Oslo"}',
        "id: call_1",
        "finish_reason: tool_calls",
    ]
    cut = StreamedAnswer(frames({"content": "On"}, reason="stop", end='{"error":{"message":"x"}}'))
    assert cut.lines()[-1] == '{"error":{"message":"x"}}'
    assert not cut.complete


@pytest.mark.parametrize("missing", [None, "the MCP SDK is not installed"])
def test_the_tools_of_the_gateway_have_a_route_of_their_own(
    monkeypatch: pytest.MonkeyPatch, missing: str | None
) -> None:
    monkeypatch.setattr(walkthrough.mcp_checks, "missing", lambda: missing)
    config = walkthrough.configuration("m", "http://127.0.0.1:1", "k")
    plain, tools = config.routes
    assert plain.chain is not None
    assert "execution" not in [entry.use for entry in plain.chain]
    assert tools.model == walkthrough.server_example("m")["model"]
    assert tools.chain is None
    assert len(config.tools.mcp) == (1 if missing is None else 0)


async def test_the_demos_own_mcp_server() -> None:
    """R35.1. Whatever the model chooses fits and is a sentence: one argument, of few values."""
    pytest.importorskip("mcp")
    source = source_of(walkthrough.own_tools())
    assert source is not None
    async with source.running():
        assert source.tools.names == {walkthrough.SERVER_TOOL}
        [spec] = source.tools.specs
        assert spec.parameters is not None
        [day] = spec.parameters["properties"].values()
        for number, value in enumerate(day["enum"]):
            use = ToolUse(f"call_{number}", walkthrough.SERVER_TOOL, json.dumps({"day": value}))
            result = await source.tools.run(use, 60.0, lambda state: None)
            assert (result.text.startswith(f"On {value} "), result.failed) == (True, False)
    said, answer = walkthrough.EARLIER_TURN[2:]
    assert said["content"] == answer["content"]


def test_the_printed_command_sends_the_example() -> None:
    body = example("some-model")
    body["messages"][0]["content"] = 'What\'s the weather? $HOME `id` \\ "quoted"'
    words = shlex.split(curl("http://127.0.0.1:8665/v1", body).replace("\\\n", " "))
    assert words[:3] == ["curl", "-N", "http://127.0.0.1:8665/v1/chat/completions"]
    assert json.loads(words[words.index("-d") + 1]) == body


@every("width", [120, 80, 60, 59, 40, 20])
def test_columns_fit_and_lose_no_word(width: int) -> None:
    """R35.1. On terminals of any width; on narrow ones the second column stands below the first."""
    left = ["x" * 70 + "<tool_call>", '{"name": "f", "arguments": {"a": "b c"}}']
    right = ["content: On Sunday the museum is open.", "", "y" * 45]
    lines = columns(("left", *left), ("right", *right), width).splitlines()
    assert max(map(len, lines)) <= width
    if width >= 60:
        room = (width - 3) // 2
        columns_shown = [line[:room] for line in lines], [line[room + 3 :] for line in lines]
    else:
        at = lines.index("right")
        columns_shown = lines[:at], lines[at:]
    for shown, title, entries in zip(columns_shown, ("left", "right"), (left, right), strict=True):
        assert shown[0].rstrip() == title
        assert set(shown[1].strip()) == {"-"}
        assert "".join("".join(shown[2:]).split()) == "".join("".join(entries).split())
    assert max(map(len, paragraph("Some words of a sentence that is long enough. " * 3, width).splitlines())) <= width


def test_a_taken_port_is_an_error_that_says_what_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert walkthrough.run(port=taken.getsockname()[1], once=True) == 1
    said = capsys.readouterr().err
    assert "End that process, or use another port (--port); --port 0 takes a free one." in said


@pytest.mark.parametrize("shown", [False, True])
def test_stopped_before_the_calls_were_shown_is_a_failure(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, shown: bool
) -> None:
    async def stopped() -> None:
        raise asyncio.CancelledError

    @asynccontextmanager
    async def gateway(*_: object) -> AsyncIterator[Any]:
        yield SimpleNamespace(tools=ToolsConfig(), engine=SimpleNamespace(ended=stopped))

    async def show(_: object) -> None:
        if not shown:
            await stopped()

    monkeypatch.setattr(walkthrough, "_gateway", gateway)
    monkeypatch.setattr(walkthrough, "_show", show)
    monkeypatch.setattr(walkthrough, "_show_next_steps", lambda running: None)
    assert walkthrough.run() == int(not shown)
    assert capsys.readouterr().out.endswith("\nStopped.\n")


@pytest.mark.parametrize(
    ("package", "weights", "host", "said"),
    [
        (engine.WEIGHTS_PACKAGE, None, "0.0.0.0", "only on this machine"),
        ("no_such_package", None, "127.0.0.1", engine.INSTALL_WEIGHTS),
        (engine.WEIGHTS_PACKAGE, "big.gguf", "127.0.0.1", "SHA-256"),
    ],
)
def test_what_keeps_it_from_starting_is_said(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    package: str,
    weights: str | None,
    host: str,
    said: str,
) -> None:
    monkeypatch.setattr(engine, "WEIGHTS_PACKAGE", package)
    if weights:
        monkeypatch.setenv(walkthrough.WEIGHTS_VARIABLE, weights)
    assert walkthrough.run(host=host, port=0, once=True) == 1
    assert said in capsys.readouterr().err
