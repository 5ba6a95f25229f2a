"""Worker processes: whatever a handler does costs its own call and nothing else; what they get, and what is left of
them."""

from __future__ import annotations

import asyncio
import ctypes
import errno
import os
import signal
import socket
import sys
from pathlib import Path
from unittest.mock import Mock

import pytest

from tests.servertools.conftest import ONE, PATIENT, Start, call, module, tool
from tests.waiting import runs, until
from toolwire.config import ToolsConfig
from toolwire.model import ToolUse
from toolwire.servertools import pool, process
from toolwire.servertools.folder import ToolFolder
from toolwire.servertools.process import environment

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="forks")

PR_SET_CHILD_SUBREAPER = 36
TIMED_OUT = "Error: Tool execution timed out"

MODULE = f"""
import ctypes, mmap, os, re, resource, signal, socket, subprocess, sys, threading, time
from pathlib import Path

HERE = Path(__file__).parent
TOOLS = [{tool("do", parameters={"type": "object", "properties": {"what": {"type": "string"}}, "required": ["what"]})!r}]
KEPT = []

def begun(text=""):
    (HERE / "begun.tmp").write_text(text or str(os.getpid()))
    (HERE / "begun.tmp").rename(HERE / "begun")

def descriptors():
    found = []
    for name in os.listdir("/proc/self/fd"):
        try:
            found.append((int(name), os.readlink("/proc/self/fd/" + name).partition(":")[0]))
        except FileNotFoundError:
            pass  # that of the listing
    return sorted(found)

def data():
    return [number for number, kind in descriptors() if kind == "socket"][0]

def handle_tool_call(name, values):
    answer = eval(values["what"])
    return answer if isinstance(answer, str) else repr(answer)
"""


async def do(tools: ToolFolder, what: str, limit_s: float = 60.0) -> str:
    import json

    return await call(tools, "do", json.dumps({"what": what}), limit_s)


async def begun(folder: Path) -> str:
    """What a handler wrote that has begun."""
    file = folder / "begun"
    await until(file.exists)
    text = file.read_text()
    file.unlink()
    return text


def counts(tools: ToolFolder) -> dict[str, int]:
    processes: dict[str, int] = tools.shown()["calls"]["processes"]
    return processes


ENDS = {
    "os._exit(3)": "Error: Tool ended its process (exit status 3)",
    "os.kill(os.getpid(), signal.SIGKILL)": "Error: Tool ended its process (SIGKILL)",
    "os.kill(os.getppid(), signal.SIGKILL) or time.sleep(3600)": "Error: Tool ended its process",
    "os.killpg(0, signal.SIGKILL) or time.sleep(3600)": "Error: Tool ended its process (SIGKILL)",
    "os.kill(os.getppid(), signal.SIGSTOP) or os._exit(5)": "Error: Tool ended its process (exit status 5)",
    "ctypes.string_at(0)": "Error: Tool ended its process (SIGSEGV)",
    "os.close(data()) or 'x'": "Error: Tool ended its process (exit status 1)",
    "os.write(data(), b'\\xff' * 100) and time.sleep(3600)": "Error: Tool wrote into the descriptor of its worker",
    "os.write(data(), b'\\0\\0\\0\\x02[]') and time.sleep(3600)": "Error: Tool wrote into the descriptor of its worker",
    'os.write(data(), b\'\\0\\0\\0\\x0d{"text":"no"}\') and time.sleep(3600)': "Error: Tool wrote into the descriptor of its worker",
    "[os.write(data(), b'\\0\\0\\0\\x02{}') for _ in range(10**6)]": "Error: Tool wrote into the descriptor of its worker",
    "len(bytearray(2 * 1024**3))": "Error: Tool needs more memory than it may have",
    "mmap.mmap(-1, 2 * 1024**3)": "Error: [Errno 12] Cannot allocate memory",
    "sys.exit(4)": "Error: 4",
}
STAYS = {
    "os.kill(os.getppid(), signal.SIGTERM) or 'here'": "here",
    "[os.kill(os.getppid(), n) for n in (1, 2, 3, 10, 12, 13, 14, 15, 20)] and 'here'": "here",
    "['parent', 'child'][os.fork() == 0]": "parent",
    "(sys.stdout.close(), sys.stderr.close()) and 'closed'": "closed",
    "setattr(sys, 'stdout', None) or 'gone'": "gone",
    "print('still', flush=True) or 'there'": "there",
}


