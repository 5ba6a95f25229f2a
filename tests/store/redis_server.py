"""A Redis server of the tests' own, on a free port of the loopback."""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
from pathlib import Path

PROGRAM = shutil.which("redis-server") or shutil.which("valkey-server")


class RedisServer:
    """Keeps nothing on disk. `start` and `stop` may alternate; the port stays."""

    def __init__(self, folder: Path, *options: str) -> None:
        assert PROGRAM is not None
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port: int = probe.getsockname()[1]
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self._command = [
            *(PROGRAM, "--bind", "127.0.0.1", "--port", str(self.port), "--dir", str(folder)),
            *("--save", "", "--appendonly", "no", "--daemonize", "no", *options),
        ]
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        """Returns when it takes connections."""
        self._process = subprocess.Popen(self._command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        assert self._process.stdout is not None
        said = []
        for line in self._process.stdout:
            said.append(line)
            if "eady to accept connections" in line:
                return
        self.stop()
        raise RuntimeError("".join(said))

    def pause(self) -> None:
        """It takes connections and answers nothing."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def stop(self) -> None:
        """Returns when it is gone, with everything that it held."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            assert self._process.stdout is not None
            self._process.stdout.close()
            self._process = None
