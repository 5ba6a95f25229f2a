"""Clients in Python that bear no other beside them, each in a folder of its own, kept for the next run.

Each folder with a `requirements.txt` here names packages with exact versions. Where they go, and what happens where
they cannot be had, see `npm`.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.clients.conftest import execute
from tests.clients.npm import HERE, making, missing
from tests.waiting import PROGRAM_S


async def run(script: str, argument: str, shared: Path, **environment: str) -> tuple[int, str, str]:
    """Run `folder/script.py` with what its folder's `requirements.txt` names, and nothing else of this environment:
    status, standard output, standard error."""
    path = HERE / script
    packages = install(path.parent.name, shared)
    env: dict[str, Any] = {**os.environ, "PYTHONPATH": str(packages), **environment}
    env.pop("PYTHONDONTWRITEBYTECODE", None)  # large packages are compiled once, not by each run
    return await execute(sys.executable, "-S", str(path), argument, cwd=path.parent, env=env)


def install(name: str, shared: Path) -> Path:
    """The folder in which the packages of `name/requirements.txt` are installed."""
    wanted = HERE / name / "requirements.txt"
    digest = hashlib.sha256(wanted.read_bytes() + sys.version.encode()).hexdigest()[:16]
    root = Path(os.environ.get("TOOLWIRE_CLIENTS") or shared / "toolwire-clients")
    folder = root / f"{name}-{digest}"
    with making(folder) as scratch:
        if scratch is not None:
            _pip_install(scratch, wanted)
    return folder


def _pip_install(folder: Path, wanted: Path) -> None:
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--retries=1", "--target", str(folder)]
    command.append("--no-compile")  # what is imported is compiled then: a part of what is installed
    try:
        done = subprocess.run([*command, "-r", str(wanted)], capture_output=True, text=True, timeout=PROGRAM_S)
    except subprocess.TimeoutExpired:
        raise missing(f"pip install of {folder.name}: not done after {PROGRAM_S} s") from None
    if done.returncode:
        raise missing(f"pip install of {folder.name}: {' '.join(done.stderr.split())[-200:]}")
