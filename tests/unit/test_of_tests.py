"""What tests rest on: tables of cases, waits without limits of their own, the loop, and how hypothesis draws."""

from __future__ import annotations

import asyncio
import gc
import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests import loops
from tests.cases import every
from tests.loops import LoopOfTests

ROOT = Path(__file__).parents[2]

# --- tables of cases (`tests.cases`) --------------------------------------------------------------------------------


def test_all_cases_run_although_one_skips() -> None:
    ran: list[int] = []

    @every("number", [1, 2, 3])
    def test(number: int) -> None:
        ran.append(number)
        if number < 3:
            pytest.skip(f"not {number}")

    with pytest.raises(pytest.skip.Exception, match=r"^not 1; not 2$"):
        test()
    assert ran == [1, 2, 3]


async def test_a_case_that_fails_ends_the_test_and_is_named() -> None:
    ran: list[int] = []

    @every("number", [1, 2])
    async def test(number: int) -> None:
        ran.append(number)
        raise ValueError

    with pytest.raises(ValueError) as caught:  # its note is what counts
        await test()
    assert ran == [1]
    assert caught.value.__notes__ == ["case: number=1"]


def test_without_cases_it_is_skipped() -> None:
    @every("number", [])
    def test(number: int) -> None:
        raise AssertionError

    with pytest.raises(pytest.skip.Exception):
        test()


# --- waits (`tests.waiting`) ----------------------------------------------------------------------------------------

OWN = re.compile(
    r"asyncio\.timeout\([\d.]+\)|\bwait_for\(.*, [\d.]+\)(?!,)|\b(?:communicate|run|urlopen)\(.*timeout=[\d.]+"
)


def test_no_wait_has_a_limit_of_its_own() -> None:
    """A slow machine reaches it."""
    tests = ROOT / "tests"
    found = [
        f"{file.relative_to(tests)}:{number} {line.strip()}"
        for file in sorted(tests.rglob("*.py"))
        for number, line in enumerate(file.read_text("utf-8").splitlines(), 1)
        if OWN.search(line)
    ]
    assert found == []


# --- the loop (`tests.loops`) ----------------------------------------------------------------------------------------


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


# --- what hypothesis draws -------------------------------------------------------------------------------------------

CASES = [({}, False, 50), ({"CI": "true"}, True, 50), ({"CI": "true", "TOOLWIRE_FRESH": "1"}, False, 200)]
PROGRAM = f"""
import os, aiohttp, pytest
for environment, _, _ in {CASES}:
    if not (child := os.fork()):
        os.environ |= environment
        import tests.conftest
        from hypothesis import settings
        s = settings()
        print(s.derandomize, s.print_blob, s.deadline, s.max_examples, flush=True)
        os._exit(0)
    os.waitpid(child, 0)
"""


def test_the_same_examples_in_ci() -> None:
    clean = {name: value for name, value in os.environ.items() if name in ("PATH", "HOME", "TMPDIR")}
    done = subprocess.run([sys.executable, "-c", PROGRAM], cwd=ROOT, env=clean, capture_output=True, text=True)
    assert done.stdout.splitlines() == [f"{same} True None {examples}" for _, same, examples in CASES], done.stderr
