"""Limits in the configuration: mistakes, the output of `toolwire check`, and the place of the counts."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cases import every
from tests.e2e.conftest import read_config
from tests.ratelimit.test_ledgers import REQUESTS, granted
from tests.waiting import GUARD_S
from toolwire.config import RateLimitConfig, RateLimitsConfig
from toolwire.ratelimit.base import LedgerUnavailable, MemoryLedger
from toolwire.ratelimit.factory import counter_settings, make_ledger
from toolwire.ratelimit.failover import FailoverLedger
from toolwire.ratelimit.sqlite import SqliteLedger
from toolwire.registry import registries
from toolwire.startup.description import describe
from toolwire.startup.names import check_names
from toolwire.support.conversion import ConfigError

REDIS = "redis://127.0.0.1:1/0"


def config(**sections: Any) -> Any:
    return read_config({"backends": {"m": {"kind": "mock"}}, "routes": [{"model": "small"}], **sections})


@every(
    ("sections", "message"),
    [
        (
            {"rate_limits": {"store": "memory"}, "server": {"workers": 2}},
            "rate_limits.store: counts in memory are of one worker; use `auto`, which lets all workers share them",
        ),
        ({"rate_limits": {"timeout_s": 0}}, "rate_limits.timeout_s: expected more than 0, got 0"),
        ({"rate_limits": {"in_flight": -1}}, "rate_limits.in_flight: expected at least 0, got -1"),
        ({"rate_limits": {"url": "http://secret@x"}}, "rate_limits.url: not the URL of a Redis server"),
        (
            {"auth": {"keys": [{"key": "k", "name": "bob", "routes": ["smal"]}]}},
            "auth: the key 'bob': no route 'smal', did you mean 'small'?",
        ),
        ({"auth": {"keys": ["k", {"key": "k"}]}}, "auth: the same key is listed twice"),
        ({"auth": {"keys": [{"key": "k", "rpm": 5}]}}, "auth.keys[0].rpm: unknown key"),
    ],
)
def test_mistakes(sections: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check_names(config(**sections), registries())
    assert str(caught.value).startswith(message)
    assert "secret" not in str(caught.value)


def test_redis_needs_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("toolwire.ratelimit.redis", "toolwire.support.redis_client"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setitem(sys.modules, "redis", None)
    with pytest.raises(ConfigError, match=r"rate_limits.store: .*pip install 'toolwire\[redis\]'"):
        check_names(config(rate_limits={"url": REDIS}), registries())


def test_a_mistake_in_a_key_file_has_its_place(tmp_path: Path) -> None:
    file = tmp_path / "keys.yaml"
    file.write_text("[{key: a, tokens: 1}]")
    with pytest.raises(ConfigError, match=r"^auth.keys_file: keys.yaml.keys\[0\].tokens: unknown key"):
        config(auth={"keys_file": str(file)})


def test_check_shows_what_is_limited() -> None:
    shown = describe(
        config(
            server={"workers": 2},
            auth={"keys": ["k", {"key": "hunter2", "name": "bob", "tokens_per_min": 0, "concurrent": 3}]},
            rate_limits={"per_key": {"requests_per_min": 60, "tokens_per_min": 5}, "in_flight": 9},
            routes=[{"model": "small", "rate_limit": {"concurrent": 4}, "rate_limit_per_key": {"tokens_per_min": 7}}],
        ),
        registries(),
    ).splitlines()
    assert shown[1:5] == [
        "limits are counted shared by the workers",
        "  all clients: 9 in flight",
        "  each key: 60 requests/min, 5 tokens/min",
        "  key bob: any number of tokens/min, 3 at once",
    ]
    assert shown[-3:-1] == ["  together: 4 at once", "  each key: 7 tokens/min"]
    assert shown[-1].startswith("  rate_limit > conversation > validation > ")
    assert "hunter2" not in "\n".join(shown)


def test_where_the_counts_are(tmp_path: Path) -> None:
    def kind(folder: Path | None = None, **limits: Any) -> type:
        ledger = make_ledger(RateLimitsConfig(**limits), shared_folder=folder)
        return type(ledger._shared) if isinstance(ledger, FailoverLedger) else type(ledger)

    assert kind() is kind(store="memory") is kind(tmp_path, store="memory") is MemoryLedger
    assert kind(tmp_path) is SqliteLedger
    assert kind(url=REDIS).__name__ == kind(tmp_path, url=REDIS).__name__ == "RedisLedger"
    assert kind(url=REDIS, store="memory") is MemoryLedger


def test_other_limits_leave_the_counts_where_they_are() -> None:
    one = RateLimitsConfig(url=REDIS)
    other = dataclasses.replace(one, per_key=RateLimitConfig(concurrent=1), in_flight=5, expected_output_tokens=7)
    assert counter_settings(one) == counter_settings(other)
    assert counter_settings(one) != counter_settings(dataclasses.replace(one, on_store_failure="closed"))


async def test_a_file_that_cannot_be_used_is_tried_again(tmp_path: Path) -> None:
    counts = SqliteLedger(tmp_path / "missing" / "limits.sqlite3", timeout_s=GUARD_S)
    for _ in range(2):
        with pytest.raises(LedgerUnavailable, match=r"^the file of the counts cannot be used \(SQLITE_CANTOPEN\)$"):
            await counts.start()
    (tmp_path / "missing").mkdir()
    assert await granted(counts, [REQUESTS])
    await counts.close()
    await counts.close()
    with pytest.raises(LedgerUnavailable, match="closed"):
        await counts.start()
