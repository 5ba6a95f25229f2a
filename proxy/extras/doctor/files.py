"""Files and folders: who can read and write them, and whether there is room."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from toolwire.config import GatewayConfig
from toolwire.extras.doctor.finding import Finding, ok, problem, warning
from toolwire.store.opening import sqlite_path
from toolwire.support.conversion import SECRET_KEYS
from toolwire.support.plainyaml import read_yaml

AREA: Final = "files"

LITTLE: Final = 1024**3
"""Less room on a disk than this is little."""

NONE: Final = 50 * 1024**2
"""With less than this hardly anything can be written."""


def files(config: GatewayConfig, file: str | None) -> Iterator[Finding]:
    """What there is to say of those that the configuration names, and of itself, at `file`."""
    found = [*_secrets(config, file), *_tools(config), *_kept(config)]
    yield from found
    if all(finding.level == "ok" for finding in found):
        yield ok(AREA, "Nobody else can write to, or read, what he should not.")


def _secrets(config: GatewayConfig, file: str | None) -> Iterator[Finding]:
    """Files with keys in them."""
    if os.name != "posix":
        return
    texts = {} if file is None or not _holds_secrets(Path(file)) else {file: "the configuration"}
    if config.auth.keys_file is not None:
        texts[config.auth.keys_file] = "`auth.keys_file`"
    for path, what in texts.items():
        mode = _mode(Path(path))
        if mode & stat.S_IROTH:
            yield warning(
                AREA,
                f"Everybody on this machine can read {path}, {what}.",
                "There are keys in it.",
                f"chmod o-r {path}, or take the keys from variables (`${{NAME}}`).",
            )


def _holds_secrets(file: Path) -> bool:
    """Whether keys stand in the file itself, and not in variables that it names, or as hashes."""

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
            yield say(AREA, f"{who} can write to {path}.", "The gateway runs the code in it.", f"chmod go-w {path}")


def _kept(config: GatewayConfig) -> Iterator[Finding]:
    """What the gateway itself writes."""
    places: dict[str, Path] = {}
    if config.store.kind == "sqlite":
        places["conversations (`store`)"] = sqlite_path(config.store)
    if config.capture.keep and config.capture.folder is not None:
        places["captures (`capture.folder`)"] = Path(config.capture.folder)
    for what, path in places.items():
        if os.name == "posix" and _mode(path) & (stat.S_IROTH | stat.S_IWOTH):
            yield warning(
                AREA,
                f"Everybody on this machine can read {path}, the {what}.",
                "What clients and models said is in it.",
                f"chmod o-rwx {path}",
            )
        there = next((place for place in (path, *path.absolute().parents) if place.exists()), None)
        if there is None:
            continue
        if not os.access(there, os.W_OK):
            yield problem(
                AREA,
                f"{there} cannot be written to: the place of the {what}.",
                "Nothing can be kept.",
                "Give the user that runs the gateway the right to, or name another place.",
            )
            continue
        try:
            free = shutil.disk_usage(there).free
        except OSError:
            continue
        if free < LITTLE:
            say = problem if free < NONE else warning
            yield say(
                AREA,
                f"{free // 1024**2:,} MiB are free where the {what} are, at {there}.",
                "When the disk is full, nothing is kept any more.",
                "Make room, or name another place.",
            )
        else:
            yield ok(AREA, f"{free // 1024**3:,} GiB are free where the {what} are, at {path}.")


def _mode(path: Path) -> int:
    try:
        return path.stat().st_mode
    except OSError:
        return 0
