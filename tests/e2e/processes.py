"""A gateway in processes of its own, started by the command line as an operator does."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

from tests.e2e.forking import ROOT, Forked
from tests.waiting import GUARD_S, until


class Process:
    """A running gateway. `url` is its address; `folder` holds its configuration and its log."""

    def __init__(self, folder: Path, **env: str) -> None:
        self.folder = folder
        self.file = folder / "gateway.yaml"
        self.log_file = folder / "log"
        self._env = {"PYTHONPATH": str(ROOT), "STATE_DIRECTORY": str(folder), **env}

    def write(self, config: Mapping[str, Any] | str) -> None:
        """Write the configuration file."""
        text = config if isinstance(config, str) else json.dumps({"server": {"port": 0}, **config})
        self.file.write_text(text)

    async def start(self) -> None:
        """Start it and wait until it serves."""
        with self.log_file.open("wb") as log:
            self.process = Forked(self.file, env=self._env, folder=self.folder, log=log)
        line = (await self.process.line()).decode()
        found = re.fullmatch(r"toolwire is serving (http://127\.0\.0\.1:\d+)/v1\n", line)
        assert found, self.log
        self.url = found[1]

    def signal(self, *numbers: int) -> None:
        """Send signals to the process that was started."""
        for number in numbers:
            self.process.send_signal(number)

    async def end(self) -> int:
        """Wait for its end; the exit status."""
        return await self.process.ended()

    @property
    def log(self) -> str:
        """What it has logged."""
        return self.log_file.read_text()

    async def logged(self, text: str, times: int = 1) -> None:
        """Wait until the log has this text, so often."""
        await until(lambda: self.log.count(text) >= times)

    async def reload(self) -> None:
        """SIGHUP, and wait until every worker has done it."""
        workers = len(self.workers()) or 1
        before = self.log.count("reloaded the configuration")
        self.signal(signal.SIGHUP)
        await self.logged("reloaded the configuration", before + workers)

    def workers(self) -> list[int]:
        """The process ids of the workers."""
        pid = self.process.pid
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]

    def files(self) -> int:
        """How many file descriptors it has open."""
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))


@asynccontextmanager
async def running(folder: Path, config: Mapping[str, Any], **env: str) -> AsyncIterator[Process]:
    """A gateway with this configuration; whatever is left of it at the end is killed."""
    process = Process(folder, **env)
    process.write(config)
    await process.start()
    try:
        yield process
    finally:
        process.process.close()


async def until_status(url: str, status: int) -> aiohttp.ClientResponse:
    """Ask until the answer has this status."""
    async with asyncio.timeout(GUARD_S), aiohttp.ClientSession() as session:
        while True:
            async with session.get(url) as answer:
                if answer.status == status:
                    await answer.read()
                    return answer
            await asyncio.sleep(0.01)


async def closed(url: str) -> None:
    """Wait until no connection is taken any more."""
    port = int(url.rpartition(":")[2])
    async with asyncio.timeout(GUARD_S):
        while True:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except ConnectionError:  # refused, or reset while it closes
                return
            writer.close()
            await asyncio.sleep(0.01)
