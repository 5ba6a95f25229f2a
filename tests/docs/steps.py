"""A page followed step by step, as a reader does it: its files are written and its commands run in order, with the
installed command `toolwire`, in a folder that is empty before.

`toolwire serve` runs on until the end, on a free port, whose address stands where the page has its own. `pip install`
only looks whether the packages are there.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.docs.pages import Block, blocks
from tests.optional import BASH, program
from tests.waiting import GUARD_S

ADDRESS: Final = "http://127.0.0.1:8665"
PIP: Final = f"""#!{sys.executable}
import sys
from importlib.metadata import version
assert sys.argv[1] == "install"
print([version(name) for name in sys.argv[2:] if name != "."])
"""


class Walk:
    """A reader in his folder. `address` is that of the gateway, once a step has started it."""

    def __init__(self, home: Path, **env: str) -> None:
        self.home = home
        self.address = ADDRESS
        self._gateway: subprocess.Popen[str] | None = None
        self._log = home.parent / "gateway.log"
        programs = home.parent / "programs"
        programs.mkdir()
        (programs / "pip").write_text(PIP)
        (programs / "pip").chmod(0o755)
        here = str(Path(sys.executable).parent)
        path = os.pathsep.join([str(programs), here, os.environ["PATH"]])
        own = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        self.env = {**own, "PATH": path, "HOME": str(home), "STATE_DIRECTORY": str(home.parent), **env}
        self.env["TOOLWIRE_SERVER__PORT"] = "0"

    @property
    def log(self) -> str:
        """The output of the gateway."""
        return self._log.read_text("utf-8")

    @property
    def pid(self) -> int:
        """Process id of the gateway."""
        assert self._gateway is not None
        return self._gateway.pid

    def follow(self, page: Path) -> list[str]:
        """Takes every step of the page; what the blocks of commands print, in order."""
        return [out for block in blocks(page) if (out := self.step(block)) is not None]

    def step(self, block: Block, instead: Mapping[str, str] | None = None) -> str | None:
        """Writes a file, or runs commands and returns what they print; None for any other block. `instead` are words of
        the commands, and what to write for them."""
        if block.file:
            file = self.home / block.file.removeprefix("~/")
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(block.text.replace(ADDRESS, self.address), "utf-8")
            return None
        if block.info[:1] != ["sh"]:
            return None
        text = block.text
        for old, new in (instead or {}).items():
            assert old in text, f"{old} is not in {text}"
            text = text.replace(old, new)
        lines = text.splitlines(keepends=True)
        if lines[-1].startswith("toolwire serve"):
            out = self.run("".join(lines[:-1]))
            self._serve(lines[-1])
            return out
        return self.run(text.replace(ADDRESS, self.address))

    def run(self, commands: str) -> str:
        """Runs commands, which must succeed."""
        done = subprocess.run(
            [program(BASH), "-euc", commands],
            cwd=self.home,
            env=self.env,
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            timeout=GUARD_S,
        )
        assert done.returncode == 0, f"{commands}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def _serve(self, command: str) -> None:
        with self._log.open("w") as log:
            self._gateway = subprocess.Popen(
                [program(BASH), "-euc", f"exec {command}"],
                cwd=self.home,
                env=self.env,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        assert self._gateway.stdout is not None
        line = self._gateway.stdout.readline()
        assert line.startswith("toolwire is serving "), f"{line}\n{self.log}"
        self.address = line.split()[-1].removesuffix("/v1")

    def logged(self, text: str, times: int = 1) -> None:
        """Waits until the gateway has logged a text, so often."""
        end = time.monotonic() + GUARD_S
        while self.log.count(text) < times:
            assert time.monotonic() < end, self.log
            time.sleep(0.02)

    def close(self) -> None:
        """Ends the gateway."""
        if self._gateway is not None:
            self._gateway.terminate()
            self._gateway.communicate(timeout=GUARD_S)


@contextmanager
def walking(folder: Path, **env: str) -> Iterator[Walk]:
    """A reader whose empty folder is in `folder`."""
    home = folder / "home"
    home.mkdir()
    walk = Walk(home, **env)
    try:
        yield walk
    finally:
        walk.close()
