"""Counting instructions with valgrind: no timer, so it does not matter what else the machine does."""

from __future__ import annotations

import ctypes
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parent.parent
COUNTED: Final = "ffi_call"
"""A C function that nothing else calls here: what happens inside of it is counted."""

_TOTAL: Final = re.compile(r"^(?:summary|totals): (\d+)", re.MULTILINE)


def installed() -> bool:
    """Whether there is a valgrind that runs."""
    program = shutil.which("valgrind")
    asked = program and subprocess.run([program, "--version"], capture_output=True, text=True, check=False)
    return bool(asked) and asked.returncode == 0 and asked.stdout.startswith("valgrind-")


def counted(call: Callable[[], None]) -> None:
    """Call it from within `COUNTED`."""
    ctypes.CFUNCTYPE(None)(call)()


def count(
    module: str, *arguments: str, inside: str = COUNTED, times: int = 1, keep: str | None = None
) -> tuple[list[int], str]:
    """Instructions inside a function of `python -m module`, its callees with it, and what the command printed.

    The one count is of all calls of `inside`, which may be a pattern; with several `times` there is one for each call
    of `COUNTED`, of which there are that many. `keep`: where callgrind's own output goes, if it is wanted. Raises
    `RuntimeError` with what the command said if it failed.
    """
    with tempfile.TemporaryDirectory() as folder:
        out = Path(keep or f"{folder}/callgrind")
        command = [
            *("valgrind", "--tool=callgrind", "--collect-atstart=no", f"--toggle-collect={inside}"),
            *((f"--dump-after={COUNTED}",) if times > 1 else ()),
            f"--callgrind-out-file={out}",
            *(sys.executable, "-m", module, *arguments),
        ]
        env = {**os.environ, "PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1"}
        done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"{' '.join(command)}: {done.stderr[-2000:]}")
        wrote = [out] if times == 1 else [out.with_name(f"{out.name}.{number}") for number in range(1, times + 1)]
        return [_total(path) for path in wrote], done.stdout


def _total(path: Path) -> int:
    found = _TOTAL.search(path.read_text())
    if found is None:
        raise RuntimeError("valgrind wrote no total")
    return int(found[1])


def toolchain() -> str:
    """What the count depends on besides the source: the C library has other code where there is AVX2."""
    compiler = subprocess.run(["cc", "-dumpfullversion"], capture_output=True, text=True, check=False).stdout.strip()
    processor = Path("/proc/cpuinfo")
    vectors = "avx2" if processor.exists() and "avx2" in processor.read_text() else "other vectors"
    python = f"{platform.python_implementation()} {platform.python_version()}"
    return f"{platform.machine()} {vectors} {python} cc {compiler}"
