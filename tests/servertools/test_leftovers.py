"""Processes that a handler starts end with its call, however they were started (R33.7)."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from tests.servertools.conftest import Start
from tests.servertools.test_processes import MODULE, begun, counts, do
from tests.waiting import runs, until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="children are listed by Linux alone")

HELPERS = (
    MODULE
    + """
SLEEP = ["sleep", "3600"]

def told(pid):
    begun(str(pid))
    return "said"

def plain():
    return told(subprocess.Popen(SLEEP).pid)

def session():
    return told(subprocess.Popen(SLEEP, start_new_session=True).pid)

def group():
    return told(subprocess.Popen(SLEEP, process_group=0).pid)

def deaf():  # ignores signals
    return told(subprocess.Popen(["sh", "-c", "trap '' TERM HUP INT; sleep 3600"]).pid)

def stopped():
    pid = subprocess.Popen(SLEEP).pid
    os.kill(pid, signal.SIGSTOP)
    return told(pid)

def forked(session=False):  # twice
    out, into = os.pipe()
    first = os.fork()
    if first == 0:
        if session:
            os.setsid()
        second = os.fork()
        if second == 0:
            os.execvp("sleep", SLEEP)
        os.write(into, str(second).encode())
        os._exit(0)
    os.waitpid(first, 0)
    return told(os.read(out, 20).decode())

def orphan():  # left by a shell
    return told(subprocess.run(["sh", "-c", "setsid sleep 3600 >/dev/null 2>&1 & echo $!"], capture_output=True, text=True).stdout.strip())

def thread():
    started = []
    of = threading.Thread(target=lambda: started.append(subprocess.Popen(SLEEP)) or time.sleep(3600), daemon=True)
    of.start()
    while not started:
        time.sleep(0.001)
    return told(started[0].pid)

def raising():
    plain()
    raise ValueError("no")
"""
)
WAYS = {
    "plain()": "said",
    "session()": "said",
    "group()": "said",
    "deaf()": "said",
    "stopped()": "said",
    "forked()": "said",
    "forked(True)": "said",
    "orphan()": "said",
    "thread()": "said",
    "raising()": "Error: no",
}


async def test_what_a_call_started_ends_with_it(start: Start, tmp_path: Path) -> None:
    tools = await start({"a.py": HELPERS})
    for way, said in WAYS.items():
        assert await do(tools, way) == said
        assert not runs(await begun(tmp_path)), way
    assert await do(tools, "'fine'") == "fine"
    assert counts(tools)["started"] == 1, "its worker goes on"


async def test_what_a_module_started_stays_until_its_worker_ends(start: Start, tmp_path: Path) -> None:
    tools = await start({"a.py": HELPERS + "OWN = subprocess.Popen(SLEEP).pid\n"})
    pid = int(await do(tools, "OWN"))
    await do(tools, "plain()")
    assert runs(pid)
    assert not runs(await begun(tmp_path))
    calling = asyncio.create_task(do(tools, "begun() or time.sleep(3600)"))
    await begun(tmp_path)
    calling.cancel()
    await asyncio.wait({calling})
    await until(lambda: not runs(pid))


async def test_many_that_start_others_end_with_the_worker_at_the_latest(start: Start, tmp_path: Path) -> None:
    """A program that starts another one whenever one ends."""
    text = "while :; do sh -c 'sleep 3600' & wait $!; done"
    tools = await start({"a.py": HELPERS})
    pids = await do(tools, f"' '.join(str(subprocess.Popen(['sh', '-c', {text!r}]).pid) for _ in range(5))")
    for pid in pids.split():
        await until(lambda pid=pid: not runs(pid))  # type: ignore[misc]
    assert await do(tools, "'fine'") == "fine"


async def test_where_children_are_not_listed_the_worker_ends_with_them(start: Start, tmp_path: Path) -> None:
    hidden = "__import__('toolwire.servertools.worker.leftovers', fromlist=['x']).Leftovers._running"
    tools = await start({"a.py": HELPERS})
    hide = f"setattr({hidden.rpartition('.')[0]}, '_running', lambda self: None)"
    await do(tools, hide)
    assert await do(tools, "session()") == "said"
    pid = await begun(tmp_path)
    await until(lambda: not runs(pid))
    assert await do(tools, "'fine'") == "fine"
    assert counts(tools)["started"] >= 2
