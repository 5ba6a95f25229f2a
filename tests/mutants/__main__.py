"""Do the tests see faults? Puts each fault of `tests/mutants/faults.py` into a copy of the tree, one at a time, and
runs the tests that are nearest.

    python -m tests.mutants [-k WORDS] [-j PROCESSES] [--list]

A fault is *killed* if a test fails, and *lives* if none does. The checkout is never changed: each process works on a
copy of its own in a temporary folder. Ends with 1 if a fault lives that gives no reason, or could not be tried; about
ten minutes for all on two cores.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import Final, Literal

from tests.mutants.faults import FAULTS, Fault

ROOT: Final = Path(__file__).parents[2]
PATIENCE_S: Final = 900.0
"""Tests that take longer hang because of the fault."""
FAILED: Final = 1
"""What pytest ends with if a test failed; everything else but 0 says that the tests could not be run."""
LINKED: Final = (".venv", ".git", "build/mcp-servers")
"""What tests may look for beside the tree, and do not write into."""

Verdict = Literal["killed", "lived", "error"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one fault: `detail` is the last line that pytest said."""

    fault: Fault
    verdict: Verdict
    detail: str
    took_s: float

    @property
    def is_bad(self) -> bool:
        """Whether somebody has to do something about it. A reason for what does not live is one too many."""
        return self.verdict == "error" or (self.verdict == "lived") != bool(self.fault.reason)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command. Gives its exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description="Do the tests see faults?")
    parser.add_argument("-k", metavar="WORDS", default="", help="only faults with one of these words in name or path")
    parser.add_argument("-j", metavar="PROCESSES", type=int, default=1, help="so many at once; default: 1")
    parser.add_argument("--list", action="store_true", help="only list them")
    options = parser.parse_args(arguments)
    words = options.k.split()
    faults = [fault for fault in FAULTS if not words or any(word in fault.name + fault.path for word in words)]
    if options.list:
        for fault in faults:
            print(f"{fault.name}: {fault.breaks}")
        return 0
    if not faults:
        print("no fault has such a word in its name or path", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(prefix="toolwire-mutants-") as folder:
        copies = [copied(Path(folder) / str(number)) for number in range(max(1, options.j))]
        outcomes = list(tried(faults, copies))
    return report(outcomes)


def copied(folder: Path) -> Path:
    """A copy of the tree with all that is not ignored and the compiled scanner."""
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listed, cwd=ROOT, check=True, capture_output=True).stdout.decode().split("\0")
    compiled = [path.relative_to(ROOT).as_posix() for path in (ROOT / "proxy").rglob("*.so")]
    for name in {*filter(None, names), *compiled}:
        if (ROOT / name).exists():  # not if it was deleted and that is not committed
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name, follow_symlinks=False)
    for name in LINKED:
        if (ROOT / name).exists():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).symlink_to(ROOT / name)
    return folder


def tried(faults: Sequence[Fault], copies: Sequence[Path]) -> Iterator[Outcome]:
    """What becomes of each fault, told as soon as it is known."""
    free: SimpleQueue[Path] = SimpleQueue()
    for copy in copies:
        free.put(copy)

    def one(fault: Fault) -> Outcome:
        copy = free.get()
        began = time.monotonic()
        try:
            verdict, detail = judged(fault, copy)
        except (ValueError, subprocess.CalledProcessError) as error:
            verdict, detail = "error", str(error)
        finally:
            free.put(copy)
        return Outcome(fault, verdict, detail, time.monotonic() - began)

    with ThreadPoolExecutor(len(copies)) as pool:
        for done in as_completed([pool.submit(one, fault) for fault in faults]):
            outcome = done.result()
            detail = outcome.detail[:120]
            print(f"{outcome.verdict:7} {outcome.took_s:5.0f} s  {outcome.fault.name}  ({detail})", flush=True)
            yield outcome


