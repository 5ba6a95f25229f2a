"""Serving with real processes, real signals and real sockets, with a small application in the gateway's place."""

from __future__ import annotations

import asyncio
import errno
import io
import itertools
import json
import logging
import multiprocessing
import os
import pickle
import re
import select
import signal
import socket
import struct
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from multiprocessing.context import ForkProcess
from pathlib import Path
from typing import Any, cast

import pytest
from aiohttp import web

from tests.e2e.forking import Forked
from tests.waiting import GUARD_S, runs, until
from toolwire.config import BackendConfig, GatewayConfig, ServerConfig
from toolwire.observability.log_forms import JsonFormatter, TextFormatter
from toolwire.server import workers
from toolwire.server.hosting import AppFactory
from toolwire.server.process import SWITCH_S, Reload, _loop_factory
from toolwire.server.serving import _print, base_url
from toolwire.server.sockets import bind, bind_shared, close, reserve
from toolwire.server.workers import Supervisor, _Worker

pytestmark = pytest.mark.skipif(os.name != "posix", reason="signals and SO_REUSEPORT")

PROGRAM = """
import asyncio, os, sys
from ast import literal_eval
from pathlib import Path
from aiohttp import web
from toolwire.config import GatewayConfig, ServerConfig
from toolwire.support.conversion import ConfigError
from toolwire.server.serving import serve

folder = Path.cwd()

async def pid(request):
    return web.Response(text=str(os.getpid()))

async def turn(request):
    return web.Response(text=str(sys.getswitchinterval()))

async def loop(request):
    return web.Response(text=type(asyncio.get_running_loop()).__module__)

async def slow(request):
    response = web.StreamResponse()
    await response.prepare(request)
    await response.write(b"begun ")
    while not (folder / "finish").exists():
        await asyncio.sleep(0.01)
    await response.write(b"finished")
    return response

async def die(request):
    os._exit(7)

async def start_slowly(app):
    (folder / "starting").touch()
    while not (folder / "sent").exists():
        await asyncio.sleep(0.01)
    for _ in range(10):  # now the signal is taken
        await asyncio.sleep(0)

def create(config, metrics, before):
    if (folder / "broken").exists():
        raise ConfigError("chain[0].use: unknown middleware 'x'")
    if (folder / "crash").exists():
        os._exit(9)
    app = web.Application()
    if (folder / "slow").exists():
        app.on_startup.append(start_slowly)
    app.add_routes([web.get(f"/{each.__name__}", each) for each in (pid, turn, loop, slow, die)])
    return app

if __name__ == "__main__":
    options = literal_eval(os.environ["OPTIONS"])
    sys.exit(serve(GatewayConfig(server=ServerConfig(**options)), create=create))
"""


class Server:
    """A running program. `url` is known once the line with the base URL came."""

    def __init__(self, folder: Path, **options: Any) -> None:
        program = folder / "program.py"
        program.write_text(PROGRAM)
        self.folder = folder
        with (folder / "log").open("wb") as log:
            self.process = Forked(program, env={"OPTIONS": repr({"port": 0, **options})}, folder=folder, log=log)
        # A program that hangs must not hang the tests.
        self._limit = threading.Timer(GUARD_S, self.process.send_signal, [signal.SIGKILL])
        self._limit.start()

    def ready(self) -> Server:
        self.line = self.process.stdout.readline().decode()
        found = re.fullmatch(r"toolwire is serving (http://127\.0\.0\.1:(\d+))/v1\n", self.line)
        assert found, self.line or self.end()
        self.url, self.port = found[1], int(found[2])
        return self

    def get(self, path: str) -> str:
        with urllib.request.urlopen(self.url + path, timeout=GUARD_S) as answer:
            return str(answer.read().decode())

    def end(self) -> tuple[int, str, str]:
        """Wait for the end: exit status, the rest of the output, the log."""
        out = self.process.stdout.read().decode()  # to its end, so that workers are gone too
        status = self.process.wait()
        self._limit.cancel()
        return status, out, (self.folder / "log").read_text()

    def kill(self) -> None:
        self._limit.cancel()
        self.process.close()


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Server]]:
    servers: list[Server] = []

    def start_server(**options: Any) -> Server:
        servers.append(Server(tmp_path, **options))
        return servers[-1]

    yield start_server
    for server in servers:
        server.kill()


