"""A gateway whose backend is itself, or another one that asks it: refused at the start, and ended with 508 at run
time."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from itertools import product
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web
from aiohttp.test_utils import TestServer

from tests.cases import every
from tests.e2e.conftest import CHAT, USER, Gateway, post, upstream_config
from tests.e2e.forking import Forked
from tests.e2e.processes import Process, running
from tests.e2e.responses_answers import RESPONSES
from tests.waiting import GUARD_S
from toolwire.testing import Asked, Say, Upstream
from toolwire.upstream.servers.hops import HEADER


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port


async def started(folder: Path, config: Mapping[str, Any]) -> tuple[int, str]:
    """The exit status of a gateway that does not start, and what it said."""
    process = Process(folder)
    process.file.write_text(json.dumps(config))
    with process.log_file.open("wb") as log:
        child = Forked(process.file, env={}, folder=folder, log=log)
    status = await child.ended()
    child.close()
    return status, process.log


async def test_a_backend_that_is_the_gateway_is_refused(tmp_path: Path) -> None:
    port = free_port()
    backends = {"good": {"url": "http://127.0.0.1:9"}, "mirror": {"url": f"http://{socket.gethostname()}:{port}/x"}}
    routes = [{"model": name, "backend": name} for name in backends]
    server = {"port": port, "host": "0.0.0.0", "insecure_public": True}
    status, log = await started(tmp_path, {"backends": backends, "routes": routes, "server": server})
    assert status == 1
    assert "backends.mirror.url: leads back to the gateway itself" in log
    assert f"port {port}" in log
    assert "good" not in log


# --- at run time ------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def forwarder(to: list[int]) -> AsyncIterator[int]:
    """A port that leads to another one: no address gives it away."""

    async def forward(request: web.Request) -> web.Response:
        if not to[0] and request.transport is not None:
            request.transport.abort()
            return web.Response(status=502)  # nobody gets this
        url, body = f"http://127.0.0.1:{to[0]}{request.path_qs}", await request.read()
        async with (
            aiohttp.ClientSession() as session,
            session.request(request.method, url, data=body, headers=request.headers) as answer,
        ):
            return web.Response(status=answer.status, body=await answer.read(), content_type=answer.content_type)

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", forward)
    async with TestServer(app) as server:
        assert server.port is not None
        yield server.port


@every("gateways", [1, 3])
async def test_a_ring_ends_with_508(gateway: Gateway, gateways: int) -> None:
    """Once around and no further, however often each would try again; and what each is asked at its start ends as
    well."""
    to = [0]
    async with forwarder(to) as port:
        for _ in range(gateways):
            config = upstream_config(f"http://127.0.0.1:{port}", defaults={"retry": {"attempts": 3}})
            last = await gateway(config)
            assert last.port is not None
            port = last.port
        to[0] = port
        async with asyncio.timeout(GUARD_S):
            for path, stream in product((CHAT, RESPONSES), (False, True)):
                body = {"stream": stream, **({"messages": USER} if path == CHAT else {"input": "hi"})}
                answer = await post(last, body, path=path)
                error = answer.json()["error"]
                assert (answer.status, error["code"]) == (508, "backend_loop"), (path, stream)
                assert "came back" in error["message"]
                assert answer.headers["x-should-retry"] == "false"
            async with aiohttp.ClientSession() as session, session.get(last.make_url("/v1/models")) as listed:
                assert listed.status == 508


async def test_workers_are_one_gateway(tmp_path: Path) -> None:
    to = [0]
    async with forwarder(to) as port:
        config = {"backends": {"next": {"url": f"http://127.0.0.1:{port}"}}, "server": {"port": 0, "workers": 3}}
        async with running(tmp_path, config) as started:
            to[0] = int(started.url.rpartition(":")[2])
            for _ in range(6):
                async with (
                    asyncio.timeout(GUARD_S),
                    aiohttp.ClientSession() as session,
                    session.post(f"{started.url}{CHAT}", json={"model": "m", "messages": USER}) as answer,
                ):
                    assert answer.status == 508
            # Who asked before somebody listened heard nothing then, and asks again.
            await started.logged("came back to it")


async def test_gateways_in_a_row_are_fine(gateway: Gateway) -> None:
    """Each names itself behind those before it, in requests of clients and in its own."""
    async with Upstream([Say("Hello.")]) as server:
        url = server.url
        for _ in range(3):
            last = await gateway(upstream_config(url))
            url = str(last.make_url("/"))
        answer = await post(last, {"messages": USER})
        assert answer.status == 200
        hops = names(server.posts[0])
        assert len(hops) == len(set(hops)) == 3
        assert all({hops[-1]} <= set(names(asked)) <= set(hops) for asked in server.looks)


def names(asked: Asked) -> list[str]:
    return list(dict.fromkeys(name.strip() for name in asked.headers[HEADER.lower()].split(",")))
