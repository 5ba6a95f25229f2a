from __future__ import annotations

import asyncio
import gc
import socket

import pytest

from tests import loops
from tests.loops import LoopOfTests


async def test_tests_run_on_it() -> None:
    assert type(asyncio.get_running_loop()) is LoopOfTests


def connected(loop: asyncio.AbstractEventLoop, mine: socket.socket) -> asyncio.Transport:
    return loop.run_until_complete(loop.create_connection(asyncio.Protocol, sock=mine))[0]


def test_a_transport_that_is_closed_late_is_waited_for() -> None:
    mine, theirs = socket.socketpair()
    loop = LoopOfTests()
    transport = connected(loop, mine)
    loop.call_later(0.05, transport.close)
    loop.close()
    assert mine.fileno() < 0
    theirs.close()


def test_so_is_one_whose_peer_closes_late() -> None:
    mine, theirs = socket.socketpair()
    loop = LoopOfTests()
    connected(loop, mine)
    loop.call_later(0.05, theirs.close)
    loop.close()
    assert mine.fileno() < 0


def leave_open(mine: socket.socket) -> None:
    loop = LoopOfTests()
    connected(loop, mine)
    loop.close()
    gc.collect()


def test_one_that_nobody_closes_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loops, "CLOSING_S", 0.01)
    mine, theirs = socket.socketpair()
    with pytest.warns(ResourceWarning, match="unclosed transport"):
        leave_open(mine)
    mine.close()
    theirs.close()
