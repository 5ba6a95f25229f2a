"""Creates the store for a configuration. Does not open it: a store opens itself on first use."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from ..config import StoreConfig
from ..support.redis_url import read_url
from .base import ResponseStore


def make_store(config: StoreConfig) -> ResponseStore | None:
    """Returns the store for `config`; None if responses are not stored. Raises `ValueError` if a setting or package is
    missing."""
    match config.kind:
        case "none":
            return None
        case "memory":
            from .memory import MemoryStore

            return MemoryStore(config.max_responses, max_turns_per_owner=config.max_responses_per_key)
        case "sqlite":
            from .sqlite import SqliteStore

            return SqliteStore(
                sqlite_path(config), config.max_responses, max_turns_per_owner=config.max_responses_per_key
            )
        case "redis":
            if config.url is None:
                raise ValueError("store.url: required for the kind 'redis', such as 'redis://127.0.0.1:6379/0'")
            try:
                from .redis import RedisStore
            except ImportError as error:
                raise ValueError(f"store.kind: {error}") from error

            try:
                return RedisStore(
                    config.url,
                    config.max_responses,
                    max_turns_per_owner=config.max_responses_per_key,
                    replicas=config.replicas,
                    patience_s=config.failover_s,
                )
            except ValueError as error:
                raise ValueError(f"store.url: {error}") from None


def sqlite_path(config: StoreConfig) -> Path:
    """Returns the file of a SQLite store."""
    return Path(config.path) if config.path else state_folder() / "responses.sqlite3"


def described(config: StoreConfig, workers: int) -> str:
    """Describes where and for how long conversations are stored, without user and password."""
    match config.kind:
        case "none":
            return "conversations are not stored: `store.kind` is `none`"
        case "memory":
            each = f", of each of the {workers} workers by itself" if workers > 1 else ""
            place = f"in the memory of this process{each}, and lost with it"
        case "sqlite":
            place = f"in the SQLite file {sqlite_path(config).absolute()}"
        case "redis":
            place = f"in Redis {read_url(config.url or '').place}"
    each = "" if config.max_responses_per_key is None else f", {config.max_responses_per_key:,} of one key"
    return (
        f"conversations are stored {place}: for {_span(config.max_age_s)}, {config.max_responses:,} responses at most"
        f"{each}"
    )


def _span(seconds: float) -> str:
    for unit, size in (("h", 3600), ("min", 60)):
        if seconds >= size and seconds % size == 0:
            return f"{seconds / size:g} {unit}"
    return f"{seconds:g} s"


def state_folder() -> Path:
    """Returns the folder for persistent state of this user: systemd's `STATE_DIRECTORY`, else `XDG_STATE_HOME`, else
    `~/.local/state`; for a user without a home directory, a private folder among the temporary files."""
    configured = os.environ.get("STATE_DIRECTORY", "").split(os.pathsep)[0]
    if configured:
        return Path(configured)
    if home := os.environ.get("XDG_STATE_HOME"):
        return Path(home) / "toolwire"
    try:
        return Path.home() / ".local" / "state" / "toolwire"
    except RuntimeError:
        owner = f"-{os.getuid()}" if hasattr(os, "getuid") else ""  # on Windows temporary files are per user
        return Path(tempfile.gettempdir()) / f"toolwire{owner}"
