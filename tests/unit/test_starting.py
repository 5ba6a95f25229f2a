"""The log of a starting gateway."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from toolwire.configuration.settings import load
from toolwire.registry import registries
from toolwire.server import starting
from toolwire.startup.chains import told
from toolwire.startup.description import describe

BACKEND = {"backends": {"mock": {"kind": "mock"}}}


def config(**sections: Any) -> Any:
    return load(None, env={}, overrides={**BACKEND, **sections})


@pytest.mark.parametrize(
    ("sections", "said"),
    [
        ({"store": {"kind": "none"}}, "conversations are not stored: `store.kind` is `none`"),
        (
            {"store": {"kind": "memory", "max_age_s": 90}},
            "conversations are stored in the memory of this process, and lost with it: for 90 s, 10,000 responses at most",
        ),
        (
            {"store": {"kind": "memory", "max_age_s": 600}, "server": {"workers": 3}},
            "conversations are stored in the memory of this process, of each of the 3 workers by itself, and lost with it:"
            " for 10 min, 10,000 responses at most",
        ),
        (
            {"store": {"kind": "sqlite", "path": "/var/x.sqlite3", "max_responses": 50}},
            "conversations are stored in the SQLite file /var/x.sqlite3: for 24 h, 50 responses at most",
        ),
        (
            {"store": {"kind": "redis", "url": "redis://user:hunter2@kv.example:6380/2?password=hunter2"}},
            "conversations are stored in Redis at kv.example:6380/2: for 24 h, 10,000 responses at most",
        ),
        (
            {"store": {"kind": "redis", "url": "unix:///run/redis.sock?db=1&password=hunter2"}},
            "conversations are stored in Redis at /run/redis.sock: for 24 h, 10,000 responses at most",
        ),
        (
            {
                "store": {
                    "kind": "redis",
                    "url": "rediss+sentinel://me:hunter2@[::1],b:5/main/2?sentinel_password=hunter2",
                }
            },
            "conversations are stored in Redis by the Sentinels at [::1]:26379,b:5, main/2: for 24 h, 10,000 responses at most",
        ),
        (
            {"store": {"kind": "redis", "url": "redis+cluster://:hunter2@a,b:7000?client_name=hunter2"}},
            "conversations are stored in Redis in the cluster at a:6379,b:7000: for 24 h, 10,000 responses at most",
        ),
        ({"chain": ["validation", "forwarding"]}, "conversations are not stored: no chain has `conversation`"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_where_conversations_are_stored(
    sections: dict[str, Any], said: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = config(**sections)
    caplog.set_level(logging.INFO, "toolwire.serving")
    starting.tell(settings)
    assert [caplog.messages[-1]] == told(settings, registries()) == [said]
    assert said in describe(settings, registries()).splitlines()


def test_the_file_is_that_of_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATE_DIRECTORY", "/var/lib/toolwire")
    assert "/var/lib/toolwire/responses.sqlite3" in told(config(), registries())[0]


@pytest.mark.parametrize(("switched", "said"), [("", "apt-get install gcc"), ("1", "unset it")])
def test_a_scanner_that_is_not_compiled_is_a_warning(
    switched: str, said: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOOLWIRE_NO_EXTENSIONS", switched)
    monkeypatch.setattr(starting, "IMPLEMENTATION", "python")
    starting.tell(config())
    (record,) = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert "the compiled scanner is not in use" in record.getMessage()
    assert said in record.getMessage()
    caplog.clear()
    monkeypatch.setattr(starting, "IMPLEMENTATION", "compiled")
    starting.tell(config())
    assert all(record.levelno < logging.WARNING for record in caplog.records)