@pytest.mark.parametrize(("workers", "number"), [(1, signal.SIGTERM), (2, signal.SIGINT)])
def test_announces_once_serves_and_ends_when_answers_are_over(
    start: Callable[..., Server], number: int, workers: int
) -> None:
    server = start(workers=workers).ready()
    assert int(server.get("/pid")) > 0
    assert float(server.get("/turn")) == SWITCH_S < sys.getswitchinterval(), "busy threads have short turns"
    assert server.get("/loop") == "uvloop" or sys.implementation.name != "cpython"
    with urllib.request.urlopen(server.url + "/slow", timeout=GUARD_S) as answer:
        assert answer.read(6) == b"begun "
        os.killpg(server.process.pid, number)  # as Ctrl-C and systemd do: the whole group gets it
        assert runs(server.process.pid)
        (server.folder / "finish").touch()
        assert answer.read() == b"finished"
    status, out, log = server.end()
    assert (status, out) == (0, ""), log


@pytest.mark.parametrize("workers", [1, 2])
def test_a_second_signal_ends_it_at_once_with_status_1(start: Callable[..., Server], workers: int) -> None:
    server = start(workers=workers).ready()
    with urllib.request.urlopen(server.url + "/slow", timeout=GUARD_S) as answer:
        assert answer.read(6) == b"begun "
        server.process.send_signal(signal.SIGTERM)
        # The listening socket is gone once the first signal was taken.
        while not refused(server.port):
            pass
        server.process.send_signal(signal.SIGTERM)
        assert server.end()[0] == 1


def test_a_signal_while_it_starts_ends_it_before_it_listens(start: Callable[..., Server], tmp_path: Path) -> None:
    (tmp_path / "slow").touch()
    server = start()
    while not (tmp_path / "starting").exists():
        assert runs(server.process.pid)
    server.process.send_signal(signal.SIGTERM)
    (tmp_path / "sent").touch()
    status, out, log = server.end()
    assert (status, out) == (0, ""), log


def refused(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=GUARD_S).close()
    except OSError:
        return True
    return False


def test_grace_is_limited(start: Callable[..., Server]) -> None:
    server = start(shutdown_grace_s=0.05).ready()
    with urllib.request.urlopen(server.url + "/slow", timeout=GUARD_S) as answer:
        assert answer.read(6) == b"begun "
        server.process.send_signal(signal.SIGTERM)
        assert server.end()[0] == 0


def test_a_dead_worker_is_replaced(start: Callable[..., Server]) -> None:
    server = start(workers=2).ready()
    first = int(server.get("/pid"))
    os.kill(first, signal.SIGKILL)
    seen: set[int] = set()
    while len(seen - {first}) < 2:  # the other one, and the new one
        try:
            seen.add(int(server.get("/pid")))
        except OSError:
            continue  # a connection that the dead worker still had
    server.process.send_signal(signal.SIGTERM)
    status, _, log = server.end()
    assert status == 0
    assert f"worker {first} died with status -9; starting another" in log


def test_workers_end_when_the_parent_is_killed(start: Callable[..., Server]) -> None:
    server = start(workers=2).ready()
    server.process.send_signal(signal.SIGKILL)
    # The workers hold the other end of the pipe: it is closed when the last one is gone.
    assert server.end()[0] == -signal.SIGKILL
    assert refused(server.port)


@pytest.mark.parametrize("workers", [1, 2])
def test_a_bad_configuration_ends_with_status_1_and_no_traceback(
    start: Callable[..., Server], tmp_path: Path, workers: int
) -> None:
    (tmp_path / "broken").touch()
    status, out, log = start(workers=workers).end()
    assert (status, out) == (1, "")
    assert "chain[0].use: unknown middleware 'x'" in log
    assert "Traceback" not in log


def test_workers_that_cannot_start_are_given_up(start: Callable[..., Server], tmp_path: Path) -> None:
    (tmp_path / "crash").touch()
    status, out, log = start(workers=2).end()
    assert (status, out) == (1, "")
    assert "giving up: " in log
    assert log.count("could not start (status 9)") >= 5


@pytest.mark.parametrize(("workers", "take"), [(1, bind), (2, bind_shared), (1, reserve), (2, reserve)])
def test_a_taken_port_is_an_error(
    start: Callable[..., Server], workers: int, take: Callable[[str, int], list[socket.socket]]
) -> None:
    """Also that of a gateway that only starts, with one process (`bind`) or several (`reserve`)."""
    (taken,) = take("127.0.0.1", 0)
    if take is bind_shared:
        taken.listen()
    status, out, log = start(workers=workers, port=taken.getsockname()[1]).end()
    close([taken])
    assert (status, out) == (1, "")
    assert "cannot listen on 127.0.0.1 port" in log
    assert "use another port" in log
    assert "Address already in use" in log


def test_base_urls() -> None:
    assert base_url("127.0.0.1", 80) == "http://127.0.0.1:80/v1"
    assert base_url("::1", 80) == base_url("[::1]", 80) == "http://[::1]:80/v1"
    assert base_url("", 80) == "http://0.0.0.0:80/v1"


