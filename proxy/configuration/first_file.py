"""Writes the first configuration file of a user: a commented example, and its JSON Schema for editors.

The schema is written beside the file, so that editors find it without a network, in every checkout and container, and
in the version that wrote the file.
"""

from __future__ import annotations

import json
from errno import EEXIST
from importlib import resources
from pathlib import Path
from typing import Final

SCHEMA_FILE: Final = "toolwire.schema.json"
EDITOR_LINE: Final = f"# yaml-language-server: $schema=./{SCHEMA_FILE}\n"
"""Read by the YAML language server, which most editors use (its README, "Using inlined schema"). The path is relative
to the file's folder."""


def schema_text() -> str:
    """Returns the JSON Schema of the configuration file."""
    return shipped("config.schema.json")


def shipped(name: str) -> str:
    """Returns the content of a file that is shipped with this package."""
    return resources.files("toolwire.configuration").joinpath(name).read_text("utf-8")


def write_first_file(path: Path) -> Path:
    """Writes both files and returns the path of the schema. Raises `OSError`, and `FileExistsError` if the
    configuration exists or another file is at the schema's path."""
    schema = path.with_name(SCHEMA_FILE)
    if schema.exists() and not _is_schema(schema):
        raise FileExistsError(EEXIST, "exists and is not the schema of a toolwire configuration", str(schema))
    with path.open("x", encoding="utf-8") as target:
        target.write(EDITOR_LINE + shipped("example.yaml"))
    schema.write_text(schema_text(), "utf-8")
    return schema


def _is_schema(path: Path) -> bool:
    """Returns True if a file is a schema of any version."""
    try:
        content = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(content, dict) and content.get("title") == json.loads(schema_text())["title"]
