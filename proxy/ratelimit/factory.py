"""Creates the ledger for a configuration. Does not open it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from ..config import RateLimitConfig, RateLimitsConfig
from .base import Ledger, MemoryLedger
from .failover import FailoverLedger


def counter_settings(config: RateLimitsConfig) -> RateLimitsConfig:
    """Returns the part of the section that determines where the counts are stored. While it is unchanged, a new
    configuration continues with the same counts."""
    return replace(config, per_key=RateLimitConfig(), in_flight=None, expected_output_tokens=0)


def make_ledger(
    config: RateLimitsConfig, *, shared_folder: Path | None = None, report: Callable[[bool], None] = lambda up: None
) -> Ledger:
    """Returns the ledger for `config`. `shared_folder`: common folder of the workers, if there are several. `report` is
    called with whether shared counts can be reached. Raises `ValueError` if the store lacks a setting or a package."""
    closed = config.on_store_failure == "closed"
    if config.store == "redis" or (config.store == "auto" and config.url is not None):
        if config.url is None:
            raise ValueError("rate_limits.url: required for the store 'redis', such as 'redis://127.0.0.1:6379/0'")
        try:
            from .redis import RedisLedger
        except ImportError as error:
            raise ValueError(f"rate_limits.store: {error}") from error
        try:
            shared = RedisLedger(config.url, timeout_s=config.timeout_s)
        except ValueError as error:
            raise ValueError(f"rate_limits.url: {error}") from None
        return FailoverLedger(shared, closed=closed, report=report)
    if config.store == "memory" or shared_folder is None:
        return MemoryLedger()
    from .sqlite import SqliteLedger

    path = shared_folder / "limits.sqlite3"
    return FailoverLedger(SqliteLedger(path, timeout_s=config.timeout_s), closed=closed, report=report)