def test_bind_takes_every_address_of_a_name_on_one_port() -> None:
    sockets = bind("localhost", 0)
    ports = {sock.getsockname()[1] for sock in sockets}
    close(sockets)
    assert len(ports - {0}) == len(ports) == 1


# --- log lines ------------------------------------------------------------------------------------------------------


def logged(formatter: logging.Formatter, *args: Any, **kwargs: Any) -> str:
    """What a logger with this formatter writes."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(formatter)
    logger = logging.Logger("toolwire.test")
    logger.addHandler(handler)
    logger.log(*args, **kwargs)
    return stream.getvalue()


FIELDS = {"fields": {"status": 200, "model": "a b", "route": "x", "empty": "", "tools": ["t"], "odd": Path("/p")}}


def test_text_lines() -> None:
    stamp, rest = logged(TextFormatter(), logging.INFO, "exchange %d", 5, extra=FIELDS).split(" ", 1)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", stamp)
    assert rest == ('INFO toolwire.test: exchange 5 status=200 model="a b" route=x empty="" tools=["t"] odd="/p"\n')
    assert "ValueError: the reason" in logged(TextFormatter(), logging.ERROR, "bad", exc_info=ValueError("the reason"))


def test_json_lines() -> None:
    line = logged(JsonFormatter(), logging.WARNING, 'it "broke"\n', extra=FIELDS, exc_info=ValueError("the reason"))
    assert line.count("\n") == 1
    value = json.loads(line)
    del value["time"]
    assert "ValueError: the reason" in value.pop("traceback")
    said = {"level": "warning", "logger": "toolwire.test", "message": 'it "broke"\n', "pid": os.getpid()}
    assert value == {**said, **FIELDS["fields"], "odd": "/p"}


# --- the supervisor ------------------------------------------------------------------------------------------------

CREATE: AppFactory = lambda config, metrics, before: web.Application()  # noqa: E731


def supervised(worker: object, **server: Any) -> Supervisor:
    """A supervisor of one worker."""
    config = GatewayConfig(backends={"m": BackendConfig(kind="mock")}, server=ServerConfig(**server))
    supervisor = Supervisor(config, CREATE, [], lambda: None)
    supervisor._slots[0].worker = _Worker(cast(Any, worker), cast(Any, None), config)
    return supervisor


def stopped(supervisor: Supervisor) -> bool:
    """Stops the workers. Returns whether one was cut off."""
    wake, waker = socket.socketpair()
    with wake, waker:
        return supervisor._stop(wake)


def test_workers_that_ended_before_they_were_told_are_no_cut() -> None:
    """A signal to the whole group may end the workers before the parent looks."""

    class Ended:
        exitcode = 0

        def terminate(self) -> None:
            pass

        def kill(self) -> None:
            raise AssertionError("it has ended")

    assert stopped(supervised(Ended())) is False


def test_a_worker_that_is_killed_is_in_the_log(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Hung:
        exitcode, pid, sentinel = None, 77, -1

        def terminate(self) -> None:
            pass

        kill = join = terminate

    monkeypatch.setattr(workers, "KILL_AFTER_S", 0.0)
    assert stopped(supervised(Hung(), shutdown_grace_s=0.0)) is True
    assert "worker 77 has not ended and is killed" in caplog.text


def test_a_worker_that_the_system_does_not_start_is_tried_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def start(process: object) -> None:
        raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")

    monkeypatch.setattr(ForkProcess, "start", start)
    (port,) = bind_shared("127.0.0.1", 0)
    config = GatewayConfig(backends={"m": BackendConfig(kind="mock")}, server=ServerConfig(workers=2))
    supervisor = Supervisor(config, CREATE, [port], lambda: None)
    place = supervisor._slots[0]
    supervisor._try_start(place)
    assert place.worker is None
    assert place.due > 0
    assert "cannot start a worker: [Errno 11] Resource temporarily unavailable" in caplog.text
    close([port, *place.sockets])


def test_workers_without_a_temporary_folder_do_not_start(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refused(prefix: str) -> str:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(workers, "mkdtemp", refused)
    config = GatewayConfig(server=ServerConfig(workers=2))
    assert Supervisor(config, CREATE, [], lambda: None).run() == 1
    assert "Read-only file system. Set TMPDIR" in caplog.text


class Reloading:
    """A supervisor of two workers that has just sent the configuration `new` to the first of them. `answer` sends a
    word of a worker; `got` are the configurations that a worker was sent since the last look."""

    old = GatewayConfig(server=ServerConfig(workers=2))
    new = GatewayConfig(server=ServerConfig(workers=2), backends={"m": BackendConfig(kind="mock")})

    def __init__(self) -> None:
        class Alive:
            exitcode, pid = None, 77

        self.supervisor = Supervisor(self.old, CREATE, [], lambda: None, lambda: self.new)
        self._pipes = [multiprocessing.Pipe() for _ in self.supervisor._slots]
        for slot, (ours, _) in zip(self.supervisor._slots, self._pipes, strict=True):
            slot.worker = _Worker(cast(Any, Alive()), ours, self.old, serves=True)
        self.supervisor._reload()

    def wait_no_longer(self) -> None:
        assert self.supervisor._trying is not None
        self.supervisor._give_up_waiting(self.supervisor._trying)

    def answer(self, number: int, word: str) -> None:
        self._pipes[number][1].send(word)
        slot = self.supervisor._slots[number]
        assert slot.worker is not None
        self.supervisor._receive(slot, slot.worker)

    def got(self, number: int) -> list[str]:
        pipe = self._pipes[number][1]
        return ["new" if pipe.recv().backends else "old" for _ in iter(pipe.poll, False)]

    def end(self) -> None:
        for pipe in itertools.chain(*self._pipes):
            pipe.close()


@pytest.fixture
def reloading() -> Iterator[Reloading]:
    made = Reloading()
    yield made
    made.end()


def test_a_late_worker_that_refuses_what_another_one_loads_gets_it_again(
    reloading: Reloading, caplog: pytest.LogCaptureFixture
) -> None:
    reloading.wait_no_longer()
    reloading.answer(0, "refused")
    reloading.answer(1, "reloaded")
    assert (reloading.got(0), reloading.got(1)) == (["new", "new"], ["new"])
    assert "keeps its configuration" not in caplog.text
    reloading.answer(0, "refused")
    assert "worker 77 keeps its configuration until it is replaced" in caplog.text


def test_a_late_worker_that_loads_what_another_one_tries_has_shown_that_it_works(reloading: Reloading) -> None:
    """Else workers that are slow to load would try it in turns for ever."""
    reloading.wait_no_longer()
    reloading.answer(0, "reloaded")
    assert reloading.supervisor._trying is None
    reloading.answer(1, "reloaded")
    assert (reloading.got(0), reloading.got(1)) == (["new"], ["new"])
    assert reloading.supervisor._config.backends


def test_a_configuration_that_makes_a_worker_hang_reaches_no_other(
    reloading: Reloading, caplog: pytest.LogCaptureFixture
) -> None:
    """If it was only slow, the others get it as soon as the first one has it."""
    reloading.answer(0, "loads")
    reloading.wait_no_longer()
    assert "the others get it when it has" in caplog.text
    assert reloading.supervisor._trying is None, "another reload is possible"
    assert reloading.got(1) == []
    reloading.answer(0, "reloaded")
    assert (reloading.got(0), reloading.got(1)) == (["new"], ["new"])


def test_if_no_worker_answers_those_that_wake_later_get_the_old_one(
    reloading: Reloading, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(2):
        reloading.wait_no_longer()
    assert "the configuration stays as it was: no worker has answered" in caplog.text
    for number in range(2):
        assert reloading.got(number) == ["new"]
        reloading.answer(number, "reloaded")
        assert reloading.got(number) == ["old"]
    assert not reloading.supervisor._config.backends


def test_an_output_that_cannot_be_written_does_not_keep_it_from_serving(monkeypatch: pytest.MonkeyPatch) -> None:
    class WithoutReader(io.StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError(errno.EPIPE, "Broken pipe")

    monkeypatch.setattr(sys, "stdout", WithoutReader())
    _print("toolwire is serving")


def test_a_configuration_comes_in_pieces() -> None:
    """As one does that is too large for the pipe. uvloop makes what it watches non-blocking."""
    ours, theirs = multiprocessing.Pipe()
    new = GatewayConfig(backends={"main": BackendConfig(url="http://127.0.0.1:1")})
    data = pickle.dumps(new)
    read: list[GatewayConfig] = []
    ended = threading.Event()

    def send() -> None:
        for piece in (struct.pack("!i", len(data)), data[:100], data[100:]):
            while not ended.is_set() and select.select([theirs], [], [], 0)[0]:  # the one before is not read yet
                time.sleep(0.001)
            os.write(ours.fileno(), piece)

    async def reads() -> None:
        def reload(request: Reload) -> bool:
            read.append(request.read())
            ended.set()
            return True

        workers._listen_to_parent(theirs, ended.set, reload)
        sending = asyncio.create_task(asyncio.to_thread(send))
        await until(ended.is_set)
        await sending
        asyncio.get_running_loop().remove_reader(theirs.fileno())

    with ours, theirs, asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run(reads())
    assert read == [new]