async def test_what_ends_a_worker_costs_one_call(start: Start, tmp_path: Path) -> None:
    tools = await start({"a.py": MODULE})
    for what, said in {**ENDS, **STAYS}.items():
        assert await do(tools, what) == said, what
        assert await do(tools, "'fine'") == "fine", what
    await until(lambda: counts(tools)["running"] == 0)
    assert counts(tools)["idle"] >= 1


async def test_other_calls_go_on_meanwhile(start: Start, tmp_path: Path) -> None:
    """Of one that holds the interpreter lock, in a way that no exception interrupts, and of one that waits."""
    tools = await start({"a.py": MODULE, "b.py": module(ONE)}, processes=3)
    holding = asyncio.create_task(do(tools, "begun() or re.match(r'(a+)+$', 'a' * 100 + 'b')"))
    pid = await begun(tmp_path)
    waiting = asyncio.create_task(do(tools, "begun() or threading.Event().wait()"))
    other = await begun(tmp_path)
    assert await call(tools) == "('one', {})"
    assert not holding.done()
    assert not waiting.done()
    assert counts(tools)["running"] == 2
    for task in (holding, waiting):
        task.cancel()
    await asyncio.wait({holding, waiting})
    assert holding.cancelled()
    await until(lambda: not runs(pid) and not runs(other))
    assert counts(tools)["killed"] == 2


async def test_a_call_that_is_given_up_is_killed_with_all_that_it_started(start: Start, tmp_path: Path) -> None:
    """Over its time or left by its caller: both are the same. Also what has left its group, and what was stopped."""
    tools = await start({"a.py": MODULE}, timeout_s=3600)
    for options in ("", ", start_new_session=True"):
        child = f"begun(str(subprocess.Popen(['sleep', '3600']{options}).pid)) or os.kill(os.getppid(), signal.SIGSTOP) or time.sleep(3600)"
        calling = asyncio.create_task(do(tools, child))
        pid = await begun(tmp_path)
        calling.cancel()
        await asyncio.wait({calling})
        await until(lambda pid=pid: not runs(pid))  # type: ignore[misc]
    assert counts(tools)["killed"] == 2


async def test_processor_time_is_bounded(start: Start) -> None:
    """Of one call: a worker that has used some gets more for the next one. Threads count as well."""
    tools = await start({"a.py": MODULE}, cpu_s=1.0)
    burn = "(lambda: [time.process_time() < until for until in [time.process_time() + {}] for _ in iter(lambda: time.process_time() < until, False)] and 'burnt')()"
    assert [await do(tools, burn.format(0.35)) for _ in range(4)] == ["burnt"] * 4
    assert counts(tools)["started"] == 1
    assert await do(tools, burn.format(60)) == "Error: Tool took more processor time than it may have"
    assert await do(tools, "'fine'") == "fine"


async def test_what_a_call_leaves_in_memory_is_not_the_next_ones(start: Start) -> None:
    tools = await start({"a.py": MODULE}, memory_bytes=256 * 1024 * 1024)
    pid = await do(tools, "os.getpid()")
    assert await do(tools, "KEPT.append(bytearray(150 * 1024**2)) or os.getpid()") == pid
    assert await do(tools, "len(bytearray(150 * 1024**2))") == str(150 * 1024**2)
    assert await do(tools, "os.getpid()") != pid


async def test_without_a_bound_memory_is_that_of_the_machine(start: Start) -> None:
    tools = await start({"a.py": MODULE}, memory_bytes=None)
    assert await do(tools, "resource.getrlimit(resource.RLIMIT_AS)") == repr((-1, -1))
    assert await do(tools, "resource.getrlimit(resource.RLIMIT_CORE)") == "(0, 0)"


