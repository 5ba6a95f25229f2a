"""Exchanging the application behind a server, and what lives on."""

from __future__ import annotations

import asyncio
import gc
import logging
import weakref
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web

from tests.waiting import GUARD_S, until
from toolwire.app import create_app
from toolwire.config import AuthConfig, BackendConfig, GatewayConfig, ServerConfig, StoreConfig
from toolwire.observability.telemetry import Metrics
from toolwire.pipeline.exchange.shared_resources import SharedResources
from toolwire.server.hosting import AppFactory, AppHost, reread, settle_memory
from toolwire.support.conversion import ConfigError

NAME = web.AppKey("name", str)
CONFIG = GatewayConfig(backends={"m": BackendConfig(kind="mock", script=["hi"])})


class Apps:
    """Makes small applications, which answer with their number, and knows what became of them."""

    def __init__(self) -> None:
        self.made: list[weakref.ref[web.Application]] = []
        self.open: set[int] = set()
        self.gate = asyncio.Event()
        self.waiting = asyncio.Semaphore(0)
        self.broken: Exception | None = None

    def create(self, config: GatewayConfig, metrics: Metrics, before: web.Application | None) -> web.Application:
        number = len(self.made)
        app = web.Application()

        async def answer(request: web.Request) -> web.Response:
            if request.query:
                self.waiting.release()
                await self.gate.wait()
            assert number in self.open
            return web.Response(text=str(number))

        async def running(app: web.Application) -> AsyncIterator[None]:
            self.open.add(number)
            yield
            self.open.remove(number)

        async def last(app: web.Application) -> None:
            if self.broken is not None:
                raise self.broken

        app.router.add_get("/", answer)
        app.cleanup_ctx.append(running)
        app.on_startup.append(last)
        self.made.append(weakref.ref(app))
        return app


@asynccontextmanager
async def hosted(apps: Apps) -> AsyncIterator[tuple[AppHost, aiohttp.ClientSession]]:
    host = AppHost(apps.create, Metrics())
    async with serving(host, CONFIG) as session:
        yield host, session


@asynccontextmanager
async def serving(host: AppHost, config: GatewayConfig) -> AsyncIterator[aiohttp.ClientSession]:
    """A client of the host, which starts with this configuration."""
    await host.start(config)
    runner = web.ServerRunner(host.server)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        async with aiohttp.ClientSession(f"http://127.0.0.1:{site.port}") as session:
            yield session
    finally:
        await runner.cleanup()
        await host.close()


async def get(session: aiohttp.ClientSession, path: str = "/") -> str:
    async with session.get(path) as answer:
        return await answer.text()


async def test_an_application_whose_preparation_is_cancelled_is_closed() -> None:
    """A gateway may be stopped in the middle of a reload."""
    apps, preparing = Apps(), asyncio.Event()

    async def prepare(create: AppFactory, config: GatewayConfig) -> None:
        if apps.open == {0, 1}:
            preparing.set()
            await asyncio.Event().wait()

    host = AppHost(apps.create, Metrics(), prepare=prepare)
    await host.start(CONFIG)
    reloading = asyncio.create_task(host.reload(lambda: CONFIG))
    async with asyncio.timeout(GUARD_S):
        await preparing.wait()
    reloading.cancel()
    await asyncio.wait({reloading})
    assert apps.open == {0}
    await host.close()


async def test_a_configuration_is_prepared_before_it_is_served() -> None:
    apps, prepared = Apps(), []
    current: list[str] = []

    async def prepare(create: AppFactory, config: GatewayConfig) -> None:
        assert create == apps.create
        prepared.append(config)
        if len(prepared) > 1:
            current.append(await get(session))

    host = AppHost(apps.create, Metrics(), prepare=prepare)
    other = replace(CONFIG, server=replace(CONFIG.server, keepalive_s=1.0))
    async with serving(host, CONFIG) as session:
        assert await host.reload(lambda: other) is None
        assert await get(session) == "1"
    assert prepared == [CONFIG, other]
    assert current == ["0"]


async def test_limits_of_connections_are_those_of_the_current_configuration() -> None:
    large = {"X-Large": "x" * 2000}
    async with hosted(Apps()) as (host, session):
        async with session.get("/", headers=large) as answer:
            assert answer.status == 200
        limits = replace(CONFIG.limits, head_bytes=1000)
        assert await host.reload(lambda: replace(CONFIG, limits=limits)) is None
        async with session.get("/", headers={**large, "Connection": "close"}) as answer:
            assert answer.status == 431


async def test_each_request_is_answered_by_the_application_that_was_current_when_it_came() -> None:
    apps = Apps()
    async with hosted(apps) as (host, session):
        requests = []
        for number in range(3):
            requests.append(asyncio.create_task(get(session, "/?wait")))
            await apps.waiting.acquire()
            assert await host.reload(lambda: CONFIG) is None
            assert await get(session) == str(number + 1)
        assert apps.open == {0, 1, 2, 3}
        apps.gate.set()
        assert await asyncio.gather(*requests) == ["0", "1", "2"]
        await until(lambda: apps.open == {3}, 0)
    assert apps.open == set()


