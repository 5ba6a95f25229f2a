"""The log of a starting gateway."""

from __future__ import annotations

import errno
import logging
import os
import socket
from pathlib import Path
from typing import Any

import pytest

from tests.cases import every
from toolwire.configuration.settings import load
from toolwire.registry import registries
from toolwire.server import starting
from toolwire.server.port_in_use import occupant, why_not_listening
from toolwire.startup.chains import start_notes
from toolwire.startup.description import describe


@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="the system lists sockets elsewhere")
@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6])
def test_the_process_at_a_port_is_named(family: socket.AddressFamily) -> None:
    """R35.6: who uses the port, and what to do."""
    name = Path("/proc/self/comm").read_text().strip()
    with socket.create_server(("", 0), family=family) as taken:
        port = taken.getsockname()[1]
        why, todo = why_not_listening(OSError(errno.EADDRINUSE, "in use"), port)
        assert why == f"It is used by {name} (process {os.getpid()})."
        assert "--port" in todo
    assert occupant(port) is None
    assert "Another program" in why_not_listening(OSError(errno.EADDRINUSE, "in use"), port)[0]


def test_a_process_is_never_guessed(tmp_path: Path) -> None:
    """A table or a process that cannot be read names nobody; a connection to the port is not its listener."""
    assert occupant(80, tmp_path) is None
    head = "sl local_address rem_address st tx rx tr tm retrnsmt uid timeout inode\n"
    lines = "0: 0100007F:0050 0100007F:9000 01 0:0 0:0 0 0 0 5\n1: 0100007F:0051 00000000:0000 0A 0:0 0:0 0 0 0 6\n"
    (tmp_path / "net").mkdir()
    (tmp_path / "net" / "tcp").write_text(head + lines)
    (tmp_path / "7" / "fd").mkdir(parents=True)
    for number, inode in enumerate((5, 6)):
        (tmp_path / "7" / "fd" / str(number)).symlink_to(f"socket:[{inode}]")
    assert occupant(81, tmp_path) is None  # it ended before its name was read
    (tmp_path / "7" / "comm").write_text("od\x1bd\n")
    assert (occupant(80, tmp_path), occupant(81, tmp_path)) == (None, "od\\x1bd (process 7)")


BACKEND = {"backends": {"mock": {"kind": "mock"}}}


def config(**sections: Any) -> Any:
    return load(None, env={}, overrides={**BACKEND, **sections})


MEMORY = "in the memory of this process, "
ALIKE = "for 24 h, 10,000 responses at most"


@every(
    ("store", "more", "said"),
    [
        ({"kind": "memory", "max_age_s": 90}, {}, f"{MEMORY}and lost with it: for 90 s, 10,000 responses at most"),
        (
            *({"kind": "memory", "max_age_s": 600}, {"server": {"workers": 2}}),
            f"{MEMORY}of each of the 2 workers by itself, and lost with it: for 10 min, 10,000 responses at most",
        ),
        (
            *({"kind": "sqlite", "path": "/var/x.sqlite3", "max_responses": 50}, {}),
            "in the SQLite file /var/x.sqlite3: for 24 h, 50 responses at most",
        ),
        *(
            ({"kind": "redis", "url": url}, {}, f"in Redis {place}: {ALIKE}")
            for url, place in (
                ("redis://user:hunter2@kv.example:6380/2?password=hunter2", "at kv.example:6380/2"),
                ("unix:///run/redis.sock?db=1&password=hunter2", "at /run/redis.sock"),
                (
                    "rediss+sentinel://me:hunter2@[::1],b:5/main/2?sentinel_password=hunter2",
                    "by the Sentinels at [::1]:26379,b:5, main/2",
                ),
                ("redis+cluster://:hunter2@a,b:7000?client_name=hunter2", "in the cluster at a:6379,b:7000"),
            )
        ),
        ({"kind": "none"}, {}, None),
        (None, {"chain": ["validation", "forwarding"], "defaults": {"mode": "native"}}, None),
    ],
)
def test_where_conversations_are_stored(
    store: Any, more: dict[str, Any], said: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    settings = config(**({} if store is None else {"store": store}), **more)
    caplog.set_level(logging.INFO, "toolwire.serving")
    starting.log_start_notes(settings)
    why = "`store.kind` is `none`" if store else "no chain has `conversation`"
    line = f"conversations are not stored: {why}" if said is None else f"conversations are stored {said}"
    assert [caplog.messages[-1]] == start_notes(settings, registries()) == [line]
    assert line in describe(settings, registries()).splitlines()


def test_the_file_is_that_of_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATE_DIRECTORY", str(tmp_path / "toolwire"))
    assert f"{tmp_path}/toolwire/responses.sqlite3" in start_notes(config(), registries())[0]


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("STATE_DIRECTORY", str(tmp_path / "file" / "toolwire"))
    (line,) = start_notes(config(), registries())
    assert line.startswith(f"conversations cannot be stored: {tmp_path}/file is not a folder; ")


@pytest.mark.parametrize("denied", [os.W_OK, os.X_OK])
def test_a_folder_of_another_user_is_named(denied: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "locked").mkdir()
    stat = os.stat

    def refuse(path: Any, *more: Any, **options: Any) -> os.stat_result:
        if "locked/" in str(path):
            raise PermissionError(13, "Permission denied", str(path))
        return stat(path, *more, **options)

    monkeypatch.setattr(os, "stat", refuse)
    monkeypatch.setattr(os, "access", lambda path, mode: "locked" not in str(path) or not mode & denied)
    monkeypatch.setenv("STATE_DIRECTORY", str(tmp_path / "locked" / "toolwire"))
    (line,) = start_notes(config(), registries())
    assert line.startswith(f"conversations cannot be stored: {tmp_path}/locked is not writable; ")


@pytest.mark.parametrize(("switched", "said"), [("", "apt-get install gcc"), ("1", "unset it")])
def test_a_scanner_that_is_not_compiled_is_a_warning(
    switched: str, said: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOOLWIRE_NO_EXTENSIONS", switched)
    monkeypatch.setattr(starting, "IMPLEMENTATION", "python")
    starting.log_start_notes(config())
    (record,) = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert "the compiled scanner is not in use" in record.getMessage()
    assert said in record.getMessage()
    caplog.clear()
    monkeypatch.setattr(starting, "IMPLEMENTATION", "compiled")
    starting.log_start_notes(config())
    assert all(record.levelno < logging.WARNING for record in caplog.records)
