"""A gateway, and clients as processes of their own in front of it."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from aiohttp.test_utils import TestServer

from tests.clients import setup_pages
from tests.clients.npm import HERE, install, recent_node
from tests.clients.recorder import Recorder
from tests.e2e.conftest import Gateway
from tests.e2e.conftest import gateway as plain_gateway
from tests.protocols.published import SHARED
from tests.waiting import PROGRAM_S

__all__ = ["plain_gateway"]


NOWHERE = {"HTTP_PROXY": "http://127.0.0.1:9", "HTTPS_PROXY": "http://127.0.0.1:9", "NO_PROXY": "127.0.0.1"}
"""Variables with which a client finds nothing of the web."""

Node = Callable[..., Awaitable[list[dict[str, Any]]]]
Task = tuple[Any, ...]
"""A gateway, and the arguments of a task."""


@pytest.fixture
async def gateway(plain_gateway: Gateway) -> AsyncIterator[Gateway]:
    """Start gateways that are watched: at the end every answer is held against the published schemas, if they are
    there."""
    recorders = []
    async with AsyncExitStack() as stack:

        async def start(*args: Any, **options: Any) -> TestServer:
            recorder = Recorder(await plain_gateway(*args, **options))
            recorders.append(recorder)
            server = await stack.enter_async_context(TestServer(recorder.app()))
            return server

        yield start
    if (SHARED / "spec").exists():
        for recorder in recorders:
            recorder.check_responses()


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that outlives the run. Each process of a run in parallel has a folder of its own within the run's."""
    of_run = tmp_path_factory.getbasetemp()
    return of_run.parent if "PYTEST_XDIST_WORKER" not in os.environ else of_run.parent.parent


@pytest.fixture(scope="session")
def agents() -> Any:
    """The package `openai-agents`, which takes two seconds to import: nobody needs to, only to know which tests there
    are."""
    return pytest.importorskip("agents", reason="needs openai-agents")


@pytest.fixture(scope="session")
def codex_program(shared: Path) -> Path:
    return install("codex", shared) / "node_modules" / ".bin" / "codex"


@pytest.fixture
def node(shared: Path, tmp_path: Path) -> Node:
    """`await node("openai_chat.mjs", [(server, ...), ...])`: what the script reported of each task. It fails with what
    the client said. One process does all tasks: to start node and to load such a package takes a second.

    The scripts stand beside their packages, which node wants. The files of the set-up pages are in a folder for each
    task, with the address of its gateway."""
    for script in (HERE / "sdks").glob("*.mjs"):
        shutil.copy(script, tmp_path)
    tmp_path.joinpath("node_modules").symlink_to(install("sdks", shared) / "node_modules")
    program = str(recent_node(shared) / "node")

    async def run(script: str, tasks: Sequence[Task]) -> list[dict[str, Any]]:
        for number, (server, *_) in enumerate(tasks):
            for page in ("openai", "anthropic", "vercel-ai"):
                setup_pages.write(page, tmp_path / str(number), server)
        arguments = json.dumps([arguments for _, *arguments in tasks])
        status, out, err = await execute(program, script, arguments, cwd=tmp_path)
        assert status == 0, err or out
        reports = [json.loads(line) for line in out.splitlines()]
        assert len(reports) == len(tasks), out
        return reports

    return run


async def execute(*command: str, cwd: Path, env: dict[str, str] | None = None) -> tuple[int, str, str]:
    """Run a program to its end, with nothing on its standard input: status, standard output, standard error."""
    pipe, none = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
    process = await asyncio.create_subprocess_exec(*command, cwd=cwd, env=env, stdin=none, stdout=pipe, stderr=pipe)
    try:
        out, err = await asyncio.wait_for(process.communicate(), PROGRAM_S)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode is not None
    return process.returncode, out.decode(), err.decode()
