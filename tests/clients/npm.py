"""Clients that npm brings, installed outside the repository and kept for the next run.

Each folder with a `package.json` here names its packages with exact versions. They go to `$TOOLWIRE_CLIENTS`, or else
to a folder that pytest's own temporary folders share. What cannot be installed (no node, no npm, no registry) skips the
tests that need it, visibly; with `TOOLWIRE_REQUIRE_CLIENTS=1` it fails them.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import tempfile
from pathlib import Path

import pytest

from tests.optional import NODE, NPM, lack, program

HERE = Path(__file__).parent
TIMEOUT_S = 300


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
    if not folder.exists():
        root.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=root) as scratch:
            _npm_install(npm, Path(scratch, name), wanted)
            keep(Path(scratch, name), folder)
    return folder


def keep(made: Path, folder: Path) -> None:
    """Put what is whole in its place."""
    try:
        made.rename(folder)
    except OSError:
        if not folder.exists():  # else another run was faster
            raise


def _npm_install(npm: str, folder: Path, wanted: bytes) -> None:
    folder.mkdir()
    folder.joinpath("package.json").write_bytes(wanted)
    command = [npm, "install", "--no-audit", "--no-fund", "--no-package-lock", "--loglevel=error", "--fetch-retries=1"]
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=TIMEOUT_S)
    except subprocess.TimeoutExpired:
        raise missing(f"npm install of {folder.name}: not done after {TIMEOUT_S} s") from None
    if done.returncode:
        raise missing(f"npm install of {folder.name}: {' '.join(done.stderr.split())[:200]}")


def missing(what: str) -> BaseException:
    """What to raise: a skip, or a failure where the clients must be there."""
    if os.environ.get("TOOLWIRE_REQUIRE_CLIENTS"):
        return pytest.fail.Exception(f"needs {what}")
    return pytest.skip.Exception(f"needs {what}")
