"""`toolwire.testing.Upstream`: it leaves nothing behind, whenever it ends."""

from __future__ import annotations

import asyncio
import gc
import socket

import pytest

from tests.cases import every
from tests.waiting import GUARD_S
from toolwire.testing import TAKING, Upstream


@pytest.mark.usefixtures("earlier_frozen")
@every("turns", range(TAKING + 2))
async def test_a_connection_that_comes_at_the_end_is_closed(turns: int) -> None:
    with socket.socket() as client:
        async with asyncio.timeout(GUARD_S):
            async with Upstream() as server:
                client.connect(("127.0.0.1", server.port))
                client.setblocking(False)
                for _ in range(turns):
                    await asyncio.sleep(0)
            gc.collect()  # finds connections that were left open
            try:
                assert await asyncio.get_running_loop().sock_recv(client, 1) == b""
            except ConnectionResetError:
                pass  # nobody had taken it
