"""How hypothesis draws: the same examples in CI, new ones elsewhere and where they are asked for."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


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
