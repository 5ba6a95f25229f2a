"""A model server by rule in a process of its own, on plain sockets, and a gateway in front of it: for `bench.soak` and
`bench.attacks`."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parent.parent
READ_BYTES: Final = 1 << 20

Play = Callable[[bytes, asyncio.StreamWriter], Awaitable[bool]]
"""Answers the body of one request. Returns True if the connection can be reused."""


def serve(ready: Connection, play: Play, *, keep: bool = True) -> None:
    """Serves without end; sends its port to `ready`. Without `keep` bodies are read and dropped."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await play(await _body(reader, keep), writer):
                await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async def main() -> None:
        server = await asyncio.start_server(answer, "127.0.0.1", 0, limit=READ_BYTES, backlog=1024)
        ready.send(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    asyncio.run(main())


async def _body(reader: asyncio.StreamReader, keep: bool) -> bytes:
    head = await reader.readuntil(b"\r\n\r\n")
    if length := re.search(rb"(?i)content-length: (\d+)", head):
        return await _read(reader, int(length[1]), keep)
    body = b""
    if re.search(rb"(?i)transfer-encoding: chunked", head):
        while size := int(await reader.readline(), 16):
            body += (await _read(reader, size + 2, keep))[:-2]
        await reader.readline()
    return body


async def _read(reader: asyncio.StreamReader, size: int, keep: bool) -> bytes:
    if keep:
        return await reader.readexactly(size)
    while size:
        size -= len(await reader.read(min(size, READ_BYTES)) or b" " * size)
    return b""


@contextmanager
def model_server(target: Callable[..., None], *arguments: object) -> Iterator[str]:
    """Runs `target`, which calls `serve` with its first argument, in a process. Returns the server's address."""
    ours, theirs = get_context("spawn").Pipe()
    server = get_context("spawn").Process(target=target, args=(theirs, *arguments), daemon=True)
    server.start()
    try:
        yield f"http://127.0.0.1:{ours.recv()}"
    finally:
        server.terminate()
        server.join()


@contextmanager
def gateway(folder: str, config: Mapping[str, Any], *, quiet: bool = False) -> Iterator[tuple[str, int]]:
    """Runs a gateway on a free port. Returns its address and its process. `quiet`: its log is dropped."""
    file = Path(folder, f"{len(os.listdir(folder))}.yaml")
    file.write_text(json.dumps(config))
    command = [sys.executable, "-m", "toolwire", "serve", "--config", str(file)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    log = subprocess.DEVNULL if quiet else None
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True, env=environment)
    try:
        assert process.stdout is not None
        found = None
        while found is None and (line := process.stdout.readline()):
            found = re.search(r"(http://[\d.:]+)/v1", line)
        assert found, "the gateway did not start"
        yield found[1], process.pid
    finally:
        process.terminate()
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def workers_of(pid: int) -> list[int]:
    """Returns the worker processes of the gateway."""
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
