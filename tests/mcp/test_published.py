"""Servers that others have published, each behind a gateway on a real socket: a model calls a tool, and what the tool
gave is in the answer (R26.3)."""

from __future__ import annotations

import asyncio
import json
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from tests.e2e.conftest import USER, post, read_config, serving
from tests.mcp.conftest import npm_server, python_server
from tests.waiting import GUARD_S, until
from toolwire.testing import Say, Upstream

pytest.importorskip("mcp")


def block(name: str, arguments: dict[str, Any]) -> str:
    return f"<tool_call>{json.dumps({'name': name, 'arguments': arguments})}</tool_call>"


def tools(*servers: dict[str, Any]) -> dict[str, Any]:
    patience = {"timeout_s": GUARD_S, "connect_timeout_s": GUARD_S}
    return {"mcp": [{**patience, **server} for server in servers], "mcp_wait_s": GUARD_S}


async def answers(server: dict[str, Any], *calls: tuple[str, dict[str, Any]]) -> list[str]:
    """What the client reads for each call: the model, a mock, makes it and says back what it was told."""
    script = [{"when": f"Call {n}, please.", "text": block(*call)} for n, call in enumerate(calls)]
    config = read_config({"backends": {"m": {"kind": "mock", "script": script}}, "tools": tools(server)})
    said = []
    async with serving(config) as gateway:
        for n in range(len(calls)):
            got = await post(gateway, {"messages": [{"role": "user", "content": f"Call {n}, please."}]})
            assert got.status == 200
            said.append(got.json()["choices"][0]["message"]["content"])
    return said


async def test_time(real_hosts: None) -> None:
    command = [*python_server("mcp_server_time"), "--local-timezone", "UTC"]
    arguments = {"source_timezone": "Europe/Berlin", "time": "12:30", "target_timezone": "Asia/Tokyo"}
    (said,) = await answers({"name": "time", "command": command}, ("convert_time", arguments))
    assert "Asia/Tokyo" in said
    assert ":30:00+09:00" in said


@asynccontextmanager
async def site() -> AsyncIterator[str]:
    """A page that a tool fetches."""

    async def page(request: web.Request) -> web.Response:
        text = "<html><body><article><h1>Opening hours</h1><p>Open from nine to five.</p></article></body></html>"
        return web.Response(text=text, content_type="text/html")

    app = web.Application()
    app.router.add_get("/page", page)
    server = TestServer(app)
    await server.start_server()
    try:
        yield str(server.make_url("/page"))
    finally:
        await server.close()


async def test_fetch() -> None:
    command = [*python_server("mcp_server_fetch"), "--ignore-robots-txt", "--allow-private-ips"]
    async with site() as url:
        server = {"name": "fetch", "command": command, "prefix": "web_"}
        (said,) = await answers(server, ("web_fetch", {"url": url, "raw": True}))
    assert "Open from nine to five." in said


async def test_filesystem(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("The key is under the mat.")
    command = [*npm_server("mcp-server-filesystem"), str(tmp_path)]
    server = {"name": "files", "command": command, "allow": ["read_*"]}
    inside, outside = {"path": str(tmp_path / "notes.txt")}, {"path": "/etc/hostname"}
    writing = {"path": str(tmp_path / "new"), "content": "x"}
    calls = [("read_text_file", inside), ("read_text_file", outside), ("write_file", writing)]
    read, refused, _ = await answers(server, *calls)
    assert "The key is under the mat." in read
    assert "Access denied" in refused
    assert not (tmp_path / "new").exists()


@asynccontextmanager
async def everything() -> AsyncIterator[str]:
    """The server of everything, at a port."""
    (program,) = npm_server("mcp-server-everything")
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    process = await asyncio.create_subprocess_exec(
        program,
        "streamableHttp",
        env={**os.environ, "PORT": str(port)},
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )

    def listens() -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0

    try:
        await until(listens)
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        process.kill()
        await process.wait()


async def test_everything_over_http() -> None:
    async with everything() as url:
        server = {"name": "all", "url": url, "headers": {"Authorization": "Bearer sesame"}}
        said = await answers(server, ("echo", {"message": "sesam"}), ("get-sum", {"a": 2, "b": 3}))
    assert "Echo: sesam" in said[0]
    assert "sum of 2 and 3" in said[1]


async def test_an_image_goes_to_models_that_see() -> None:
    """Whoever takes none is told of it, and the client, who never saw the tool, gets no error."""
    server = {"name": "all", "command": list(npm_server("mcp-server-everything")), "allow": ["get-tiny-image"]}
    kinds = ("true", "false", "error")
    async with Upstream([Say(block("get-tiny-image", {})), Say("A logo.")] * len(kinds)) as upstream:
        config = {
            "backends": {images: {"url": upstream.url, "images": images} for images in kinds},
            "routes": [{"model": images, "backend": images} for images in kinds],
            "tools": tools(server),
        }
        async with serving(read_config(config)) as gateway:
            for images in kinds:
                got = await post(gateway, {"model": images, "messages": USER})
                assert got.status == 200
                assert got.json()["choices"][0]["message"]["content"].endswith("A logo."), images
                shown = json.dumps(upstream.requests[-1].json["messages"])
                assert ("data:image/png;base64," in shown) is (images == "true")
                assert ("[image omitted: this model takes no images]" in shown) is (images != "true")
