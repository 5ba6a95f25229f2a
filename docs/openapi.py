"""Writes the OpenAPI document of a gateway with nothing configured but keys, for who has none at hand: `python -m
docs.openapi FILE`.

It is not kept in the repository: it follows from the code, and a running gateway gives its own.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from toolwire.app import create_app
from toolwire.openapi.routes import OPENAPI


def text() -> str:
    """The document, the same every time."""
    config: dict[str, Any] = {"backends": {"main": {"kind": "mock"}}, "auth": {"keys": ["a key"]}}
    app = create_app(config)
    return json.dumps(app[OPENAPI].of(app), indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(text(), "utf-8")
