"""Settings for all tests, and what tests of several folders need."""

from __future__ import annotations

import asyncio
import dataclasses
import gc
import importlib
import os
import sys
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tests import optional
from tests.loops import LoopOfTests
from tests.store.redis_server import ClusterGroup, RedisServer, WatchedGroup, started

# Whatever the environment says (in containers often that nothing is compiled for good): a third of a short run would be
# spent on compiling the tests again.
sys.dont_write_bytecode = False


def _refuse(value: object, name: str, field: object) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r} of {type(value).__name__}")


def _import_frozen() -> None:
    """The model's classes are frozen for the type checker only (docs/adr/0018). In tests they are really."""
    plain = dataclasses.dataclass

    def dataclass(*args: Any, **options: Any) -> Any:
        if options == {"slots": True, "unsafe_hash": True}:
            options = {"slots": True, "frozen": True}
        return plain(*args, **options)

    dataclasses.dataclass = dataclass
    try:
        from toolwire import model
    finally:
        dataclasses.dataclass = plain
    for value in vars(model).values():
        if isinstance(value, type) and dataclasses.is_dataclass(value):
            assert value.__dataclass_params__.frozen
            setattr(value, "__setattr__", _refuse)  # noqa: B010  # Python 3.11's own stumbles over unknown names


_import_frozen()

# How long an example takes says more about the machine than about the code. In CI hypothesis loads a profile of its
# own, which says the same and draws the same examples every time. Corners stand in tables, so a few examples of each
# law are enough; with TOOLWIRE_FRESH they are new ones in CI as well, and many. CONTRIBUTING.md says why. Whatever
# fails prints the line that makes it fail again.
FRESH = bool(os.environ.get("TOOLWIRE_FRESH"))
settings.register_profile(
    "toolwire",
    settings.get_profile(settings.get_current_profile_name()),
    deadline=None,
    print_blob=True,
    max_examples=200 if FRESH else 50,
    suppress_health_check=[HealthCheck.too_slow],
    **({"derandomize": False} if FRESH else {}),
)
settings.load_profile("toolwire")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """One more than there are cores: a fifth of the time a process waits for another one, or for a limit to pass."""
    return len(os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(os.cpu_count() or 1)) + 1


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--until", type=float, help="begin no test after that time (of time.time()): the others are skipped"
    )


def pytest_runtest_setup(item: pytest.Item) -> None:
    until = item.config.getoption("--until")
    if until is not None and time.time() > until:
        pytest.skip("there was no time left")
    for mark in item.iter_markers("needs"):
        for tool in mark.args:
            optional.program(tool)


@pytest.hookimpl(optionalhook=True)
def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {"tests": asyncio.new_event_loop if sys.platform == "win32" else LoopOfTests}  # there it starts no processes


def _import_in_turn(config: pytest.Config) -> None:
    """Each process of a whole run in parallel begins with another file, and finds what the others have compiled: in a
    fresh checkout the first import of everything takes more than twice as long. What fails here fails again when it
    is collected."""
    worker = getattr(config, "workerinput", None)
    if worker is None or config.args_source is not pytest.Config.ArgsSource.TESTPATHS:
        return
    names = [".".join(path.with_suffix("").parts) for path in sorted(Path("tests").rglob("test_*.py"))]
    begin = len(names) * int(worker["workerid"].removeprefix("gw")) // worker["workercount"]
    for name in names[begin:] + names[:begin]:
        with suppress(Exception, pytest.skip.Exception):
            importlib.import_module(name)


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    """Collecting makes millions of objects that live to the end: there is nothing to free, neither meanwhile nor later
    among them. The default thresholds, meant for small programs, would spend a tenth of the tests' time on looking for
    circles."""
    from toolwire.server import hosting, process

    # Serving in this process must not unfreeze what is there: each collection of the tests that follow would look at
    # it, which takes a second.
    vars(process)["rare_collections"] = nullcontext
    gc.disable()
    try:
        _import_in_turn(session.config)
        return (yield)
    finally:
        gc.enable()
        gc.freeze()
        gc.set_threshold(20_000, 20, 20)
        # A reload has everything collected: here what is new is enough. The test of it has imported the function.
        vars(hosting)["settle_memory"] = gc.collect


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """One for all tests; each uses a prefix of its own."""
    server = RedisServer(tmp_path_factory.mktemp("redis"))
    server.start()
    yield server
    server.stop()


@pytest.fixture(scope="session")
def watched_group(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WatchedGroup]:
    """A master, its replica and a Sentinel, for all tests that let them live."""
    with started(WatchedGroup(tmp_path_factory.mktemp("watched"))) as group:
        yield group


@pytest.fixture(scope="session")
def cluster_group(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterGroup]:
    """Three masters with a replica each, for the same."""
    with started(ClusterGroup(tmp_path_factory.mktemp("cluster"))) as group:
        yield group


@pytest.fixture(scope="module")
def earlier_frozen() -> None:
    """Collects what the tests of other modules have left, once: after this a collection looks only at what is new."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def own_server(tmp_path: Path, earlier_frozen: None) -> Iterator[RedisServer]:
    """A server for one test, not started."""
    server = RedisServer(tmp_path)
    yield server
    server.stop()
    gc.collect()  # A connection that nobody closed is this test's fault, not that of whichever runs when it is collected.