async def test_what_a_worker_gets(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither secrets nor descriptors of the gateway; the guardian before it has none either."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    monkeypatch.setenv("LC_TIME", "C")
    monkeypatch.setenv("HTTPS_PROXY", "http://user:password@proxy")
    with Path(os.devnull).open() as mine:  # noqa: ASYNC230
        os.set_inheritable(mine.fileno(), True)
        tools = await start({"a.py": MODULE}, env={"STOCK_KEY": "for the tools"})
        seen = await do(tools, "'|'.join(sorted(os.environ))")
        assert {"STOCK_KEY", "LC_TIME", "PATH"} <= set(seen.split("|"))
        assert set(seen.split("|")) <= {*process.GIVEN, "STOCK_KEY", *(n for n in os.environ if n.startswith("LC_"))}
        for whose in ("self", "{os.getppid()}"):
            assert await do(tools, f"'secret' in open(f'/proc/{whose}/environ').read()") == "False"
        assert await do(tools, "os.environ['STOCK_KEY']") == "for the tools"
        assert await do(tools, "[kind for _, kind in descriptors()]") == "['/dev/null', 'pipe', 'pipe', 'socket']"
        assert await do(tools, "(os.getsid(0) == os.getppid(), os.getpgid(0) == os.getpid())") == "(True, True)"


def test_the_environment_is_what_is_on_a_list() -> None:
    own = {"PATH": "/bin", "LC_ALL": "C", "AWS_SECRET": "s", "TOOLWIRE_AUTH__KEYS": "k", "TZ": "UTC"}
    assert environment(own, {"TZ": "Europe/Oslo", "K": "v"}) == {
        "PATH": "/bin",
        "LC_ALL": "C",
        "TZ": "Europe/Oslo",
        "K": "v",
    }


async def test_calls_wait_for_a_process_and_not_for_ever(start: Start, tmp_path: Path) -> None:
    tools = await start({"a.py": MODULE}, processes=1)
    holding = asyncio.create_task(do(tools, "begun() or time.sleep(3600)"))
    await begun(tmp_path)
    tools._pool.config = ToolsConfig(wait_s=0.01, processes=1)  # type: ignore[union-attr, misc]
    assert await do(tools, "'x'") == "Error: Tool cannot be run now, all processes are busy"
    tools._pool.config = ToolsConfig(wait_s=60.0, processes=1)  # type: ignore[union-attr, misc]
    assert await do(tools, "'x'", limit_s=0.01) == TIMED_OUT
    later = asyncio.create_task(do(tools, "'later'"))
    await asyncio.sleep(0)
    holding.cancel()
    assert await later == "later"
    assert counts(tools)["most"] == 1


async def test_calls_run_side_by_side_in_as_many_processes_as_allowed(start: Start, tmp_path: Path) -> None:
    tools = await start({"a.py": MODULE}, processes=2)
    meet = (
        "(HERE / str(os.getpid())).touch() or"
        " [time.sleep(0.01) for _ in iter(lambda: len(list(HERE.glob('[0-9]*'))) < 2, False)] and os.getpid()"
    )
    pids = await asyncio.gather(do(tools, meet), do(tools, meet))
    assert len(set(pids)) == 2
    assert (await asyncio.gather(*(do(tools, "os.getpid()") for _ in range(6)))).count(pids[0]) in range(1, 7)
    assert counts(tools)["started"] == 2


async def test_idle_processes_are_given_back_but_for_one(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "IDLE_S", 0.05)
    tools = await start({"a.py": MODULE}, processes=4)
    pids = set(await asyncio.gather(*(do(tools, "time.sleep(0.3) or os.getpid()") for _ in range(3))))
    await until(lambda: counts(tools)["idle"] == 1)
    await until(lambda: sum(map(runs, pids)) <= 1)
    assert await do(tools, "'fine'") == "fine"


async def test_the_last_idle_process_of_a_version_stays() -> None:
    workers, versions = [Mock() for _ in range(4)], [Mock(), Mock()]
    processes = pool.WorkerPool(ToolsConfig())
    processes._workers = {worker: versions[at % 2] for at, worker in enumerate(workers)}
    processes._idle = dict.fromkeys(workers, asyncio.get_running_loop().time() - pool.IDLE_S)
    processes._give_back()
    assert [worker.kill.called for worker in workers] == [True, True, False, False]


async def test_calls_that_run_finish_with_the_version_they_began_with(start: Start, tmp_path: Path) -> None:
    old = (
        "import time\nfrom pathlib import Path\nHERE = Path(__file__).parent\n"
        "def handle_tool_call(name, values):\n    (HERE / 'begun').touch()\n"
        "    while not (HERE / 'go').exists(): time.sleep(0.01)\n    return 'old'\n"
    )
    tools = await start({"a.py": module(ONE, handler=old)}, processes=2)
    running = asyncio.create_task(call(tools))
    await begun(tmp_path)
    (tmp_path / "a.py").write_text(module(ONE))
    assert await tools.refresh()
    assert await call(tools) == "('one', {})"
    (tmp_path / "go").touch()
    assert await running == "old"
    await until(lambda: counts(tools)["idle"] == 1 and counts(tools)["running"] == 0)


async def test_with_one_process_two_generations_take_turns(start: Start, tmp_path: Path) -> None:
    tools = await start({"a.py": module(ONE), "b.py": module(tool("two"))}, processes=1)
    (tmp_path / "a.py").write_text("broken(")
    assert await tools.refresh()
    assert [await call(tools, name) for name in ("one", "two", "one", "two")] == [
        "('one', {})",
        "('two', {})",
        "('one', {})",
        "('two', {})",
    ]
    # And then it is quiet: the one that made room does not take it back.
    pool_ = tools._pool
    assert isinstance(pool_, pool.WorkerPool)
    await until(lambda: not pool_.warming)
    assert counts(tools)["started"] == 6
    assert counts(tools)["idle"] == 1


async def test_a_module_that_loads_only_once_is_told_of(start: Start, caplog: pytest.LogCaptureFixture) -> None:
    once = "from pathlib import Path\nmark = Path(__file__).with_name('once')\nif mark.exists(): {}\nmark.touch()\n"
    for what in ("raise OSError('again')", "__import__('os')._exit(5)"):
        tools = await start({"a.py": once.format(what) + module(ONE), "b.py": MODULE})
        assert await call(tools) == "('one', {})"
        assert await do(tools, "os._exit(3)") == "Error: Tool ended its process (exit status 3)"
        assert await call(tools) == "Error: Tool cannot be run now"
        assert await do(tools, "'fine'") == "fine"
        assert "was loaded before and now cannot be" in caplog.text
        caplog.clear()
        (tools.folder / "once").unlink()


async def test_where_no_process_can_be_started_the_model_is_told(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    tools = await start({"a.py": MODULE}, processes=2)
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    assert await do(tools, "os._exit(1)") == "Error: Tool ended its process (exit status 1)"
    assert await do(tools, "'fine'") == "Error: Tool cannot be run now"
    monkeypatch.undo()
    assert await do(tools, "'fine'") == "fine"


async def test_a_module_that_could_not_be_tried_is_tried_again(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tools = await start({"a.py": module(ONE)})
    (tmp_path / "a.py").write_text(module(tool("new")))
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    for _ in range(2):
        assert await tools.refresh()
        (shown,) = tools.shown()["modules"]
        assert (shown["error"]["kind"], shown["stale"]) == ("OSError", True)
    monkeypatch.undo()
    assert await tools.refresh()
    assert await call(tools, "new") == "('new', {})"
    assert not await tools.refresh()


async def test_the_working_folder_may_be_gone(
    start: Start, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = tmp_path_factory.mktemp("gone")
    monkeypatch.chdir(gone)
    gone.rmdir()
    try:
        tools = await start({"a.py": MODULE})
        assert await do(tools, "os.getcwd()") == "/"
        assert await do(tools, "os.chdir(HERE) or 'there'") == "there"
        assert await do(tools, "os.getcwd()") == "/"
    finally:
        os.chdir("/")  # for `monkeypatch`, which goes back from where it is


async def test_coroutines_share_a_loop_and_leave_nothing_running(start: Start) -> None:
    text = (
        "import asyncio\nloops, tasks = set(), []\nasync def ever():\n    while True: await asyncio.sleep(0.001)\n"
        "async def handle_tool_call(name, values):\n"
        "    left = sum(not task.done() for task in tasks)\n    loops.add(id(asyncio.get_running_loop()))\n"
        "    tasks.append(asyncio.ensure_future(ever()))\n    return f'{len(loops)} {left}'\n"
    )
    tools = await start({"a.py": module(ONE, handler=text)})
    assert [await call(tools) for _ in range(3)] == ["1 0"] * 3


async def test_what_handlers_log_is_in_the_log(start: Start, caplog: pytest.LogCaptureFixture) -> None:
    text = "import logging\ndef handle_tool_call(name, values):\n    logging.getLogger('mine').info('seen')\n    return ''\n"
    with caplog.at_level("INFO", "toolwire.tools"):
        tools = await start({"a.py": module(ONE, handler=text)})
        await call(tools)
    assert "one: INFO mine: seen" in [record.getMessage() for record in caplog.records]


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
async def test_nothing_is_left_at_the_end(tmp_path: Path) -> None:
    """Neither processes, zombies among them, nor descriptors, nor tasks; even with calls on their way, and where the
    gateway inherits what is orphaned, as the first process of a container does."""
    (tmp_path / "a.py").write_text(MODULE)
    adopt = ctypes.CDLL(None).prctl
    assert adopt(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0

    def left() -> tuple[int, int]:
        children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
        return len(os.listdir("/proc/self/fd")), len(children)

    before = left()
    config = ToolsConfig(folder=str(tmp_path), **PATIENT)
    tasks = asyncio.all_tasks()
    async with ToolFolder(config).running() as tools:
        await do(tools, "os._exit(0)")
        await do(tools, "subprocess.Popen(['sleep', '3600'], start_new_session=True) and os._exit(0)")
        await asyncio.gather(*(do(tools, "os.getpid()") for _ in range(3)))
        calling = asyncio.create_task(do(tools, "begun() or time.sleep(3600)"))
        await begun(tmp_path)
    assert (await calling).startswith("Error: ")
    try:
        assert left() == before
    finally:
        adopt(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)
    await until(lambda: asyncio.all_tasks() == tasks)


async def test_an_idle_worker_that_dies_is_replaced(start: Start) -> None:
    tools = await start({"a.py": MODULE})
    pid = await do(tools, "os.getpid()")
    os.kill(int(pid), signal.SIGKILL)
    await until(lambda: counts(tools)["died"] == 1 and counts(tools)["idle"] == 1)
    assert counts(tools)["started"] == 2
    assert await do(tools, "os.getpid()") != pid


async def test_a_call_that_had_not_begun_is_made_once_more(start: Start) -> None:
    tools = await start({"a.py": MODULE})
    pid = int(await do(tools, "os.getpid()"))
    os.kill(pid, signal.SIGSTOP)  # it takes the order, and cannot begin
    calling = asyncio.create_task(do(tools, "os.getpid()"))
    await until(lambda: counts(tools)["running"] == 1)
    os.kill(pid, signal.SIGKILL)
    assert await calling not in ("", str(pid))
    assert (await tools.tools.run(ToolUse("c", "do", '{"what":"1"}'), 60, lambda state: None)).text == "1"


async def test_bounds_that_cannot_be_held_are_told_of(
    start: Start, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    """A module that the interpreter runs at its start takes the system call away."""
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(
        "import resource\ndef refuse(*_): raise ValueError('not allowed')\nresource.setrlimit = refuse\n"
    )
    tools = await start({"a.py": MODULE}, env={"PYTHONPATH": str(tmp_path / "site")})
    assert await do(tools, "'fine'") == "fine"
    assert [record.getMessage() for record in caplog.records if record.levelname == "WARNING"] == [
        "the system cannot limit tools by tools.memory_bytes and tools.cpu_s"
    ]


def test_what_was_opened_is_closed_where_there_are_no_descriptors_left(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[socket.socket] = []
    pair = socket.socketpair

    def once() -> tuple[socket.socket, ...]:
        if opened:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        opened.extend(pair())
        return tuple(opened)

    monkeypatch.setattr(process.socket, "socketpair", once)
    with pytest.raises(OSError):
        process._launched(ToolsConfig(folder="tools"))
    assert [one.fileno() for one in opened] == [-1, -1]
