"""Clients that npm brings, installed outside the repository and kept for the next run.

Each folder with a `package.json` here names its packages with exact versions. They go to `$TOOLWIRE_CLIENTS`, or else
to a folder that pytest's own temporary folders share. What cannot be installed (no node, no npm, no registry) skips the
tests that need it, visibly; with `TOOLWIRE_REQUIRE_CLIENTS=1` it fails them.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import pytest

from tests.optional import NODE, NPM, RECENT_NODE, lack, program
from tests.waiting import PROGRAM_S

HERE = Path(__file__).parent
HEAVY = pytest.mark.skipif(
    not os.environ.get("TOOLWIRE_HEAVY_CLIENTS"), reason="takes long; TOOLWIRE_HEAVY_CLIENTS=1 runs it"
)
"""A way that differs little from one that always runs."""


def recent_node(shared: Path) -> Path:
    """The folder of a node that is new enough for every client here: the machine's own, else one that npm brings."""
    if lack(RECENT_NODE) is None:
        return Path(program(RECENT_NODE)).parent
    return install("node", shared) / "node_modules" / "node" / "bin"


@cache
def install(name: str, shared: Path) -> Path:
    """The folder in which the packages of `name/package.json` are installed, with `node_modules` in it."""
    for tool in (NODE, NPM):
        if (reason := lack(tool)) is not None:
            raise missing(reason.removeprefix("needs "))
    node, npm = program(NODE), program(NPM)
    version = subprocess.run([node, "--version"], capture_output=True, text=True, check=True).stdout
    wanted = (HERE / name / "package.json").read_bytes()
    root = Path(os.environ.get("TOOLWIRE_CLIENTS") or shared / "toolwire-clients")
    folder = root / f"{name}-{hashlib.sha256(wanted + version.encode()).hexdigest()[:16]}"
    with making(folder) as scratch:
        if scratch is not None:
            _npm_install(npm, scratch, wanted)
    return folder


@contextmanager
def making(folder: Path) -> Iterator[Path | None]:
    """Give a folder to install into, which then takes the place of `folder`; None if that is there. One process at a
    time: the others wait and find it."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if folder.exists():
            yield None
            return
        with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
            made = Path(scratch, folder.name.rpartition("-")[0])
            yield made
            made.rename(folder)


def _npm_install(npm: str, folder: Path, wanted: bytes) -> None:
    folder.mkdir()
    folder.joinpath("package.json").write_bytes(wanted)
    command = [npm, "install", "--no-audit", "--no-fund", "--no-package-lock", "--loglevel=error", "--fetch-retries=1"]
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=PROGRAM_S)
    except subprocess.TimeoutExpired:
        raise missing(f"npm install of {folder.name}: not done after {PROGRAM_S} s") from None
    if done.returncode:
        raise missing(f"npm install of {folder.name}: {' '.join(done.stderr.split())[:200]}")


def missing(what: str) -> BaseException:
    """What to raise: a skip, or a failure where the clients must be there."""
    if os.environ.get("TOOLWIRE_REQUIRE_CLIENTS"):
        return pytest.fail.Exception(f"needs {what}")
    return pytest.skip.Exception(f"needs {what}")
