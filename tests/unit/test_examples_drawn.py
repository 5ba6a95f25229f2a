"""How hypothesis draws: the same examples in CI, new ones elsewhere and where they are asked for."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.cases import every

ROOT = Path(__file__).parents[2]


@every(
    ("environment", "same", "examples"),
    [({}, False, 50), ({"CI": "true"}, True, 50), ({"CI": "true", "TOOLWIRE_FRESH": "1"}, False, 200)],
)
def test_the_same_examples_in_ci(environment: dict[str, str], same: bool, examples: int) -> None:
    program = (
        "import tests.conftest; from hypothesis import settings; s = settings();"
        "print(s.derandomize, s.print_blob, s.deadline, s.max_examples)"
    )
    clean = {name: value for name, value in os.environ.items() if name in ("PATH", "HOME", "TMPDIR")}
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, env={**clean, **environment}, capture_output=True, text=True
    )
    assert done.stdout == f"{same} True None {examples}\n", done.stderr
