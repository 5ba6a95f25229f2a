"""The first configuration file of a user: a commented example, and beside it the JSON Schema that editors complete and
check it by.

The schema stands beside the file, not at an address or in the installed package: it is found without a network, in
every checkout and container, and is of the version that wrote the file.
"""

from __future__ import annotations

import json
from errno import EEXIST
from importlib import resources
from pathlib import Path
from typing import Final

SCHEMA_FILE: Final = "toolwire.schema.json"
EDITOR_LINE: Final = f"# yaml-language-server: $schema=./{SCHEMA_FILE}\n"
"""Read by the YAML language server, which most editors use (its README, "Using inlined schema"): a path counts from the
file's folder."""


def schema_text() -> str:
    """The JSON Schema of the configuration file."""
    return shipped("config.schema.json")


def shipped(name: str) -> str:
    """A file that comes with this package."""
    return resources.files("toolwire.configuration").joinpath(name).read_text("utf-8")


def write_first_file(path: Path) -> Path:
    """Write both; the place of the schema. Raises `OSError`, and `FileExistsError` for a configuration that is there,
    or a file in the schema's place that is none."""
    schema = path.with_name(SCHEMA_FILE)
    if schema.exists() and not _is_schema(schema):
        raise FileExistsError(EEXIST, "is there, and is not the schema of a toolwire configuration", str(schema))
    with path.open("x", encoding="utf-8") as target:
        target.write(EDITOR_LINE + shipped("example.yaml"))
    schema.write_text(schema_text(), "utf-8")
    return schema


def _is_schema(path: Path) -> bool:
    """Whether a file is the schema, of whatever version."""
    try:
        found = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(found, dict) and found.get("title") == json.loads(schema_text())["title"]
