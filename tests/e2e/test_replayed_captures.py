"""`toolwire replay` and `toolwire inspect` of a file with captures of every kind of exchange (R18.4)."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import orjson
from click.testing import CliRunner, Result

from tests.e2e.conftest import post, read_config, serving
from tests.e2e.meaning import PATHS
from tests.e2e.test_capture import captured_of
from tests.e2e.test_every_pair import DOUBLES, KINDS, body, over_http
from toolwire.cli import main
from toolwire.registry import SERVER_PROTOCOLS, usual_server
from toolwire.testing import Upstream

SAME = "the answer to the client is the same again"
REFUSED = "cannot be run again: the gateway refused the request, so the capture does not hold it"
NOT_BYTES = "cannot be run again: answers of a backend of the kind {!r} are not recorded as bytes"


async def run(command: str, file: Path, *options: str) -> Result:
    return await asyncio.to_thread(CliRunner().invoke, main, [command, str(file), *options])


async def test_a_file_with_captures_of_every_kind(tmp_path: Path) -> None:
    """Each is run again, or the command says why not."""
    backends: dict[str, Any] = {}
    async with AsyncExitStack() as stack:
        for kind in KINDS:
            if kind in SERVER_PROTOCOLS:
                upstream = Upstream([over_http(usual_server(kind), "one call", "prompt")])
                section = {"url": (await stack.enter_async_context(upstream)).url}
            else:
                section = DOUBLES[kind]("one call", "prompt", tmp_path)
            backends[kind] = {"kind": kind, **section}
        config = {
            "backends": backends,
            "routes": [{"model": kind, "backend": kind} for kind in KINDS],
            "defaults": {"mode": "prompt"},
            "capture": 2 * len(KINDS),
        }
        server = await stack.enter_async_context(serving(read_config(config)))
        expected: dict[str, str] = {}
        for kind in KINDS:
            why = SAME if kind in SERVER_PROTOCOLS else NOT_BYTES.format(kind)
            asked = {"model": kind, **body("messages", stream=True)}
            await post(server, asked, path=PATHS["messages"], headers={"X-Request-Id": kind})
            expected[kind] = why
        others: dict[str, Any] = {
            "without-tools": {**body("chat", stream=True), "tools": []},
            "refused": {**body("chat", stream=True), "messages": []},
            "unreadable": b"{",
        }
        for ident, asked in others.items():
            sent = asked if isinstance(asked, bytes) else {"model": "openai_chat", **asked}
            await post(server, sent, headers={"X-Request-Id": ident})
            expected[ident] = SAME if ident == "without-tools" else REFUSED
        captures = {ident: await captured_of(server, ident) for ident in expected}
    file = tmp_path / "all.capture.jsonl"
    file.write_bytes(b"".join(captures.values()))
    done = await run("replay", file)
    assert done.exit_code == 0, done.output
    assert "Traceback" not in done.output
    shown = dict(zip(expected, done.output.split("\n\n"), strict=True))
    for ident, why in expected.items():
        assert f"request {ident} " in shown[ident]
        assert why in shown[ident].splitlines()[-1], shown[ident]
        assert ident not in KINDS or "call read" in shown[ident]

    lines = [orjson.loads(line) for line in (await run("replay", file, "--json")).output.splitlines()]
    assert [line["request_id"] for line in lines if "request_id" in line] == [*expected]
    inspected = await run("inspect", file, "--html", "-")
    assert inspected.exit_code == 0, inspected.output
    unknown = captures["openai_chat"].replace(b'"kind":"openai_chat"', b'"kind":"of_a_plugin"', 1)
    file.write_bytes(unknown)
    assert "the kind of backend 'of_a_plugin' is not installed here" in (await run("replay", file)).output
    file.write_bytes(captures["mock"] + captures["openai_chat"] + b"{")
    assert "Error: capture 2 of 2: line " in (await run("replay", file)).output
