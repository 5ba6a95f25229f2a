"""Detects whether this operating system can run tool worker processes."""

from __future__ import annotations

import os
from typing import Final

NO_TOOLS: Final = (
    "tool modules need forks and groups of processes, which this system does not have (Windows); offer the tools by an MCP "
    "server (`tools.mcp`)"
)


def has_groups() -> bool:
    """True if the system has `fork` and process groups, which end several processes at once. Windows has neither."""
    return hasattr(os, "fork") and hasattr(os, "killpg")