def judged(fault: Fault, copy: Path) -> tuple[Verdict, str]:
    """What becomes of a fault, and why. A test that fails without the fault as well has seen nothing."""
    with put_in(fault, copy):
        code, said = tested(copy, fault.tests)
    if code == 0:
        return "lived", said
    if code != FAILED:
        return "error", f"pytest ended with {code}: {said}"
    outcome, _, named = said.partition(" ")
    test = named.split(" - ")[0]
    if outcome in ("FAILED", "ERROR"):
        code, alone = tested(copy, [test])
        if code != 0:
            return "error", f"without the fault too: {alone}"
        return "killed", test
    return "killed", said


@contextmanager
def put_in(fault: Fault, copy: Path) -> Iterator[None]:
    """The copy with the fault. Raises `ValueError` if it does not apply, `CalledProcessError` if it cannot be
    compiled."""
    path = copy / fault.path
    text = path.read_text("utf-8")
    if (count := text.count(fault.old)) != 1:
        raise ValueError(f"the old text of {fault.name} stands {count} times in {fault.path}")
    write(path, text.replace(fault.old, fault.new))
    try:
        if fault.rebuild:
            build(copy)
        yield
    finally:
        write(path, text)
        if fault.rebuild:
            build(copy)


def write(path: Path, text: str) -> None:
    """Write a module. What was compiled of it is removed: size and time of two versions may be the same."""
    path.write_text(text, "utf-8")
    for compiled in (path.parent / "__pycache__").glob(f"{path.stem}.*.pyc"):
        compiled.unlink()


def build(copy: Path) -> None:
    """Compile the scanner."""
    command = [sys.executable, "setup.py", "-q", "build_ext", "--inplace", "--force"]
    subprocess.run(command, cwd=copy, check=True, capture_output=True, env=environment(copy))


def tested(copy: Path, tests: Sequence[str]) -> tuple[int, str]:
    """What pytest ends with, and the line about the test that failed, or the last line. Examples are the same every
    time."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *tests]
    try:
        done = subprocess.run(
            command,
            cwd=copy,
            env=environment(copy),
            capture_output=True,
            text=True,
            errors="replace",
            timeout=PATIENCE_S,
        )
    except subprocess.TimeoutExpired:
        return FAILED, "the tests hang"
    lines = (done.stdout + done.stderr).strip().splitlines()
    # A line of a captured log begins with several blanks behind its level.
    failed = next((line for line in lines if re.match(r"(FAILED|ERROR) \S", line)), "")
    return done.returncode, failed or (lines[-1] if lines else "")


def environment(copy: Path) -> dict[str, str]:
    """The copy's modules come before those that are installed from the checkout. Recordings stay where they are."""
    shared = os.environ.get("TOOLWIRE_SHARED", str(ROOT.parent / "shared"))
    return {**os.environ, "PYTHONPATH": str(copy), "CI": "true", "TOOLWIRE_SHARED": shared, "TOOLWIRE_REQUIRE_EXTENSIONS": "1", "GIT_OPTIONAL_LOCKS": "0"}  # fmt: skip


def report(outcomes: Sequence[Outcome]) -> int:
    """Print a summary. Gives the exit code."""
    print()
    for verdict in ("error", "lived"):
        for outcome in outcomes:
            if outcome.verdict == verdict:
                fault = outcome.fault
                print(f"{verdict}: {fault.name} ({fault.path}): {fault.breaks}")
                print(f"    {outcome.detail if verdict == 'error' else fault.reason or 'no reason is given'}")
    for outcome in outcomes:
        if outcome.verdict == "killed" and outcome.fault.reason:
            print(f"killed, although a reason says why it lives: {outcome.fault.name}")
    counts = {verdict: sum(one.verdict == verdict for one in outcomes) for verdict in ("killed", "lived", "error")}
    print(f"{len(outcomes)} faults: " + ", ".join(f"{number} {verdict}" for verdict, number in counts.items()))
    return int(any(outcome.is_bad for outcome in outcomes))


if __name__ == "__main__":
    sys.exit(main())
