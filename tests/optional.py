"""Programs that tests use where they are there: asked once what they can do, before a test needs it.

A program that is missing, too old, broken, or another one under the same name is a visible skip with its reason:

    @pytest.mark.needs(NODE)       the test is skipped if Node is not good enough (tests/conftest.py)
    program(REDIS)                 the program's path, from a fixture or a helper; skips likewise
    lack(NODE)                     the reason, or None if it is good enough

A program is asked when the first test needs it, not when tests are collected.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from functools import cache
from typing import Final

import pytest

from tests.waiting import GUARD_S

SAID_CHARS: Final = 120
"""So much of what a program said stands in a reason."""


@dataclass(frozen=True, slots=True)
class Tool:
    """A program. `names`: what it may be called; the first on the PATH is asked. `question` are the arguments with
    which it says its version, `answer` is a pattern of that: one for this very program, with the numbers of the version
    as groups. `least` is the oldest version that will do. `package`: what to install on Debian."""

    title: str
    names: tuple[str, ...]
    question: tuple[str, ...]
    answer: str
    least: tuple[int, ...] = ()
    package: str = ""

    @property
    def wanted(self) -> str:
        """Its name, and the version where one is asked for."""
        return f"{self.title} {'.'.join(map(str, self.least))} or newer" if self.least else self.title


BASH_COMPLETION_FILE: Final = "/usr/share/bash-completion/bash_completion"
_SAYS: Final = "echo completion ${BASH_COMPLETION_VERSINFO[0]}.${BASH_COMPLETION_VERSINFO[1]}"

BASH: Final = Tool("bash", ("bash",), ("--version",), r"GNU bash, version (\d+)\.(\d+)", (4, 2), "bash")
BASH_COMPLETION: Final = Tool(
    "bash-completion", ("bash",), ("-c", f". {BASH_COMPLETION_FILE}; {_SAYS}"), r"completion (\d+)\.(\d+)", (2, 1), "bash-completion"
)  # fmt: skip
CHROMEDRIVER: Final = Tool("chromedriver", ("chromedriver",), ("--version",), r"ChromeDriver (\d+)\.", (), "chromium-driver")  # fmt: skip
CHROMIUM: Final = Tool(
    "Chromium", ("chromium", "chromium-browser", "google-chrome"), ("--version",), r"Chrom(?:e|ium) (\d+)\.", (), "chromium"
)  # fmt: skip
FISH: Final = Tool("fish", ("fish",), ("--version",), r"fish, version (\d+)\.(\d+)", (3,), "fish")
GIT: Final = Tool("git", ("git",), ("--version",), r"git version (\d+)\.(\d+)", (), "git")
HELM: Final = Tool("Helm", ("helm",), ("version", "--short"), r"v(\d+)\.(\d+)\.\d+", (3,))
N8N: Final = Tool("n8n", ("n8n",), ("--version",), r"^(\d+)\.(\d+)\.\d+$", (2,))
"""Of gigabytes, so no test installs it."""
NODE: Final = Tool("node", ("node",), ("--version",), r"^v(\d+)\.(\d+)", (20,), "nodejs")
RECENT_NODE: Final = Tool("node", ("node",), ("--version",), r"^v(\d+)\.(\d+)", (22, 19), "nodejs")
"""As the newest clients want it."""
NPM: Final = Tool("npm", ("npm",), ("--version",), r"^(\d+)\.(\d+)", (), "npm")
OPEN_WEBUI: Final = Tool("Open WebUI", ("open-webui",), ("--help",), r"Usage: open-webui \[")
"""Of gigabytes, so no test installs it."""
REDIS: Final = Tool(
    "Redis or Valkey", ("redis-server", "valkey-server"), ("--version",), r"(?:Redis|Valkey) server v=(\d+)\.(\d+)", (6, 2), "redis-server"
)  # fmt: skip
SYSTEMD: Final = Tool("systemd", ("systemd-analyze",), ("--version",), r"systemd (\d+)", (), "systemd")
SYSTEMD_OFFLINE: Final = Tool("systemd", ("systemd-analyze",), ("--version",), r"systemd (\d+)", (250,), "systemd")
"""Since 250 it judges a unit that is not installed."""
ZSH: Final = Tool("zsh", ("zsh",), ("--version",), r"zsh (\d+)\.(\d+)", (5,), "zsh")

MATCHED: Final = {CHROMEDRIVER: CHROMIUM}
"""A tool that works with another one of the same version only."""


def program(tool: Tool) -> str:
    """The path of a program that is good enough. Skips the test with the reason if there is none."""
    if (reason := lack(tool)) is not None:
        pytest.skip(reason)
    return _asked(tool, os.environ.get("PATH", ""))[0]


def lack(tool: Tool) -> str | None:
    """Why a program cannot be used; None if it can."""
    path, version, reason = _asked(tool, os.environ.get("PATH", ""))
    if reason is None and tool in MATCHED:
        other = MATCHED[tool]
        other_path, other_version, reason = _asked(other, os.environ.get("PATH", ""))
        if reason is None and version[:1] != other_version[:1]:
            return f"{path} is of version {version[0]} and {other_path} of version {other_version[0]}: they do not work together"  # fmt: skip
    return reason


@cache
def _asked(tool: Tool, search: str) -> tuple[str, tuple[int, ...], str | None]:
    """Where a program is on the PATH `search`, its version, and why it cannot be used."""
    path = next(filter(None, (shutil.which(name, path=search) for name in tool.names)), None)
    if path is None:
        hint = f" (Debian: apt-get install {tool.package})" if tool.package else ""
        return "", (), f"needs {tool.wanted}: {' or '.join(tool.names)} is not installed{hint}"
    try:
        done = subprocess.run(
            [path, *tool.question], capture_output=True, text=True, errors="replace", timeout=GUARD_S, stdin=subprocess.DEVNULL
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        return path, (), f"needs {tool.wanted}: {path} does not run: {error}"
    said = " ".join((done.stdout + done.stderr).split())[:SAID_CHARS]
    found = re.search(tool.answer, done.stdout, re.MULTILINE)
    if done.returncode:
        return path, (), f"needs {tool.wanted}: {path} is broken: it ended with {done.returncode} and said {said!r}"
    if found is None:
        return path, (), f"needs {tool.wanted}: {path} is something else: it said {said!r}"
    version = tuple(map(int, found.groups()))
    if version < tool.least:
        return path, version, f"needs {tool.wanted}: {path} is {'.'.join(map(str, version))}"
    return path, version, None
