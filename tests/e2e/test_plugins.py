"""Middlewares that are not ours: an installed plug-in by its name, and a plain aiohttp middleware as its author
published it."""

from __future__ import annotations

import json
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.agent import block
from tests.e2e.conftest import USER, Gateway, function, post, read_config
from toolwire.config import DEFAULT_CHAIN

ORIGIN = "https://chat.example"
TOOLS = [function("read_file", path="string")]
TEXT = f"Reading. {block('read_file', {'path': 'a.txt'})}"
CORS = {"use": "aiohttp_middlewares:cors_middleware", "options": {"origins": [ORIGIN]}}

installed = pytest.mark.skipif(
    "call-audit" not in entry_points(group="toolwire.middlewares").names,
    reason="the example plug-in is not installed: pip install --no-deps ./examples/call-audit",
)
has_cors = pytest.mark.skipif(find_spec("aiohttp_middlewares") is None, reason="aiohttp-middlewares is not installed")


def config(*outer: Any) -> Any:
    backends = {"mock": {"kind": "mock", "script": [{"text": TEXT, "usage": {"input": 1, "output": 2}}]}}
    return read_config({"backends": backends, "chain": [*outer, *DEFAULT_CHAIN]})


def content(body: bytes) -> list[Any]:
    """What was said, without what differs from answer to answer."""
    values = [line.removeprefix("data: ") for line in body.decode().split("\n") if line and line != "data: [DONE]"]
    out = []
    for value in map(json.loads, values):
        for choice in value["choices"]:
            for call in choice.get("message", choice.get("delta")).get("tool_calls", ()):
                call.pop("id", None)
        value.pop("created")
        out.append(value)
    return out


@has_cors
async def test_its_place_in_the_list_is_its_place_in_the_chain(gateway: Gateway) -> None:
    """Inside of `validation` it never sees what that refuses."""
    place = DEFAULT_CHAIN.index("validation") + 1
    entries = [*DEFAULT_CHAIN[:place], CORS, *DEFAULT_CHAIN[place:]]
    server = await gateway(read_config({"backends": {"mock": {"kind": "mock", "script": ["hi"]}}, "chain": entries}))
    good = await post(server, {"messages": USER}, headers={"Origin": ORIGIN})
    assert (good.status, good.headers["Access-Control-Allow-Origin"]) == (200, ORIGIN)
    bad = await post(server, {"messages": USER, "tool_choice": "required"}, headers={"Origin": ORIGIN})
    assert (bad.status, "Access-Control-Allow-Origin" in bad.headers) == (400, False)


@installed
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_an_installed_plug_in_by_its_name(gateway: Gateway, tmp_path: Path, stream: bool) -> None:
    """R16.2: found by entry point, its options checked; it sees the finished call and nothing else."""
    path = tmp_path / "calls.jsonl"
    audit = {"use": "call-audit", "options": {"path": str(path), "hide": ["path"]}}
    body = {"messages": USER, "tools": TOOLS, "stream": stream}
    answer = await post(await gateway(config(audit)), body)
    assert content(answer.body) == content((await post(await gateway(config()), body)).body)
    (line,) = map(json.loads, path.read_text().splitlines())
    assert (line["tool"], line["arguments"]) == ("read_file", {"path": "***"})
    assert line["request_id"] == answer.headers["X-Request-Id"]
