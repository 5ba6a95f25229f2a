"""Checks of files and folders: permissions and free disk space."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from ...config import GatewayConfig
from ...store.factory import sqlite_path
from ...support.conversion import SECRET_KEYS
from ...support.plainyaml import read_yaml
from .finding import Finding, ok, problem, warning

LITTLE: Final = 1024**3
"""Less free disk space than this is a warning."""

NONE: Final = 50 * 1024**2
"""Less free disk space than this is a problem."""


def files(config: GatewayConfig, file: str | None) -> Iterator[Finding]:
    """Yields findings for the configuration file itself (`file`) and the files and folders that it names."""
    findings = [*_secrets(config, file), *_tools(config), *_written_files(config)]
    yield from findings
    if all(finding.level == "ok" for finding in findings):
        yield ok("File permissions are safe.")


def _secrets(config: GatewayConfig, file: str | None) -> Iterator[Finding]:
    """Yields a warning for each file with keys that everybody can read."""
    if os.name != "posix":
        return
    texts = {} if file is None or not _holds_secrets(Path(file)) else {file: "the configuration"}
    if config.auth.keys_file is not None:
        texts[config.auth.keys_file] = "`auth.keys_file`"
    for path, what in texts.items():
        mode = _mode(Path(path))
        if mode & stat.S_IROTH:
            yield warning(
                f"Everybody on this machine can read {path}, {what}.",
                "It contains keys.",
                f"chmod o-r {path}, or take the keys from variables (`${{NAME}}`).",
            )


def _holds_secrets(file: Path) -> bool:
    """Returns True if the file contains keys in plain text, not as variables or hashes."""

    def walk(node: Any, secret: bool) -> bool:
        if isinstance(node, dict):
            return any(
                walk(value, (secret and key in ("key", *SECRET_KEYS)) or key in SECRET_KEYS)
                for key, value in node.items()
            )
        if isinstance(node, list):
            return any(walk(item, secret) for item in node)
        return secret and isinstance(node, str) and bool(node) and "${" not in node and not node.startswith("sha256:")

    try:
        return walk(read_yaml(file.read_text("utf-8"))[0], False)
    except (OSError, ValueError, RecursionError):
        return False


def _tools(config: GatewayConfig) -> Iterator[Finding]:
    folder = config.tools.folder
    if folder is None or os.name != "posix":
        return
    for path in (Path(folder), *sorted(Path(folder).glob("*.py"))):
        mode = _mode(path)
        if mode & (stat.S_IWOTH | stat.S_IWGRP):
            who = "Everybody on this machine" if mode & stat.S_IWOTH else "The group"
            say = problem if mode & stat.S_IWOTH else warning
            yield say(f"{who} can write to {path}.", "The gateway runs its code.", f"chmod go-w {path}")


def _written_files(config: GatewayConfig) -> Iterator[Finding]:
    """Yields findings for the files and folders that the gateway writes."""
    places: dict[str, Path] = {}
    if config.store.kind == "sqlite":
        places["conversations (`store`)"] = sqlite_path(config.store)
    if config.capture.keep and config.capture.folder is not None:
        places["captures (`capture.folder`)"] = Path(config.capture.folder)
    for what, path in places.items():
        if os.name == "posix" and _mode(path) & (stat.S_IROTH | stat.S_IWOTH):
            yield warning(
                f"Everybody on this machine can read {path}, the {what}.",
                "It contains conversations of clients and models.",
                f"chmod o-rwx {path}",
            )
        there = next((place for place in (path, *path.absolute().parents) if place.exists()), None)
        if there is None:
            continue
        if not os.access(there, os.W_OK):
            yield problem(
                f"{there} is not writable, and the {what} are stored there.",
                "Nothing can be stored.",
                "Give the user that runs the gateway write permission, or configure another folder.",
            )
            continue
        try:
            free = shutil.disk_usage(there).free
        except OSError:
            continue
        if free < LITTLE:
            say = problem if free < NONE else warning
            yield say(
                f"Only {free // 1024**2:,} MiB of disk space are free for the {what}, at {there}.",
                "When the disk is full, nothing more is stored.",
                "Free disk space, or configure another folder.",
            )
        else:
            yield ok(f"{free // 1024**3:,} GiB of disk space are free for the {what}, at {path}.")


def _mode(path: Path) -> int:
    try:
        return path.stat().st_mode
    except OSError:
        return 0
