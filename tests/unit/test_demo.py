"""The output of the demo, and when it counts as a success. The demo as a whole is in tests/e2e/test_model.py."""

from __future__ import annotations

import json
import shlex
import socket
from pathlib import Path
from typing import Any

import pytest

from toolwire.extras.demo import demo, engine
from toolwire.extras.demo.demo import DemoError, check_server_tool, curl, example, read_call, side_by_side
from toolwire.model import ToolUse
from toolwire.servertools.joined import source_of


def frames(*deltas: dict[str, Any], reason: str = "tool_calls", end: str = "[DONE]") -> list[str]:
    choices: list[dict[str, Any]] = [{"index": 0, "delta": delta, "finish_reason": None} for delta in deltas]
    choices.append({"index": 0, "delta": {}, "finish_reason": reason})
    head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    return [*(json.dumps({**head, "choices": [choice]}) for choice in choices), end]


def call_deltas(*arguments: str) -> list[dict[str, Any]]:
    first = {"index": 0, "id": "call_1", "type": "function", "function": {"name": "get_weather", "arguments": ""}}
    more = [{"index": 0, "function": {"arguments": text}} for text in arguments]
    return [{"role": "assistant"}, *({"tool_calls": [part]} for part in (first, *more))]


def test_a_call_is_put_together_from_its_chunks() -> None:
    seen = read_call(frames(*call_deltas('{"city":"Pa', 'ris","unit":"celsius"}')))
    assert (seen.id, seen.function.name) == ("call_1", "get_weather")
    assert seen.function.arguments_json() == {"city": "Paris", "unit": "celsius"}


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ([], "no frames"),
        (frames(*call_deltas("{}"), end='{"error":{"message":"x"}}'), "ended early"),
        (frames({"content": "It is sunny."}, reason="stop"), "Expected one call"),
        (frames(*call_deltas('{"city":"Paris","unit":"cel')), "do not fit"),
        (frames(*call_deltas('{"city":"Paris"}')), "do not fit"),
        (frames(*call_deltas('{"city":"Paris","unit":"kelvin"}')), "do not fit"),
    ],
)
def test_anything_else_is_a_failure_with_its_reason(answer: list[str], reason: str) -> None:
    with pytest.raises(DemoError, match=reason):
        read_call(answer)


@pytest.mark.parametrize(
    ("answer", "results", "reason"),
    [
        (frames({"content": "2 kg"}, reason="stop"), ["2 kg"], None),
        ([], ["2 kg"], "no frames"),
        (frames({"content": "2 kg"}, reason="stop"), [], "called none"),
        (frames({"content": "2 kg"}, reason="stop"), ["Error: Tool execution timed out"], "timed out"),
        (frames(*call_deltas("{}")), ["2 kg"], "should have hidden"),
    ],
)
def test_a_tool_of_the_gateway_was_run_and_the_client_saw_nothing_of_it(
    answer: list[str], results: list[str], reason: str | None
) -> None:
    if reason is None:
        check_server_tool(answer, results)
    else:
        with pytest.raises(DemoError, match=reason):
            check_server_tool(answer, results)


@pytest.mark.parametrize("missing", [None, "the MCP SDK is not installed"])
def test_the_tools_of_the_gateway_have_a_route_of_their_own(
    monkeypatch: pytest.MonkeyPatch, missing: str | None
) -> None:
    monkeypatch.setattr(demo.mcp_checks, "missing", lambda: missing)
    config = demo.configuration("m", "http://127.0.0.1:1", "k")
    plain, tools = config.routes
    assert plain.chain is not None
    assert "execution" not in [entry.use for entry in plain.chain]
    assert tools.model == demo.server_example("m")["model"]
    assert tools.chain is None
    assert (len(config.tools.mcp), config.tools.folder) == (
        (1, None) if missing is None else (0, str(demo.TOOLS_FOLDER))
    )


async def test_the_demos_own_mcp_server() -> None:
    pytest.importorskip("mcp")
    source = source_of(demo.own_tools())
    assert source is not None
    async with source.running():
        assert source.tools.names == {demo.SERVER_TOOL}
        use = ToolUse("call_1", demo.SERVER_TOOL, '{"value": 5, "unit": "lb", "to": "kg"}')
        result = await source.tools.run(use, 60.0, lambda state: None)
        assert (result.text, result.failed) == ("2.26796 kg", False)
        use = ToolUse("call_2", demo.SERVER_TOOL, '{"value": 5, "unit": "lb", "to": "m"}')
        assert (await source.tools.run(use, 60.0, lambda state: None)).failed


def test_the_printed_command_sends_the_example() -> None:
    body = example("some-model")
    body["messages"][0]["content"] = 'What\'s the weather? $HOME `id` \\ "quoted"'
    words = shlex.split(curl("http://127.0.0.1:8665/v1", body).replace("\\\n", " "))
    assert words[:3] == ["curl", "-N", "http://127.0.0.1:8665/v1/chat/completions"]
    assert json.loads(words[words.index("-d") + 1]) == body


def test_columns_lose_nothing() -> None:
    text, entries = "x" * 70 + "<tool_call>", ["short", "y" * 45, ""]
    shown = side_by_side(("left", text), ("right", *entries), 63)
    rows = [(row[:30].rstrip(), row[33:]) for row in shown.splitlines()]
    assert rows[0] == ("left", "right")
    assert "".join(left for left, _ in rows[2:]) == text
    assert "".join(right for _, right in rows[2:]) == "".join(entries)
    assert max(map(len, shown.splitlines())) <= 63


def test_the_recorder_stands_just_inside_of_where_calls_are_found() -> None:
    names = [entry.use for entry in demo.configuration("m", "http://127.0.0.1:1", "k").chain]
    assert names.index("raw_text") == names.index("transformation") + 1
    assert names[-1] == "forwarding"


def test_a_taken_port_is_an_error_that_says_what_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert demo.run(port=taken.getsockname()[1], once=True) == 1
    assert "--port 0" in capsys.readouterr().err


def test_without_keys_it_cannot_be_reached_from_elsewhere(capsys: pytest.CaptureFixture[str]) -> None:
    assert demo.run(host="0.0.0.0", port=0, once=True) == 1
    assert "only on this machine" in capsys.readouterr().err


def test_missing_weights_are_an_error_that_says_what_to_do(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "WEIGHTS_PACKAGE", "no_such_package")
    assert demo.run(port=0, once=True) == 1
    assert engine.INSTALL_WEIGHTS in capsys.readouterr().err


def test_weights_from_the_environment_need_their_hash(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(demo.WEIGHTS_VARIABLE, str(tmp_path / "big.gguf"))
    assert demo.run(port=0, once=True) == 1
    assert "SHA-256" in capsys.readouterr().err
