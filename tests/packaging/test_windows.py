"""What `serve` and `demo` do where Windows' gaps are: no fork, no SIGHUP, no signals in the loop, no SO_REUSEPORT, no
Unix sockets, no `resource`. Emulated in the processes that are started (`windows/sitecustomize.py`)."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.embedded import with_model
from tests.waiting import PROGRAM_S

ROOT = Path(__file__).parents[2]
PATH = os.pathsep.join([str(Path(__file__).parent / "windows"), str(ROOT)])
CONFIG = "backends: {main: {kind: mock}}\nserver: {port: 0%s}\n"

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="emulates what is really so there")


def started(folder: Path, *arguments: str, program: tuple[str, ...] = ("-m", "toolwire")) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, *program, *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": PATH, "STATE_DIRECTORY": str(folder)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.fixture
def serving(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    (tmp_path / "gateway.yaml").write_text(CONFIG % "", "utf-8")
    process = started(tmp_path, "serve", "--config", "gateway.yaml")
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        if "is serving" not in line:
            pytest.fail(process.communicate(timeout=PROGRAM_S)[1])
        yield process, line.split()[-1]
    finally:
        process.kill()
        process.communicate()


def test_the_emulation_takes_everything(tmp_path: Path) -> None:
    program = (
        "import os, signal, socket; from importlib.util import find_spec;"
        "assert not any(map(lambda n: hasattr(os, n), ('fork', 'getuid'))) and not hasattr(signal, 'SIGHUP');"
        "assert not hasattr(socket, 'SO_REUSEPORT') and not hasattr(socket, 'AF_UNIX')\n"
        "try: import resource\nexcept ModuleNotFoundError: print('gone')"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], env={**os.environ, "PYTHONPATH": PATH}, capture_output=True, text=True
    )
    assert done.stdout == "gone\n", done.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGWINCH], ids=["Ctrl-C", "Ctrl-Break"])
def test_one_process_serves_and_ends_gracefully(
    serving: tuple[subprocess.Popen[str], str], number: signal.Signals
) -> None:
    process, url = serving
    body = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
    asked = urllib.request.Request(
        f"{url}/chat/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(asked, timeout=PROGRAM_S) as answer:
        assert json.load(answer)["choices"][0]["finish_reason"] == "stop"
    process.send_signal(number)
    _, said = process.communicate(timeout=PROGRAM_S)
    assert process.returncode == 0, said
    assert "stopping" in said
    assert "Traceback" not in said


ONE_CALL = """
from toolwire.cli import main
from toolwire.extras.demo import walkthrough

async def shows_nothing(running):
    pass

walkthrough._show_server_tool = shows_nothing
main(["demo", "--once", "--port", "0"])
"""
"""The demo without its second part, which only takes more of the model's time."""


@with_model[0]
@with_model[1]
def test_the_demo_shows_its_call(tmp_path: Path) -> None:
    process = started(tmp_path, program=("-c", ONE_CALL))
    said, wrong = process.communicate(timeout=PROGRAM_S * 2)
    assert process.returncode == 0, wrong
    assert "The arguments fit the schema of get_weather." in said


TOOL = """
TOOLS = [{"type": "function", "function": {"name": "one", "description": "One."}}]
def handle_tool_call(name, values): return "1"
"""
COMMANDS = """
import json, sys
from click.testing import CliRunner
from toolwire.cli import main

for words in sys.argv[1:]:
    done = CliRunner().invoke(main, words.split(), catch_exceptions=False)
    print(json.dumps([done.exit_code, done.output]))
"""
FORKS = ("tool modules need forks and groups of processes", "offer the tools by an MCP server")
REFUSED = {
    "serve --config workers.yaml": ("server.workers", "Windows"),
    "check tools.yaml": FORKS,
    "tools list --folder tools": FORKS,
}
"""Commands, and the words of what they say. By one process: to import the package takes a second."""


def test_what_needs_forks_is_refused_with_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools" / "a.py").write_text(TOOL, "utf-8")
    (tmp_path / "tools.yaml").write_text(CONFIG % "" + "tools: {folder: tools}\n", "utf-8")
    (tmp_path / "workers.yaml").write_text(CONFIG % ", workers: 2", "utf-8")
    said, wrong = started(tmp_path, *REFUSED, program=("-c", COMMANDS)).communicate(timeout=PROGRAM_S)
    for line, words in zip(said.splitlines(), REFUSED.values(), strict=True):
        status, written = json.loads(line)
        assert (status, [word for word in words if word not in written]) == (1, []), written
        assert "Traceback" not in written + wrong
