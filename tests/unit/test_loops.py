from __future__ import annotations

import asyncio
import gc
import socket

import pytest

from tests import loops
from tests.loops import LoopOfTests


async def test_tests_run_on_it() -> None:
    assert type(asyncio.get_running_loop()) is LoopOfTests


def leave_open(mine: socket.socket) -> None:
    loop = LoopOfTests()
    loop.run_until_complete(loop.create_connection(asyncio.Protocol, sock=mine))
    loop.close()
    gc.collect()


def test_one_that_nobody_closes_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loops, "CLOSING_S", 0.01)
    mine, theirs = socket.socketpair()
    with pytest.warns(ResourceWarning, match="unclosed transport"):
        leave_open(mine)
    mine.close()
    theirs.close()
