"""Which store a configuration means. Nothing is opened here: a store opens itself when it is first used."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from ..config import StoreConfig
from .base import ResponseStore


def make_store(config: StoreConfig) -> ResponseStore | None:
    """The store of `config`; None if responses are not kept. Raises `ValueError` if something is missing for the kind."""
    match config.kind:
        case "none":
            return None
        case "memory":
            from .memory import MemoryStore

            return MemoryStore(config.max_responses)
        case "sqlite":
            from .sqlite import SqliteStore

            return SqliteStore(
                Path(config.path) if config.path else state_folder() / "responses.sqlite3", config.max_responses
            )
        case "redis":
            if config.url is None:
                raise ValueError("store.url: required for the kind 'redis', such as 'redis://127.0.0.1:6379/0'")
            try:
                from .redis import RedisStore
            except ImportError as error:
                raise ValueError(f"store.kind: {error}") from error

            try:
                return RedisStore(config.url, config.max_responses)
            except ValueError as error:
                raise ValueError(f"store.url: {error}") from None


def state_folder() -> Path:
    """Where this user's programs keep state: systemd's `STATE_DIRECTORY`, else `XDG_STATE_HOME`, else `~/.local/state`; for
    a user without a home, a folder of its own among the temporary files."""
    given = os.environ.get("STATE_DIRECTORY", "").split(":")[0]
    if given:
        return Path(given)
    if home := os.environ.get("XDG_STATE_HOME"):
        return Path(home) / "toolwire"
    try:
        return Path.home() / ".local" / "state" / "toolwire"
    except RuntimeError:
        return Path(tempfile.gettempdir()) / f"toolwire-{os.getuid()}"