@pytest.mark.parametrize("error", [OSError("no device"), ConfigError("backends: none"), asyncio.CancelledError()])
async def test_a_failure_changes_nothing_and_leaves_nothing_open(
    error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    apps = Apps()
    async with hosted(apps) as (host, session):
        apps.broken = error  # type: ignore[assignment]
        if isinstance(error, asyncio.CancelledError):
            with pytest.raises(asyncio.CancelledError):
                await host.reload(lambda: CONFIG)
        else:
            problem = await host.reload(lambda: CONFIG)
            assert problem is not None
            assert str(error) in problem
            assert str(error) in caplog.text
        assert apps.open == {0}
        assert await get(session) == "0"


async def test_what_was_replaced_is_freed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two, as the second one was excluded from collections when the first one was freed."""
    monkeypatch.setattr("toolwire.server.hosting.settle_memory", settle_memory)
    apps = Apps()
    async with hosted(apps) as (host, session):
        for number in range(2):
            assert await get(session) == str(number)  # on one connection
            tasks = len(asyncio.all_tasks())
            assert await host.reload(lambda: CONFIG) is None
        await until(lambda: len(apps.open) <= 1 and len(asyncio.all_tasks()) <= tasks, 0)
        await get(session)  # aiohttp keeps the last request of a connection
        gc.unfreeze()
        gc.collect()
        gc.freeze()  # else each collection of the tests that follow looks at all of it
        assert [app() is not None for app in apps.made] == [False, False, True]


async def test_idle_waits_for_all_applications() -> None:
    apps = Apps()
    async with hosted(apps) as (host, session):
        await asyncio.wait_for(host.idle(), GUARD_S)
        requests = []
        for _ in range(2):
            requests.append(asyncio.create_task(get(session, "/?wait")))
            await apps.waiting.acquire()
            await host.reload(lambda: CONFIG)
        idle = asyncio.create_task(host.idle())
        await get(session)
        assert not idle.done()
        apps.gate.set()
        await asyncio.wait_for(idle, GUARD_S)
        await asyncio.gather(*requests)


def test_where_it_listens_stays(caplog: pytest.LogCaptureFixture) -> None:
    running = replace(CONFIG, server=ServerConfig(port=81, workers=2))
    wanted = replace(CONFIG, server=ServerConfig(port=82, workers=3, keepalive_s=1))
    with caplog.at_level(logging.WARNING):
        found = reread(lambda: wanted, running)
    assert found == replace(wanted, server=ServerConfig(port=81, workers=2, keepalive_s=1))
    assert "server.port, server.workers: a change takes effect at the next start" in caplog.text


def test_a_public_gateway_does_not_lose_its_keys_because_the_file_has_another_address() -> None:
    running = replace(CONFIG, server=ServerConfig(host="0.0.0.0"), auth=AuthConfig(keys=("k",)))
    with pytest.raises(ConfigError, match="insecure_public"):
        reread(lambda: CONFIG, running)


def test_a_backend_that_is_the_gateway_itself_is_refused() -> None:
    running = replace(CONFIG, server=ServerConfig(port=81))
    wanted = replace(running, backends={"m": BackendConfig(url="http://127.0.0.1:81")})
    with pytest.raises(ConfigError, match="leads back to the gateway itself"):
        reread(lambda: wanted, running)


async def test_a_key_that_was_taken_out_of_its_file_is_refused(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text("old")
    config = replace(CONFIG, store=StoreConfig(kind="none"), auth=AuthConfig(keys_file=str(keys)))
    host = AppHost(lambda config, metrics, before: create_app(config, metrics=metrics, before=before), Metrics())

    async def status(key: str) -> int:
        async with session.get("/version", headers={"Authorization": f"Bearer {key}"}) as answer:
            return answer.status

    async with serving(host, config) as session:
        assert (await status("old"), await status("new")) == (200, 401)
        keys.write_text("new")
        assert await host.reload(lambda: config) is None
        assert (await status("old"), await status("new")) == (401, 200)


# --- what lives on --------------------------------------------------------------------------------------------------

STORE = web.AppKey("store", list[str])


async def close(value: list[str]) -> None:
    value.append("closed")


@asynccontextmanager
async def started(shared: SharedResources) -> AsyncIterator[None]:
    app = web.Application()
    app.cleanup_ctx.append(shared.running)
    runner = web.AppRunner(app)
    await runner.setup()
    yield
    await runner.cleanup()


async def test_equal_settings_keep_the_value_until_its_last_user_ends() -> None:
    first = SharedResources()
    value = first.take(STORE, "memory", list, close)
    second = SharedResources(first)
    assert second.take(STORE, "memory", list, close) is value
    async with started(second):
        async with started(first):
            pass
        assert value == []
    assert value == ["closed"]


async def test_other_settings_make_another_value() -> None:
    first = SharedResources()
    value = first.take(STORE, "memory", list, close)
    async with started(first):
        SharedResources(first).take(STORE, "sqlite", list, close)  # of an application that could not be made
        second = SharedResources(first)
        other = second.take(STORE, "redis", list, close)
        assert other is not value
        async with started(second):
            assert SharedResources(second).take(STORE, "memory", list, close) is not value
        assert (value, other) == ([], ["closed"])
    assert value == ["closed"]
