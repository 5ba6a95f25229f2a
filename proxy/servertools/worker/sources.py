"""The Python files of a tools folder at one moment: what runs is what was read, whatever becomes of the files."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

MAX_FILES: Final = 1000
MAX_BYTES: Final = 4 * 1024 * 1024
"""Of all files together. What is beyond is imported from the folder itself, and no change of it is noticed."""

_PACKAGE: Final = "__init__.py"


@dataclass(frozen=True, slots=True)
class Source:
    """A file. `text` is its content; `package` if it is the `__init__.py` of one."""

    path: str
    text: bytes
    package: bool


@dataclass(frozen=True, slots=True)
class Snapshot:
    """`modules`: the tool modules by file name; a text says why one cannot be read. `importable`: all that they may
    import from beside them, themselves included, by dotted name. `complete` if nothing was left out."""

    folder: str
    modules: Mapping[str, bytes | str]
    importable: Mapping[str, Source]
    complete: bool = True


def read(folder: str) -> Snapshot:
    """What is in the folder now. Raises `OSError` if that cannot be read.

    `*.py` is a tool module unless its name begins with `_` or `.`. Subfolders count if they are packages, which means
    that they have an `__init__.py`.
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
    return Snapshot(folder, modules, importable, complete)


def _files(folder: str, within: str) -> Iterator[tuple[str, str]]:
    """Dotted name and path of each file, the shallow ones first."""
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


def sent(snapshot: Snapshot) -> dict[str, Any]:
    """A snapshot as JSON for a worker. Tool modules come later, each with the order to load it."""
    return {
        "folder": snapshot.folder,
        "importable": {
            name: (one.path, one.text.decode("latin-1"), one.package) for name, one in snapshot.importable.items()
        },
    }


def received(value: dict[str, Any]) -> Snapshot:
    """A snapshot that was `sent`."""
    importable = {
        name: Source(path, text.encode("latin-1"), package)
        for name, (path, text, package) in value["importable"].items()
    }
    return Snapshot(value["folder"], {}, importable)
