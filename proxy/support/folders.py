"""Looks at folders that are created on demand."""

from __future__ import annotations

import os
from pathlib import Path


def why_unusable(folder: Path) -> str | None:
    """Returns why a folder cannot be created or written to, with the path that is at fault; None if it can."""
    # `Path.exists` raises for what is in a folder of another user.
    there = next(place for place in (folder, *folder.absolute().parents) if os.path.exists(place))
    if not there.is_dir():
        return f"{there} is not a folder"
    return None if os.access(there, os.W_OK | os.X_OK) else f"{there} is not writable"
