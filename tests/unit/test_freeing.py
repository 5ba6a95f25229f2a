"""Objects of an answer are freed with it: nothing is left for the cyclic collector, whose work delays others."""

import asyncio
import gc
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from bench.budget import WORKS
from bench.inprocess import measure

ROOT = Path(__file__).parent.parent.parent
REQUESTS = 3


def left_by(number: int) -> set[str]:
    """The classes of the gateway of which the collector finds something after requests of this kind."""
    left: set[str] = set()
    gc.freeze()  # modules: nothing of them is freed

    def run(serve: Callable[[], None]) -> None:
        serve()
        gc.collect()
        gc.set_debug(gc.DEBUG_SAVEALL)
        serve()
        gc.collect()
        gc.set_debug(0)
        left.update(f"{type(one).__module__}.{type(one).__qualname__}" for one in gc.garbage)
        gc.garbage.clear()

    measure(WORKS[number], REQUESTS, run, asyncio.new_event_loop)
    return {name for name in left if name.startswith("toolwire.")}


@pytest.fixture(scope="module")
def left() -> dict[str, list[str]]:
    """By kind of request. In a process of its own, where nobody else looks on or leaves anything."""
    code = "import json; from tests.unit.test_freeing import WORKS, left_by;"
    code += "print(json.dumps({work.title: sorted(left_by(number)) for number, work in enumerate(WORKS)}))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    found: dict[str, list[str]] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.parametrize("title", [work.title for work in WORKS])
def test_an_answer_leaves_no_circle(left: dict[str, list[str]], title: str) -> None:
    assert left[title] == []
