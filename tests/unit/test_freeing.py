"""Objects of an answer are freed with it: nothing is left for the cyclic collector, whose work delays others."""

import asyncio
import gc
import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from bench.budget import WORKS
from bench.inprocess import Work, measure

ROOT = Path(__file__).parent.parent.parent
REQUESTS = 3
KINDS = {re.sub(r"message \d+|request \d+", "message", work.title): work for work in WORKS}
"""One of each: of conversations the longest."""


def left_by(work: Work) -> set[str]:
    """The classes of the gateway of which the collector finds something after requests of this kind."""
    left: set[str] = set()

    def run(serve: Callable[[], None], before: Callable[[], None]) -> None:
        serve()
        gc.collect()
        gc.set_debug(gc.DEBUG_SAVEALL)
        serve()
        gc.collect()
        gc.set_debug(0)
        left.update(f"{type(one).__module__}.{type(one).__qualname__}" for one in gc.garbage)
        gc.garbage.clear()

    measure(work, REQUESTS, run, asyncio.new_event_loop)
    return {name for name in left if name.startswith("toolwire.")}


def test_answers_leave_no_circles() -> None:
    """In a process of its own, where nobody else looks on or leaves anything."""
    code = "import json; from tests.unit.test_freeing import KINDS, left_by;"
    code += "print(json.dumps({kind: sorted(left_by(work)) for kind, work in KINDS.items()}))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout.splitlines()[-1]) == {kind: [] for kind in KINDS}
