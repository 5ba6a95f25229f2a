"""Counts instructions with valgrind, so the load of the machine does not matter."""

from __future__ import annotations

import ctypes
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parent.parent
COUNTED: Final = "toolwire_counted"
"""A C function: instructions inside of it are counted."""
SWITCH: Final = f"""
#include <valgrind/callgrind.h>

__attribute__((noinline)) void {COUNTED}(void (*call)(void)) {{
    call();
    __asm__ volatile("");
}}

void switched(void (*before)(void), void (*call)(void)) {{
    before();
    {COUNTED}(call);
}}

void watched(void (*work)(void)) {{
    CALLGRIND_START_INSTRUMENTATION;
    work();
    CALLGRIND_STOP_INSTRUMENTATION;
}}
"""
"""Outside of `watched` valgrind does not look for calls, with which everything takes seven times as long. Where it
begins and where it ends, all code is translated again, which takes seconds."""
_SWITCH: Final = "TOOLWIRE_COUNTED"
"""The variable with the path of the library made of `SWITCH`."""

_TOTAL: Final = re.compile(r"^(?:summary|totals): (\d+)", re.MULTILINE)


def installed() -> bool:
    """Returns True if valgrind is installed and runs."""
    program = shutil.which("valgrind")
    asked = program and subprocess.run([program, "--version"], capture_output=True, text=True, check=False)
    return bool(asked) and asked.returncode == 0 and asked.stdout.startswith("valgrind-")


Call = Callable[[], None]


def counted(call: Call, before: Call = lambda: None) -> None:
    """Counts one call: see `counted_in_turn`."""
    counted_in_turn([(call, before)])


def counted_in_turn(pairs: Sequence[tuple[Call, Call]]) -> None:
    """Calls the second of each pair, which is not counted, and the first, under `count` from within `COUNTED`. What
    runs for the first time is slow, so what happens once a second would happen more often in what is counted."""
    library = os.environ.get(_SWITCH)
    if library is None:
        for call, before in pairs:
            before()
            call()
        return
    switch, function = ctypes.CDLL(library), ctypes.CFUNCTYPE(None)

    def work() -> None:
        for call, before in pairs:
            switch.switched(function(before), function(call))

    switch.watched(function(work))


def count(
    module: str, *arguments: str, inside: str = COUNTED, times: int = 1, keep: str | None = None
) -> tuple[list[int], str]:
    """Returns the instructions inside a function of `python -m module`, including called functions, and the output of
    the command.

    There is one count of `inside`, which may be a pattern, for each pair that is given to `counted_in_turn`.
    There must be so many.
    `keep`: the file for callgrind's own output, of the last. Raises `RuntimeError` with the command's output if it
    fails.
    """
    with tempfile.TemporaryDirectory() as folder:
        library = f"{folder}/switch.so"
        compiler = ["cc", "-shared", "-fPIC", "-O1", "-o", library, "-x", "c", "-"]
        subprocess.run(compiler, input=SWITCH, text=True, check=True)
        command = [
            *("valgrind", "--tool=callgrind", "--instr-atstart=no", "--collect-atstart=no"),
            *(f"--toggle-collect={inside}", f"--zero-before={COUNTED}", f"--dump-after={COUNTED}"),
            f"--callgrind-out-file={folder}/callgrind",
            *(sys.executable, "-m", module, *arguments),
        ]
        env = {**os.environ, "PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1", _SWITCH: library}
        done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"{' '.join(command)}: {done.stderr[-2000:]}")
        wrote = [Path(f"{folder}/callgrind.{number}") for number in range(1, times + 1)]
        if keep:
            shutil.copyfile(wrote[-1], keep)
        return [_total(path) for path in wrote], done.stdout


def _total(path: Path) -> int:
    found = _TOTAL.search(path.read_text())
    if found is None:
        raise RuntimeError("valgrind wrote no total")
    return int(found[1])


def toolchain() -> str:
    """Returns the machine and tools that the count depends on: the C library has different code for AVX2."""
    compiler = subprocess.run(["cc", "-dumpfullversion"], capture_output=True, text=True, check=False).stdout.strip()
    processor = Path("/proc/cpuinfo")
    vectors = "avx2" if processor.exists() and "avx2" in processor.read_text() else "other vectors"
    python = f"{platform.python_implementation()} {platform.python_version()}"
    return f"{platform.machine()} {vectors} {python} cc {compiler}"
