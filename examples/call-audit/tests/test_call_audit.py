"""The plug-in on a scripted model, with the test kit that comes with toolwire."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest
from toolwire_call_audit import CallAudit

from toolwire import MiddlewareConfig, run_chain
from toolwire.registry import registries
from toolwire.support.conversion import ConfigError
from toolwire.testing import WireAnswer

TOOL = {
    "type": "function",
    "function": {
        "name": "log_in",
        "parameters": {"type": "object", "properties": {"user": {"type": "string"}, "password": {"type": "string"}}},
    },
}
ANSWER = 'One moment. <tool_call>{"name":"log_in","arguments":{"user":"ann","password":"secret"}}</tool_call>'


async def ask(options: dict[str, Any], *, stream: bool = False, reply: str = ANSWER) -> WireAnswer:
    """One request through the built-in chain with the plug-in in front."""
    plugins = registries()
    if "call-audit" not in plugins.middlewares.names():  # an installed package is found by its entry point
        plugins.middlewares.register("call-audit", CallAudit)
    chain = [MiddlewareConfig(use="call-audit", options=options), "arguments", "transformation", "injection"]
    body = {"messages": [{"role": "user", "content": "hi"}], "tools": [TOOL], "stream": stream}
    return await run_chain(chain, body, replies=[{"text": reply, "chunk": 3}], plugins=plugins)


@pytest.mark.parametrize("stream", [False, True])
async def test_one_line_for_each_call(tmp_path: Path, stream: bool) -> None:
    path = tmp_path / "calls.jsonl"
    for _ in range(2):
        answer = await ask({"path": str(path), "hide": ["password"]}, stream=stream)
        assert answer.status == 200
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line["tool"] for line in lines] == ["log_in", "log_in"]
    assert lines[0]["arguments"] == {"user": "ann", "password": "***"}
    assert lines[1]["request_id"] == answer.headers["X-Request-Id"]


async def test_it_changes_nothing(tmp_path: Path) -> None:
    answer = await ask({"path": str(tmp_path / "calls.jsonl"), "hide": ["password"]})
    (call,) = answer.json()["choices"][0]["message"]["tool_calls"]
    assert json.loads(call["function"]["arguments"]) == {"user": "ann", "password": "secret"}


async def test_an_answer_without_calls_leaves_no_line(tmp_path: Path) -> None:
    path = tmp_path / "calls.jsonl"
    await ask({"path": str(path)}, reply="hello")
    assert path.read_text() == ""


async def test_without_a_path_lines_go_to_the_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="toolwire_call_audit")
    await ask({"hide": ["password"]})
    (line,) = [record.getMessage() for record in caplog.records if record.name == "toolwire_call_audit"]
    assert json.loads(line)["arguments"] == {"user": "ann", "password": "***"}
    assert "secret" not in caplog.text


async def test_a_wrong_option_is_found_at_start() -> None:
    with pytest.raises(ConfigError, match="hidden"):
        await ask({"hidden": ["password"]})
