"""The Python files of a tools folder, read at one moment: later changes of the files do not affect what runs."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

MAX_FILES: Final = 1000
MAX_BYTES: Final = 4 * 1024 * 1024
"""Maximum size of all files of a snapshot. Files beyond it are imported from the folder itself, and their changes are
not noticed."""

_PACKAGE: Final = "__init__.py"


@dataclass(frozen=True, slots=True)
class Source:
    """A file and its content. `package`: it is an `__init__.py`."""

    path: str
    text: bytes
    package: bool


@dataclass(frozen=True, slots=True)
class FolderSnapshot:
    """The files of a folder. `modules`: the tool modules by file name; a `str` is the reason why one cannot be read.
    `importable`: all modules that they may import from the folder, by dotted name. `complete`: no file was left out."""

    folder: str
    modules: Mapping[str, bytes | str]
    importable: Mapping[str, Source]
    complete: bool = True


def read(folder: str) -> FolderSnapshot:
    """Reads the folder. Raises `OSError` if that fails.

    `*.py` is a tool module unless its name begins with `_` or `.`. Subfolders are read if they are packages, which
    means that they contain an `__init__.py`.
    """
    modules: dict[str, bytes | str] = {}
    importable: dict[str, Source] = {}
    left = MAX_BYTES
    complete = True
    for dotted, path in _files(folder, ""):
        name = os.path.basename(path)
        is_tool = os.path.dirname(path) == folder and name[0] != "_"
        try:
            with open(path, "rb") as file:
                text = file.read()
        except FileNotFoundError:
            continue  # gone since the folder was listed
        except OSError as error:
            if is_tool:
                modules[name] = error.strerror or type(error).__name__
            continue
        if is_tool:
            modules[name] = text
        if len(importable) < MAX_FILES and len(text) <= left:
            left -= len(text)
            importable[dotted] = Source(path, text, name == _PACKAGE)
        else:
            complete = False
    return FolderSnapshot(folder, modules, importable, complete)


def _files(folder: str, within: str) -> Iterator[tuple[str, str]]:
    """Yields dotted name and path of each file, those of the upper folders first."""
    packages = []
    for name in sorted(os.listdir(folder)):
        path = os.path.join(folder, name)
        if name == _PACKAGE:
            if within:
                yield within[:-1], path
        elif name.endswith(".py") and name[0] != ".":
            yield within + name[:-3], path
        elif name.isidentifier() and os.path.isfile(os.path.join(path, _PACKAGE)):
            packages.append((path, f"{within}{name}."))
    for path, inside in packages:
        yield from _files(path, inside)


def encode_snapshot(snapshot: FolderSnapshot) -> dict[str, Any]:
    """Returns a snapshot as JSON for a worker, without the tool modules: each of them is sent with the order to load
    it."""
    return {
        "folder": snapshot.folder,
        "importable": {
            name: (one.path, one.text.decode("latin-1"), one.package) for name, one in snapshot.importable.items()
        },
    }


def decode_snapshot(value: dict[str, Any]) -> FolderSnapshot:
    """Returns the snapshot that `encode_snapshot` encoded."""
    importable = {
        name: Source(path, text.encode("latin-1"), package)
        for name, (path, text, package) in value["importable"].items()
    }
    return FolderSnapshot(value["folder"], {}, importable)
