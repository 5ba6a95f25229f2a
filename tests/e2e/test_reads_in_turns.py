"""Bodies that arrive together are read in turns, and so is what refused clients still send. Reads are counted by
iteration of the event loop; nothing is timed."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from contextlib import AsyncExitStack
from typing import Any

import pytest

from tests.e2e.edge import Gateway, Start, answered, head
from tests.unit.test_loop_pacing import Passes
from tests.waiting import GUARD_S, until
from toolwire.server.clients import READ_BYTES, READS_AT_ONCE, ClientConnection
from toolwire.server.closing import ClosingProtocol

CLIENTS = 12
BODY = json.dumps({"model": "m", "messages": [{"role": "user", "content": "x" * 12 * READ_BYTES}]}).encode()


class Reads:
    """Bytes of all reads and of the largest, and of each iteration the full ones whose connection reads on at once."""

    def __init__(self) -> None:
        self.bytes = self.largest = 0
        self.going_on: Counter[int] = Counter()
        self.waiting = 0
        self.passes: Passes

    def watch(self, patched: pytest.MonkeyPatch, kind: Any, transport: str) -> None:
        """Watches connections of this class."""
        receive = kind.data_received

        def watched(connection: Any, data: bytes) -> None:
            receive(connection, data)
            self.bytes += len(data)
            self.largest = max(self.largest, len(data))
            if len(data) < READ_BYTES:
                return
            if getattr(connection, transport).is_reading():
                self.going_on[self.passes.now] += 1
            else:
                self.waiting += 1

        patched.setattr(kind, "data_received", watched)


async def send(gateway: Gateway, body: bytes) -> int:
    """The status of a request."""
    async with gateway.connection() as (reader, writer):
        writer.write(head(len(body)) + body)
        return await answered(reader)


async def test_bodies_that_arrive_together(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    reads = Reads()
    reads.watch(monkeypatch, ClientConnection, "_socket")
    gateway = await start()
    async with asyncio.timeout(GUARD_S):
        reads.passes = Passes()
        statuses = await asyncio.gather(*(send(gateway, BODY) for _ in range(CLIENTS)))
        reads.passes.stop()
    assert statuses == [200] * CLIENTS
    assert reads.largest <= READ_BYTES
    assert max(reads.going_on.values(), default=0) <= READS_AT_ONCE
    assert reads.waiting


async def test_refused_clients_that_go_on_sending(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    reads = Reads()
    reads.watch(monkeypatch, ClosingProtocol, "_transport")
    gateway = await start(limits={"body_bytes": len(BODY) - 1})
    async with asyncio.timeout(GUARD_S), AsyncExitStack() as stack:
        reads.passes = Passes()
        clients = [await stack.enter_async_context(gateway.connection()) for _ in range(CLIENTS)]
        for _, writer in clients:
            writer.write(head(len(BODY)) + BODY)
        assert [await answered(reader) for reader, _ in clients] == [413] * CLIENTS
        await until(lambda: reads.bytes > CLIENTS * len(BODY) // 2)
        reads.passes.stop()
    assert max(reads.going_on.values(), default=0) <= READS_AT_ONCE
    assert reads.waiting
