"""The short way answers what the usual way answers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from itertools import product

import aiohttp
import pytest
from aiohttp import web

from toolwire.pipeline.chain.middleware import Handler
from toolwire.server.dispatch import Dispatch

NAME = web.AppKey("name", str)


def app() -> web.Application:
    @web.middleware
    async def outer(request: web.Request, handler: Handler) -> web.StreamResponse:
        response = await handler(request)
        response.headers["X-Order"] = response.headers.get("X-Order", "") + "outer"
        return response

    @web.middleware
    async def inner(request: web.Request, handler: Handler) -> web.StreamResponse:
        response = await handler(request)
        response.headers["X-Order"] = "inner,"
        return response

    async def answer(request: web.Request) -> web.Response:
        await asyncio.sleep(0)
        route = request.match_info.route.resource
        assert route is not None
        return web.Response(text=f"{request.app[NAME]} {route.canonical} {await request.text()}")

    async def signed(request: web.Request, response: web.StreamResponse) -> None:
        response.headers["X-Signed"] = request.path

    application, inside = web.Application(middlewares=[outer, inner]), web.Application()
    application[NAME], inside[NAME] = "outside", "inside"
    application.on_response_prepare.append(signed)
    for place in (application, inside):
        place.router.add_post("/plain", answer)
        place.router.add_get("/plain", answer)
        place.router.add_post("/{variable}/x", answer)
    application.add_subapp("/sub", inside)
    return application


@pytest.fixture
async def urls() -> AsyncIterator[tuple[str, str]]:
    """Of the application served the usual and the short way."""
    runners = []
    found = []
    for short in (False, True):
        application = app()
        runner = web.AppRunner(application)
        await runner.setup()
        runners.append(runner)
        if short:
            assert runner.server is not None
            runner.server.request_handler = Dispatch(application, runner.server.request_handler)
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        found.append(f"http://127.0.0.1:{runner.addresses[0][1]}")
    yield found[0], found[1]
    for runner in runners:
        await runner.cleanup()


PATHS = ("/plain", "/plain?a=1", "/pl%61in", "/plain/", "/a/x", "/sub/plain", "/sub/a/x", "/none")


async def test_both_ways_agree(urls: tuple[str, str]) -> None:
    async with aiohttp.ClientSession() as session:
        for asked in product(PATHS, ("POST", "GET", "PUT"), (False, True)):
            path, method, expect = asked
            seen = []
            for url in urls:
                async with session.request(method, url + path, data=b"body", expect100=expect) as response:
                    headers = {key: value for key, value in response.headers.items() if key.startswith(("X-", "Allow"))}
                    seen.append((response.status, headers, await response.text()))
            assert seen[0] == seen[1], asked


async def test_requests_at_once_do_not_meet(urls: tuple[str, str]) -> None:
    async with aiohttp.ClientSession() as session:

        async def ask(number: int) -> str:
            async with session.post(f"{urls[1]}/plain", data=str(number)) as response:
                return await response.text()

        answers = await asyncio.gather(*map(ask, range(20)))
    assert answers == [f"outside /plain {number}" for number in range(20)]
