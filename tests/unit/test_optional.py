"""Reasons for skipped tests: programs that are missing, old, broken, or something else. With doubles on the PATH."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.optional import CHROMEDRIVER, NODE, REDIS, Tool, lack, program

GO = Tool("Go", ("go",), ("version",), r"go version go(\d+)\.(\d+)", (1, 21), "golang")

Put = Callable[..., str]


@pytest.fixture
def put(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Put:
    """Puts a program on a PATH that has no others. It prints `says` and ends with `code`."""
    monkeypatch.setenv("PATH", str(tmp_path))

    def write(name: str, says: str = "", code: int = 0, text: str | None = None) -> str:
        path = tmp_path / name
        path.write_text(f"#!/bin/sh\necho '{says}'\nexit {code}\n" if text is None else text)
        path.chmod(0o755)
        return str(path)

    return write


@pytest.mark.parametrize(
    ("tool", "name", "says", "code", "reason"),
    [
        (GO, "go", "go version go1.21.0 linux/amd64", 0, None),
        (GO, "go", "go version go1.26.3 linux/amd64", 0, None),
        (GO, "go", "go version go1.19.8 linux/amd64", 0, "needs Go 1.21 or newer: {path} is 1.19"),
        (GO, "go", "go: no GOROOT", 2, "needs Go 1.21 or newer: {path} is broken: it ended with 2 and said 'go: no GOROOT'"),
        (GO, "go", "Go, the game of stones, v4", 0, "{path} is something else: it said 'Go, the game of stones, v4'"),
        (NODE, "node", "v20.0.0", 0, None),
        (NODE, "node", "v18.19.0", 0, "needs node 20 or newer: {path} is 18.19"),
        (NODE, "node", "", 127, "{path} is broken: it ended with 127"),
        (REDIS, "redis-server", "Redis server v=7.0.15 sha=00000000:0 malloc=jemalloc-5.3.0 bits=64", 0, None),
        (REDIS, "valkey-server", "Valkey server v=8.1.1 sha=00000000:0 malloc=jemalloc-5.3.0 bits=64", 0, None),
        (REDIS, "redis-server", "Redis server v=5.0.3 sha=0", 0, "needs Redis or Valkey 6.2 or newer: {path} is 5.0"),
    ],
)  # fmt: skip
def test_a_program_is_good_enough_or_skips_with_the_reason(
    put: Put, tool: Tool, name: str, says: str, code: int, reason: str | None
) -> None:
    path = put(name, says, code)
    said = lack(tool)
    if reason is None:
        assert said is None  # before `program`, which would skip this test
        assert program(tool) == path
    else:
        assert reason.format(path=path) in (said or "")
        with pytest.raises(pytest.skip.Exception) as skipped:
            program(tool)
        assert str(skipped.value) == said


def test_a_program_that_is_not_there(put: Put) -> None:
    assert lack(GO) == "needs Go 1.21 or newer: go is not installed (Debian: apt-get install golang)"
    assert lack(REDIS) == (
        "needs Redis or Valkey 6.2 or newer: redis-server or valkey-server is not installed (Debian: apt-get install redis-server)"
    )


@pytest.mark.parametrize(
    ("driver", "browser", "reason"),
    [
        ("ChromeDriver 156.0.8078.108 (730482)", "Chromium 156.0.8078.108 built on Debian", None),
        ("ChromeDriver 156.0.8078.108 (730482)", "Google Chrome 155.0.1.2", "of version 156 and {browser} of version 155"),
        ("ChromeDriver 156.0.8078.108 (730482)", None, "needs Chromium: chromium or chromium-browser or google-chrome is"),
        (None, "Chromium 156.0.8078.108", "needs chromedriver: chromedriver is not installed"),
    ],
)  # fmt: skip
def test_a_driver_and_its_browser(put: Put, driver: str | None, browser: str | None, reason: str | None) -> None:
    if driver:
        put("chromedriver", driver)
    path = put("chromium", browser) if browser else ""
    said = lack(CHROMEDRIVER)
    assert (said is None) == (reason is None)
    assert reason is None or (said is not None and reason.format(browser=path) in said)
