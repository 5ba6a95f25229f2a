"""Calls that a model wrote nearly right, through the whole gateway: found where they stand (R6.1), of the right types
(R23.3). All forms: `tests/unit/test_json_calls.py`, `tests/unit/test_coercion.py`."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest

from tests.cases import every
from tests.e2e.conftest import USER, function, get, mock_config, post, serving
from tests.e2e.meaning import CLIENTS, asking, meant
from toolwire.config import GatewayConfig

ADD = function("read", a="integer", b="integer", note="string")
WANTED = {"a": 1, "b": 2, "note": "3"}


def config(written: Any) -> GatewayConfig:
    return mock_config([{"text": f"<tool_call>{json.dumps(written)}</tool_call>", "chunk": 3, "finish": "stop"}])


@every(
    "written",
    [{"tool": "read", "args": WANTED}, {"name": "read", **WANTED}, {"name": "read", "a": "1", "b": "2", "note": 3}],
)
async def test_the_call_that_was_meant(written: Any) -> None:
    inner = ADD["function"]
    tools: Any = [ADD], [{"type": "function", **inner}], [{"name": "read", "input_schema": inner["parameters"]}]
    async with serving(config(written)) as server:
        for path, offered in zip(CLIENTS, tools, strict=True):
            for stream in (False, True):
                answer = await post(server, {**asking(path, stream), "tools": offered}, path=path)
                assert meant(path, answer, stream)[:2] == ("", [("read", WANTED)]), (path, stream)


async def test_it_is_counted(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="toolwire.access")
    async with serving(config({"name": "read", "arguments": {"a": "1", "b": 2, "note": "x"}})) as server:
        await post(server, {"messages": USER, "tools": [ADD]})
        page = (await get(server, "/metrics")).body.decode()
    (line,) = [record.__dict__["fields"] for record in caplog.records if record.name == "toolwire.access"]
    assert (line["calls"], line["coerced"]) == (1, 1)
    assert 'toolwire_tool_call_coercions_total{kind="number"} 1.0\n' in page
